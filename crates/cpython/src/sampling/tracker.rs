//! From a sampled block to events.
//!
//! A sample waits in one slot until its type can be told: until the next sample, the next
//! collection, the end, or until its block is freed. Then it is recorded, and its block's token
//! becomes the sample's number, by which its end is recorded.

use std::ffi::c_void;

use nthbyte_heap::{Domain, Heap, NOT_INTERESTED, Sample};
use nthbyte_profile::event::{
    Allocation, Collection, CollectionKind, LostKind, Nanos, NodeId, SampleId, Survival, ThreadId,
    TypeId,
};

use nthbyte_sampling::{Distances, Period};

use crate::api::{Api, Gil};
use crate::heap::huge_pages::HugePages;
use crate::heap::totals::Totals;
use crate::layout::Layout;
use crate::memory::field;
use crate::sampling::allocation_sites::Callers;
use crate::sampling::codes::Codes;
use crate::sampling::threads::Threads;
use crate::sampling::types::{Origin, Types};
use crate::sampling::walker::Walker;
use nthbyte_session::Recorder;

/// What the debug hooks of `PYTHONMALLOC=debug` put before a block and around it
/// (`Objects/obmalloc.c`, `_PyMem_DebugRawAlloc`).
const DEBUG_HEAD: usize = 16;
const DEBUG_AROUND: usize = 24;

/// From this size on, and from that of a period, the one sample that waits in the slot would be missed if
/// the process were killed.
const LARGE: u64 = 64 << 10;

/// Everything that one session knows of the program. Used by whoever holds the GIL.
pub struct Tracker {
    api: &'static Api,
    layout: Layout,
    /// The heap's context.
    heap: *mut c_void,
    totals: Totals,
    huge_pages: HugePages,
    debug_hooks: bool,
    recorder: Option<Recorder>,
    generation: u32,
    walker: Walker,
    codes: Codes,
    types: Types,
    threads: Threads,
    tokens: Tokens,
    pending: Option<Pending>,
    period: Period,
    rounding: Rounding,
}

/// How much larger blocks are than what was asked for, by the samples so far.
#[derive(Clone, Copy, Debug, Default)]
struct Rounding {
    requested: f64,
    set_aside: f64,
}

/// A sample whose type is not known yet.
#[derive(Clone, Copy)]
struct Pending {
    token: u32,
    block: usize,
    origin: Origin,
    caller: usize,
    sample: Allocation,
}

impl Tracker {
    /// A tracker without a session. `layout` was verified.
    #[must_use]
    pub fn new(
        gil: &Gil,
        layout: Layout,
        heap: *mut c_void,
        debug_hooks: bool,
        callers: Callers,
    ) -> Self {
        let api = gil.api();
        Self {
            api,
            layout,
            heap,
            totals: Totals::of(heap),
            huge_pages: HugePages::default(),
            debug_hooks,
            recorder: None,
            generation: 0,
            walker: Walker::default(),
            codes: Codes::new(api),
            types: Types::new(gil, callers),
            threads: Threads::default(),
            tokens: Tokens::default(),
            pending: None,
            period: Period::EVERY,
            rounding: Rounding::default(),
        }
    }

    /// Begins a session.
    pub fn begin(&mut self, recorder: Recorder, period: Period) {
        self.forget();
        (self.period, self.rounding) = (period, Rounding::default());
        // The heap does not tell of blocks that an earlier session sampled.
        self.tokens = Tokens::default();
        self.generation = 0;
        self.recorder = Some(recorder);
    }

    /// Ends the session; `None` if there is none.
    pub fn end(&mut self) -> Option<Recorder> {
        self.attend();
        self.settle(None);
        self.recorder.take()
    }

