//! Threads of libraries: those that Python does not know.
//!
//! A library with threads of its own (polars, OpenCV, JAX) often works in them while one thread of Python waits in a call of the
//! library. What such a thread allocates belongs below that call. Elsewhere it has the library's name.
//!
//! - *The library* of a thread is the innermost one on its stack, besides the C library and its like.
//! - *The call*: of a thread of Python, the C functions that its innermost frame has called lie on its stack, from a known place
//!   downwards to its stack pointer. If the first return address there that is not the interpreter's is one of the same package, the thread waits in
//!   that package. The kernel knows the stack pointer of a thread that waits in a system call. One that runs works in the call, or
//!   spins; there, addresses that earlier calls have left below the stack count as well.
//!
//! No table of unwind rules is needed: words of a stack are return addresses if a call stands before the address that
//! they hold. The other thread may run meanwhile, so all is read through the kernel, and its frames are read twice: what
//! they refer to is checked as it is for time samples ([`super::resolve`]). A word that was left behind by an earlier call may name the wrong library; between the
//! interpreter's function and the one that it has called there are few of these.

use std::cell::UnsafeCell;

use nthbyte_host::process::{CachedProbe, Probe, stack_pointer_of_waiting};
use nthbyte_profile::event::{FrameKind, NodeId};
use nthbyte_session::Recording;
use nthbyte_session::libraries::{self, Library};

use super::resolve::Resolver;
use super::walk::walk;
use super::words::Word;
use crate::api::Api;
use crate::layout::Layout;

/// Bytes of a stack that are looked at.
const LOOKED_AT: usize = 8 << 10;
/// The largest number of words that a walk makes of a stack: two for each of 200 frames.
const MOST_WORDS: usize = 400;
/// Where stacks are read to: the calling thread's own stack may be small.
struct Scratch {
    bytes: [u8; LOOKED_AT],
    walked: [[u8; 8]; MOST_WORDS],
    /// A probe, and the process that it reads.
    memory: Option<(u32, CachedProbe)>,
}

/// The one scratch, for the thread that has a recording.
struct ScratchCell(UnsafeCell<Scratch>);

// SAFETY: only the thread with a recording uses the content, and there is one recording at a time.
unsafe impl Sync for ScratchCell {}

static SCRATCH: ScratchCell = ScratchCell(UnsafeCell::new(Scratch {
    bytes: [0; LOOKED_AT],
    walked: [[0; 8]; MOST_WORDS],
    memory: None,
}));

/// The stack of the calling thread, which Python does not know: `threads` are `PyThreadState`s that may wait for it, and may
/// be gone.
pub fn place(
    api: &'static Api,
    layout: &Layout,
    threads: &[usize],
    recording: &mut Recording<'_>,
) -> Option<NodeId> {
    let Some(probe) = Probe::new() else {
        return Some(NodeId::ROOT);
    };
    // SAFETY: there is a recording, and this is the only use of the scratch in this thread.
    let scratch = unsafe { &mut *SCRATCH.0.get() };
    let mut look = Look {
        probe,
        interpreter: api.PyCode_Type as usize,
        scratch,
    };
    let here = std::hint::black_box(0_usize);
    let read = look.read((&raw const here as usize).next_multiple_of(8));
    let Some(own) = look.first_library(recording, 0..read / 8) else {
        return Some(NodeId::ROOT);
    };
    let mut parent = NodeId::ROOT;
    for &state in threads.iter().filter(|&&state| state != 0) {
        if let Some(call) = waits_in(&mut look, recording, layout, state, own)
            && let Some(caller) = Resolver::new(layout, api, None).stack_of(recording, &call)
        {
            parent = caller;
            break;
        }
    }
    recording.named_node(parent, &own.own_threads, FrameKind::Note)
}

