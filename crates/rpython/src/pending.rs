//! Sampled objects between their allocation and the next minor collection (section 3.5 of the paper).
//!
//! The type and the survival of an object are known only at that collection, because its header is written
//! after the allocation. Layout of a header (`incminimark.py`): the low 32 bits are the type, the flags are
//! above. A moved object leaves -42 in its old place and its new address in the next word. The nursery is not
//! cleared, so a dead object is unchanged.

use nthbyte_host::probes;
use nthbyte_profile::event::{Allocation, Survival, TypeId};

use crate::binary::prefetch;

/// The header of an object that was moved.
const FORWARDED: i64 = -42;
/// `GCFLAG_HAS_CARDS`: words with card marks precede the object.
const HAS_CARDS: u64 = 1 << (32 + 6);
/// `GCFLAG_PINNED`: the object stays where it is in the nursery.
const PINNED: u64 = 1 << (32 + 8);
/// One word of card marks stands for this many array items (`card_page_indices` is 128, a bit each).
const ITEMS_PER_CARD_WORD: usize = 128 * 64;

/// The place of a pending sample's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Located {
    /// In the nursery, at this address.
    Nursery(usize),
    /// It has left the nursery for this address.
    Moved(usize),
    /// A large object: the address that `malloc` returned, and its size in bytes.
    Large(usize, usize),
}

/// A sample whose object has not yet been part of a minor collection.
#[derive(Clone, Copy, Debug)]
pub struct PendingSample {
    place: Located,
    /// The properties that are known at the allocation.
    pub allocation: Allocation,
    /// The period under which the sample point was drawn, in bytes.
    pub period: u64,
    /// The collector's number of the type; 0 until it is known.
    pub type_number: u32,
    /// The class of an instance, with the number that the agent gives it.
    pub class: Option<u32>,
    freed: bool,
}

impl PendingSample {
    /// An object in the nursery.
    #[must_use]
    pub const fn in_nursery(address: usize, allocation: Allocation, period: u64) -> Self {
        Self {
            place: Located::Nursery(address),
            allocation,
            period,
            type_number: 0,
            class: None,
            freed: false,
        }
    }

    /// A large object.
    #[must_use]
    pub const fn large(address: usize, size: usize, allocation: Allocation, period: u64) -> Self {
        Self {
            place: Located::Large(address, size),
            allocation,
            period,
            type_number: 0,
            class: None,
            freed: false,
        }
    }

    /// Sets type and survival, after the minor collection.
    ///
    /// # Safety
    /// The object was allocated, and its header written, after the previous minor collection, and the
    /// nursery has not been written to since this collection ended.
    pub unsafe fn resolve(&mut self) {
        self.allocation.survival = Survival::Survived;
        match self.place {
            Located::Nursery(address) => {
                // SAFETY: the nursery stays mapped; `address` lies in it.
                let header = unsafe { *(address as *const i64) };
                if header == FORWARDED {
                    // SAFETY: a forwarded object's next word is the address of its header, in live memory.
                    unsafe {
                        let moved_to = *(address as *const usize).add(1);
                        self.place = Located::Moved(moved_to);
                        self.type_number = *(moved_to as *const u32);
                    }
                } else {
                    self.type_number = type_number(header.cast_unsigned());
                    if header.cast_unsigned() & PINNED == 0 {
                        self.allocation.survival = Survival::DiedYoung;
                        probes::freed(address);
                    }
                }
            }
            // It was resolved before.
            Located::Moved(_) => {}
            Located::Large(..) if self.freed => self.allocation.survival = Survival::DiedYoung,
            Located::Large(..) => {}
        }
    }

    /// Reads the type of an object that is initialised and was not moved.
    ///
    /// # Safety
    /// No minor collection has begun since the object's header was written.
    pub unsafe fn read_type(&mut self) {
        self.type_number = match self.place {
            Located::Nursery(address) | Located::Moved(address) => {
                // SAFETY: the nursery is mapped, and the object lies in it.
                type_number(unsafe { *(address as *const u64) })
            }
            // SAFETY: the block has not been freed: a large object lives until a minor collection.
            Located::Large(address, size) => unsafe { type_of_large(address, size) },
        };
    }

    /// The collector frees the block at `address`.
    pub fn note_free(&mut self, address: usize) -> bool {
        let hit = matches!(self.place, Located::Large(own, _) if own == address);
        if hit {
            self.freed = true;
            probes::freed(address);
        }
        hit
    }

    /// The address of the object, after its type was read; `None` for a large object.
    #[must_use]
    pub const fn address(&self) -> Option<usize> {
        match self.place {
            Located::Nursery(address) | Located::Moved(address) => Some(address),
            Located::Large(..) => None,
        }
    }

