//! CPython's own way in since 3.14 (PEP 768, `sys.remote_exec`): a flag and the path of a script in the state of a thread.
//!
//! It is not the first choice: it needs a file that the process can read, the process may have it switched off, it has no answer, and a
//! thread that waits for a lock does not look. It needs no page of ours, and changes no registers.
//!
//! The interpreter exports where its fields are (`_Py_DebugOffsets` at the beginning of `_PyRuntime`); the words below are from
//! `pycore_debug_offsets.h`. They were compared with 3.14.10 and 3.15.2.

use std::time::Duration;

use crate::awaited::Awaited;
use crate::by_file::{self, Request};
use crate::interpreter::Interpreter;
use crate::memory::Memory;
use crate::refusal::{Refusal, refuse};

const COOKIE: &[u8] = b"xdebugpy";
/// The words that every version has.
const INTERPRETERS_HEAD: u64 = 5;
const THREADS_MAIN: u64 = 10;
/// The main interpreter stands after the first one of the list.
const MAIN_AFTER_HEAD: u64 = 8;
/// The first word of `debugger_support`, by minor version.
const SUPPORT: [(u8, u64); 2] = [(14, 89), (15, 105)];
/// `_PY_EVAL_PLEASE_STOP`: a thread leaves its bytecode for a moment, and looks.
const PLEASE_STOP: u8 = 1 << 5;
/// `_Py_MAX_SCRIPT_PATH_SIZE`.
const LONGEST_PATH: u64 = 512;

/// The fields of the main thread.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// What tells threads to look.
    breaker: u64,
    /// The flag.
    pending: u64,
    /// The path of the script.
    path: u64,
}

impl Remote {
    /// Finds the fields of the main thread.
    ///
    /// # Errors
    /// If this version has none, or the process has them switched off.
    pub fn find(pid: u32, memory: &Memory, interpreter: &Interpreter) -> Result<Self, Refusal> {
        let name = &interpreter.name;
        let unknown = || {
            refuse!(
                "process {pid} runs {name}, which has no sys.remote_exec: leave --method out, or start it with \
                 NTHBYTE=ready"
            )
        };
        let (runtime, (_, support)) = interpreter
            .runtime
            .zip(
                SUPPORT
                    .into_iter()
                    .find(|(minor, _)| *minor == interpreter.minor),
            )
            .ok_or_else(unknown)?;
        let word = |number: u64| memory.u64(runtime + 8 * number);
        let found = || {
            let cookie = memory.bytes(runtime, COOKIE.len())? == COOKIE;
            let [breaker, of_support, enabled, pending, path, size] =
                [0, 1, 2, 3, 4, 5].map(|number| word(support + number));
            if !cookie || size? != LONGEST_PATH {
                return None;
            }
            let main = memory.u64(runtime + word(INTERPRETERS_HEAD)? + MAIN_AFTER_HEAD)?;
            let thread = memory.u64(main + word(THREADS_MAIN)?)?;
            let is_enabled = memory.u32(main + enabled?)? == 1;
            let remote = Self {
                breaker: thread + breaker?,
                pending: thread + of_support? + pending?,
                path: thread + of_support? + path?,
            };
            (memory.u32(remote.pending)? <= 1).then_some((is_enabled, remote))
        };
        match found() {
            Some((true, remote)) => Ok(remote),
            Some((false, _)) => Err(refuse!(
                "process {pid} has sys.remote_exec switched off (PYTHON_DISABLE_REMOTE_DEBUG, or -X disable-remote-debug): \
                 leave --method out, or start it with NTHBYTE=ready"
            )),
            None => Err(unknown()),
        }
    }

    /// Runs a script: see [`by_file::run`].
    ///
    /// # Errors
    /// As there.
    pub fn run(
        self,
        pid: u32,
        memory: &Memory,
        script: &str,
        limit: Duration,
        awaited: &Awaited,
    ) -> Result<String, Refusal> {
        by_file::run(pid, &Fields { of: self, memory }, script, limit, awaited)
    }
}

/// The fields in the memory of a process.
struct Fields<'a> {
    of: Remote,
    memory: &'a Memory,
}

impl Request for Fields<'_> {
    fn room(&self) -> (&Memory, u64) {
        (self.memory, self.of.path)
    }

    fn make(&self, path: &[u8]) -> bool {
        path.len() as u64 <= LONGEST_PATH
            && self.memory.write(self.of.path, path)
            && self.memory.write(self.of.pending, &1_u32.to_le_bytes())
    }

    fn is_pending(&self) -> Option<bool> {
        Some(self.memory.u32(self.of.pending)? == 1)
    }

    fn cancel(&self) {
        // A process that has ended is noticed by its caller.
        let _ = self.memory.write(self.of.pending, &0_u32.to_le_bytes());
    }

    // Only the byte with the flag is written. Another thread may change it at this moment, and then its bit is lost, as with
    // `sys.remote_exec`: a request for the GIL is made again, and a signal is seen with the next one.
    fn remind(&self) {
        if let Some(bytes) = self.memory.bytes(self.of.breaker, 1) {
            let _ = self
                .memory
                .write(self.of.breaker, &[bytes[0] | PLEASE_STOP]);
        }
    }
}
