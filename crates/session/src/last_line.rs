//! The line on stderr when a signal ends the process. It is made at the start of the session, because a signal handler
//! cannot make it.
//!
//! It is written once, by the process that the session began in, and if stderr still leads where it led then. Nobody need
//! read it: the handler does not wait for room in a pipe, and a closed one does not end the process by another signal.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use nthbyte_host::process::Identity;
use nthbyte_host::sync::{AtomicPtr, constant};

const STDERR: i32 = 2;

constant! {
    /// The line. Whoever takes it out has it alone.
    static LINE: AtomicPtr<Line> = AtomicPtr::new(null_mut());
}

struct Line {
    text: Box<[u8]>,
    /// Where stderr led.
    stderr: Identity,
}

/// Sets the line of the session that begins; `None` if nothing is to be printed. It ends with a line end.
pub(crate) fn prepare(text: Option<&str>) {
    // A longer one might find too little room in a pipe that is not full.
    let text = text.filter(|text| text.len() <= libc::PIPE_BUF);
    let line = text.and_then(|text| {
        let stderr = Identity::of(STDERR).ok()?;
        let text = text.as_bytes().into();
        Some(Box::into_raw(Box::new(Line { text, stderr })))
    });
    free(LINE.swap(line.unwrap_or_default(), AcqRel));
}

/// The session has ended.
pub(crate) fn forget() {
    free(LINE.swap(null_mut(), AcqRel));
}

fn free(line: *mut Line) {
    if !line.is_null() {
        // SAFETY: `prepare` has made it, and it was taken out.
        drop(unsafe { Box::from_raw(line) });
    }
}

/// Called in the child of a fork, whose end is not the end of the program. What the line takes stays taken.
pub(crate) fn forget_in_child() {
    LINE.store(null_mut(), Relaxed);
}

/// Writes the line, if there is one, because the process ends at once. Safe in a signal handler.
pub(crate) fn print() {
    // SAFETY: it was taken out, and is never freed.
    let Some(line) = (unsafe { LINE.swap(null_mut(), AcqRel).as_ref() }) else {
        return;
    };
    if !line.stderr.is_of(STDERR) || !has_room() {
        return;
    }
    // SAFETY: the process ends, so it needs neither any more. The pointer and the length are the text's.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::write(STDERR, line.text.as_ptr().cast(), line.text.len());
    }
}

/// Whether a write does not wait.
fn has_room() -> bool {
    let mut stderr = libc::pollfd {
        fd: STDERR,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry, which is a local variable.
    let ready = unsafe { libc::poll(&raw mut stderr, 1, 0) };
    ready == 1 && stderr.revents & libc::POLLOUT != 0
}