    /// Where the object stays until a major collection frees it, once it has left the nursery.
    #[must_use]
    pub const fn moved_to(&self) -> Option<usize> {
        match self.place {
            Located::Moved(address) => Some(address),
            Located::Nursery(_) | Located::Large(..) => None,
        }
    }

    /// Fetches the header into the cache.
    pub fn prefetch(&self) {
        if let Located::Nursery(address) = self.place {
            prefetch(address as *const u64);
        }
    }

    /// Fetches the header of a moved object into the cache, after the minor collection.
    ///
    /// # Safety
    /// As for [`PendingSample::resolve`].
    pub unsafe fn prefetch_moved(&self) {
        if let Located::Nursery(address) = self.place {
            let header = address as *const i64;
            // SAFETY: as in `resolve`.
            unsafe {
                if *header == FORWARDED {
                    prefetch(*header.cast::<*const u64>().add(1));
                }
            }
        }
    }

    /// Whether the object is a large one, outside of the nursery.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        matches!(self.place, Located::Large(..))
    }

    /// The finished sample.
    #[must_use]
    pub const fn finish(&self, type_id: TypeId) -> Allocation {
        Allocation {
            type_id,
            ..self.allocation
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // the type is the low half
const fn type_number(header: u64) -> u32 {
    header as u32
}

/// The type of a large object. Its header follows the card marks, if there are any. The number of card
/// marks follows from the array's length, and with words as items the length follows from the size.
unsafe fn type_of_large(address: usize, size: usize) -> u32 {
    let words = size / 8;
    for marks in [words / ITEMS_PER_CARD_WORD, words / ITEMS_PER_CARD_WORD + 1] {
        // SAFETY: the block has more than a hundred kilobytes; the marks are a small part of it.
        let header = unsafe { *(address as *const u64).add(marks) };
        if marks > 0
            && header & HAS_CARDS != 0
            && header >> 48 == 0
            && type_number(header).is_multiple_of(8)
        {
            return type_number(header);
        }
    }
    // SAFETY: as above.
    type_number(unsafe { *(address as *const u64) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nthbyte_profile::event::{LabelSetId, Nanos, NodeId, SourceId, ThreadId};

    fn allocation() -> Allocation {
        Allocation {
            time: Nanos(1),
            thread: ThreadId(0),
            stack: NodeId::ROOT,
            size: 16,
            block: 16,
            points: 1,
            type_id: TypeId::UNKNOWN,
            labels: LabelSetId::NONE,
            source: SourceId::ALLOCATIONS,
            survival: Survival::Unsaid,
        }
    }

    fn resolved(words: &[u64]) -> PendingSample {
        let mut pending = PendingSample::in_nursery(words.as_ptr() as usize, allocation(), 512);
        // SAFETY: the words have the layout of an object and of its moved copy.
        unsafe { pending.resolve() };
        pending
    }

    #[test]
    fn a_header_tells_type_and_survival() {
        let moved_to = [0x0001_0000_0000_1388_u64, 7];
        let survived = resolved(&[FORWARDED.cast_unsigned(), moved_to.as_ptr() as u64]);
        assert_eq!(
            (survived.type_number, survived.allocation.survival),
            (0x1388, Survival::Survived)
        );
        assert_eq!(survived.moved_to(), Some(moved_to.as_ptr() as usize));
        let died = resolved(&[0x0000_0000_0000_1130, 7]);
        assert_eq!(
            (died.type_number, died.allocation.survival),
            (0x1130, Survival::DiedYoung)
        );
        let pinned = resolved(&[PINNED | 0x40, 7]);
        assert_eq!(
            (pinned.type_number, pinned.allocation.survival),
            (0x40, Survival::Survived)
        );
        assert_eq!((died.moved_to(), pinned.moved_to()), (None, None));
    }

    #[test]
    fn a_large_object_dies_when_it_is_freed() {
        for (freed, survival) in [(true, Survival::DiedYoung), (false, Survival::Survived)] {
            let mut pending = PendingSample::large(0x5000, 1 << 20, allocation(), 512);
            assert!(!pending.note_free(0x6000));
            assert_eq!(freed && pending.note_free(0x5000), freed);
            // SAFETY: no memory is read for a large object.
            unsafe { pending.resolve() };
            assert_eq!(pending.allocation.survival, survival);
        }
    }

    #[test]
    fn the_header_of_a_large_array_follows_its_card_marks() {
        let mut block = vec![0u64; 20_000];
        block[0] = 0x1000;
        // SAFETY: the block has the given size.
        let plain = unsafe { type_of_large(block.as_ptr() as usize, 160_000) };
        assert_eq!(plain, 0x1000);
        block[0] = u64::MAX;
        block[3] = HAS_CARDS | 0x78;
        // SAFETY: as above.
        let marked = unsafe { type_of_large(block.as_ptr() as usize, 160_000) };
        assert_eq!(marked, 0x78);
    }
}
