//! Texts with numbers, which a signal handler may add to: it neither waits nor allocates.
//!
//! ```text
//! hash ──▶ slots: numbers ──▶ entries: texts, in the order in which they came
//! ```
//!
//! An entry is written before its number is, and never changes. Where two threads add the same text at a time, it may have two numbers.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32};

/// Texts with numbers, from 1 on.
const MOST: usize = 2_046;
/// The number of all others.
pub const OTHER: u32 = MOST as u32 + 1;
/// Bits of a number.
pub const BITS: u32 = 11;
const SLOTS: usize = 4_096;
const WORDS: usize = 31;
/// Bytes of a text; longer ones are cut.
pub const LONGEST: usize = 8 * WORDS;

/// A text that is being put together. The word in which it ends is zero after that, and the words that follow are not set: a sample makes one.
pub struct Text {
    words: [MaybeUninit<u64>; WORDS],
    length: usize,
}

impl Text {
    #[inline(always)]
    pub const fn new() -> Self {
        Self {
            words: [MaybeUninit::uninit(); WORDS],
            length: 0,
        }
    }

    /// Adds eight bytes, the first `length` of them.
    #[inline(always)]
    pub fn push_word(&mut self, word: u64, length: usize) {
        let word = if length < 8 {
            word & ((1 << (8 * length)) - 1)
        } else {
            word
        };
        let (at, shift) = (self.length / 8, self.length % 8 * 8);
        if shift == 0 {
            if let Some(place) = self.words.get_mut(at) {
                place.write(word);
            }
        } else {
            if let Some(place) = self.words.get_mut(at) {
                // SAFETY: the text ends inside of this word, so it is set.
                let before = unsafe { place.assume_init() };
                place.write(before | word << shift);
            }
            if let Some(place) = self.words.get_mut(at + 1) {
                place.write(word >> (64 - shift));
            }
        }
        self.length = (self.length + length).min(LONGEST);
    }

    /// Adds a text.
    pub fn push(&mut self, text: &[u8]) {
        for part in text.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.push_word(u64::from_le_bytes(word), part.len());
        }
    }

    pub const fn is_full(&self) -> bool {
        self.length == LONGEST
    }

    fn used(&self) -> &[u64] {
        let used = &self.words[..self.length.div_ceil(8)];
        // SAFETY: the words up to the end of the text are set.
        unsafe { &*(std::ptr::from_ref(used) as *const [u64]) }
    }

    #[inline(always)]
    fn hash(&self) -> u64 {
        let mixed = |hash: u64, word: &u64| {
            (hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        };
        self.used().iter().fold(self.length as u64, mixed)
    }
}

/// See the module.
pub struct Texts {
    slots: [AtomicU16; SLOTS],
    entries: [UnsafeCell<Text>; MOST],
    taken: AtomicU32,
}

// SAFETY: an entry is written once, by who has taken it, before its number is in a slot; only then others read it.
unsafe impl Sync for Texts {}

impl Texts {
    pub const fn new() -> Self {
        Self {
            slots: [const { AtomicU16::new(0) }; SLOTS],
            entries: [const { UnsafeCell::new(Text::new()) }; MOST],
            taken: AtomicU32::new(0),
        }
    }

    /// The number of a text: a new one, if it has none yet. In a signal handler, too.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn number(&self, text: &Text) -> u32 {
        let hash = text.hash();
        let mut at = (hash >> 40) as usize % SLOTS;
        loop {
            let number = self.slots[at].load(Acquire);
            match self.entry(u32::from(number)) {
                None => return self.add(text, at),
                Some(entry) if entry.length == text.length && entry.used() == text.used() => {
                    return u32::from(number);
                }
                Some(_) => at = (at + 1) % SLOTS,
            }
        }
    }

    /// In the first free slot from this one on.
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    fn add(&self, text: &Text, mut at: usize) -> u32 {
        if self.taken.load(Relaxed) as usize >= MOST {
            return OTHER;
        }
        let entry = self.taken.fetch_add(1, Relaxed) as usize;
        let Some(place) = self.entries.get(entry) else {
            return OTHER;
        };
        // SAFETY: nobody else has this entry's number.
        unsafe {
            (*place.get()).words = text.words;
            (*place.get()).length = text.length;
        }
        let number = entry as u16 + 1;
        // There are more slots than numbers.
        while self.slots[at]
            .compare_exchange(0, number, Release, Relaxed)
            .is_err()
        {
            at = (at + 1) % SLOTS;
        }
        u32::from(number)
    }

    #[inline(always)]
    fn entry(&self, number: u32) -> Option<&Text> {
        let entry = self.entries.get((number as usize).checked_sub(1)?)?;
        // SAFETY: whoever has the number has read it from a slot, after the entry was written.
        Some(unsafe { &*entry.get() })
    }

    /// The bytes of a text. `None` for 0, and for [`OTHER`].
    pub fn bytes(&self, number: u32) -> Option<Vec<u8>> {
        let text = self.entry(number)?;
        let mut bytes = Vec::new();
        bytes.try_reserve(LONGEST).ok()?;
        bytes.extend(text.used().iter().flat_map(|word| word.to_le_bytes()));
        bytes.truncate(text.length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &[u8]) -> Text {
        let mut text = Text::new();
        text.push(of);
        text
    }

    #[test]
    fn the_same_text_has_the_same_number_until_there_is_no_room() {
        static TEXTS: Texts = Texts::new();
        let first = TEXTS.number(&text(b"fetch"));
        assert_eq!(TEXTS.number(&text(b"fetch")), first);
        assert_ne!(TEXTS.number(&text(b"fetch\0")), first);
        let mut parts = Text::new();
        for part in [&b"fe"[..], b"t", b"", b"ch"] {
            parts.push(part);
        }
        assert_eq!(TEXTS.number(&parts), first);
        for at in 0..MOST {
            TEXTS.number(&text(at.to_string().as_bytes()));
        }
        assert_eq!(TEXTS.number(&text(b"one more")), OTHER);
        assert_eq!(TEXTS.number(&text(b"fetch")), first);
        assert_eq!(TEXTS.bytes(first).as_deref(), Some(&b"fetch"[..]));
        assert_eq!(TEXTS.bytes(OTHER), None);
        const { assert!(OTHER < 1 << BITS) };
    }

    #[test]
    fn long_texts_are_cut() {
        let mut long = text(&[b'a'; LONGEST - 3]);
        long.push(b"bcdefghi");
        assert!(long.is_full());
        long.push(b"z");
        static TEXTS: Texts = Texts::new();
        let number = TEXTS.number(&long);
        let bytes = TEXTS.bytes(number).unwrap();
        assert_eq!(bytes.len(), LONGEST);
        assert!(bytes.ends_with(b"abcd"));
    }
}
