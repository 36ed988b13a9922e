//! Tables of strings: every distinct string once, referred to by its index.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A table of strings.
#[derive(Default)]
pub(crate) struct Strings {
    indexes: HashMap<String, u32, RandomState>,
    /// All strings, ordered by index.
    pub(crate) list: Vec<String>,
}

impl Strings {
    /// The index of a string, as the number that the format has for it. A new string is added.
    pub(crate) fn index<N: From<u32>>(&mut self, text: &str) -> N {
        if let Some(&index) = self.indexes.get(text) {
            return index.into();
        }
        let index = self.list.len() as u32;
        self.list.push(text.to_owned());
        self.indexes.insert(text.to_owned(), index);
        index.into()
    }
}
