//! The names in a snapshot, each once.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// The longest name that is kept, in bytes.
const LONGEST: usize = 256;

/// Names, by their numbers. Number 0 is the empty one. All are in one text, so that many short ones take little memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    all: String,
    /// Where each name ends, but for the empty one.
    ends: Vec<u32>,
}

impl Texts {
    /// How many names there are; the empty one counts.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.ends.len() as u32 + 1
    }

    /// Whether there is none but the empty one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A name.
    ///
    /// # Panics
    /// If there is no such name.
    #[must_use]
    pub fn get(&self, number: u32) -> &str {
        let start = |number: u32| match number {
            0 | 1 => 0,
            more => self.ends[more as usize - 2] as usize,
        };
        match number {
            0 => "",
            some => &self.all[start(some)..self.ends[some as usize - 1] as usize],
        }
    }

    /// All names but the empty one, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (1..self.len()).map(|number| self.get(number))
    }

    /// Adds a name, which may be there already, and returns its number. A long name is cut, and control characters
    /// become spaces: a file may contain anything.
    pub(crate) fn push(&mut self, name: &str) -> u32 {
        let mut end = name.len().min(LONGEST);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let name = &name[..end];
        let shown = |one: char| if one.is_control() { ' ' } else { one };
        self.all.extend(name.chars().map(shown));
        self.ends.push(self.all.len() as u32);
        self.ends.len() as u32
    }
}

/// Collects names. It draws no random numbers, so it can be used where the system is not to be asked for any.
#[derive(Debug, Default)]
pub struct Interner {
    texts: Texts,
    numbers: HashMap<String, u32, FixedState>,
}

impl Interner {
    /// The number of a name, which is added if it is new.
    pub fn intern(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(&known) = self.numbers.get(name) {
            return known;
        }
        let number = self.texts.push(name);
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The bytes of all names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.texts.all.len()
    }

    /// The names.
    #[must_use]
    pub fn finish(self) -> Texts {
        self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_and_are_kept_once() {
        let mut names = Interner::default();
        let given = ["", "a", "ä\n", "a", "", "b"];
        let numbers = given.map(|name| names.intern(name));
        assert_eq!(numbers, [0, 1, 2, 1, 0, 3]);
        let long = names.intern(&"é".repeat(LONGEST));
        let texts = names.finish();
        assert_eq!(
            [0, 1, 2, 3].map(|number| texts.get(number)),
            ["", "a", "ä ", "b"]
        );
        assert_eq!(texts.get(long), "é".repeat(LONGEST / 2));
        assert_eq!(
            texts.iter().count() as u32 + 1,
            texts.len(),
            "the empty one is not listed"
        );
    }
}
