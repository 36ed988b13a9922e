//! Reads stacks through PyPy's own profiler.
//!
//! `_vmprof.enable(fd, …)` installs a handler for SIGPROF that walks the stack of its thread and writes one record to
//! `fd` before it returns (`rvmprof/src/shared/vmprof_unix.c`). The handler is an ordinary function: this module calls
//! it directly. The handler writes through an import slot of the library. That slot is redirected, so the record is
//! read from its buffer without a system call. `fd` is a number that no file can have.
//!
//! For most samples the handler is not called at all: see [`super::frame_list`].
//!
//! `_vmprof` writes names a buffer at a time; they are kept in a memory file. Names that are still in a buffer are read
//! from there: `prepare_concurrent_bufs` gets all twenty buffers from one `mmap`, which is redirected too.
//!
//! The program may switch `_vmprof` off, and on again for itself. The last record that `_vmprof` writes when it is
//! switched off shows that. From then on `_vmprof` is not used, and samples have no stacks.

use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::Ordering;

use super::frame_list::FrameList;
use super::handler::{
    BUFFERS_AT, BUFFERS_AWAITED, HANDLER, NAMES, NAPS, Signal, TAKEN_AWAY, WALKING, changes_here,
    forbid, pause, resume,
};
use super::known_names;
use super::links::Step;
use super::record::RawFrame;
use crate::gil_trap::GilTrap;
use nthbyte_session::ticks::TICKS;

/// `_vmprof`, switched on.
#[derive(Debug)]
pub struct Vmprof {
    signal: Box<Signal>,
    frame_list: FrameList,
}

impl Vmprof {
    /// Prepares for `_vmprof.enable`.
    ///
    /// # Errors
    /// One line, if no descriptor is left.
    pub fn prepare() -> Result<(), String> {
        TAKEN_AWAY.store(false, Ordering::Relaxed);
        await_buffers()
    }

    /// Takes over a `_vmprof` that was just enabled with [`DESCRIPTOR`](super::DESCRIPTOR).
    ///
    /// # Errors
    /// One line, if its handler is not installed.
    pub fn attach(ticking: bool, frame_list: FrameList) -> Result<Self, String> {
        let vmprof = Self {
            signal: Box::default(),
            frame_list,
        };
        TICKS.begin(ticking).map_err(no_file)?;
        take_over()?;
        ATFORK.call_once(|| {
            // SAFETY: the functions may be called at any fork. `_vmprof` has registered its own
            // functions before, so they run while it is known that this thread forks.
            unsafe {
                libc::pthread_atfork(Some(before_fork), Some(forked_parent), Some(forked_child))
            };
        });
        Ok(vmprof)
    }

    /// Called in the child of a fork, where `_vmprof` has closed its file: reads the existing names
    /// and makes new files, so that `_vmprof` can be enabled again.
    ///
    /// # Errors
    /// One line, if no descriptor is left, or `_vmprof` belongs to the program now.
    pub fn reopen(&mut self) -> Result<(), String> {
        if Self::is_taken_away() {
            return Err("the program has switched _vmprof off".to_owned());
        }
        // SAFETY: this is the child of a fork.
        unsafe { known_names::read_all_in_child() };
        BUFFERS_AT.store(0, Ordering::Relaxed);
        TICKS.begin(TICKS.are_wanted()).map_err(no_file)?;
        await_buffers()
    }

    /// Whether the program has switched `_vmprof` off: then nthbyte must not switch it off.
    #[must_use]
    pub fn is_taken_away() -> bool {
        TAKEN_AWAY.load(Ordering::Relaxed)
    }

    /// Whether places in machine code may stand for other frames than before. Call this after each
    /// [`Vmprof::stack`].
    pub fn renew(&mut self) -> bool {
        let signal = &mut self.signal;
        self.frame_list
            .renew(|list, found| signal.raise(NAPS, Some(list), found))
    }

    /// Walks the stack of the calling thread and fills `steps`, innermost first.
    pub fn stack(&mut self, steps: &mut Vec<Step>) {
        steps.clear();
        if !HANDLER.load(Ordering::Relaxed).is_null() && !self.frame_list.walk(steps) {
            self.ask(steps);
        }
    }

