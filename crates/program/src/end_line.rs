//! Prints the line at the end of the program, past what the program does with its stderr.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nthbyte_session::SessionOutcome;
use nthbyte_session::end_line::{at_signal, children, line, numbers, renamed};

const STDERR: i32 = 2;
/// Descriptors from here on are out of the program's way.
const HIGH: i32 = 512;

/// What the line needs to know from the start of the program.
#[derive(Debug)]
pub struct EndLine {
    path: PathBuf,
    /// The working directory, where the user enters the next command.
    folder: PathBuf,
    process: u32,
    started: SystemTime,
    stderr: Option<Stderr>,
}

/// Where the program's stderr led when it began. Many programs close it at exit.
#[derive(Debug)]
struct Stderr {
    /// The device and the inode.
    identity: (u64, u64),
    /// Another descriptor of the same; negative if there is none.
    spare: i32,
}

impl Stderr {
    /// `None` if it is closed.
    fn now() -> Option<Self> {
        let identity = identity(STDERR)?;
        // SAFETY: makes a new descriptor.
        let spare = unsafe { libc::fcntl(STDERR, libc::F_DUPFD_CLOEXEC, HIGH) };
        Some(Self { identity, spare })
    }

    /// A descriptor that still leads there: the program may have closed both, and opened others.
    fn descriptor(&self) -> Option<i32> {
        let mut both = [STDERR, self.spare].into_iter();
        both.find(|&descriptor| identity(descriptor) == Some(self.identity))
    }
}

impl EndLine {
    /// Remembers the moment before the program.
    pub fn of_start(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            // Nothing lies below an empty one.
            folder: std::env::current_dir().unwrap_or_default(),
            process: std::process::id(),
            started: SystemTime::now(),
            stderr: Stderr::now(),
        }
    }

    /// Prints the line; not in a forked child, and not into another file that the program has opened as stderr.
    ///
    /// The program may have been interrupted inside `malloc`: its signal handler has called `exit`. So nothing here needs the
    /// C library's memory.
    pub fn print(&self, outcome: &SessionOutcome) {
        if std::process::id() == self.process
            && let Some(descriptor) = self.stderr.as_ref().and_then(Stderr::descriptor)
        {
            let children = match outcome.is_stalled {
                true => 0,
                false => numbers(&children(&self.path, self.started)).len(),
            };
            say(descriptor, &line(outcome, children, &[], &self.folder));
        }
    }

    /// The line for the case that SIGTERM, SIGINT or SIGHUP ends the program. `None` if the profile is no file to look at.
    pub fn at_signal(&self) -> Option<String> {
        at_signal("a signal", &self.path, &self.folder)
    }

    /// Says that the profile has another name than the wanted one, and how to replace the file of that name.
    pub fn renamed(&self, wanted: &Path) -> String {
        renamed(wanted, &self.path, &self.folder)
    }

    /// Called in the child of a fork: whoever reads the parent's stderr must not wait for the child, which may close its own.
    pub fn forget_in_child(&self) {
        if let Some(Stderr {
            identity: before,
            spare,
        }) = self.stderr
            && identity(spare) == Some(before)
        {
            // SAFETY: the descriptor is this library's, unless the program has put the same file there.
            unsafe { libc::close(spare) };
        }
    }
}

/// Prints one line on stderr.
pub fn explain(text: &str) {
    say(STDERR, text);
}

/// Prints one line, with one write. What the program has in its buffers is not touched.
fn say(descriptor: i32, text: &str) {
    let line = format!("nthbyte: {text}\n");
    // SAFETY: the pointer and the length are the text's. If the write fails, nobody can be told.
    without_signals(|| unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) });
}

/// Calls `write`, which does not end the process if nobody reads the pipe any more, or if the file is too large.
fn without_signals(write: impl FnOnce() -> isize) {
    // SAFETY: zeroes are valid sets and a valid time. The calls fill and read local variables; of the thread they change
    // the signal mask, which is put back.
    unsafe {
        let (mut ours, mut before, mut pending): (libc::sigset_t, _, _) = std::mem::zeroed();
        libc::sigaddset(&raw mut ours, libc::SIGPIPE);
        libc::sigaddset(&raw mut ours, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ours, &raw mut before);
        libc::sigpending(&raw mut pending);
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            if libc::sigismember(&raw const pending, signal) == 1 {
                libc::sigdelset(&raw mut ours, signal);
            }
        }
        write();
        // What this write has raised.
        let at_once: libc::timespec = std::mem::zeroed();
        libc::sigtimedwait(&raw const ours, std::ptr::null_mut(), &raw const at_once);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

/// Safe in the child of a fork.
fn identity(descriptor: i32) -> Option<(u64, u64)> {
    // SAFETY: zeroes are a valid place for the answer.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &raw mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}
