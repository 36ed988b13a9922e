//! Converts sampled blocks into events.
//!
//! An object's type is stored after its allocation. So each sample is pending in one slot until the next sample, the
//! next collection, the end of the session, or the free of its block. Then it is recorded with its type. After that,
//! the block's token stands for the sample's number, which the free of the block needs.
//!
//! Without a GIL, threads sample between each other's samples. Each has a pending sample of its own ([`Others`]): another thread's
//! object may be half made.

use std::ffi::c_void;

use nthbyte_heap::{Heap, HeapStatistics, NOT_INTERESTED, SampledBlock};
use nthbyte_profile::event::{
    Allocation, Collection, CollectionKind, LabelSetId, LostKind, Nanos, NodeId, SourceId,
    Survival, ThreadId, TypeId,
};
use nthbyte_sampling::{Period, Weight};

use crate::api::{Api, FREE_THREADED, Gil};
use crate::heap::totals::{Own, Totals, known};
use crate::heap::upkeep::Upkeep;
use crate::labels;
use crate::layout::Layout;
use crate::sampling::allocation_sites::AllocationSites;
use crate::sampling::codes::Codes;
use crate::sampling::data_stack::StackReader;
use crate::sampling::native;
use crate::sampling::rounding::Rounding;
use crate::sampling::tokens::{Numbers, Tokens};
use crate::sampling::types::{HEAD, Origin, Types};
use crate::sampling::walker::Walker;
use nthbyte_host::probes;
use nthbyte_host::process::field;
use nthbyte_host::sync::this_thread;
use nthbyte_session::{Mark, PerEpoch, Recording, Session};

/// Bytes that the debug hooks of `PYTHONMALLOC=debug` put before a block and around it (`Objects/obmalloc.c`,
/// `_PyMem_DebugRawAlloc`).
const DEBUG_HEAD: usize = 16;
const DEBUG_AROUND: usize = 24;

/// A pending sample of at least this size, and at least one period, is published provisionally: its loss would be
/// visible if the process were killed.
const LARGE: u64 = 64 << 10;

/// After so long, an object is made, or its thread waits for something: its sample is recorded by other threads' recordings.
const MADE_BY_THEN: Nanos = Nanos(100_000_000);

/// Takes samples. Only the holder of the GIL uses it, or of the lock in its place.
pub struct Tracker {
    session: Option<Session>,
    program: Program,
    profile: PerEpoch<Profile>,
    /// Tokens of blocks that were freed while no recording was possible. The next recording handles them.
    unrecorded: Vec<u32>,
}

/// Data about the program. It does not depend on the profile.
struct Program {
    api: &'static Api,
    layout: Layout,
    /// The heap's context.
    heap: *mut c_void,
    debug_hooks: bool,
    walker: Walker,
    codes: Codes,
    types: Types,
    period: Period,
    /// The period under which the point of the sample that is being taken was drawn. Without a GIL, a thread may have one from before.
    drawn: Period,
}

/// The state of one profile.
struct Profile {
    totals: Totals,
    upkeep: Upkeep,
    tokens: Tokens,
    pending: Option<Pending>,
    /// Pending samples of other threads than the one that recorded last.
    others: Others,
    rounding: Rounding,
}

/// Pending samples of several threads, without a GIL; otherwise there is none of these.
#[derive(Default)]
struct Others {
    /// Whose sample [`Profile::pending`] is, by its thread pointer.
    thread: usize,
    pending: Vec<(usize, Pending)>,
}

impl Others {
    fn position(&self, token: u32) -> Option<usize> {
        self.pending
            .iter()
            .position(|(_, pending)| pending.token == token)
    }
}

/// A sample whose type is not yet known.
#[derive(Clone, Copy)]
struct Pending {
    token: u32,
    /// The address of the block. `None` if the block was freed and its content is lost.
    block: Option<usize>,
    origin: Origin,
    /// The allocation site.
    site: usize,
    /// The period under which the sample point was drawn.
    period: Period,
    sample: Allocation,
    /// The arena in which the block would lie if it had not been sampled; 0 if unknown.
    arena: u32,
}

