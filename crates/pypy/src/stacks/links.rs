//! The elements of the frame list, in which PyPy links the running frames of a thread, innermost first
//! (`rvmprof/src/shared/vmprof.h`, `struct vmprof_stack_s`):
//!
//! ```text
//! thread-local vmprof_tl_stack ──► next, value, kind ──► next, value, kind ──► 0
//! kind 1: interpreted code, `value` is its unique id
//! kind 3: machine code; the word before the address `value` is the place in it that is executed
//! ```

use std::num::NonZeroU64;

use super::record::{CODE_TAG, JITTED_TAG, RawFrame};
use nthbyte_rpython::binary::thread_pointer;

/// All kinds in a list are smaller than this.
pub const KINDS: usize = 7;
/// The longest list that is read here. For a longer list the handler makes the record, of its
/// innermost thousand words.
const LONGEST: usize = 4096;

/// One step of a stack, in one nonzero word, because a sample reads and writes many steps. Addresses, and PyPy's
/// numbers of code objects (which count up from 4) are below 2^61: three bits are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(NonZeroU64);

/// The two kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A frame.
    Frame(RawFrame),
    /// A place in machine code, in which any number of frames may be inlined.
    Place(usize),
}

impl Step {
    /// The lowest bit is set, and the next two bits are one of these values.
    const INTERPRETED: u64 = 0;
    const COMPILED: u64 = 1;
    const PLACE: u64 = 2;

    /// A frame.
    #[must_use]
    pub fn frame(frame: RawFrame) -> Self {
        let kind = if frame.compiled {
            Self::COMPILED
        } else {
            Self::INTERPRETED
        };
        Self::pack(frame.unique_id, kind)
    }

    /// A place in machine code.
    #[must_use]
    pub fn place(place: usize) -> Self {
        Self::pack(place as u64, Self::PLACE)
    }

    fn pack(value: u64, kind: u64) -> Self {
        Self(NonZeroU64::MIN | value << 3 | kind << 1)
    }

    /// The kind of the step.
    #[must_use]
    pub const fn kind(self) -> StepKind {
        let value = self.0.get() >> 3;
        match (self.0.get() >> 1) & 3 {
            Self::PLACE => StepKind::Place(value as usize),
            kind => StepKind::Frame(RawFrame {
                compiled: kind == Self::COMPILED,
                unique_id: value,
            }),
        }
    }

    /// The word, for hashing.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

/// `struct vmprof_stack_s`.
#[repr(C)]
#[derive(Debug)]
pub struct Link {
    /// The address of the next element, or 0.
    pub next: usize,
    /// See the kinds above.
    pub value: usize,
    /// One of these kinds; other kinds have no frames.
    pub kind: usize,
}

/// A list of our own that the handler walks.
#[derive(Debug)]
pub struct OwnList {
    links: Vec<Link>,
    /// The words that the links of machine code refer to.
    _stacks: Vec<[usize; 2]>,
}

impl OwnList {
    /// A list of these places in machine code, with interpreted code of this number after each.
    #[must_use]
    pub fn of(places: &[usize], outside: u64) -> Self {
        let stacks: Vec<[usize; 2]> = places.iter().map(|&place| [place, 0]).collect();
        let mut links = Vec::with_capacity(2 * places.len());
        for stack in &stacks {
            let pair = [
                (JITTED_TAG, (&raw const stack[1]) as usize),
                (CODE_TAG, outside as usize),
            ];
            let next = 0;
            links.extend(pair.map(|(kind, value)| Link { next, value, kind }));
        }
        let mut next = 0;
        for link in links.iter_mut().rev() {
            link.next = next;
            next = (&raw const *link) as usize;
        }
        Self {
            links,
            _stacks: stacks,
        }
    }

    /// The address of its first element, valid as long as `self`; `None` if it is empty.
    #[must_use]
    pub fn list(&self) -> Option<usize> {
        self.links.first().map(|first| (&raw const *first) as usize)
    }
}

/// The address of the calling thread's word at this distance.
pub fn word_at(distance: isize) -> *mut usize {
    thread_pointer().wrapping_add_signed(distance) as *mut usize
}

/// Appends the steps of a list, innermost first. Returns whether that was the whole list.
///
/// # Safety
/// The word at the distance `head` holds the list of the calling thread.
pub unsafe fn read(head: isize, steps: &mut Vec<Step>) -> bool {
    // SAFETY: the caller's promise; only this thread changes the word.
    let mut at = unsafe { word_at(head).read_volatile() };
    for _ in 0..LONGEST {
        if at == 0 {
            return true;
        }
        // PyPy fills the thread-local words of a thread that ends with 0xDD.
        if at % 8 != 0 || steps.try_reserve(1).is_err() {
            return false;
        }
        // SAFETY: an element of the list, which exists as long as the call that it stands for.
        let link = unsafe { &*(at as *const Link) };
        match link.kind {
            CODE_TAG => steps.push(Step::frame(RawFrame {
                compiled: false,
                unique_id: link.value as u64,
            })),
            JITTED_TAG => {
                let place = link.value.wrapping_sub(8) as *const usize;
                // SAFETY: `value` is a place in the stack of this thread. Machine code has called a function,
                // and the call has stored its place there.
                steps.push(Step::place(unsafe { place.read() }));
            }
            _ => {}
        }
        at = link.next;
    }
    false
}

/// The elements of a possible list; `None` if it is not a list. `read` returns the word at an address, or `None` if no
/// memory is there.
pub fn links(head: isize, read: impl Fn(usize) -> Option<usize>) -> Option<Vec<Link>> {
    let mut links = Vec::new();
    let mut at = read(word_at(head) as usize)?;
    while at != 0 {
        let link = Link {
            next: read(at)?,
            value: read(at + 8)?,
            kind: read(at + 16)?,
        };
        if link.kind >= KINDS || links.len() > LONGEST {
            return None;
        }
        at = link.next;
        links.push(link);
    }
    Some(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_keeps_what_it_is() {
        for value in [0, 4, 0x7FFF_FFFF_FFF8, 1 << 60] {
            for compiled in [false, true] {
                let frame = RawFrame {
                    compiled,
                    unique_id: value,
                };
                assert_eq!(Step::frame(frame).kind(), StepKind::Frame(frame));
            }
            let place = value as usize;
            assert_eq!(Step::place(place).kind(), StepKind::Place(place));
        }
    }
}
