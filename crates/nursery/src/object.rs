//! What an object looks like in memory, and what the collector knows of its type.
//!
//! ```text
//!   bits 0–15   16–31   32–63
//! ┌───────────┬───────┬────────┬───────────┬───────────┬─────────────────┐
//! │ type id   │ flags │ length │ slots     │ raw bytes │ items           │
//! └───────────┴───────┴────────┴───────────┴───────────┴─────────────────┘
//!   the header, 8 bytes          the body; each part begins at a multiple of 8
//! ```
//!
//! Type id and flags stand where RPython's collectors have them (figure 7 of the paper); the length takes the place of their
//! padding. A *slot* holds a [`Word`]. When the collector has moved an object, the header has the flag
//! [`FORWARDED`], and the first word of the body is the new address. So a body has at least one word.

use core::ops::Range;

/// The size of a word, and the alignment of every object.
pub(crate) const WORD: usize = 8;

/// Tenured: the object lies in the old space, or is large.
pub(crate) const OLD: u64 = 1 << 16;
/// A large object that no minor collection has seen.
pub(crate) const YOUNG_LARGE: u64 = 1 << 17;
/// An old object that is on the list of old objects that may refer to young ones.
pub(crate) const REMEMBERED: u64 = 1 << 18;
/// Reached by the major collection that runs.
pub(crate) const MARKED: u64 = 1 << 19;
/// Must not be moved.
pub(crate) const PINNED: u64 = 1 << 20;
/// Moved; the body begins with the new address.
pub(crate) const FORWARDED: u64 = 1 << 21;
/// Its allocation was sampled, and the object is old.
pub(crate) const SAMPLED: u64 = 1 << 22;

/// The number of a type: its place in the list that [`MovingHeap::new`](crate::MovingHeap::new) takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub u16);

/// What follows the fixed part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// Nothing: all objects of the type have the same size.
    None,
    /// Slots, as many as the object's length says.
    Slots,
    /// Bytes, as many as the object's length says.
    Bytes,
}

/// The layout of the objects of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// The name, for whoever looks at samples.
    pub name: String,
    /// The number of slots at the start of the body.
    pub slots: u16,
    /// The number of bytes after the slots. The collector does not look at them.
    pub bytes: u16,
    /// What comes after them.
    pub items: Items,
}

impl Type {
    /// The size of an object in bytes, header included, if it has `length` items.
    pub(crate) fn size(&self, length: u32) -> usize {
        let items = match self.items {
            Items::None => 0,
            Items::Slots => length as usize * WORD,
            Items::Bytes => (length as usize).next_multiple_of(WORD),
        };
        (WORD + self.items_at() + items).max(2 * WORD)
    }

    /// Where the raw bytes begin in the body.
    pub(crate) fn bytes_at(&self) -> usize {
        usize::from(self.slots) * WORD
    }

    /// Where the items begin in the body.
    pub(crate) fn items_at(&self) -> usize {
        self.bytes_at() + usize::from(self.bytes).next_multiple_of(WORD)
    }

    /// The places of the slots in the body.
    fn slots(&self, length: u32) -> [Range<usize>; 2] {
        let items = match self.items {
            Items::Slots => length as usize * WORD,
            Items::None | Items::Bytes => 0,
        };
        [0..self.bytes_at(), self.items_at()..self.items_at() + items]
    }
}

/// A value in a slot: nothing (0), an integer of 63 bits (odd), or a reference (an object's address).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub u64);

impl Word {
    pub const NOTHING: Self = Self(0);

    /// The highest bit is lost.
    #[allow(clippy::cast_sign_loss)]
    pub const fn integer(value: i64) -> Self {
        Self((value as u64) << 1 | 1)
    }

    #[allow(clippy::cast_possible_wrap)]
    pub const fn as_integer(self) -> Option<i64> {
        if self.0 & 1 == 1 {
            Some(self.0 as i64 >> 1)
        } else {
            None
        }
    }

    pub const fn as_object(self) -> Option<Address> {
        if self.0 & 1 == 0 && self.0 != 0 {
            Some(Address(self.0 as usize))
        } else {
            None
        }
    }
}

/// The address of an object's header.
///
/// Invariant: it is the address of an object that was not freed. The collector keeps this for what it can reach: whoever has
/// an `Address` has it from a slot or a root, and no collection has run since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(pub usize);

impl Address {
    pub const fn word(self) -> Word {
        Word(self.0 as u64)
    }

    /// The memory at a number of bytes from the header.
    pub fn at(self, offset: usize) -> *mut u64 {
        core::ptr::with_exposed_provenance_mut(self.0 + offset)
    }

    pub fn header(self) -> u64 {
        // SAFETY: the type's invariant; a header is one aligned word.
        unsafe { self.at(0).read() }
    }

    pub fn set_header(self, header: u64) {
        // SAFETY: as above.
        unsafe { self.at(0).write(header) };
    }

    pub fn has(self, flag: u64) -> bool {
        self.header() & flag != 0
    }

    pub fn set(self, flag: u64) {
        self.set_header(self.header() | flag);
    }

    pub fn clear(self, flag: u64) {
        self.set_header(self.header() & !flag);
    }

    #[allow(clippy::cast_possible_truncation)]
    pub fn type_id(self) -> TypeId {
        TypeId(self.header() as u16)
    }

    #[allow(clippy::cast_possible_truncation)]
    pub fn length(self) -> u32 {
        (self.header() >> 32) as u32
    }

    /// The word at a number of bytes from the body's start, which lies inside of the body.
    pub fn read(self, place: usize) -> Word {
        // SAFETY: the type's invariant, and the caller's `place`.
        Word(unsafe { self.at(WORD + place).read() })
    }

    /// Sets the word at a place inside of the body.
    pub fn write(self, place: usize, word: Word) {
        // SAFETY: as above.
        unsafe { self.at(WORD + place).write(word.0) };
    }

    /// The places of all slots in the body.
    pub fn slots(self, types: &[Type]) -> impl Iterator<Item = usize> + use<> {
        let ranges = types[usize::from(self.type_id().0)].slots(self.length());
        ranges.into_iter().flat_map(|range| range.step_by(WORD))
    }

    /// The size in bytes, header included.
    pub fn size(self, types: &[Type]) -> usize {
        types[usize::from(self.type_id().0)].size(self.length())
    }
}

/// A header without flags.
pub(crate) const fn header(type_id: TypeId, length: u32) -> u64 {
    (length as u64) << 32 | type_id.0 as u64
}
