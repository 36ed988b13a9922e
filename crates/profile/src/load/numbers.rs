//! Maps numbers in a file to numbers in the tables.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::RandomState;

/// Maps the numbers of one kind of definition from the file to the tables. There is one run for
/// each part without a gap.
#[derive(Clone)]
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

/// Distinct values, numbered in the order of their first appearance. It has their hashes only: the values are in the table.
#[derive(Clone)]
pub(super) struct Interner {
    random: RandomState,
    /// By hash: the number of the last value with this hash.
    numbers: HashMap<u64, u32, RandomState>,
    /// By number: the value before it with the same hash, or `u32::MAX`.
    before: Vec<u32>,
}

impl Interner {
    pub(super) fn new() -> Self {
        Self {
            random: RandomState::default(),
            numbers: HashMap::default(),
            before: Vec::new(),
        }
    }

    /// The number of a value in the table. Values that are put into the table by others have no number here.
    pub(super) fn intern<T: Hash + Eq>(&mut self, table: &mut Vec<T>, value: T) -> u32 {
        let hash = self.random.hash_one(&value);
        let last = self.numbers.get(&hash).copied().unwrap_or(u32::MAX);
        let mut at = last;
        while let Some(known) = table.get(at as usize) {
            if *known == value {
                return at;
            }
            at = self.before[at as usize];
        }
        let number = table.len() as u32;
        table.push(value);
        self.before.resize(table.len(), u32::MAX);
        self.before[number as usize] = last;
        self.numbers.insert(hash, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_one_number() {
        let (mut interner, mut table) = (Interner::new(), vec!["by others"]);
        let mut numbers = |value| interner.intern(&mut table, value);
        assert_eq!(["a", "b", "a", "by others"].map(&mut numbers), [1, 2, 1, 3]);
        assert_eq!(table, ["by others", "a", "b", "by others"]);
    }

    #[test]
    fn values_of_one_hash_are_told_apart() {
        #[derive(PartialEq, Eq)]
        struct Alike(u32);
        impl Hash for Alike {
            fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
        }
        let (mut interner, mut table) = (Interner::new(), Vec::new());
        let numbers = [7, 8, 9, 8, 7].map(|value| interner.intern(&mut table, Alike(value)));
        assert_eq!(numbers, [0, 1, 2, 1, 0]);
    }
}