/// The frames of a thread that waits in the package of a library, innermost first; `None` if it does not.
fn waits_in(
    look: &mut Look<'_>,
    recording: &mut Recording<'_>,
    layout: &Layout,
    state: usize,
    own: &Library,
) -> Option<Vec<u64>> {
    let before = look.frames(layout, state)?;
    let calls = before.iter().map(|&word| Word::unpack(word));
    let call = calls
        .filter_map(|word| match word {
            Word::Call(stack) => Some(stack),
            _ => None,
        })
        .next()?;
    let lowest = call.checked_sub(LOOKED_AT)?;
    let thread = look
        .probe
        .read(state.wrapping_add(layout.native_thread_id))?;
    let end = stack_pointer_of_waiting(thread).filter(|&end| end <= call);
    let unused = end.map_or(0, |end| end.saturating_sub(lowest));
    let read = look.read(lowest);
    let called = look.first_library(recording, (unused / 8..read / 8).rev())?;
    (called.package == own.package && look.frames(layout, state)? == before).then_some(before)
}

/// Reads stacks.
struct Look<'a> {
    probe: Probe,
    /// An address in the interpreter.
    interpreter: usize,
    scratch: &'a mut Scratch,
}

impl Look<'_> {
    /// Reads bytes from an address on. Returns how many.
    fn read(&mut self, address: usize) -> usize {
        self.probe.bytes(address, &mut self.scratch.bytes)
    }

    /// The words of a thread's frames and calls, innermost first; `None` if they cannot be read, or are too many.
    fn frames(&mut self, layout: &Layout, state: usize) -> Option<Vec<u64>> {
        let Scratch { walked, memory, .. } = &mut *self.scratch;
        let process = std::process::id();
        if memory.as_ref().is_none_or(|(of, _)| *of != process) {
            *memory = Some((process, CachedProbe::new()));
        }
        let (_, memory) = memory.as_ref()?;
        memory.clear();
        let found = walk(layout, memory, state, None, true, walked)?;
        let mut all = Vec::new();
        all.try_reserve_exact(found.words).ok()?;
        let words = walked.iter().take(found.words);
        all.extend(words.map(|word| u64::from_ne_bytes(*word)));
        (!found.is_cut).then_some(all)
    }

    /// The library of the first return address, among these words of what was read, that is not one of the interpreter, or of
    /// a library that others run on.
    fn first_library(
        &self,
        recording: &mut Recording<'_>,
        words: impl Iterator<Item = usize>,
    ) -> Option<&'static Library> {
        let all = self.scratch.bytes.as_chunks::<8>().0;
        for word in words {
            let word = usize::from_ne_bytes(all[word]);
            if let Some((addresses, library)) = libraries::at(recording, &self.probe, word)
                && !library.serves_others
                && !addresses.contains(&self.interpreter)
                && is_after_call(&self.probe, word)
            {
                return Some(library);
            }
        }
        None
    }
}

/// Whether a call stands before an address: `call rel32`, or one through a register or memory (FF /2).
fn is_after_call(probe: &Probe, address: usize) -> bool {
    let Some(before) = address
        .checked_sub(7)
        .and_then(|start| probe.read::<[u8; 7]>(start))
    else {
        return false;
    };
    let is_indirect = |length: usize| {
        let at = before.len() - length;
        before[at] == 0xff && before[at + 1] >> 3 & 7 == 2
    };
    before[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_instructions() {
        let Some(probe) = Probe::new() else {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        };
        for (code, is_call) in [
            ([0x90, 0x90, 0xe8, 1, 2, 3, 4], true),
            ([0x90, 0xff, 0x15, 1, 2, 3, 4], true),
            ([0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0], true),
            ([0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18], true),
            ([0xff, 0x94, 0x24, 1, 2, 3, 4], true),
            // A jump through memory, and data.
            ([0x90, 0xff, 0x25, 1, 2, 3, 4], false),
            ([0; 7], false),
        ] {
            let code: [u8; 7] = std::hint::black_box(code);
            assert_eq!(
                is_after_call(&probe, code.as_ptr() as usize + 7),
                is_call,
                "{code:x?}"
            );
        }
        assert!(!is_after_call(&probe, 3) && !is_after_call(&probe, 4096));
    }
}
