//! The profile's string array: every distinct string once, referred to by its index.

use std::collections::HashMap;

/// Assigns indexes to strings.
#[derive(Default)]
pub(super) struct Strings {
    indexes: HashMap<String, u32>,
    list: Vec<String>,
}

impl Strings {
    /// The index of a string. A new string is added.
    pub fn index(&mut self, text: &str) -> u32 {
        if let Some(&index) = self.indexes.get(text) {
            return index;
        }
        let index = self.list.len() as u32;
        self.list.push(text.to_owned());
        self.indexes.insert(text.to_owned(), index);
        index
    }

    /// All strings, ordered by index.
    pub fn list(&self) -> &[String] {
        &self.list
    }
}
