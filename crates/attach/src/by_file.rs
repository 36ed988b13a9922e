//! A script that a process runs by itself, from a file: what PyPy and, since 3.14, CPython offer.
//!
//! The file lies in a private folder in `/tmp` of the process; where that cannot be, it has no place
//! ([`memory_files`](crate::memory_files)). The main thread executes it at the next bytecode. There is no
//! answer: the script writes one into a file beside it. A main thread that waits is woken, as by a signal, where that is allowed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::memory::Memory;
use crate::memory_files::MemoryFiles;
use crate::process;
use crate::refusal::{Refusal, plain, refuse};
use crate::x86_64::thread::{Place, Stopped};

/// The script and its answer.
const SCRIPT: &str = "script.py";
const ANSWER: &str = "answer";
/// A request may be overwritten, and a thread may have begun to wait.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a script that has begun may take.
const LONGEST_SCRIPT: Duration = Duration::from_secs(30);

/// Where an interpreter looks for a script.
pub trait Request {
    /// The memory of the process, and where the path is written.
    fn room(&self) -> (&Memory, u64);
    /// Asks for the script at this path, which ends with a zero. Returns false if the process has ended.
    fn make(&self, path: &[u8]) -> bool;
    /// Whether the script is asked for and has not begun; `None` if the process has ended.
    fn is_pending(&self) -> Option<bool>;
    /// Takes the request back.
    fn cancel(&self);
    /// Lets the interpreter look. The main thread is stopped meanwhile, if that is allowed.
    fn remind(&self);
}

/// Runs a script in names of its own, and returns the text in its variable `result`.
///
/// # Errors
/// If it does not begin within `limit`: then it never runs. If the system refuses.
pub fn run(
    pid: u32,
    request: &dyn Request,
    script: &str,
    limit: Duration,
) -> Result<String, Refusal> {
    let placed = Placed::new(pid, request, script)?;
    let mut path = placed.path();
    path.push(0);
    let ended = || refuse!("process {pid} has ended, or executes another program");
    if !request.make(&path) {
        return Err(ended());
    }
    let end = Instant::now() + limit;
    let mut next = Instant::now();
    loop {
        let is_pending = request.is_pending().ok_or_else(ended)?;
        if let Some(answer) = placed.answer() {
            return Ok(answer);
        }
        if !is_pending && Instant::now() >= end + LONGEST_SCRIPT {
            return Err(refuse!(
                "process {pid} has not answered: see what it prints"
            ));
        }
        if is_pending && Instant::now() >= end {
            request.cancel();
            return Err(refuse!(
                "process {pid} runs no Python code for {:.1} s: nothing was changed; try again, or give it \
                 more time with --timeout",
                limit.as_secs_f64()
            ));
        }
        if is_pending && Instant::now() >= next {
            remind(pid, request);
            next = Instant::now() + AGAIN;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets the interpreter look, and wakes a main thread that waits. Where it may not be stopped, it looks when it wakes.
fn remind(pid: u32, request: &dyn Request) {
    let stopped = Stopped::new(pid, pid);
    request.remind();
    if let Ok(Some(stopped)) = stopped
        && stopped.place() != Place::Elsewhere
    {
        // A thread that is gone needs no waking.
        let _ = stopped.wake();
    }
}

/// A script that the process can read, and where it answers.
enum Placed<'a> {
    Folder(Folder),
    MemoryFiles(MemoryFiles<'a>),
}

impl<'a> Placed<'a> {
    fn new(pid: u32, request: &'a dyn Request, script: &str) -> Result<Self, Refusal> {
        let folder = Folder::new(pid).and_then(|folder| {
            folder.write_script(script)?;
            Ok(folder)
        });
        let error = match folder {
            Ok(folder) => return Ok(Self::Folder(folder)),
            Err(error) => error,
        };
        let (memory, room) = request.room();
        let files = MemoryFiles::new(pid, memory, room).and_then(|files| {
            files.write_script(&literal(script))?;
            Ok(files)
        });
        files.map(Self::MemoryFiles).map_err(|other| {
            refuse!(
                "no script can be put into /tmp of process {pid}: {}; nor into its memory: {}",
                plain(&error),
                plain(&other)
            )
        })
    }

    fn path(&self) -> Vec<u8> {
        match self {
            Self::Folder(folder) => folder
                .inside
                .join(SCRIPT)
                .into_os_string()
                .into_encoded_bytes(),
            Self::MemoryFiles(files) => files.path().into_bytes(),
        }
    }

    fn answer(&self) -> Option<String> {
        match self {
            Self::Folder(folder) => folder.answer(),
            Self::MemoryFiles(files) => files.answer(),
        }
    }
}

/// A private folder for the script, in `/tmp` of the process. It is removed when this is dropped.
struct Folder {
    inside: PathBuf,
    outside: PathBuf,
    owner: (u32, u32),
}

impl Folder {
    fn new(pid: u32) -> io::Result<Self> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let owner = process::owner(pid).ok_or_else(gone)?;
        let name = format!(".nthbyte-{pid}-{}-script", std::process::id());
        let inside = Path::new("/tmp").join(&name);
        let outside = process::path(pid, "root/tmp").join(name);
        DirBuilder::new().mode(0o700).create(&outside)?;
        let folder = Self {
            inside,
            outside,
            owner,
        };
        chown(&folder.outside, Some(owner.0), Some(owner.1))?;
        Ok(folder)
    }

    /// Writes the script, which leaves no name behind: it is one expression.
    fn write_script(&self, script: &str) -> io::Result<()> {
        let answer = self.inside.join(ANSWER);
        let (script, answer) = (literal(script), literal(&answer.to_string_lossy()));
        let text = format!(
            "(lambda names, os, at: (exec({script}, names), (lambda fd: (os.write(fd, \
             names['result'].encode(errors='replace')), os.close(fd)))(os.open(at + '.part', os.O_CREAT | os.O_WRONLY, \
             0o600)), os.rename(at + '.part', at)))({{}}, __import__('os'), {answer})\n"
        );
        let path = self.outside.join(SCRIPT);
        fs::write(&path, text)?;
        chown(path, Some(self.owner.0), Some(self.owner.1))
    }

    fn answer(&self) -> Option<String> {
        fs::read_to_string(self.outside.join(ANSWER)).ok()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays, in a folder of the process's own user.
        let _ = fs::remove_dir_all(&self.outside);
    }
}

/// A text as a literal of Python.
fn literal(text: &str) -> String {
    let signs = text.chars().map(|sign| match sign {
        ' '..='~' if sign != '\'' && sign != '\\' => sign.to_string(),
        _ => format!("\\U{:08x}", u32::from(sign)),
    });
    format!("'{}'", signs.collect::<String>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_literal_has_no_sign_that_ends_it() {
        assert_eq!(
            super::literal("a'\\\n"),
            "'a\\U00000027\\U0000005c\\U0000000a'"
        );
    }
}
