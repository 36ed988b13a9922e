//! The writer thread, and its absence around a fork.
//!
//! The thread takes records from the ring and writes them. It runs no Python and never needs the
//! interpreter's lock, so it can be waited for by whoever holds that lock. Before a fork it is
//! stopped: the child gets a process with no half-done work, and an interpreter that counts its
//! threads after a fork (CPython 3.12 and later warn of more than one) does not find ours. The
//! parent starts it again a while later, from the next sample.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use nthbyte_profile::event::End;

use super::drain::Drain;
use super::outcome::Outcome;
use crate::process::image;

/// How long the thread sleeps when nobody wakes it.
const NAP: Duration = Duration::from_millis(200);
/// The thread's stack; it has no deep calls.
const STACK_BYTES: usize = 256 << 10;

/// What a fork left for the recorder to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Attention {
    None = 0,
    Parent = 1,
    Child = 2,
}

pub(super) struct Worker {
    attention: AtomicU32,
    stop: AtomicBool,
    /// The drain has failed for good and nothing will be written any more.
    dead: AtomicBool,
    pub(super) lost: [AtomicU64; 3],
    state: Mutex<State>,
}

enum State {
    Running(JoinHandle<Box<Drain>>),
    Resting(Box<Drain>),
    Gone,
}

/// The session that fork handlers look after.
static CURRENT: Mutex<Weak<Worker>> = Mutex::new(Weak::new());

impl Worker {
    pub(super) fn start(drain: Box<Drain>) -> Result<Arc<Self>, String> {
        let worker = Arc::new(Self {
            attention: AtomicU32::new(Attention::None as u32),
            stop: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            lost: [const { AtomicU64::new(0) }; 3],
            state: Mutex::new(State::Gone),
        });
        let thread = worker.spawn(drain).map_err(|(_, error)| {
            format!("cannot start the writer thread: {error}; raise the limit on threads")
        })?;
        *worker.lock() = State::Running(thread);
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&worker);
        watch_forks();
        Ok(worker)
    }

    /// What a fork left to do. One load.
    pub(super) fn attention(&self) -> Attention {
        match self.attention.load(Relaxed) {
            0 => Attention::None,
            1 => Attention::Parent,
            _ => Attention::Child,
        }
    }

    pub(super) fn take_attention(&self) -> Attention {
        let attention = self.attention();
        self.attention.store(Attention::None as u32, Relaxed);
        attention
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    pub(super) fn set_dead(&self) {
        self.dead.store(true, Relaxed);
    }

    pub(super) fn should_stop(&self) -> bool {
        self.stop.load(Acquire)
    }

    /// Wakes the thread, or starts it if a fork has stopped it. Does not wait.
    pub(super) fn wake(self: &Arc<Self>) {
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        match std::mem::replace(&mut *state, State::Gone) {
            State::Running(thread) => {
                thread.thread().unpark();
                *state = State::Running(thread);
            }
            State::Resting(drain) => {
                *state = match self.spawn(drain) {
                    Ok(thread) => State::Running(thread),
                    Err((drain, _)) => State::Resting(drain),
                };
            }
            State::Gone => {}
        }
    }

    /// Puts a new drain in the place of the old one, which is dropped as it is. For the child of a fork.
    pub(super) fn replace(&self, drain: Box<Drain>) {
        for lost in &self.lost {
            lost.store(0, Relaxed);
        }
        self.dead.store(false, Relaxed);
        *self.lock() = State::Resting(drain);
    }

    /// Writes all that is in the ring, ends the profile and closes it.
    pub(super) fn finish(&self, end: End) -> Outcome {
        // What one step needs the next does not, and the program's memory may be at its peak.
        image::release_again();
        let drain = self.rest();
        image::release_again();
        let outcome = match drain {
            Some(drain) => drain.finish(self, end),
            None => Outcome::default(),
        };
        image::release_again();
        outcome
    }

    /// Stops the thread, if it runs, after it has written all that is in the ring.
    fn rest(&self) -> Option<Box<Drain>> {
        let state = std::mem::replace(&mut *self.lock(), State::Gone);
        match state {
            State::Running(thread) => {
                self.stop.store(true, Release);
                thread.thread().unpark();
                let drain = thread.join().ok();
                self.stop.store(false, SeqCst);
                drain
            }
            State::Resting(drain) => Some(drain),
            State::Gone => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread with all signals blocked: they are the program's.
    fn spawn(
        self: &Arc<Self>,
        drain: Box<Drain>,
    ) -> Result<JoinHandle<Box<Drain>>, (Box<Drain>, std::io::Error)> {
        let worker = Arc::clone(self);
        let parcel = Arc::new(Mutex::new(Some(drain)));
        let received = Arc::clone(&parcel);
        let signals = BlockedSignals::all();
        let spawned = std::thread::Builder::new()
            .name("nthbyte".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let mut drain =
                    open(&received).expect("the parcel is handed over before the spawn");
                drop(received);
                while !worker.should_stop() {
                    if drain.work(&worker) {
                        // Half of what is mapped of this library is not needed until the next block.
                        image::release_again();
                    }
                    if !worker.should_stop() {
                        std::thread::park_timeout(NAP.min(drain.patience()));
                    }
                }
                drain.rest(&worker);
                drain
            });
        drop(signals);
        spawned.map_err(|error| {
            (
                open(&parcel).expect("a thread that was not started takes nothing"),
                error,
            )
        })
    }
}

fn open(parcel: &Mutex<Option<Box<Drain>>>) -> Option<Box<Drain>> {
    parcel.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// All signals blocked in the calling thread, until dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        // SAFETY: a zeroed set is a valid place for `sigfillset` and `pthread_sigmask` to write to.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by `pthread_sigmask`.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

fn watch_forks() {
    static ONCE: Once = Once::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
        );
    });
}

fn current() -> Option<Arc<Worker>> {
    CURRENT.try_lock().ok()?.upgrade()
}

unsafe extern "C" fn before_fork() {
    if let Some(worker) = current()
        && let Some(mut drain) = worker.rest()
    {
        // The thread may not have been back since the last fork: a program that forks all the time writes here.
        drain.work(&worker);
        *worker.lock() = State::Resting(drain);
    }
}

unsafe extern "C" fn after_fork_in_parent() {
    if let Some(worker) = current()
        && worker.attention() != Attention::Child
    {
        worker.attention.store(Attention::Parent as u32, Relaxed);
    }
}

unsafe extern "C" fn after_fork_in_child() {
    if let Some(worker) = current() {
        worker.attention.store(Attention::Child as u32, Relaxed);
    }
}
