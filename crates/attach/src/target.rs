//! A process to attach to.

use std::time::{Duration, Instant};

use crate::awaited::Awaited;
use crate::interpreter::Interpreter;
use crate::memory::{Memory, mappings};
use crate::process;
use crate::pypy::PyPy;
use crate::refusal::{Refusal, refuse};
use crate::remote::Remote;
use crate::x86_64::inject::{Ended, Injection};

/// How long another tracer may hold the process: another `nthbyte attach` is done within that.
const OF_OTHERS: Duration = Duration::from_millis(500);
/// Between two attempts while the interpreter starts.
const BETWEEN: Duration = Duration::from_millis(20);

/// What a process runs.
#[derive(Clone, Debug)]
enum Found {
    /// A CPython, whose functions are called.
    CPython(Box<Interpreter>),
    /// A PyPy, which has a way of its own.
    PyPy(PyPy),
}

/// How a script gets into a CPython.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By a call in a page of ours; where the process gives no executable page, by the interpreter's own protocol.
    #[default]
    Best,
    /// By the interpreter's own protocol (PEP 768).
    Remote,
}

/// A process that runs a Python which a script can be brought into.
#[derive(Debug)]
pub struct Target {
    pid: u32,
    memory: Memory,
    found: Found,
    way: Way,
}

impl Target {
    /// Looks at a process. Nothing in it is changed.
    ///
    /// # Errors
    /// If it cannot be attached to; the text says which way would work.
    pub fn open(pid: u32) -> Result<Self, Refusal> {
        let end = Instant::now() + OF_OTHERS;
        while process::tracer(pid).is_some() && Instant::now() < end {
            std::thread::sleep(BETWEEN);
        }
        process::check(pid)?;
        Self::look(pid).map_err(|refusal| process::ended_or(pid, refusal))
    }

    fn look(pid: u32) -> Result<Self, Refusal> {
        let memory = Memory::open(pid)?;
        let found = match PyPy::find(&memory, &mappings(pid)?) {
            Some(pypy) => Found::PyPy(pypy),
            None => Found::CPython(Box::new(Interpreter::find(pid, &memory)?)),
        };
        let way = Way::default();
        Ok(Self {
            pid,
            memory,
            found,
            way,
        })
    }

    /// The same, to be entered in this way.
    #[must_use]
    pub fn by(self, way: Way) -> Self {
        Self { way, ..self }
    }

    /// The interpreter and its version: `CPython 3.13.0`.
    #[must_use]
    pub fn interpreter(&self) -> &str {
        match &self.found {
            Found::CPython(interpreter) => &interpreter.name,
            Found::PyPy(_) => "PyPy",
        }
    }

    /// Runs a script, once, in names of its own, and returns the text in its variable `result`: up to 8 KiB. The script is
    /// run again if `result` is `again`, because the interpreter still starts, and if a handler of the program raised an
    /// exception before there was a result. The program gets that exception. `awaited` says when it has begun.
    ///
    /// # Errors
    /// If it does not begin within `limit`: then it never runs. If the process ends; if the system refuses.
    pub fn run(&self, script: &str, limit: Duration, awaited: &Awaited) -> Result<String, Refusal> {
        // What a thread traces is let go of by the kernel at the thread's end, also if it has not stopped in time.
        let run = || self.run_here(script, limit, awaited);
        let done = std::thread::scope(|scope| scope.spawn(run).join());
        let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.map_err(|refusal| process::ended_or(self.pid, refusal))
    }

    fn run_here(
        &self,
        script: &str,
        limit: Duration,
        awaited: &Awaited,
    ) -> Result<String, Refusal> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let ended = match &self.found {
                Found::CPython(interpreter) => self.run_in(interpreter, script, left, awaited)?,
                Found::PyPy(pypy) => {
                    Ended::With(pypy.run(self.pid, &self.memory, script, left, awaited)?)
                }
            };
            let why = match ended {
                Ended::With(text) if text != "again" => return Ok(text),
                Ended::With(_) | Ended::Starting => "has not ended its start",
                Ended::Interrupted => "is interrupted by signals all the time",
            };
            if Instant::now() >= end {
                return Err(refuse!("process {} {why}: try again", self.pid));
            }
            std::thread::sleep(BETWEEN);
        }
    }

    fn run_in(
        &self,
        interpreter: &Interpreter,
        script: &str,
        limit: Duration,
        awaited: &Awaited,
    ) -> Result<Ended, Refusal> {
        let remotely = || {
            let remote = Remote::find(self.pid, &self.memory, interpreter)?;
            let answer = remote.run(self.pid, &self.memory, script, limit, awaited)?;
            Ok(Ended::With(answer))
        };
        if self.way == Way::Remote {
            return remotely();
        }
        let mut injection = Injection::new(self.pid, &self.memory)?;
        match injection.run(interpreter, script, limit, awaited) {
            // The reason of the first way is the better one.
            Err(refusal) if injection.has_no_page => remotely().map_err(|_: Refusal| refusal),
            done => done,
        }
    }
}