impl Tracker {
    /// A tracker without a session. `layout` was verified.
    #[must_use]
    pub fn new(
        gil: &Gil,
        layout: Layout,
        heap: *mut c_void,
        debug_hooks: bool,
        sites: AllocationSites,
    ) -> Self {
        let api = gil.api();
        let program = Program {
            api,
            layout,
            heap,
            debug_hooks,
            walker: Walker::new(StackReader::Objects),
            codes: Codes::new(api),
            types: Types::new(gil, sites),
            period: Period::EVERY,
            drawn: Period::EVERY,
        };
        Self {
            session: None,
            program,
            profile: PerEpoch::new(Profile::of(heap)),
            unrecorded: Vec::new(),
        }
    }

    /// Starts a session.
    pub fn begin(&mut self, session: Session, period: Period) {
        let program = &mut self.program;
        program.period = period;
        program.types.begin();
        // The heap does not report frees of blocks that an earlier session sampled.
        self.unrecorded.clear();
        self.profile = PerEpoch::new(Profile::of(program.heap));
        if let Some(recording) = session.record(LostKind::Other) {
            self.profile.of_or_begin(recording.epoch(), |_| ());
        }
        self.session = Some(session);
    }

    /// Starts to record native memory, if the session's description has the sources.
    pub fn begin_native(&self, seed: u64, with_frames: bool) {
        if let Some(session) = &self.session {
            let Program { api, layout, .. } = &self.program;
            native::begin(api, layout, session, seed, with_frames);
        }
    }

    /// Ends the session, if there is one. `counted` is what the heap has counted. Also returns the part of it that is this
    /// process's own, if known.
    pub fn end(&mut self, counted: &HeapStatistics) -> Option<(Session, Option<Own>)> {
        let own = self.record(LostKind::Other, |program, profile, recording| {
            program.settle(profile, recording, None);
            program.settle_others(profile, recording, None);
            Own {
                counted: profile
                    .rounding
                    .counted(profile.totals.own(counted.allocated)),
                lost: profile.totals.own_lost(counted.lost),
            }
        });
        Some((self.session.take()?, own))
    }

    /// The layout of the interpreter.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.program.layout
    }

    /// The session's time; `None` if there is none.
    #[must_use]
    pub fn now(&self) -> Option<Nanos> {
        self.session.as_ref().map(Session::now)
    }

    /// Records the pending sample, and returns the numbers of all samples by their tokens. `None` if that is not possible now.
    pub fn numbers(&mut self) -> Option<Numbers> {
        self.record(LostKind::Other, |program, profile, recording| {
            program.settle(profile, recording, None);
            profile.tokens.numbers()
        })
    }

    /// Whether a session is running.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.session.is_some()
    }

    /// Whether types are readable in this process.
    #[must_use]
    pub const fn can_tell_types(&self) -> bool {
        self.program.types.can_tell()
    }

    /// Records memory totals.
    pub fn record_memory(&mut self) {
        self.record(LostKind::Other, |_, profile, recording| {
            recording.memory(profile.memory(recording.now()));
        });
    }

    /// Records memory totals, and says what was recorded up to now.
    pub fn mark(&mut self) -> Option<Mark> {
        self.record(LostKind::Other, |program, profile, recording| {
            program.settle(profile, recording, None);
            let memory = profile.memory(recording.now());
            recording.memory(memory);
            Mark {
                allocated: memory.allocated,
                ..recording.mark()
            }
        })
    }

    /// Called when a code object is about to be freed.
    pub fn forget_code(&mut self, code: usize) {
        if let Some(session) = &self.session
            && session.forget_function(code as u64)
        {
            self.program.walker.forget();
            native::code_freed();
        }
    }

    /// Called when a type is about to be freed.
    pub fn forget_type(&mut self, type_object: usize) {
        if let Some(session) = &self.session {
            session.forget_type(type_object as u64);
        }
    }

    /// Called when a collection begins: records the pending sample first. Returns the time, and the bytes in use.
    pub fn before_collection(&mut self) -> Option<(Nanos, u64)> {
        self.record(LostKind::Other, |program, profile, recording| {
            program.settle(profile, recording, None);
            (recording.now(), profile.totals.heap_used())
        })
    }

    /// Called when a collection has ended: records the pending sample, then the collection. `before` is what
    /// [`Tracker::before_collection`] returned.
    pub fn after_collection(
        &mut self,
        before: Option<(Nanos, u64)>,
        generation: u8,
        freed_objects: Option<u64>,
    ) {
        self.record(LostKind::Other, |program, profile, recording| {
            program.settle(profile, recording, None);
            let end = recording.now();
            let Some((start, used_before)) = before else {
                return;
            };
            let os_id = program.current_thread().1;
            let Some(thread) = recording.thread(os_id) else {
                return;
            };
            let used = profile.totals.heap_used();
            recording.collection(Collection {
                start,
                duration: Nanos(end.0.saturating_sub(start.0)),
                thread,
                kind: CollectionKind::Generation(generation),
                freed_objects,
                bytes_before: known(used_before),
                bytes_after: known(used),
            });
            if profile.totals.are_due_after_collection(end, used) {
                recording.memory(profile.memory(end));
            }
        });
    }

    /// Calls `record` with a recording. `None` if there is no session, or if recording is not possible now.
    #[inline]
    fn record<T>(
        &mut self,
        wanted_for: LostKind,
        record: impl FnOnce(&mut Program, &mut Profile, &mut Recording<'_>) -> T,
    ) -> Option<T> {
        let mut recording = self.session.as_ref()?.record(wanted_for)?;
        let program = &mut self.program;
        // The state is of another epoch if this process is the child of a fork.
        let profile = self.profile.of_or_begin(recording.epoch(), |profile| {
            profile.begin_in_child();
            program.types.begin();
        });
        if FREE_THREADED {
            program.turn_to_this_thread(profile, &mut recording);
        }
        if !self.unrecorded.is_empty() {
            program.freed_unrecorded(profile, &mut recording, &mut self.unrecorded);
        }
        Some(record(program, profile, &mut recording))
    }

    /// Takes a sample. Returns the token that the heap passes back when the block is freed.
    pub fn sampled(&mut self, sample: &SampledBlock) -> u32 {
        self.record(LostKind::Allocations, |program, profile, recording| {
            program.sampled(profile, recording, sample)
        })
        .unwrap_or(NOT_INTERESTED)
    }

    /// The same without a GIL, where the sample's point was drawn under this period.
    pub fn sampled_under(&mut self, sample: &SampledBlock, drawn: Period) -> u32 {
        self.program.drawn = drawn;
        self.sampled(sample)
    }

    /// Called when a sampled block is freed. `contents` is the address of its content.
    pub fn freed(&mut self, contents: usize, token: u32) {
        let recorded = self.record(LostKind::Other, |program, profile, recording| {
            program.freed(profile, recording, Some(contents), token);
        });
        if recorded.is_none() && self.session.is_some() && self.unrecorded.try_reserve(1).is_ok() {
            self.unrecorded.push(token);
        }
    }
}

