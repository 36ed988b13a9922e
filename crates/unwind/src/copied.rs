//! A walk that has met an unknown module: the frames so far, and the rest of the stack.

use std::iter::Peekable;
use std::sync::Arc;

use nthbyte_host::process::Probe;

use crate::frame::{Cut, MAX_DEPTH, NativeFrame, Unknown};
use crate::interrupted::Interrupted;
use crate::looks;
use crate::processor::RED_ZONE;
use crate::stack::{CHUNK, Words};

/// The largest part of a stack that is kept: room for the largest number of frames, if they have 512 bytes. What lies
/// outside of it is missing in the stack.
pub(crate) const MOST: usize = 512 * MAX_DEPTH;
/// A stack is kept in parts of this size. Until a library is known, many samples may wait in a row, whose stacks have all
/// but the innermost parts in common: those are kept once.
const PART: usize = 2 << 10;
/// The stack is read through the kernel in pieces of this size.
const PIECE: usize = CHUNK;
const _: () = assert!(PIECE.is_multiple_of(PART));

pub(crate) struct StackPart {
    start: usize,
    words: Vec<u64>,
}

/// The parts of the last copy, in the order of addresses.
struct Known<'a>(Peekable<std::slice::Iter<'a, Arc<StackPart>>>);

impl<'a> Known<'a> {
    /// The part at this address, if it has these words.
    fn same(&mut self, at: usize, words: &[u64]) -> Option<&'a Arc<StackPart>> {
        while self.0.next_if(|part| part.start < at).is_some() {}
        self.0
            .peek()
            .copied()
            .filter(|part| part.start == at && part.words == words)
    }
}

/// A walk that is completed later, by [`Unwinder::resume`](crate::Unwinder::resume).
pub struct UnfinishedWalk {
    pub(crate) unknown: Unknown,
    pub(crate) frames: Vec<NativeFrame>,
    /// If it is a walk of an interrupted thread: whether part of its stack was not copied.
    pub(crate) interrupted: Option<Cut>,
    /// The stack from the unknown frame's stack pointer on. Each part but the first begins at a multiple of its size.
    parts: Vec<Arc<StackPart>>,
    /// The bytes of the parts that are this walk's alone.
    own: usize,
    /// The last look for modules that had begun. It may have found what this walk has met; a later one finds it.
    pub(crate) look: u64,
}

impl UnfinishedWalk {
    /// Copies the stack from `unknown` on. `last` are the parts of the last copy. `words` is room to read
    /// into: the stack of a program's thread may be small. `None` if there is no memory for it.
    pub(crate) fn copy(
        unknown: Unknown,
        frames: &[NativeFrame],
        main_end: usize,
        memory: Probe,
        last: &mut Vec<Arc<StackPart>>,
        words: &mut Words,
    ) -> Option<Self> {
        let start = unknown.registers.sp() as usize;
        if !start.is_multiple_of(8) {
            return None;
        }
        let mut copy = Self::begin(unknown, frames, None)?;
        let mut known = Known(last.iter().peekable());
        let mut at = start;
        while at < start + MOST {
            // Beyond the end of the main thread's stack are the program's arguments.
            let (begun, whole) = (at, PIECE - at % PIECE);
            let length = whole.min(main_end.checked_sub(at).unwrap_or(whole));
            // SAFETY: these are the bytes of the words.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), length) };
            let got = memory.bytes(at, bytes) & !7;
            let mut read = &words[..got / 8];
            while !read.is_empty() {
                let (words, rest) = read.split_at(read.len().min((PART - at % PART) / 8));
                copy.add(at, words, &mut known)?;
                at += size_of_val(words);
                read = rest;
            }
            if at - begun < whole {
                break;
            }
        }
        last.clone_from(&copy.parts);
        Some(copy)
    }

    /// Keeps what was copied of the stack of an interrupted thread. `last` as for [`Self::copy`].
    pub(crate) fn of_interrupted(
        unknown: Unknown,
        frames: &[NativeFrame],
        thread: &Interrupted<'_>,
        last: &mut Vec<Arc<StackPart>>,
    ) -> Option<Self> {
        let pointer = unknown.registers.sp() as usize;
        let mut at = pointer.saturating_sub(RED_ZONE).max(thread.start()) & !7;
        let cut = if thread.is_whole() {
            Cut::No
        } else {
            Cut::NotCopied
        };
        let mut copy = Self::begin(unknown, frames, Some(cut))?;
        let mut known = Known(last.iter().peekable());
        let mut words = thread.words_from(at);
        let mut part = [0; PART / 8];
        loop {
            let room = part[..(PART - at % PART) / 8].iter_mut();
            let length = room
                .zip(&mut words)
                .map(|(place, word)| *place = word)
                .count();
            if length == 0 {
                break;
            }
            copy.add(at, &part[..length], &mut known)?;
            at += 8 * length;
        }
        last.clone_from(&copy.parts);
        Some(copy)
    }

    fn begin(unknown: Unknown, frames: &[NativeFrame], interrupted: Option<Cut>) -> Option<Self> {
        let mut kept = Vec::new();
        kept.try_reserve_exact(unknown.inner).ok()?;
        kept.extend_from_slice(&frames[..unknown.inner]);
        Some(Self {
            unknown,
            frames: kept,
            interrupted,
            parts: Vec::new(),
            own: 0,
            look: looks::last(),
        })
    }

    /// Adds a part of the stack, or the last copy's if it is the same.
    fn add(&mut self, at: usize, words: &[u64], known: &mut Known<'_>) -> Option<()> {
        let same = known.same(at, words);
        self.parts.try_reserve(1).ok()?;
        self.parts.push(match same {
            Some(part) => Arc::clone(part),
            None => {
                self.own += PART;
                let mut copy = Vec::new();
                copy.try_reserve_exact(words.len()).ok()?;
                copy.extend_from_slice(words);
                Arc::new(StackPart {
                    start: at,
                    words: copy,
                })
            }
        });
        Some(())
    }

    /// A word of the stack. `None` if it is not aligned, or was not kept.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let address = usize::try_from(address).ok()?;
        let first = self.parts.first()?.start / PART;
        let part = self.parts.get((address / PART).checked_sub(first)?)?;
        let within = address.checked_sub(part.start)?;
        if !within.is_multiple_of(8) {
            return None;
        }
        part.words.get(within / 8).copied()
    }

    /// How many bytes are kept, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.own + size_of_val(&*self.parts) + size_of_val(&*self.frames)
    }
}
