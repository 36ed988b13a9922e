//! Numbers of what a file defines, and numbers of what is in tables.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// Numbers of one kind of definition, from those in the file to those of the tables. There is
/// one run for each stretch without a gap.
pub(crate) struct Numbers {
    runs: Vec<(u32, Vec<u32>)>,
    next: u32,
}

impl Numbers {
    pub(crate) fn starting_at(first: u32) -> Self {
        Self {
            runs: Vec::new(),
            next: first,
        }
    }

    /// The next definition has this number in the file.
    pub(crate) fn skip_to(&mut self, next: u32) {
        if self.next != next {
            self.next = next;
            self.runs.push((next, Vec::new()));
        }
    }

    pub(crate) fn define(&mut self, number: u32) {
        if self.runs.is_empty() {
            self.runs.push((self.next, Vec::new()));
        }
        if let Some((_, numbers)) = self.runs.last_mut() {
            numbers.push(number);
        }
        self.next = self.next.saturating_add(1);
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<u32> {
        let (first, numbers) = self.runs.last()?;
        if number >= *first {
            return numbers.get((number - first) as usize).copied();
        }
        let at = self.runs.partition_point(|(first, _)| *first <= number);
        let (first, numbers) = self.runs.get(at.checked_sub(1)?)?;
        numbers.get((number - first) as usize).copied()
    }
}

/// Distinct values, numbered in the order in which they first came.
pub(crate) struct Interner<T> {
    numbers: HashMap<T, u32, RandomState>,
}

impl<T: Hash + Eq + Clone> Interner<T> {
    pub(crate) fn new() -> Self {
        Self {
            numbers: HashMap::default(),
        }
    }

    pub(crate) fn intern(&mut self, table: &mut Vec<T>, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with_key(|value| {
            table.push(value.clone());
            table.len() as u32 - 1
        })
    }
}
