//! Reading an attribute of an instance without asking Python.
//!
//! For the name of a thread, which is wanted while the thread allocates. [`Values`] says where the values of an instance are;
//! the keys of an array are those of the type (`ht_cached_keys`), in the same order. The instance may
//! be in the middle of a change, so every read is one that cannot fault and every answer may be wrong;
//! the caller checks what it gets.

use crate::layout::{Layout, Values};
use crate::memory::Probe;

/// Keys that are looked at; an array has no more than 30.
const MAX_KEYS: usize = 64;
/// How far before an object the address of its dictionary is, and in [`Values::BesideDictionary`] that of its array.
const DICTIONARY: usize = 24;
const ARRAY: usize = 32;

/// The value of the attribute whose name is the interned `str` at `key`.
pub fn read(layout: &Layout, probe: Probe, object: usize, key: usize) -> Option<usize> {
    let object_type = probe.read::<usize>(object.checked_add(8)?)?;
    if let Some(values) = values(layout, probe, object, object_type) {
        let keys = probe.read::<usize>(object_type.checked_add(layout.type_cached_keys)?)?;
        let (at, _) = position(layout, probe, keys, key)?;
        return probe.read::<usize>(values.checked_add(at * 8)?);
    }
    let word = probe.read::<usize>(object.checked_sub(DICTIONARY)?)?;
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

/// The array of values, if the instance has one outside of itself.
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
            .read::<usize>(object.checked_sub(ARRAY)?)
            .filter(|&values| values != 0),
        Values::Tagged => {
            let word = probe.read::<usize>(object.checked_sub(DICTIONARY)?)?;
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

/// Where a key is in a table of keys (`PyDictKeysObject`), and the value beside it.
pub fn position(layout: &Layout, probe: Probe, keys: usize, key: usize) -> Option<(usize, usize)> {
    let [_, log2_index_bytes, kind, ..] =
        probe.read::<[u8; 8]>(keys.checked_add(layout.keys_log2_size)?)?;
    let count = probe
        .read::<usize>(keys.checked_add(layout.keys_entries)?)?
        .min(MAX_KEYS);
    let entries = keys
        .checked_add(layout.keys_size)?
        .checked_add(1 << (log2_index_bytes & 31))?;
    // A general entry begins with the hash; one of a table of `str` keys does not have it.
    let (words, skip) = if kind == 0 { (3, 1) } else { (2, 0) };
    (0..count).find_map(|at| {
        let [found, value] =
            probe.read::<[usize; 2]>(entries.checked_add((at * words + skip) * 8)?)?;
        (found == key).then_some((at, value))
    })
}
