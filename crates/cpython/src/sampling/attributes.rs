//! Reads an attribute of an instance without a call of Python.
//!
//! The agent needs the name of a thread while that thread allocates. [`Values`] says where the values of an instance
//! are. An array has the type's keys (`ht_cached_keys`), in the same order. The instance may be in the middle of a
//! change. So every read must not fault, every result may be wrong, and the caller checks the result.

use crate::api::OB_TYPE;
use crate::layout::{Layout, Values};
use nthbyte_host::process::Probe;

/// The largest number of keys that are compared; an array has at most 30.
const MAX_KEYS: usize = 64;
/// The size of a word, and the words of the largest entry of a table.
const WORD: usize = size_of::<usize>();
const MOST_WORDS: usize = 3;

/// The value of the attribute whose name is the interned `str` at `key`.
pub fn read(layout: &Layout, probe: Probe, object: usize, key: usize) -> Option<usize> {
    let object_type = probe.read::<usize>(object.checked_add(OB_TYPE)?)?;
    if let Some(values) = values(layout, probe, object, object_type) {
        let keys = probe.read::<usize>(object_type.checked_add(layout.type_cached_keys)?)?;
        let (at, _) = position(layout, probe, keys, key)?;
        return probe.read::<usize>(values.checked_add(at * 8)?);
    }
    let word = probe.read::<usize>(object.checked_sub(layout.features.dictionary_before)?)?;
    if word == 0 || word & 1 != 0 {
        return None;
    }
    let [keys, values] = probe.read::<[usize; 2]>(word.checked_add(layout.dict_keys)?)?;
    let (at, value) = position(layout, probe, keys, key)?;
    match values {
        0 => Some(value),
        _ => probe.read::<usize>(values.checked_add(layout.values_header.checked_add(at * 8)?)?),
    }
}

/// The array of values, if it is not part of the instance.
pub fn separate_values(layout: &Layout, object: usize) -> Option<usize> {
    if layout.features.values == Values::Inline {
        return None;
    }
    values(layout, Probe::new()?, object, 0)
}

/// The array of values, if the instance has one.
fn values(layout: &Layout, probe: Probe, object: usize, object_type: usize) -> Option<usize> {
    match layout.features.values {
        Values::BesideDictionary => probe
            .read::<usize>(object.checked_sub(layout.features.array_before)?)
            .filter(|&values| values != 0),
        Values::Tagged => {
            let word =
                probe.read::<usize>(object.checked_sub(layout.features.dictionary_before)?)?;
            (word & 1 != 0).then_some(word + 1)
        }
        Values::Inline => {
            let size = probe.read::<usize>(object_type.checked_add(layout.type_basic_size)?)?;
            let values = object.checked_add(size)?;
            let [_, _, _, valid] = probe.read::<[u8; 4]>(values)?;
            if valid != 1 {
                return None;
            }
            values.checked_add(layout.values_header)
        }
    }
}

/// The position of a key in a table of keys (`PyDictKeysObject`), and the value beside it.
pub fn position(layout: &Layout, probe: Probe, keys: usize, key: usize) -> Option<(usize, usize)> {
    Table::read(layout, probe, keys)?.position(key)
}

/// The entries of a table of keys.
pub struct Table {
    bytes: [u8; MAX_KEYS * MOST_WORDS * WORD],
    /// The number of bytes that could be read.
    got: usize,
    /// The number of words of an entry, and of those before its key.
    words: usize,
    skip: usize,
}

impl Table {
    /// Reads a table (`PyDictKeysObject`). `None` if its header cannot be read.
    pub fn read(layout: &Layout, probe: Probe, keys: usize) -> Option<Self> {
        let [_, log2_index_bytes, kind, ..] =
            probe.read::<[u8; 8]>(keys.checked_add(layout.keys_log2_size)?)?;
        let count = probe
            .read::<usize>(keys.checked_add(layout.keys_entries)?)?
            .min(MAX_KEYS);
        let entries = keys
            .checked_add(layout.keys_size)?
            .checked_add(1 << (log2_index_bytes & 31))?;
        // An entry of a general table begins with the hash. An entry of a table of `str` keys has no hash.
        let (words, skip) = if kind == 0 { (MOST_WORDS, 1) } else { (2, 0) };
        // All at once: each read is a system call, and a new type in a sample waits for them.
        let mut bytes = [0; MAX_KEYS * MOST_WORDS * WORD];
        let got = probe.bytes(entries, &mut bytes[..count * words * WORD]);
        Some(Self {
            bytes,
            got,
            words,
            skip,
        })
    }

    /// The position of a key, and the value beside it.
    pub fn position(&self, key: usize) -> Option<(usize, usize)> {
        let (table, _) = self.bytes[..self.got].as_chunks::<WORD>();
        table
            .chunks_exact(self.words)
            .enumerate()
            .find_map(|(at, entry)| {
                let [found, value] =
                    [entry[self.skip], entry[self.skip + 1]].map(usize::from_ne_bytes);
                (found == key).then_some((at, value))
            })
    }
}
