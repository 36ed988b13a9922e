//! Which frames of a thread are as they were at the last walk: the interpreter's stack of frames says it.
//!
//! CPython keeps the frames of functions in *chunks* of 16 KiB (`_PyStackChunk` in its `pystate.h`, `push_chunk` and
//! `_PyThreadState_PopFrame` in `pystate.c`). A chunk begins when a frame does not fit into the last one, and ends when
//! that frame returns:
//!
//! ```text
//! previous │ size │ top │ frame, frame, …          top: where the frames end, in words from the first one
//! ```
//!
//! While the frame at the start of a chunk runs, or what it calls, all its callers wait: none of them returns, or goes on to
//! another instruction. So the frames outside of a chunk are as they were at the last walk, if the chunk is the same
//! one. Another one may have its address, or its memory. So a walk sets a bit in each chunk that it meets, in `top`:
//!
//! - `top` is 0 in a new chunk, also in one that uses the memory of an old one (the thread keeps one of them, in versions
//!   from 2025 on). It is written as a whole when another chunk follows.
//! - It is read when that one ends, to find `data[top]`: `top` is shifted by three bits then, which moves these bits out.
//!
//! So: **a chunk with a walker's bit was in use all the time since that walker has set it** (U1). A chunk loses the bit when
//! another one follows it, but keeps it under the ones that do not begin right after it.
//!
//! The bit is set only if the chunk's first frame was found in the chain of frames: one that is being made is
//! not yet in it, and its caller has not come to rest.

use crate::layout::Layout;
use nthbyte_host::process::field;

/// `_PyStackChunk.previous`, `top` and `data`.
const PREVIOUS: usize = 0;
const TOP: usize = 16;
const DATA: usize = 24;

/// Chunks with the bit that the last walk does not know: it was of another stack, whose frames are in other chunks.
const MOST_UNKNOWN: usize = 4;

/// Who walks. Each has a bit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackReader {
    /// Samples of objects.
    Objects,
    /// Samples of native memory.
    Native,
}

impl StackReader {
    const fn mark(self) -> usize {
        match self {
            Self::Objects => 1 << 63,
            Self::Native => 1 << 62,
        }
    }
}

/// A chunk whose first frame a walk has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The chunk.
    pub chunk: usize,
    /// A number of frames, counted by the walker.
    pub frames: usize,
}

/// The chunks of a walk from the innermost one on, each until its first frame is passed.
pub struct Cursor {
    chunk: usize,
}

impl Cursor {
    /// At the innermost chunk of a thread.
    ///
    /// # Safety
    /// `thread` is a live `PyThreadState` with this layout, of the calling thread.
    #[inline(always)]
    pub unsafe fn new(layout: &Layout, thread: usize) -> Self {
        Self {
            // SAFETY: by the contract.
            chunk: unsafe { field(thread, layout.thread_chunk) },
        }
    }

    /// The place of the first frame of the chunk. (The outermost chunk's is elsewhere, and has nothing outside.)
    #[inline(always)]
    pub const fn first(&self) -> usize {
        self.chunk.wrapping_add(DATA)
    }

    /// Goes on to the next chunk. Returns the one that is left.
    ///
    /// # Safety
    /// The frame at [`Self::first`] was met, so there is a chunk.
    pub unsafe fn leave(&mut self) -> usize {
        // SAFETY: by the contract, this is a chunk of the calling thread.
        let previous = unsafe { field(self.chunk, PREVIOUS) };
        std::mem::replace(&mut self.chunk, previous)
    }
}

/// The chunks of the last walk, outermost first. `frames` are those outside of a chunk's first frame.
#[derive(Debug, Default)]
pub struct Chunks(Vec<Passed>);

impl Chunks {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The innermost chunk that is the same as at the last walk. Forgets those inside of it.
    ///
    /// # Safety
    /// As for [`Cursor::new`].
    pub unsafe fn unchanged(
        &mut self,
        layout: &Layout,
        reader: StackReader,
        thread: usize,
    ) -> Option<Passed> {
        // SAFETY: by the contract; the chunks are a list that ends with 0.
        unsafe {
            let mut chunk = Cursor::new(layout, thread).chunk;
            let mut unknown = 0;
            while chunk != 0 && !self.0.is_empty() && unknown < MOST_UNKNOWN {
                if field::<usize>(chunk, TOP) & reader.mark() != 0 {
                    if let Some(at) = self.0.iter().rposition(|passed| passed.chunk == chunk) {
                        self.0.truncate(at + 1);
                        return Some(self.0[at]);
                    }
                    unknown += 1;
                }
                chunk = field(chunk, PREVIOUS);
            }
        }
        self.0.clear();
        None
    }

    /// Adds the chunks of a walk, innermost first, of a stack of `all` frames, `passed.frames` of which were inside of the
    /// chunk's first frame, or were it. Chunks for which there is no memory are found again by the next walk.
    ///
    /// # Safety
    /// The calling thread has not run since the walk.
    #[unsafe(link_section = "nthbyte_hot")]
    pub unsafe fn add(&mut self, reader: StackReader, all: usize, passed: &[Passed]) {
        if self.0.try_reserve(passed.len()).is_err() {
            return;
        }
        for one in passed.iter().rev() {
            if self.0.last().is_some_and(|last| last.chunk == one.chunk) {
                continue;
            }
            // SAFETY: by the contract, the chunk is one of the thread's, and nothing else writes to it. The bit changes
            // no place that the interpreter finds by this word.
            unsafe {
                let top = (one.chunk + TOP) as *mut usize;
                top.write(top.read() | reader.mark());
            }
            self.0.push(Passed {
                frames: all - one.frames,
                ..*one
            });
        }
    }

    /// The walker has dropped so many outer frames.
    pub fn drop_outer(&mut self, frames: usize) {
        self.0.retain(|passed| passed.frames > frames);
        for passed in &mut self.0 {
            passed.frames -= frames;
        }
    }
}
