//! The work of the hooks in the collector's functions (see [`super::hooks`]), and its state.
//!
//! All code here runs with the interpreter's lock held: RPython code holds it whenever it allocates
//! or collects. So one engine serves all threads, without locks of its own.

use std::sync::atomic::{AtomicPtr, Ordering};

use nthbyte_profile::event::{LostKind, Nanos, SampleId};

use super::sampling::{Remains, Sampling};
use super::statistics::Statistics;
use crate::stacks::Vmprof;
use crate::types::Types;
use nthbyte_rpython::Nursery;
use nthbyte_rpython::binary::Redirect;
use nthbyte_rpython::majors::{Majors, State};
use nthbyte_session::{Mark, Recording, Session, forks, guarded};

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());

/// The part of a session that runs inside the collector.
pub struct Engine {
    pub(super) session: Session,
    pub(super) sampling: Sampling,
}

impl Engine {
    /// Switches sampling on. The interpreter's lock must be held.
    pub fn begin(
        nursery: Nursery,
        session: Session,
        vmprof: Vmprof,
        types: Types,
        statistics: Statistics,
        majors: Option<Majors>,
        frees: Vec<Redirect>,
    ) {
        let sampling = Sampling::new(&session, nursery, vmprof, types, statistics, majors, frees);
        let engine = Self { session, sampling };
        ENGINE.store(Box::into_raw(Box::new(engine)), Ordering::Release);
    }

    /// Switches sampling off, with the interpreter's lock held. `thread_names` are the names that Python has
    /// given, by the operating system's thread numbers. `None` if sampling was not on.
    pub fn end(thread_names: Vec<(u64, String)>) -> Option<Remains> {
        let engine = ENGINE.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if engine.is_null() {
            return None;
        }
        // SAFETY: `begin` made the pointer from a box, and after the swap no other code has it.
        let Self {
            session,
            mut sampling,
        } = *unsafe { Box::from_raw(engine) };
        sampling.stop();
        guarded(|| sampling.finish_all(&session, thread_names));
        Some(sampling.into_remains(session))
    }

    /// Switches sampling off in a copy of the process that ends soon, with the interpreter's lock held: nothing is recorded there.
    /// Returns the names of types, and the places of samples' objects; `None` if sampling was not on.
    pub fn abandon() -> Option<(Types, Vec<(usize, SampleId)>)> {
        let engine = ENGINE.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: `begin` made the pointer from a box. The rest of it stays: the session is the program's.
        let engine = unsafe { engine.as_mut() }?;
        engine.sampling.stop();
        let followed = engine.sampling.take_followed();
        Some((engine.sampling.take_types(), followed))
    }

    /// Before a copy of the process is made, with the lock held: whether what it finds of samples' objects is this
    /// process's, and not the parent's of a fork.
    pub fn follows() -> bool {
        let begin = || {
            // SAFETY: the lock is held.
            let engine = unsafe { Self::current() }?;
            let mut recording = engine.session.record(LostKind::Other)?;
            engine.sampling.follow(&mut recording);
            Some(())
        };
        guarded(begin).flatten().is_some()
    }

    /// Continues in the child of a fork, which has one thread: it has other sample points than its parent and other
    /// children, and `_vmprof` can be enabled again. Returns whether Python must do that.
    pub fn after_fork() -> bool {
        // SAFETY: there is no other thread.
        unsafe { Self::current() }.is_some_and(|engine| {
            engine.sampling.nursery.diverge(forks());
            engine.sampling.vmprof().reopen().is_ok()
        })
    }

    /// The session.
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// What was recorded so far. The interpreter's lock must be held. `None` if sampling is not on.
    pub fn mark() -> Option<Mark> {
        guarded(|| {
            // SAFETY: the lock is held.
            let engine = unsafe { Self::current() }?;
            engine.sampling.mark(&engine.session)
        })
        .flatten()
    }

    /// The engine that is on. Only the holder of the interpreter's lock may call this.
    pub unsafe fn current<'a>() -> Option<&'a mut Self> {
        // SAFETY: only the holder of the lock uses the engine, and the hooks do not hold two
        // references at once: none calls the interpreter while it holds one.
        unsafe { ENGINE.load(Ordering::Acquire).as_mut() }
    }

    /// Takes one sample.
    pub(super) fn sample(&mut self, object: usize, size: usize, points: u32, is_large: bool) {
        guarded(|| {
            let recording = self.session.record(LostKind::Allocations);
            if let Some(mut recording) = recording {
                self.sampling
                    .sample(&mut recording, object, size, points, is_large);
                self.sampling.follow_period(recording.period());
            }
        });
    }

    /// A large object was allocated.
    pub fn large(&mut self, block: usize, size: usize) {
        // An allocation by the collector itself during a collection is not an object.
        if self.sampling.in_minor {
            return;
        }
        let points = self.sampling.nursery.outside(size);
        if points > 0 {
            self.sample(block, size, points, true);
        }
    }

    /// The current collection frees a large block.
    pub fn freed(&mut self, block: usize) {
        self.sampling.freed(block);
    }

    /// A minor collection has ended: it is known which objects of pending samples survived it.
    pub(super) fn settle(&mut self, started: Nanos) {
        self.after_collection(|sampling, recording| sampling.settle(recording, started));
    }

    /// A step of a major collection has ended. `before` is the collector's state before the step.
    pub(super) fn step(&mut self, before: State, started: Nanos) {
        self.after_collection(|sampling, recording| sampling.step(recording, before, started));
    }

    /// Records what a collection has shown. Another thread may have the session for too long, memory may be short, or
    /// the session may have failed: then the next collection must not find the samples of this one.
    fn after_collection(&mut self, work: impl FnOnce(&mut Sampling, &mut Recording<'_>)) {
        let is_recorded = guarded(|| {
            self.session
                .record(LostKind::Other)
                .map(|mut recording| work(&mut self.sampling, &mut recording))
        });
        if is_recorded.flatten().is_none() {
            let lost = self.sampling.skip_collection();
            self.session.lost(LostKind::Allocations, lost);
        }
    }
}
