//! PyPy's own way in, since 7.3.18: a structure that the library exports, with the path of a script and a flag.
//!
//! The main thread executes the script at the next bytecode, and says so on its standard output. There is no answer: the script
//! writes one into a file beside it. A main thread that waits is woken, as by a signal.
//!
//! ```text
//! struct { long counter; char cookie[8]; long pending; char path[4096]; } pypysig_counter;
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::image::Image;
use crate::memory::{Mapping, Memory};
use crate::process;
use crate::refusal::{Refusal, plain, refuse};
use crate::x86_64::thread::{Place, Stopped};

const COOKIE: &[u8] = b"pypysigs";
const COOKIE_AT: u64 = 8;
const PENDING_AT: u64 = 16;
const PATH_AT: u64 = 24;
/// The script and its answer.
const SCRIPT: &str = "script.py";
const ANSWER: &str = "answer";
/// Both sides write the counter, so a request may be overwritten; and a thread may have begun to wait.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a script that has begun may take.
const LONGEST_SCRIPT: Duration = Duration::from_secs(30);

/// A PyPy that can be entered.
#[derive(Clone, Copy, Debug)]
pub struct PyPy {
    counter: u64,
}

impl PyPy {
    /// Finds the structure; `None` in older versions.
    pub fn find(memory: &Memory, maps: &[Mapping]) -> Option<Self> {
        let is_library = |one: &&Mapping| one.offset == 0 && one.name.contains("libpypy");
        let library = maps.iter().find(is_library)?;
        let counter = Image::at(memory, library.start)?.symbol(memory, "pypysig_counter")?;
        let cookie = memory.bytes(counter + COOKIE_AT, COOKIE.len())?;
        (cookie == COOKIE).then_some(Self { counter })
    }

    /// Runs a script in names of its own, and returns the text in its variable `result`.
    ///
    /// # Errors
    /// If it does not begin within `limit`: then it never runs. If the system refuses.
    pub fn run(
        self,
        pid: u32,
        memory: &Memory,
        script: &str,
        limit: Duration,
    ) -> Result<String, Refusal> {
        let failed = |error: io::Error| {
            refuse!(
                "no script can be put into /tmp of process {pid}: {}",
                plain(&error)
            )
        };
        let folder = Folder::new(pid).map_err(failed)?;
        folder.write_script(script).map_err(failed)?;
        let mut path = folder
            .inside
            .join(SCRIPT)
            .into_os_string()
            .into_encoded_bytes();
        path.push(0);
        let ended = || refuse!("process {pid} has ended, or executes another program");
        let set = |at: u64, value: i64| memory.write(self.counter + at, &value.to_le_bytes());
        if !memory.write(self.counter + PATH_AT, &path) || !set(PENDING_AT, 1) {
            return Err(ended());
        }
        let end = Instant::now() + limit;
        let mut next = Instant::now();
        loop {
            let is_pending = memory.u64(self.counter + PENDING_AT).ok_or_else(ended)? == 1;
            if let Some(answer) = folder.answer() {
                return Ok(answer);
            }
            if !is_pending && Instant::now() >= end + LONGEST_SCRIPT {
                return Err(refuse!(
                    "process {pid} has not answered: see what it prints"
                ));
            }
            if is_pending && Instant::now() >= end {
                set(PENDING_AT, 0);
                return Err(refuse!(
                    "process {pid} runs no Python code for {:.1} s: nothing was changed; try again, or give it \
                     more time with --timeout",
                    limit.as_secs_f64()
                ));
            }
            if is_pending && Instant::now() >= next {
                set(0, -1);
                if let Some(stopped) = Stopped::new(pid, pid)?
                    && stopped.place() != Place::Elsewhere
                {
                    stopped.wake()?;
                }
                next = Instant::now() + AGAIN;
            }
            std::thread::sleep(Duration::from_millis(1));
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
