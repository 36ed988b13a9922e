//! Maps numbers in a file to numbers in the tables.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// Maps the numbers of one kind of definition from the file to the tables. There is one run for
/// each part without a gap.
pub(super) struct Numbers {
    runs: Vec<(u32, Vec<u32>)>,
    next: u32,
}

impl Numbers {
    pub(super) fn starting_at(first: u32) -> Self {
        Self {
            runs: Vec::new(),
            next: first,
        }
    }

    /// Sets the number in the file of the next definition.
    pub(super) fn skip_to(&mut self, next: u32) {
        if self.next != next {
            self.next = next;
            self.runs.push((next, Vec::new()));
        }
    }

    pub(super) fn define(&mut self, number: u32) {
        if self.runs.is_empty() {
            self.runs.push((self.next, Vec::new()));
        }
        if let Some((_, numbers)) = self.runs.last_mut() {
            numbers.push(number);
        }
        self.next = self.next.saturating_add(1);
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<u32> {
        let (first, numbers) = self.runs.last()?;
        if number >= *first {
            return numbers.get((number - first) as usize).copied();
        }
        let at = self.runs.partition_point(|(first, _)| *first <= number);
        let (first, numbers) = self.runs.get(at.checked_sub(1)?)?;
        numbers.get((number - first) as usize).copied()
    }
}

/// Distinct values, numbered in the order of their first appearance.
pub(super) struct Interner<T> {
    numbers: HashMap<T, u32, RandomState>,
}

impl<T: Hash + Eq + Clone> Interner<T> {
    pub(super) fn new() -> Self {
        Self {
            numbers: HashMap::default(),
        }
    }

    pub(super) fn intern(&mut self, table: &mut Vec<T>, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with_key(|value| {
            table.push(value.clone());
            table.len() as u32 - 1
        })
    }
}
