//! Reads of the interpreter's objects by which the task is found: dictionaries, texts, names of types.

use super::super::hamt::Words;
use super::texts::{LONGEST, Text};
use crate::api::OB_TYPE;
use crate::layout::Layout;

/// Bases of a type that are looked at.
const MOST_BASES: usize = 8;
/// `DictKeysKind` of tables whose keys need not be texts: their entries begin with the hash.
const GENERAL: u8 = 0;

pub fn type_of(words: &impl Words, object: usize) -> Option<usize> {
    words.word(object.checked_add(OB_TYPE)?)
}

/// Whether a type has this name, which ends with a zero.
pub fn has_name(words: &impl Words, layout: &Layout, class: usize, name: &[u8]) -> Option<bool> {
    let address = words.word(class.checked_add(layout.type_name)?)?;
    is_there(words, address, name)
}

/// Whether an object is of the type with this name, or of a type that is derived from it.
#[inline(always)]
pub fn is_instance(words: &impl Words, layout: &Layout, object: usize, name: &[u8]) -> bool {
    object != 0 && find_base(words, layout, object, name).is_some()
}

/// Finds the type with this name among an object's type and those that it is derived from.
#[unsafe(link_section = "nthbyte_hot")]
fn find_base(words: &impl Words, layout: &Layout, object: usize, name: &[u8]) -> Option<usize> {
    let mut class = type_of(words, object)?;
    for _ in 0..MOST_BASES {
        if has_name(words, layout, class, name)? {
            return Some(class);
        }
        // `PyTypeObject.tp_base` is the word before `tp_dict`.
        class = words.word(class.checked_add(layout.type_dict - 8)?)?;
    }
    None
}

fn is_there(words: &impl Words, address: usize, known: &[u8]) -> Option<bool> {
    for (at, &byte) in known.iter().enumerate() {
        let address = address.checked_add(at)?;
        if words.word(address & !7)?.to_ne_bytes()[address % 8] != byte {
            return Some(false);
        }
    }
    Some(true)
}

/// The keys and values of a dictionary whose table is its own, the last `most`.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
pub fn entries(
    words: &impl Words,
    layout: &Layout,
    dictionary: usize,
    most: usize,
) -> Option<impl DoubleEndedIterator<Item = (usize, usize)>> {
    Some(table(words, layout, dictionary, most)?.map(|(_, _, pair)| pair))
}

/// The same, each with its number and its address.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
fn table(
    words: &impl Words,
    layout: &Layout,
    dictionary: usize,
    most: usize,
) -> Option<impl DoubleEndedIterator<Item = (usize, usize, (usize, usize))>> {
    let keys = words.word(dictionary.checked_add(layout.dict_keys)?)?;
    // `dk_log2_size`, `dk_log2_index_bytes` and `dk_kind`.
    let [_, index_bytes, kind, ..] = words
        .word(keys.checked_add(layout.keys_log2_size)?)?
        .to_ne_bytes();
    let count = words.word(keys.checked_add(layout.keys_entries)?)?;
    let first = keys
        .checked_add(layout.keys_size)?
        .checked_add(1usize.checked_shl(u32::from(index_bytes))?)?;
    let (size, key) = if kind == GENERAL { (24, 8) } else { (16, 0) };
    Some((count.saturating_sub(most)..count).filter_map(move |at| {
        let entry = first.wrapping_add(at.wrapping_mul(size)).wrapping_add(key);
        let pair = (words.word(entry)?, words.word(entry.wrapping_add(8))?);
        (pair.0 != 0 && pair.1 != 0).then_some((at, entry, pair))
    }))
}

/// Where a dictionary's table had a key: in another of the same form, it is looked for there first.
#[derive(Clone, Copy)]
pub struct KeyPlace {
    keys: usize,
    form: usize,
    at: usize,
    entry: usize,
}

impl KeyPlace {
    pub const NONE: Self = Self {
        keys: 0,
        form: 0,
        at: 0,
        entry: 0,
    };

