//! Reading an attribute of an instance without asking Python.
//!
//! For the name of a thread, which is wanted while the thread allocates. Where the values of an
//! instance are (`Include/internal/pycore_object.h`, `pycore_dict.h`):
//!
//! - 3.11: an array, from the word 32 bytes before the object; a dictionary, from the one 24 before it.
//! - 3.12: either, from the word 24 bytes before; the array if the lowest bit is set, which is not part of its address.
//! - 3.13 and later: an array behind the object, if it says that it is valid; else a dictionary, as in 3.11.
//!
//! The keys of an array are those of the type (`ht_cached_keys`), in the same order. The instance may
//! be in the middle of a change, so every read is one that cannot fault and every answer may be wrong;
//! the caller checks what it gets.

use crate::layout::{Layout, fixed};
use crate::memory::Probe;

/// Keys that are looked at; an array has no more than 30.
const MAX_KEYS: usize = 64;

/// The value of the attribute whose name is the interned `str` at `key`.
pub fn read(layout: &Layout, probe: Probe, object: usize, key: usize) -> Option<usize> {
    let object_type = probe.read::<usize>(object + 8)?;
    if let Some(values) = values(layout, probe, object, object_type) {
        let keys = probe.read::<usize>(object_type + layout.type_qualname + 8)?;
        let (at, _) = position(probe, keys, key)?;
        return probe.read::<usize>(values + at * 8);
    }
    let word = probe.read::<usize>(object.checked_sub(24)?)?;
    if word == 0 || word & 1 != 0 {
        return None;
    }
    let [keys, values] = probe.read::<[usize; 2]>(word + fixed::DICT_KEYS)?;
    let (at, value) = position(probe, keys, key)?;
    match values {
        0 => Some(value),
        _ => probe.read::<usize>(values + values_header(layout) + at * 8),
    }
}

/// The array of values, if the instance has one outside of itself.
pub fn separate_values(layout: &Layout, object: usize) -> Option<usize> {
    if layout.minor >= 13 {
        return None;
    }
    values(layout, Probe::new()?, object, 0)
}

/// The array of values, if the instance has one.
fn values(layout: &Layout, probe: Probe, object: usize, object_type: usize) -> Option<usize> {
    match layout.minor {
        11 => probe
            .read::<usize>(object.checked_sub(32)?)
            .filter(|&values| values != 0),
        12 => {
            let word = probe.read::<usize>(object.checked_sub(24)?)?;
            (word & 1 != 0).then_some(word + 1)
        }
        _ => {
            let values = object + probe.read::<usize>(object_type + fixed::TYPE_BASIC_SIZE)?;
            let [_, _, _, valid] = probe.read::<[u8; 4]>(values)?;
            (valid == 1).then_some(values + values_header(layout))
        }
    }
}

/// `offsetof(PyDictValues, values)`.
const fn values_header(layout: &Layout) -> usize {
    if layout.minor >= 13 { 8 } else { 0 }
}

/// Where a key is in a table of keys, and the value beside it.
pub fn position(probe: Probe, keys: usize, key: usize) -> Option<(usize, usize)> {
    let [_, log2_index_bytes, kind, ..] =
        probe.read::<[u8; 8]>(keys.checked_add(fixed::KEYS_LOG2_SIZE)?)?;
    let count = probe
        .read::<usize>(keys + fixed::KEYS_ENTRIES)?
        .min(MAX_KEYS);
    let entries = keys
        .checked_add(fixed::KEYS_SIZE)?
        .checked_add(1 << (log2_index_bytes & 31))?;
    // A general entry begins with the hash; one of a table of `str` keys does not have it.
    let (words, skip) = if kind == 0 { (3, 1) } else { (2, 0) };
    (0..count).find_map(|at| {
        let [found, value] = probe.read::<[usize; 2]>(entries + (at * words + skip) * 8)?;
        (found == key).then_some((at, value))
    })
}