    /// The session's recorder.
    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut()
    }

    /// Whether types can be told in this process.
    #[must_use]
    pub const fn can_tell_types(&self) -> bool {
        self.types.can_tell()
    }

    /// What this process asked for, of so many bytes in blocks: the heap counts blocks, for its fast path
    /// does not know more, and the samples tell how much of them was asked for.
    #[must_use]
    pub fn requested(&self, bytes_in_blocks: u64) -> u64 {
        self.rounding.requested(self.totals.own(bytes_in_blocks))
    }

    /// Heap memory in blocks in use, in bytes.
    #[must_use]
    pub fn heap_used(&self) -> u64 {
        self.totals.heap_used()
    }

    /// Records memory totals.
    pub fn record_memory(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            let now = recorder.now();
            recorder.memory(
                self.totals
                    .take(now, |bytes| self.rounding.requested(bytes)),
            );
        }
    }

    /// A code object dies.
    pub fn code_died(&mut self, code: usize) {
        if self.codes.died(code) {
            self.walker.forget();
        }
    }

    /// A type dies.
    pub fn type_died(&mut self, type_object: usize) {
        self.types.died(type_object);
    }

    /// Makes way for a collection: what was sampled before it is recorded before it.
    pub fn before_collection(&mut self) -> Option<Nanos> {
        self.attend();
        self.settle(None);
        self.recorder.as_ref().map(Recorder::now)
    }

    /// Records a collection that has just ended.
    pub fn after_collection(
        &mut self,
        start: Nanos,
        end: Nanos,
        generation: u8,
        freed_objects: Option<u64>,
        bytes_before: u64,
    ) {
        let memory = self
            .totals
            .take(end, |bytes| self.rounding.requested(bytes));
        let os_id = self.current_thread().1;
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let Some(thread) = self.threads.id(os_id, recorder, None) else {
            return;
        };
        recorder.collection(Collection {
            start,
            duration: Nanos(end.0.saturating_sub(start.0)),
            thread,
            kind: CollectionKind::Generation(generation),
            freed_objects,
            bytes_before: Some(bytes_before),
            bytes_after: memory.heap_used,
        });
        recorder.memory(memory);
    }

    /// The thread state (null between interpreters) and the system's number of the running thread.
    fn current_thread(&self) -> (usize, u64) {
        // SAFETY: callable at any time, in 3.11 to 3.15; a thread state that it returns is live.
        unsafe {
            let thread = (self.api.PyThreadState_GetUnchecked)() as usize;
            if thread == 0 {
                (0, libc::gettid().cast_unsigned().into())
            } else {
                (thread, field::<u64>(thread, self.layout.native_thread_id))
            }
        }
    }

    /// Looks after the session, and begins anew in the child of a fork. Its time.
    fn attend(&mut self) -> Option<Nanos> {
        let recorder = self.recorder.as_mut()?;
        let now = recorder.now();
        let generation = recorder.attend(now);
        if generation == self.generation {
            return Some(now);
        }
        self.forget();
        self.totals.begin_in_child();
        self.rounding = Rounding::default();
        self.generation = generation;
        self.recorder.as_ref().map(Recorder::now)
    }

    fn forget(&mut self) {
        self.walker.reset();
        self.codes.reset();
        self.types.reset();
        self.threads.reset();
        self.totals.reset();
        self.huge_pages.reset();
        self.tokens.make_stale();
        self.pending = None;
    }

    /// Takes a sample; returns the token by which its end will be told.
    pub fn sampled(&mut self, sample: &Sample) -> u32 {
        let Some(time) = self.attend() else {
            return NOT_INTERESTED;
        };
        self.settle(None);
        if self.totals.are_due(time) {
            self.record_memory();
        }
        // SAFETY: the GIL is held, and an observer may call the heap.
        unsafe { self.huge_pages.attend(time, self.heap) };
        let (state, os_id) = self.current_thread();
        let Some(recorder) = &mut self.recorder else {
            return NOT_INTERESTED;
        };
        let token = self.tokens.issue();
        let stack = match state {
            0 => Some(NodeId::ROOT),
            // SAFETY: the heap is only called with the GIL held, and this is the holder's state.
            _ => unsafe {
                self.walker
                    .stack(&self.layout, state, &mut self.codes, recorder)
            },
        };
        let name = || {
            // SAFETY: the stack of this thread has just been walked.
            let (code, local) = unsafe { self.walker.outermost(&self.layout)? };
            self.codes
                .is_thread_bootstrap(code)
                .then(|| self.types.thread_name(&self.layout, local))?
        };
        let place =
            stack.and_then(|stack| Some((self.threads.id(os_id, recorder, Some(&name))?, stack)));
        let (Some(token), Some((thread, stack))) = (token, place) else {
            recorder.lost(LostKind::Allocations, 1);
            if let Some(token) = token {
                self.tokens.release(token);
            }
            return NOT_INTERESTED;
        };
        let taken = allocation(time, thread, stack, sample);
        if taken.block >= LARGE.max(self.period.bytes()) {
            recorder.announce(taken);
        }
        self.pending = Some(Pending {
            token,
            block: sample.block as usize,
            origin: match sample.domain {
                Domain::Object => Origin::Object,
                Domain::Memory => Origin::Memory,
            },
            caller: sample.caller,
            sample: taken,
        });
        token
    }

    /// A sampled block is freed; what was in it is at `contents`.
    pub fn freed(&mut self, contents: usize, token: u32) {
        let Some(time) = self.attend() else { return };
        if self.pending.is_some_and(|pending| pending.token == token) {
            self.settle(Some(contents));
        }
        if let Some(sample) = self.tokens.release(token)
            && let Some(recorder) = &mut self.recorder
        {
            recorder.freed(sample, time);
        }
    }

    /// Records the sample that waits, with its type.
    fn settle(&mut self, contents: Option<usize>) {
        let Some(mut pending) = self.pending.take() else {
            return;
        };
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        self.rounding.add(&pending.sample, self.period);
        pending.sample.type_id = match self.types.of_caller(pending.caller, recorder) {
            Some(known) => known,
            None => self.type_of(&pending, contents),
        };
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        if let Some(id) = recorder.allocation(pending.sample) {
            self.tokens.set(pending.token, id);
        }
    }

    /// The type of what is in the block of a sample, or was and is at `contents`.
    fn type_of(&mut self, pending: &Pending, contents: Option<usize>) -> TypeId {
        let Some(recorder) = &mut self.recorder else {
            return TypeId::UNKNOWN;
        };
        let mut block = contents.unwrap_or(pending.block);
        let mut size = usize::try_from(pending.sample.size).unwrap_or(0);
        if self.debug_hooks {
            (block, size) = (block + DEBUG_HEAD, size.saturating_sub(DEBUG_AROUND));
        }
        let heap = self.heap;
        // SAFETY: the context is the heap's.
        let readable = |address: usize| unsafe { Heap::owns(heap, address as *const c_void) };
        // SAFETY: the block is still in use, or has just been freed and not been written to yet;
        // memory of the heap can be read.
        unsafe {
            self.types.of_block(
                &self.layout,
                block,
                size,
                pending.origin,
                &readable,
                recorder,
            )
        }
    }
}

