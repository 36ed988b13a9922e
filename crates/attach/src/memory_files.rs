//! A script and its answer in a process in which no file can be written: two files without a place (`memfd_create`), made by its main
//! thread, filled and read from here.
//!
//! The interpreter reads the script as `/proc/self/fd/N`. The script closes both files at its end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::memory::Memory;
use crate::process;
use crate::script::file_text;
use crate::x86_64::inject::find_gadgets;
use crate::x86_64::thread::Stopped;

/// The name that the files have in lists of descriptors.
const NAME: &[u8] = b"nthbyte\0";
/// How often the thread is stopped until the calls can be made.
const ATTEMPTS: u32 = 20;
/// The first sign of the answer, once the script has begun, and once the rest of it is there.
const BEGUN: char = '~';
const WHOLE: char = '+';

/// Both files. Those that the process still has open are closed when this is dropped.
pub struct MemoryFiles<'a> {
    pid: u32,
    memory: &'a Memory,
    /// Of the script, and of the answer: descriptors of the process.
    numbers: [u64; 2],
    files: [File; 2],
}

impl<'a> MemoryFiles<'a> {
    /// Makes them. `room` is memory of the process that nothing uses at the moment.
    ///
    /// # Errors
    /// If the process may not be stopped, or the system makes no such file.
    pub fn new(pid: u32, memory: &'a Memory, room: u64) -> io::Result<Self> {
        if !memory.write(room, NAME) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let create = [
            libc::SYS_memfd_create as u64,
            room,
            u64::from(libc::MFD_CLOEXEC),
            0,
            0,
            0,
            0,
        ];
        let results = system_calls(pid, memory, &[create, create])?;
        let made: Vec<u64> = results
            .iter()
            .filter_map(|&of| u64::try_from(of).ok())
            .collect();
        let [script, answer] = made[..] else {
            let closes: Vec<[u64; 7]> = made.into_iter().map(close).collect();
            let _ = system_calls(pid, memory, &closes);
            let error = results.last().map_or(0, |&of| -of);
            return Err(io::Error::from_raw_os_error(
                i32::try_from(error).unwrap_or(0),
            ));
        };
        let numbers = [script, answer];
        let open = |number: u64| {
            let path = process::path(pid, &format!("fd/{number}"));
            OpenOptions::new().read(true).write(true).open(path)
        };
        let opened = open(numbers[0]).and_then(|one| Ok([one, open(numbers[1])?]));
        match opened {
            Ok(files) => Ok(Self {
                pid,
                memory,
                numbers,
                files,
            }),
            Err(error) => {
                let _ = system_calls(pid, memory, &numbers.map(close));
                Err(error)
            }
        }
    }

    /// Writes the script.
    pub fn write_script(&self, script: &str) -> io::Result<()> {
        let [number, answer] = self.numbers;
        let begin = format!(
            "    if os.pread({answer}, 1, 0):
        return
    os.pwrite({answer}, b'{BEGUN}', 0)"
        );
        let answer = format!(
            "        os.pwrite({answer}, text, 1)
        os.pwrite({answer}, b'{WHOLE}', 0)
        os.close({answer})
        os.close({number})"
        );
        self.files[0].write_all_at(file_text(script, &begin, &answer).as_bytes(), 0)
    }

    /// Whether the script has begun, or must not begin any more.
    pub fn has_begun(&self) -> bool {
        self.files[1]
            .metadata()
            .is_ok_and(|answer| answer.len() > 0)
    }

    /// Sees to it that the script does nothing any more. Returns false if it has begun.
    pub fn is_given_up(&self) -> bool {
        !self.has_begun() && self.files[1].write_all_at(b"-", 0).is_ok()
    }

    /// The path of the script, as the process sees it.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.numbers[0])
    }

    /// The answer, once it is whole.
    pub fn answer(&self) -> Option<String> {
        let length = self.files[1].metadata().ok()?.len();
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.files[1].read_exact_at(&mut bytes, 0).ok()?;
        let (first, rest) = bytes.split_first()?;
        (char::from(*first) == WHOLE).then(|| String::from_utf8_lossy(rest).into_owned())
    }
}

impl Drop for MemoryFiles<'_> {
    fn drop(&mut self) {
        let identity = |of: io::Result<std::fs::Metadata>| of.ok().map(|of| (of.dev(), of.ino()));
        let is_open = |(number, file): (&u64, &File)| {
            let there = std::fs::metadata(process::path(self.pid, &format!("fd/{number}")));
            identity(there).is_some_and(|there| Some(there) == identity(file.metadata()))
        };
        let both = self.numbers.iter().zip(&self.files);
        let open = both.filter(|&one| is_open(one));
        let calls: Vec<[u64; 7]> = open.map(|(&number, _)| close(number)).collect();
        if !calls.is_empty() {
            // What cannot be closed is closed at the process's end.
            let _ = system_calls(self.pid, self.memory, &calls);
        }
    }
}

fn close(number: u64) -> [u64; 7] {
    [libc::SYS_close as u64, number, 0, 0, 0, 0, 0]
}

/// Lets the main thread make system calls, up to the first that fails, and returns their results.
fn system_calls(pid: u32, memory: &Memory, calls: &[[u64; 7]]) -> io::Result<Vec<i64>> {
    let refused = |error| io::Error::other(format!("{error}"));
    let gadgets = find_gadgets(pid, memory).map_err(refused)?;
    for _ in 0..ATTEMPTS {
        let Some(mut stopped) = Stopped::new(pid, pid).map_err(refused)? else {
            std::thread::sleep(std::time::Duration::from_millis(5));
            continue;
        };
        let mut results = Vec::new();
        let mut next = |number: usize, result: i64| {
            if number > 0 {
                results.push(result);
            }
            calls.get(number).copied().filter(|_| result >= 0)
        };
        let made = stopped.system_calls(memory, gadgets, &mut next);
        if made.map_err(refused)?.is_none() {
            continue;
        }
        return Ok(results);
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}
