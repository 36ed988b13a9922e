//! A script that a process runs by itself, from a file: what PyPy and, since 3.14, CPython offer.
//!
//! The file lies in a private folder in `/tmp` of the process; where that cannot be, it has no place
//! ([`memory_files`](crate::memory_files)). The main thread executes it at the next bytecode. There is no
//! answer: the script writes one into a file beside it. A main thread that waits is woken, as by a signal, where that is allowed.
//!
//! CPython forgets a request that it meets in code whose builtins lack `__import__`, as `namedtuple` executes. So the script says first that it
//! has begun, and a request that the main thread has taken without that is made again. The script does nothing the second time.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::awaited::Awaited;
use crate::memory::Memory;
use crate::memory_files::MemoryFiles;
use crate::process;
use crate::refusal::{Refusal, plain, refuse};
use crate::script::{LONGEST_SCRIPT, file_text, literal, no_end};
use crate::x86_64::thread::{Place, Stopped, is_wait};

/// The script, what says that it has begun, and its answer.
const SCRIPT: &str = "script.py";
const BEGUN: &str = "begun";
const ANSWER: &str = "answer";
/// A request may be overwritten, and a thread may have begun to wait.
const AGAIN: Duration = Duration::from_millis(50);
/// The ticks of CPU time (10 ms) after which a main thread that has taken the request and not begun will not begin.
const TICKS_OF_BEGIN: u64 = 5;

/// Where an interpreter looks for a script.
pub trait Request: Sync {
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

/// Runs a script in names of its own, and returns the text in its variable `result`; `again` if it has left none.
///
/// # Errors
/// If it does not begin within `limit`: then it never runs. If the system refuses.
pub fn run(
    pid: u32,
    request: &dyn Request,
    script: &str,
    limit: Duration,
    awaited: &Awaited,
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
    let mut begun = None;
    let mut taken = None;
    loop {
        let is_pending = request.is_pending().ok_or_else(ended)?;
        if let Some(answer) = placed.answer() {
            if is_pending {
                // It was made again, and is not wanted any more.
                request.cancel();
            }
            return Ok(answer);
        }
        let now = Instant::now();
        if placed.has_begun() {
            if begun.get_or_insert_with(|| awaited.begin()).elapsed() >= LONGEST_SCRIPT {
                return Err(no_end(pid));
            }
        } else if now >= end {
            request.cancel();
            if placed.is_given_up() {
                return Err(refuse!(
                    "process {pid} runs no Python code for {:.1} s: nothing was changed; try again, or give it \
                     more time with --timeout",
                    limit.as_secs_f64()
                ));
            }
        } else if is_pending {
            taken = None;
            if now >= next {
                remind(pid, request);
                next = Instant::now() + AGAIN;
            }
        } else if Ticks::of(pid).is_some_and(|ticks| ticks.have_passed(taken.get_or_insert(ticks)))
            || waits(pid)
        {
            if !request.make(&path) {
                return Err(ended());
            }
            next = now;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The CPU time of a main thread.
#[derive(Clone, Copy)]
struct Ticks(u64);

impl Ticks {
    fn of(pid: u32) -> Option<Self> {
        process::main_thread(pid).map(|(_, ticks)| Self(ticks))
    }

    /// Whether enough have passed since `taken` to open a script and to begin it.
    fn have_passed(self, taken: &Self) -> bool {
        self.0 >= taken.0 + TICKS_OF_BEGIN
    }
}

/// Whether the main thread waits for something, which it does not where it opens a script.
fn waits(pid: u32) -> bool {
    process::main_thread(pid).is_some_and(|(state, _)| state == 'S')
        && process::sleeps_in(pid, pid).is_some_and(is_wait)
}

/// Lets the interpreter look, and wakes a main thread that waits. Where it may not be stopped, it looks when it wakes.
fn remind(pid: u32, request: &dyn Request) {
    let work = || {
        let stopped = Stopped::new(pid, pid);
        if request.is_pending() != Some(true) {
            // It is in the script by now, whose waits are not to be interrupted.
            return;
        }
        request.remind();
        if let Ok(Some(stopped)) = stopped
            && stopped.place() != Place::Elsewhere
        {
            // A thread that is gone needs no waking.
            let _ = stopped.wake();
        }
    };
    // It is traced by a thread of its own: at that one's end, the kernel lets go of it, also if it has not stopped in time.
    std::thread::scope(|scope| {
        scope.spawn(work);
    });
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
            files.write_script(script)?;
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

    fn has_begun(&self) -> bool {
        match self {
            Self::Folder(folder) => folder.outside.join(BEGUN).exists(),
            Self::MemoryFiles(files) => files.has_begun(),
        }
    }

    /// Sees to it that the script does nothing any more. Returns false if it has begun.
    fn is_given_up(&self) -> bool {
        match self {
            Self::Folder(folder) => folder.is_given_up(),
            Self::MemoryFiles(files) => files.is_given_up(),
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

    fn write_script(&self, script: &str) -> io::Result<()> {
        let at = |name| literal(&self.inside.join(name).to_string_lossy());
        let begin = format!(
            "    try:
        os.close(os.open({}, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return",
            at(BEGUN)
        );
        let answer = at(ANSWER);
        let answer = format!(
            "        fd = os.open({answer} + '.part', os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(fd, text)
        os.close(fd)
        os.rename({answer} + '.part', {answer})"
        );
        let path = self.outside.join(SCRIPT);
        fs::write(&path, file_text(script, &begin, &answer))?;
        chown(path, Some(self.owner.0), Some(self.owner.1))
    }

    fn is_given_up(&self) -> bool {
        let begun = self.outside.join(BEGUN);
        let made = OpenOptions::new().write(true).create_new(true).open(begun);
        made.is_ok()
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
