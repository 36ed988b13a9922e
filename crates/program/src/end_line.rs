//! The line that is printed when the program has ended.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use nthbyte_host::process::for_each_name;
use nthbyte_profile::{claim, names};
use nthbyte_session::SessionOutcome;

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
            let path = outcome.path.as_deref().unwrap_or(&self.path);
            let children = match outcome.is_stalled {
                true => 0,
                false => self.children(),
            };
            let text = line(outcome, &self.shown(path), children);
            say(descriptor, &text);
        }
    }

    /// The line for the case that SIGTERM, SIGINT or SIGHUP ends the program. `None` if the profile is no file to look at.
    pub fn at_signal(&self) -> Option<String> {
        let path = quoted(&self.shown(&self.path));
        self.path
            .is_file()
            .then(|| format!("nthbyte: ended by a signal; see it with: nthbyte explain {path}\n"))
    }

    /// Says that the profile has another name than the wanted one, and how to replace the file of that name.
    pub fn renamed(&self, wanted: &Path) -> String {
        // No other file is ever replaced.
        let how = match claim::is_own_profile(wanted) {
            true => " (-f replaces it)",
            false => "",
        };
        let (wanted, path) = (self.shown(wanted), self.shown(&self.path));
        format!("{wanted} exists: the profile is {path}{how}")
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

    /// The path as from the folder where the program began.
    fn shown(&self, path: &Path) -> String {
        shortest(path, &self.folder)
    }

    /// The number of children with a profile, `app.1234.nthb` beside `app.nthb`, written since the start.
    fn children(&self) -> usize {
        let Some(folder) = self.path.parent() else {
            return 0;
        };
        let is_new = |name: &OsStr| {
            let data = std::fs::symlink_metadata(folder.join(name));
            data.and_then(|data| data.modified())
                .is_ok_and(|written| written >= self.started)
        };
        let flags = libc::O_DIRECTORY | libc::O_CLOEXEC;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(folder);
        let mut children: Vec<u32> = Vec::new();
        if let Ok(opened) = opened {
            for_each_name(opened.as_raw_fd(), |name| {
                let name = OsStr::from_bytes(name.to_bytes());
                children.extend(names::child_in(&self.path, name).filter(|_| is_new(name)));
                true
            });
        }
        children.sort_unstable();
        // A process may have several.
        children.dedup();
        children.len()
    }
}

/// The path, or the one from `folder`, whichever is shorter.
fn shortest(path: &Path, folder: &Path) -> String {
    let whole = path.to_string_lossy().into_owned();
    if !folder.is_absolute() {
        return whole;
    }
    let pairs = path.components().zip(folder.components());
    let shared = pairs.take_while(|(one, other)| one == other).count();
    let up = folder
        .components()
        .skip(shared)
        .map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(path.components().skip(shared)).collect();
    let relative = relative.to_string_lossy().into_owned();
    if relative.chars().count() < whole.chars().count() {
        return relative;
    }
    whole
}

/// The text: the same as in `python/nthbyte/_end_line.py`, which `tests/end_lines.json` sees to.
fn line(outcome: &SessionOutcome, path: &str, children: usize) -> String {
    let mut parts = vec![match outcome.samples {
        1 => "1 sample".to_owned(),
        number => format!("{} samples", grouped(number)),
    }];
    match outcome.time_samples {
        0 => {}
        1 => parts.push("1 time sample".to_owned()),
        number => parts.push(format!("{} time samples", grouped(number))),
    }
    match children {
        0 => {}
        1 => parts.push("1 child process".to_owned()),
        several => parts.push(format!("{several} child processes")),
    }
    match outcome.lost {
        0 => {}
        1 => parts.push("1 event lost".to_owned()),
        several => parts.push(format!("{} events lost", grouped(several))),
    }
    let notes = outcome.notes.iter();
    parts.extend(notes.map(|note| note.trim_end_matches('.').to_owned()));
    let parts = parts.join(", ");
    if outcome.is_stalled {
        // Who reads it may wait for ever, too.
        return parts;
    }
    let path = quoted(path);
    format!("{parts}; see it with: nthbyte explain {path}")
}

/// A path as a shell takes it, and the command as no option.
fn quoted(path: &str) -> String {
    let folder = if path.starts_with('-') { "./" } else { "" };
    let path = format!("{folder}{path}");
    let is_plain = |sign: char| sign.is_alphanumeric() || "-_./=:+,@%".contains(sign);
    if path.chars().all(is_plain) {
        return path;
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}

/// A number with commas: 1,118.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints one line on stderr.
pub fn explain(text: &str) {
    say(STDERR, text);
}

/// Prints one line, with one write. What the program has in its buffers is not touched.
fn say(descriptor: i32, text: &str) {
    let line = format!("nthbyte: {text}\n");
    // SAFETY: the pointer and the length are those of the text. If the write fails, nobody can be told.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Table {
        shown: Vec<[String; 3]>,
        quoted: Vec<[String; 2]>,
        lines: Vec<Line>,
    }

    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Line {
        samples: u64,
        time: u64,
        children: usize,
        lost: u64,
        notes: Vec<String>,
        stalled: bool,
        said: String,
    }

    #[test]
    fn every_text_is_that_of_the_table_which_python_reads_too() {
        let table: Table =
            serde_json::from_str(include_str!("../../../tests/end_lines.json")).unwrap();
        for [path, folder, shown] in &table.shown {
            let line = EndLine {
                folder: folder.into(),
                ..EndLine::of_start(Path::new(path))
            };
            assert_eq!(&line.shown(Path::new(path)), shown);
        }
        for [path, text] in &table.quoted {
            assert_eq!(&quoted(path), text);
        }
        for of in table.lines {
            let outcome = SessionOutcome {
                samples: of.samples,
                time_samples: of.time,
                lost: of.lost,
                notes: of.notes,
                is_stalled: of.stalled,
                ..SessionOutcome::default()
            };
            let next = match of.stalled {
                true => "",
                false => "; see it with: nthbyte explain a.nthb",
            };
            assert_eq!(
                line(&outcome, "a.nthb", of.children),
                format!("{}{next}", of.said)
            );
        }
    }

    #[test]
    fn without_a_working_folder_the_path_is_whole() {
        assert_eq!(shortest(Path::new("/a/b"), Path::new("")), "/a/b");
    }

    #[test]
    fn only_profiles_of_children_are_counted() {
        let folder = std::env::temp_dir().join(format!("nthbyte-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let line = EndLine {
            started: SystemTime::UNIX_EPOCH,
            ..EndLine::of_start(&folder.join("a.nthb"))
        };
        for name in [
            "a.nthb",
            "a.12.nthb",
            "a.7.nthb",
            "a.x.nthb",
            "a.7.txt",
            "b.7.nthb",
            "a-2.nthb",
        ] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(line.children(), 2);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