impl Program {
    /// The thread state (null between interpreters) and the system's number of the current thread.
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

    fn sampled(
        &mut self,
        profile: &mut Profile,
        recording: &mut Recording<'_>,
        sample: &SampledBlock,
    ) -> u32 {
        let time = recording.now();
        self.settle(profile, recording, None);
        if profile.totals.are_due(time) {
            recording.memory(profile.memory(time));
        }
        if !FREE_THREADED {
            // SAFETY: the GIL is held, and an observer may call the heap.
            unsafe { profile.upkeep.run(time, self.heap) };
        }
        let token = profile.tokens.issue();
        let place = self.place(recording);
        let (Some(token), Some((thread, stack, labels))) = (token, place) else {
            recording.lost(LostKind::Allocations, 1);
            if let Some(token) = token {
                profile.tokens.release(token);
            }
            return NOT_INTERESTED;
        };
        let taken = Allocation {
            labels,
            ..allocation(time, thread, stack, sample)
        };
        let period = if FREE_THREADED {
            self.drawn
        } else {
            self.period
        };
        probes::allocated(sample.block as usize, sample.requested as u64, || {
            weight(recording, sample, period)
        });
        profile.pending = Some(Pending {
            token,
            block: Some(sample.block as usize),
            origin: sample.domain.into(),
            site: sample.site,
            period,
            sample: taken,
            arena: nthbyte_heap::arena_number(sample.near),
        });
        // Without a GIL, samples are not recorded in the order of their times.
        if !FREE_THREADED && taken.block >= LARGE.max(self.period.bytes()) {
            recording.publish_provisionally(taken, self.period.bytes());
        }
        if recording.period() != self.period.bytes() {
            self.follow_period(recording.period());
        }
        token
    }

