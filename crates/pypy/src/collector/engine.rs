//! What the hooked functions of the collector (see [`super::hooks`]) do, and what they keep.
//!
//! Everything here runs with the interpreter's lock held: RPython code holds it whenever it allocates
//! or collects. So one engine serves all threads, without locks of its own.

use std::sync::atomic::{AtomicPtr, Ordering};

use nthbyte_profile::event::{LostKind, Nanos};

use super::majors::{Majors, State};
use super::nursery::Nursery;
use super::sampling::{Remains, Sampling};
use super::statistics::Statistics;
use crate::binary::Redirect;
use crate::stacks::Vmprof;
use crate::types::Types;
use nthbyte_session::{Session, guarded};

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());

/// One session inside the collector.
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

    /// Switches sampling off, with the interpreter's lock held. `thread_names` are those that Python knows, by the
    /// operating system's numbers. `None` if it was not on.
    pub fn end(thread_names: Vec<(u64, String)>) -> Option<Remains> {
        let engine = ENGINE.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if engine.is_null() {
            return None;
        }
        // SAFETY: `begin` made it from a box, and after the swap nobody else has it.
        let Self {
            session,
            mut sampling,
        } = *unsafe { Box::from_raw(engine) };
        sampling.stop();
        guarded(|| sampling.finish_all(&session, thread_names));
        Some(sampling.into_remains(session))
    }

    /// In the child of a fork, which has one thread: gets ready for `_vmprof` to be enabled again. Whether it is to be
    /// enabled.
    pub fn after_fork() -> bool {
        // SAFETY: there is no other thread.
        unsafe { Self::current() }.is_some_and(|engine| engine.sampling.vmprof().reopen().is_ok())
    }

    /// The engine that is on, for whoever holds the interpreter's lock.
    pub unsafe fn current<'a>() -> Option<&'a mut Self> {
        // SAFETY: only the lock's holder uses the engine, and the hooks do not nest uses of it:
        // none calls the interpreter while it holds the reference.
        unsafe { ENGINE.load(Ordering::Acquire).as_mut() }
    }

    /// Takes one sample.
    pub(super) fn sample(&mut self, object: usize, size: usize, points: u32, is_large: bool) {
        guarded(|| {
            let recording = self.session.record(LostKind::Allocations);
            if let Some(mut recording) = recording {
                self.sampling
                    .sample(&mut recording, object, size, points, is_large);
            }
        });
    }

    /// A large object was allocated.
    pub fn large(&mut self, block: usize, size: usize) {
        // What the collector itself allocates during a collection is no object.
        if self.sampling.in_minor {
            return;
        }
        let points = self.sampling.nursery.outside(size);
        if points > 0 {
            self.sample(block, size, points, true);
        }
    }

    /// The collection that is under way frees a large block.
    pub fn freed(&mut self, block: usize) {
        self.sampling.freed(block);
    }

    /// A minor collection has ended: it is known which pending samples' objects survived it.
    pub(super) fn settle(&mut self, started: Nanos) {
        guarded(|| {
            if let Some(mut recording) = self.session.record(LostKind::Other) {
                self.sampling.settle(&mut recording, started);
            }
        });
    }

    /// A step of a major collection has ended, before which the collector was in this state.
    pub(super) fn step(&mut self, before: State, started: Nanos) {
        guarded(|| {
            if let Some(mut recording) = self.session.record(LostKind::Other) {
                self.sampling.step(&mut recording, before, started);
            }
        });
    }
}