impl Rounding {
    /// Each sample counts for the blocks that it stands for.
    fn add(&mut self, sample: &Allocation, period: Period) {
        let blocks = nthbyte_sampling::weight(sample.block, 1, period, Distances::Exponential);
        self.set_aside += blocks;
        self.requested += blocks * (sample.size as f64 / sample.block.max(1) as f64);
    }

    fn requested(&self, bytes_in_blocks: u64) -> u64 {
        if self.set_aside > 0.0 {
            (bytes_in_blocks as f64 * (self.requested / self.set_aside)).round() as u64
        } else {
            bytes_in_blocks
        }
    }
}

fn allocation(time: Nanos, thread: ThreadId, stack: NodeId, sample: &Sample) -> Allocation {
    Allocation {
        time,
        thread,
        stack,
        size: sample.requested as u64,
        block: sample.block_size as u64,
        points: sample.points,
        type_id: TypeId::UNKNOWN,
        survival: Survival::Unsaid,
    }
}

/// Tokens of live sampled blocks, and the numbers of their samples.
#[derive(Default)]
struct Tokens {
    entries: Vec<u32>,
    unused: Vec<u32>,
}

impl Tokens {
    /// The entry of a block whose sample was not recorded, or was by an earlier session.
    const NO_SAMPLE: u32 = u32::MAX;

    fn issue(&mut self) -> Option<u32> {
        if let Some(token) = self.unused.pop() {
            return Some(token);
        }
        self.entries.try_reserve(1).ok()?;
        // Room for the token when it comes back, so that `release` cannot fail.
        self.unused.try_reserve(self.entries.len() + 1).ok()?;
        self.entries.push(Self::NO_SAMPLE);
        u32::try_from(self.entries.len() - 1)
            .ok()
            .filter(|&token| token != NOT_INTERESTED)
    }

    fn set(&mut self, token: u32, sample: SampleId) {
        if let Some(entry) = self.entries.get_mut(token as usize) {
            *entry = sample.0;
        }
    }

    fn release(&mut self, token: u32) -> Option<SampleId> {
        let entry = std::mem::replace(self.entries.get_mut(token as usize)?, Self::NO_SAMPLE);
        self.unused.push(token);
        (entry != Self::NO_SAMPLE).then_some(SampleId(entry))
    }

    fn make_stale(&mut self) {
        self.entries.fill(Self::NO_SAMPLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_again_only_after_its_release() {
        let mut tokens = Tokens::default();
        let (first, second) = (tokens.issue().unwrap(), tokens.issue().unwrap());
        assert_ne!(first, second);
        tokens.set(first, SampleId(7));
        assert_eq!(tokens.release(first), Some(SampleId(7)));
        assert_eq!(tokens.issue(), Some(first));
        assert_eq!(
            tokens.release(first),
            None,
            "the sample of the token's earlier block"
        );
        tokens.set(second, SampleId(8));
        tokens.make_stale();
        assert_eq!(tokens.release(second), None);
    }
}