    /// Changes the period of the heap. The samples until here, the pending one too, keep theirs.
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = "nthbyte_hot")]
    fn follow_period(&mut self, period: u64) {
        if let Some(period) = Period::new(period) {
            self.period = period;
            if FREE_THREADED {
                nthbyte_mimalloc::set_period(period);
                return;
            }
            // SAFETY: the GIL is held, and an observer may call the heap.
            unsafe { Heap::set_period(self.heap.cast(), period) };
        }
    }

    /// The current thread, its stack and its labels. `None` if there is no room for them.
    #[inline]
    fn place(&mut self, recording: &mut Recording<'_>) -> Option<(ThreadId, NodeId, LabelSetId)> {
        let (state, os_id) = self.current_thread();
        let Self {
            layout,
            walker,
            codes,
            types,
            ..
        } = self;
        if state == 0 {
            return Some((recording.thread(os_id)?, NodeId::ROOT, LabelSetId::NONE));
        }
        // SAFETY: the heap is only called with the GIL held, and this is the holder's state.
        let stack = unsafe { walker.stack(layout, state, codes, recording)? };
        let mut name = || {
            // SAFETY: as above.
            let (code, local) = unsafe { Walker::outermost(layout, state, codes)? };
            // SAFETY: the code object of a frame of that stack.
            let is_thread = unsafe { codes.is_thread_bootstrap(layout, code) };
            is_thread.then(|| types.thread_name(layout, local))?
        };
        let thread = recording.thread_named_by(os_id, &mut name)?;
        // SAFETY: as above.
        let labels = unsafe { labels::of_thread(state, recording)? };
        Some((thread, stack, labels))
    }

    #[inline(always)]
    fn freed(
        &self,
        profile: &mut Profile,
        recording: &mut Recording<'_>,
        contents: Option<usize>,
        token: u32,
    ) {
        if let Some(pending) = &mut profile.pending
            && pending.token == token
        {
            pending.block = contents;
            self.settle(profile, recording, contents);
        } else if FREE_THREADED && let Some(at) = profile.others.position(token) {
            profile.others.pending[at].1.block = contents;
            self.settle_other(profile, recording, at, contents);
        }
        if let Some(sample) = profile.tokens.release(token) {
            recording.freed(sample, recording.now());
        }
    }

    /// Handles blocks that were freed while no recording was possible. Their content is lost.
    #[cold]
    #[inline(never)]
    fn freed_unrecorded(
        &self,
        profile: &mut Profile,
        recording: &mut Recording<'_>,
        tokens: &mut Vec<u32>,
    ) {
        for token in tokens.drain(..) {
            self.freed(profile, recording, None, token);
        }
    }

    /// Makes the pending sample that of the calling thread, without a GIL, and records those of threads that have rested since theirs.
    #[unsafe(link_section = "nthbyte_hot")]
    fn turn_to_this_thread(&self, profile: &mut Profile, recording: &mut Recording<'_>) {
        let others = &mut profile.others;
        let own = this_thread();
        let before = std::mem::replace(&mut others.thread, own);
        if before != own {
            if profile.pending.is_some() && others.pending.try_reserve(1).is_err() {
                self.settle(profile, recording, None);
            }
            let others = &mut profile.others;
            if let Some(pending) = profile.pending.take() {
                others.pending.push((before, pending));
            }
            let at = others.pending.iter().position(|&(thread, _)| thread == own);
            profile.pending = at.map(|at| others.pending.swap_remove(at).1);
        }
        let now = recording.now().0;
        let is_old = |pending: &Pending| now.saturating_sub(pending.sample.time.0) > MADE_BY_THEN.0;
        self.settle_others(profile, recording, Some(&is_old));
    }

    /// Records the pending samples of other threads: all, or those of which `which` is true.
    #[unsafe(link_section = "nthbyte_hot")]
    fn settle_others(
        &self,
        profile: &mut Profile,
        recording: &mut Recording<'_>,
        which: Option<&dyn Fn(&Pending) -> bool>,
    ) {
        let find = |others: &Others| {
            let is_wanted =
                |(_, pending): &(usize, Pending)| which.is_none_or(|which| which(pending));
            others.pending.iter().position(is_wanted)
        };
        while let Some(at) = find(&profile.others) {
            self.settle_other(profile, recording, at, None);
        }
    }

    /// Records another thread's pending sample.
    #[unsafe(link_section = "nthbyte_hot")]
    fn settle_other(
        &self,
        profile: &mut Profile,
        recording: &mut Recording<'_>,
        at: usize,
        contents: Option<usize>,
    ) {
        let (_, other) = profile.others.pending.swap_remove(at);
        let own = profile.pending.replace(other);
        self.settle(profile, recording, contents);
        profile.pending = own;
    }

    /// Records the pending sample, with its type.
    #[unsafe(link_section = "nthbyte_hot")]
    fn settle(
        &self,
        profile: &mut Profile,
        recording: &mut Recording<'_>,
        contents: Option<usize>,
    ) {
        let Some(pending) = &mut profile.pending else {
            return;
        };
        pending.sample.type_id = match self.types.of_site(pending.site, recording) {
            Some(known) => known,
            None => {
                let found = self.type_of(pending, contents, recording);
                found.unwrap_or(TypeId::UNKNOWN)
            }
        };
        let period = pending.period;
        profile.rounding.add(&pending.sample, period);
        if let Some(id) = recording.allocation_in(pending.sample, period.bytes(), pending.arena) {
            profile.tokens.set(pending.token, id);
        }
        profile.pending = None;
    }

    /// The type of the block's content, or of the freed content at `contents`. `None` if there is none to read.
    fn type_of(
        &self,
        pending: &Pending,
        contents: Option<usize>,
        recording: &mut Recording<'_>,
    ) -> Option<TypeId> {
        let mut block = contents.or(pending.block)?;
        let mut size = usize::try_from(pending.sample.size).unwrap_or(0);
        if self.debug_hooks {
            (block, size) = (block + DEBUG_HEAD, size.saturating_sub(DEBUG_AROUND));
        }
        let (heap, types, layout) = (self.heap, &self.types, &self.layout);
        // SAFETY: the context is the heap's, and the heap's observer calls this, or the GIL's holder.
        let readable =
            |address: usize| !FREE_THREADED && unsafe { Heap::has_address(heap, address) };
        let head;
        if contents.is_none() && !readable(block) {
            // An extension may have freed a large block without the heap, by `free`: then it may be mapped no more.
            head = types.head(block)?;
            block = head.as_ptr() as usize;
        }
        // SAFETY: memory of the heap can be read, whether the block is still in use or not; a block that has just been
        // freed has not been written to yet; of any other one, `head` has as much as is read.
        Some(unsafe { types.of_block(layout, block, size, pending.origin, &readable, recording) })
    }
}