    /// Does the same after a failed [`FrameList::walk`].
    #[cold]
    #[inline(never)]
    fn ask(&mut self, steps: &mut Vec<Step>) {
        let mut frames = Vec::new();
        self.signal.raise(NAPS, None, &mut frames);
        let signal = &mut self.signal;
        self.frame_list
            .learn(&frames, |list, found| signal.raise(NAPS, Some(list), found));
        if !self.frame_list.walk(steps) {
            steps.extend(frames.into_iter().map(Step::frame));
        }
    }

    /// Fills `frames` with the frames at a place in machine code of the last stack, innermost first. If they are not
    /// available now, `frames` stays empty until the next [`Vmprof::renew`]. `inside` are the steps inside of it.
    pub fn inlined(&mut self, place: usize, inside: &[Step], frames: &mut Vec<RawFrame>) {
        let signal = &mut self.signal;
        let known = self.frame_list.inlined(place, inside, |list, found| {
            signal.raise(NAPS, Some(list), found);
        });
        frames.clear();
        frames.extend_from_slice(known.unwrap_or_default());
    }

    /// Whether stacks were read from a list that was found to differ from the stack.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.frame_list.is_broken()
    }

    /// A minor collection has ended.
    pub fn collected(&mut self) {
        self.frame_list.collected();
    }

    /// Machine code may have been freed.
    pub fn code_freed(&mut self) {
        self.frame_list.distrust();
    }
}

/// Prevents further calls of the handler.
impl Drop for Vmprof {
    fn drop(&mut self) {
        forbid();
        BUFFERS_AT.store(0, Ordering::Relaxed);
        NAMES.close();
        TICKS.end();
    }
}

fn await_buffers() -> Result<(), String> {
    NAMES.make().map_err(no_file)?;
    BUFFERS_AWAITED.store(true, Ordering::Relaxed);
    Ok(())
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn no_file(error: std::io::Error) -> String {
    format!("memfd_create failed, which the names of functions need: {error}")
}

static ATFORK: Once = Once::new();

/// Takes the handler that `_vmprof` has just installed. The action of SIGPROF becomes the program's again.
///
/// # Errors
/// One line, if the handler is not installed.
pub fn take_over() -> Result<(), String> {
    BUFFERS_AWAITED.store(false, Ordering::Relaxed);
    let action = Action::of_sigprof();
    if action.is_none() {
        return Err("PyPy's _vmprof did not install its handler of SIGPROF".to_owned());
    }
    HANDLER.store(action.0.sa_sigaction as *mut c_void, Ordering::Release);
    Ok(())
}

/// The action of a signal.
pub struct Action(libc::sigaction);

impl Action {
    /// SIGPROF's.
    pub fn of_sigprof() -> Self {
        // SAFETY: zero is a valid value of the struct, which the call fills in.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGPROF, std::ptr::null(), &raw mut action);
            Self(action)
        }
    }

    /// Whether it is the default, or to ignore the signal.
    pub fn is_none(&self) -> bool {
        matches!(self.0.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
    }

    /// Makes this the action of SIGPROF.
    pub fn restore(&self) {
        // SAFETY: it was one.
        unsafe { libc::sigaction(libc::SIGPROF, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Waits until no thread is in the handler when the process forks: in the child that thread does not
/// exist, and the handler's lock and buffer would stay in use until the process ends.
///
/// `_vmprof` stops its timer before a fork, and sets it again after it. It has registered its functions for that before:
/// they run between these two.
pub(super) extern "C" fn before_fork() {
    pause();
    if !HANDLER.load(Ordering::Relaxed).is_null() {
        changes_here(true);
    }
}

pub(super) extern "C" fn forked_parent() {
    changes_here(false);
    resume();
}

/// The handler must not be called without a file: it would abort the process.
extern "C" fn forked_child() {
    changes_here(false);
    HANDLER.store(std::ptr::null_mut(), Ordering::Release);
    WALKING.store(0, Ordering::Relaxed);
    GilTrap::forget_other_threads();
}
