//! What tables are made of: columns whose values are computed while they are serialised, and strings by their index.

use std::collections::HashMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// An array that is serialised from an iterator. Each serialisation makes a new iterator.
pub(super) struct Column<F>(pub F);

impl<F, I> Serialize for Column<F>
where
    F: Fn() -> I,
    I: IntoIterator,
    I::Item: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// An array that repeats one value.
pub(super) fn same<T: Serialize + Copy>(value: T, len: usize) -> impl Serialize {
    Column(move || std::iter::repeat_n(value, len))
}

/// Writes the entries of a JSON object, then its end.
pub(super) fn object<S: Serializer>(
    serializer: S,
    entries: impl FnOnce(&mut S::SerializeMap) -> Result<(), S::Error>,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    entries(&mut map)?;
    map.end()
}

/// The profile's string array: every distinct string once, referred to by its index.
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