    /// The value of a key, which is one object wherever it is used.
    #[inline(always)]
    pub fn value(
        &mut self,
        words: &impl Words,
        layout: &Layout,
        dictionary: usize,
        key: usize,
        most: usize,
    ) -> Option<usize> {
        let keys = words.word(dictionary.checked_add(layout.dict_keys)?)?;
        let form = words.word(keys.checked_add(layout.keys_log2_size)?)?;
        // The table is as large as that one was, so the entry is inside of it.
        if (keys, form) == (self.keys, self.form)
            && words.word(keys.checked_add(layout.keys_entries)?)? > self.at
            && words.word(self.entry)? == key
        {
            return words.word(self.entry.wrapping_add(8));
        }
        let (at, entry, value) = table(words, layout, dictionary, most)?
            .find_map(|(at, entry, pair)| (pair.0 == key).then_some((at, entry, pair.1)))?;
        *self = Self {
            keys,
            form,
            at,
            entry,
        };
        Some(value)
    }
}

/// The key of a dictionary that is this text, and its value.
pub fn entry_of(
    words: &impl Words,
    layout: &Layout,
    dictionary: usize,
    key: &[u8],
    most: usize,
) -> Option<(usize, usize)> {
    entries(words, layout, dictionary, most)?.find_map(|(found, value)| {
        let is_key = is_str(words, layout, found)?
            && words.word(found.checked_add(layout.str_length)?)? == key.len()
            && is_there(words, found.checked_add(layout.ascii_size)?, key)?;
        is_key.then_some((found, value))
    })
}

/// Whether an object is a `str`, and no instance of a derived class.
pub fn is_str(words: &impl Words, layout: &Layout, object: usize) -> Option<bool> {
    has_name(words, layout, type_of(words, object)?, b"str\0")
}

/// The state of a `str`.
#[inline(always)]
fn state_of(words: &impl Words, layout: &Layout, of: usize) -> Option<u32> {
    let state = words.word(of.checked_add(layout.str_state & !7)?)?;
    Some((state >> (layout.str_state % 8 * 8)) as u32)
}

/// Whether a `str` has its text behind it, in ASCII.
#[inline(always)]
pub fn is_ascii(words: &impl Words, layout: &Layout, of: usize) -> Option<bool> {
    let both = layout.str_bits.compact | layout.str_bits.ascii;
    Some(state_of(words, layout, of)? & both == both)
}

/// Adds the text of a `str`. `None` if it has an unknown form.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
pub fn push_text(words: &impl Words, layout: &Layout, of: usize, to: &mut Text) -> Option<()> {
    let length = words.word(of.checked_add(layout.str_length)?)?;
    let state = state_of(words, layout, of)?;
    let bits = layout.str_bits;
    if state & bits.compact == 0 {
        return None;
    }
    if state & bits.ascii == 0 {
        let kind = (state >> bits.kind_shift & 7) as usize;
        return push_characters(
            words,
            of.checked_add(layout.unicode_size)?,
            length,
            kind,
            to,
        );
    }
    let first = of.checked_add(layout.ascii_size)?;
    let length = length.min(LONGEST);
    for at in (0..length).step_by(8) {
        to.push_word(
            words.word(first.checked_add(at)?)? as u64,
            (length - at).min(8),
        );
    }
    Some(())
}

/// Adds characters of one, two or four bytes.
#[cold]
#[inline(never)]
fn push_characters(
    words: &impl Words,
    first: usize,
    length: usize,
    kind: usize,
    to: &mut Text,
) -> Option<()> {
    if !matches!(kind, 1 | 2 | 4) {
        return None;
    }
    for at in 0..length.min(LONGEST) {
        let address = first.checked_add(at * kind)?;
        let word = words.word(address & !7)? as u64 >> (address % 8 * 8);
        let character = (word & ((1 << (8 * kind)) - 1)) as u32;
        let character = char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER);
        to.push(character.encode_utf8(&mut [0; 4]).as_bytes());
        if to.is_full() {
            break;
        }
    }
    Some(())
}

/// Adds the name of a type.
#[cold]
#[inline(never)]
pub fn push_type_name(
    words: &impl Words,
    layout: &Layout,
    class: usize,
    to: &mut Text,
) -> Option<()> {
    let first = words.word(class.checked_add(layout.type_name)?)?;
    for at in 0..LONGEST {
        let address = first.checked_add(at)?;
        let byte = words.word(address & !7)?.to_ne_bytes()[address % 8];
        if byte == 0 {
            break;
        }
        to.push(&[byte]);
    }
    Some(())
}