impl Profile {
    /// The state of a new session.
    fn of(heap: *mut c_void) -> Self {
        Self {
            totals: Totals::of(heap),
            upkeep: Upkeep::default(),
            tokens: Tokens::default(),
            pending: None,
            others: Others::default(),
            rounding: Rounding::default(),
        }
    }

    /// Called in the child of a fork. Blocks that the parent sampled still have their tokens.
    #[cold]
    fn begin_in_child(&mut self) {
        self.totals.begin_in_child();
        self.upkeep.reset();
        self.tokens.make_stale();
        self.pending = None;
        self.others = Others::default();
        self.rounding = Rounding::default();
    }

    fn memory(&mut self, now: Nanos) -> nthbyte_profile::event::Memory {
        let rounding = self.rounding;
        self.totals.take(now, |bytes| rounding.requested(bytes))
    }
}

/// Clears as much of a new block as says what its type is: while its object is made, nothing of the block's last one may count.
///
/// # Safety
/// The block has just been sampled.
pub unsafe fn clear(sample: &SampledBlock) {
    // SAFETY: by the contract, nobody uses the block, which has so many bytes.
    unsafe {
        sample
            .block
            .cast::<u8>()
            .write_bytes(0, sample.requested.min(HEAD));
    }
}

/// The bytes that a sample stands for, for who listens at the probe.
#[cold]
#[inline(never)]
fn weight(recording: &Recording<'_>, sample: &SampledBlock, period: Period) -> f64 {
    let (size, block) = (sample.requested as u64, sample.block_size as u64);
    let distances = recording.meta().distances();
    Weight::of(distances, period.bytes(), size, block, sample.points).bytes
}

fn allocation(time: Nanos, thread: ThreadId, stack: NodeId, sample: &SampledBlock) -> Allocation {
    Allocation {
        time,
        thread,
        stack,
        size: sample.requested as u64,
        block: sample.block_size as u64,
        points: sample.points,
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
        survival: Survival::Unsaid,
    }
}
