//! The roots: a stack of values that the program uses now, by which it also reads and writes objects.
//!
//! The collector moves objects. So the program never has an address, but [`Handle`]s: places on this stack, which the collector
//! brings up to date.

use core::ops::{Deref, DerefMut};

use crate::object::{Address, Items, OLD, REMEMBERED, Word};
use crate::{MovingHeap, Observer, TypeId};

/// A place on the stack of roots, which holds nothing, an integer, or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(usize);

/// The stack.
#[derive(Debug, Default)]
pub(crate) struct Roots(Vec<Word>);

impl Deref for Roots {
    type Target = [Word];

    fn deref(&self) -> &[Word] {
        &self.0
    }
}

impl DerefMut for Roots {
    fn deref_mut(&mut self) -> &mut [Word] {
        &mut self.0
    }
}

impl Roots {
    pub fn push(&mut self, word: Word) -> Handle {
        self.0.push(word);
        Handle(self.0.len() - 1)
    }
}

impl Handle {
    /// The place above this one by `places`.
    #[must_use]
    pub const fn above(self, places: usize) -> Self {
        Self(self.0 + places)
    }
}

/// Roots and objects. A method that is given a handle above the top of the stack, or a slot that the object has not, panics; so
/// does one that needs an object where there is none.
impl<O: Observer> MovingHeap<O> {
    /// The place that the next value is pushed to.
    #[must_use]
    pub fn depth(&self) -> Handle {
        Handle(self.roots.len())
    }

    /// Pops this place and everything above it.
    pub fn truncate(&mut self, depth: Handle) {
        self.roots.0.truncate(depth.0);
    }

    /// Pushes nothing.
    pub fn push_nothing(&mut self) -> Handle {
        self.roots.push(Word::NOTHING)
    }

    /// Pushes an integer; its highest bit is lost.
    pub fn push_integer(&mut self, value: i64) -> Handle {
        self.roots.push(Word::integer(value))
    }

    /// Pushes what another place holds.
    pub fn push_copy(&mut self, from: Handle) -> Handle {
        self.roots.push(self.roots[from.0])
    }

    /// Makes a place hold what another one holds.
    pub fn copy(&mut self, from: Handle, to: Handle) {
        self.roots[to.0] = self.roots[from.0];
    }

    /// Makes a place hold an integer; its highest bit is lost.
    pub fn set_integer(&mut self, place: Handle, value: i64) {
        self.roots[place.0] = Word::integer(value);
    }

    /// Makes a place hold nothing.
    pub fn set_nothing(&mut self, place: Handle) {
        self.roots[place.0] = Word::NOTHING;
    }

    /// The integer in a place, if there is one.
    #[must_use]
    pub fn integer(&self, place: Handle) -> Option<i64> {
        self.roots[place.0].as_integer()
    }

    /// Whether a place holds nothing.
    #[must_use]
    pub fn is_nothing(&self, place: Handle) -> bool {
        self.roots[place.0] == Word::NOTHING
    }

    /// Whether two places hold the same integer or the same object, or both nothing.
    #[must_use]
    pub fn same(&self, one: Handle, other: Handle) -> bool {
        self.roots[one.0] == self.roots[other.0]
    }

    /// The type of the object in a place, if there is one.
    #[must_use]
    pub fn type_of(&self, place: Handle) -> Option<TypeId> {
        self.roots[place.0].as_object().map(Address::type_id)
    }

    /// The number of items of an object.
    #[must_use]
    pub fn length(&self, object: Handle) -> u32 {
        self.object(object).length()
    }

    /// Reads a slot of an object into a place. The items of a type with [`Items::Slots`] come after the type's other slots.
    pub fn load(&mut self, object: Handle, slot: usize, to: Handle) {
        let object = self.object(object);
        self.roots[to.0] = object.read(self.slot(object, slot));
    }

    /// Writes what a place holds into a slot of an object.
    pub fn store(&mut self, object: Handle, slot: usize, from: Handle) {
        let object = self.object(object);
        let place = self.slot(object, slot);
        let value = self.roots[from.0];
        object.write(place, value);
        // The write barrier: minor collections look only at those old objects that may refer to young ones.
        if object.header() & (OLD | REMEMBERED) == OLD
            && value.as_object().is_some_and(|value| self.is_young(value))
        {
            object.set(REMEMBERED);
            self.remembered.push(object);
        }
    }

    /// The raw bytes of an object: the items of a type with [`Items::Bytes`], else the bytes between its slots and its items.
    #[must_use]
    pub fn bytes(&self, object: Handle) -> &[u8] {
        let (start, length) = self.raw(object);
        // SAFETY: the bytes lie in an object that a root refers to, and no collection moves or frees it while the heap is
        // borrowed.
        unsafe { core::slice::from_raw_parts(start, length) }
    }

    /// The same, to be written.
    pub fn bytes_mut(&mut self, object: Handle) -> &mut [u8] {
        let (start, length) = self.raw(object);
        // SAFETY: as above; and the heap is borrowed for writing.
        unsafe { core::slice::from_raw_parts_mut(start, length) }
    }

    fn raw(&self, object: Handle) -> (*mut u8, usize) {
        let object = self.object(object);
        let layout = &self.types[usize::from(object.type_id().0)];
        let (place, length) = match layout.items {
            Items::Bytes => (layout.items_at(), object.length() as usize),
            Items::None | Items::Slots => (layout.bytes_at(), usize::from(layout.bytes)),
        };
        (object.at(crate::object::WORD + place).cast(), length)
    }

    pub(crate) fn object(&self, place: Handle) -> Address {
        let object = self.roots[place.0].as_object();
        object.expect("the place holds an object")
    }

    /// Where a slot lies in an object's body.
    fn slot(&self, object: Address, slot: usize) -> usize {
        let layout = &self.types[usize::from(object.type_id().0)];
        let fixed = usize::from(layout.slots);
        let items = match layout.items {
            Items::Slots => object.length() as usize,
            Items::None | Items::Bytes => 0,
        };
        assert!(
            slot < fixed + items,
            "the object has {} slots",
            fixed + items
        );
        if slot < fixed {
            slot * crate::object::WORD
        } else {
            layout.items_at() + (slot - fixed) * crate::object::WORD
        }
    }
}
