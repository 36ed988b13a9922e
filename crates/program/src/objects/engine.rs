//! The nursery's limit, and the recording of sampled objects.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use nthbyte_host::keep_errno;
use nthbyte_profile::event::{CollectionKind, LostKind, Nanos};
use nthbyte_rpython::binary::Collector;
use nthbyte_rpython::majors::State;
use nthbyte_rpython::{Majors, Nursery, SlowPathOutcome};
use nthbyte_sampling::{Period, Sampler};
use nthbyte_session::{forks, guarded, record_for};

use super::pending;

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());

/// The search refuses a larger nursery.
const LARGEST_NURSERY: usize = 1 << 32;

/// Only the collector's thread uses it.
pub struct Engine {
    /// The addresses of `nursery_free` and `nursery_top`.
    fields: [*mut usize; 2],
    /// `None` before the collector has a nursery, and after the session.
    nursery: Option<Nursery>,
    /// What the nursery begins with.
    sampler: Option<Sampler>,
    majors: Option<Majors>,
    /// Inside of `collect_and_reserve`, which has its own way of setting the limit.
    pub in_reserve: bool,
}

/// Begins to sample as soon as the collector has a nursery.
///
/// # Safety
/// The collector was found in this program. No thread is inside of it, or can be before this function returns.
pub unsafe fn begin(collector: &Collector, sampler: Sampler) {
    let field = |offset: usize| (collector.gc + offset) as *mut usize;
    let engine = Engine {
        fields: [field(collector.nursery_free), field(collector.nursery_top)],
        nursery: None,
        sampler: Some(sampler),
        majors: collector
            .major
            .and_then(|major| Majors::new(collector.gc + major.state)),
        in_reserve: false,
    };
    ENGINE.store(Box::into_raw(Box::new(engine)), Release);
}

/// Called in the child of a fork, which has one thread: it has other sample points than its parent.
pub fn begin_in_child() {
    // SAFETY: the thread that has forked was not inside of the collector.
    if let Some(engine) = unsafe { Engine::current() }
        && let Some(nursery) = &mut engine.nursery
    {
        nursery.diverge(forks());
        nursery.forget_allocated();
        if let Some(majors) = &mut engine.majors {
            majors.forget();
        }
    }
}

impl Engine {
    /// The engine. Only the collector's thread may call this, and does not keep the reference while it calls the collector.
    pub unsafe fn current<'a>() -> Option<&'a mut Self> {
        // SAFETY: by the contract; it is never freed.
        unsafe { ENGINE.load(Acquire).as_mut() }
    }

    /// Handles a call of the slow path for an object of `size` bytes.
    pub fn slow_path(&mut self, size: usize) -> SlowPathOutcome {
        let Some(nursery) = &mut self.nursery else {
            return SlowPathOutcome::Full;
        };
        let verdict = nursery.slow_path(size);
        if pending::is_over() {
            nursery.end();
            self.leave();
            if let SlowPathOutcome::Fits(object, _) = verdict {
                return SlowPathOutcome::Fits(object, 0);
            }
        }
        verdict
    }

    /// The collector found room for an object of `size` bytes; 0 if it did not. Returns the number of its sample points.
    pub fn reserved(&mut self, size: usize) -> u32 {
        match &mut self.nursery {
            Some(nursery) => nursery.reserved(size),
            // Where the set-up was not found: what was allocated before is not counted.
            None => {
                self.resume();
                0
            }
        }
    }

    /// The collector is about to set the nursery.
    pub fn before_collection(&mut self) {
        if let Some(nursery) = &mut self.nursery {
            nursery.before_collection();
            if pending::is_over() {
                self.leave();
            }
        }
    }

    /// The collector has set the nursery.
    pub fn resume(&mut self) {
        if let Some(nursery) = &mut self.nursery {
            nursery.resume();
        } else if self.has_nursery()
            && let Some(sampler) = self.sampler.take()
        {
            let [free, top] = self.fields;
            // SAFETY: the fields stay where they are, and only the collector's thread uses the engine.
            self.nursery = Some(unsafe { Nursery::begin(free, top, sampler) });
        }
    }

    /// Whether the two pointers can be a nursery's.
    fn has_nursery(&self) -> bool {
        // SAFETY: the fields lie in the collector's struct.
        let [free, top] = self.fields.map(|field| unsafe { field.read() });
        free != 0
            && free.is_multiple_of(8)
            && top.is_multiple_of(8)
            && (free..free + LARGEST_NURSERY).contains(&top)
    }

    /// Nothing more is sampled.
    fn leave(&mut self) {
        self.nursery = None;
        self.sampler = None;
    }

    /// Takes a sample, if the object has sample points.
    pub fn sample(&mut self, object: usize, size: usize, points: u32) {
        let Some(nursery) = &mut self.nursery else {
            return;
        };
        if points == 0 || object == 0 {
            return;
        }
        keep_errno(|| {
            guarded(|| {
                if let Some(mut recording) = record_for(LostKind::Allocations) {
                    let period = nursery.period();
                    pending::sample(&mut recording, object, size, points, period);
                    let period = recording.period();
                    if period != nursery.period()
                        && let Some(period) = Period::new(period)
                    {
                        nursery.set_period(period);
                    }
                }
            });
        });
    }

    /// A minor collection has ended, which began at this time.
    pub fn settle(&mut self, started: u64) {
        if self.nursery.is_none() {
            return;
        }
        keep_errno(|| {
            let settled = guarded(|| {
                record_for(LostKind::Other)
                    .map(|mut recording| pending::settle(&mut recording, started))
            });
            if settled.flatten().is_none() {
                pending::miss_collection();
            }
        });
    }

    /// The state of major collections.
    pub fn major_state(&self) -> Option<State> {
        self.nursery.as_ref()?;
        self.majors.as_ref().map(Majors::state)
    }

    /// A step of a major collection has ended. `before` is the collector's state before it.
    pub fn step(&mut self, before: State, started: u64) {
        let Some(majors) = &mut self.majors else {
            return;
        };
        keep_errno(|| {
            guarded(|| {
                let mut recording = record_for(LostKind::Other)?;
                let times = recording.at(started).min(recording.now())..recording.now();
                let step = majors.step(before, &times, || None)?;
                let kind = CollectionKind::MajorStep(step.phase);
                pending::collected(&mut recording, kind, times.clone());
                if let Some((began, _)) = step.ends {
                    let whole: std::ops::Range<Nanos> = began..times.end;
                    pending::collected(&mut recording, CollectionKind::Major, whole);
                }
                Some(())
            });
        });
    }
}
