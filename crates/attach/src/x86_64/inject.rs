//! A script runs in a process: two areas of memory are made there, and a thread is led through them.
//!
//! One thread is stopped for a fraction of a millisecond, the main thread first. If it waits in a system call without the
//! GIL, it takes the GIL and runs the script at once. Otherwise it queues a call, and the interpreter makes that call in
//! its main thread, where it would run a signal handler. A main thread that waits for a lock is woken for it. Where
//! nothing happens (it has begun to wait, or is in C code), the main thread is tried again, then a thread that waits.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use super::stub::{self, Block, FRAME, RESULT, SCRIPT, state};
use super::thread::{Gadgets, Place, Stopped, is_wait};
use crate::awaited::Awaited;
use crate::interpreter::Interpreter;
use crate::memory::{Memory, mappings};
use crate::process;
use crate::refusal::{Refusal, refuse};
use crate::script::{LONGEST_SCRIPT, no_end};

/// The areas: the block, then the code. Both are whole pages.
const DATA: u64 = (size_of::<Block>() as u64).next_multiple_of(4096);
const CODE: u64 = 4096;

/// How long the first call may take before another thread is tried; this doubles each time.
const FIRST_TIMEOUT: Duration = Duration::from_millis(30);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a queued call may take to come once the script has run elsewhere.
const LONGEST_FOR_QUEUED: Duration = Duration::from_millis(50);
/// The stack that Python code needs below a thread's stack pointer.
const STACK_NEEDED: u64 = 256 << 10;
/// How often threads are looked at before the areas go; each look is a moment later.
const MOST_LOOKS: usize = 100;
/// The first threads of a process with very many.
const MOST_THREADS: usize = 64;

/// The names of the script's variables, of its file and of a module, each with a zero at its end.
const NAMES: [&str; 4] = ["__builtins__", "result", "<nthbyte attach>", "builtins"];

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this text in its variable `result`.
    With(String),
    /// With an exception of a handler of the program, which the program gets.
    Interrupted,
    /// It did not run: the interpreter begins.
    Starting,
}

/// The areas in the process.
#[derive(Clone, Copy, Debug)]
struct Pages {
    data: u64,
    code: u64,
}

/// A process into which a script is brought.
pub struct Injection<'a> {
    pid: u32,
    memory: &'a Memory,
    gadgets: Gadgets,
    pages: Option<Pages>,
    /// The call is queued, and has not come yet.
    is_queued: bool,
    /// A thread that was led into the code and may still be there.
    inside: Option<u32>,
    /// All that were.
    visited: BTreeSet<u32>,
    /// When the next thread is stopped.
    next: Instant,
    /// Threads that cannot run Python.
    unfit: BTreeSet<u32>,
    /// The process gives no executable page.
    pub has_no_page: bool,
    /// The pages must stay, because something may still use them.
    must_stay: bool,
}

impl<'a> Injection<'a> {
    /// Prepares it; nothing is changed yet.
    ///
    /// # Errors
    /// If the process has no code that makes system calls.
    pub fn new(pid: u32, memory: &'a Memory) -> Result<Self, Refusal> {
        Ok(Self {
            pid,
            memory,
            gadgets: find_gadgets(pid, memory)?,
            pages: None,
            is_queued: false,
            inside: None,
            visited: BTreeSet::new(),
            next: Instant::now(),
            unfit: BTreeSet::new(),
            has_no_page: false,
            must_stay: false,
        })
    }

    /// Runs the script once, and takes the areas away again.
    ///
    /// # Errors
    /// If it does not begin within the time, if the system refuses, or if the process ends.
    pub fn run(
        &mut self,
        interpreter: &Interpreter,
        script: &str,
        limit: Duration,
        awaited: &Awaited,
    ) -> Result<Ended, Refusal> {
        let block = block_of(self.pid, interpreter, script)?;
        let end = Instant::now() + limit;
        let mut timeout = FIRST_TIMEOUT;
        let mut pause = Duration::from_micros(100);
        let mut begun = None;
        loop {
            match self.state()? {
                state::DONE => break,
                state::RUNNING
                    if begun.get_or_insert_with(|| awaited.begin()).elapsed() > LONGEST_SCRIPT =>
                {
                    self.pages = None;
                    return Err(no_end(self.pid));
                }
                state::STARTING => {
                    self.wait_for_queued();
                    self.clean()?;
                    return Ok(Ended::Starting);
                }
                state::NEW if Instant::now() >= self.next => {
                    self.visit_main(&block)?;
                    if timeout > FIRST_TIMEOUT && self.state()? == state::NEW {
                        self.visit_others(&block)?;
                    }
                    self.next = Instant::now() + timeout;
                    timeout = (timeout * 2).min(LONGEST_TIMEOUT);
                    pause = Duration::from_micros(100);
                    continue;
                }
                state::HAS_GIL | state::FINALIZING | state::NOT_PYTHON => self.after_refusal()?,
                _ => {}
            }
            if Instant::now() >= end && self.cancel()? {
                return Err(self.no_answer(limit));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        self.wait_for_queued();
        let ended = self.result()?;
        self.clean()?;
        Ok(ended)
    }

    fn field(&self, offset: usize) -> Result<u32, Refusal> {
        let Some(pages) = self.pages else {
            return Ok(0);
        };
        let value = self.memory.u32(pages.data + offset as u64);
        value.ok_or_else(|| {
            refuse!(
                "process {} has ended, or executes another program",
                self.pid
            )
        })
    }

    fn set_field(&self, offset: usize, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some(pages) = self.pages {
            // A process that has ended is noticed at the next look.
            let _ = self.memory.write(pages.data + offset as u64, bytes);
        }
    }

    fn state(&self) -> Result<u32, Refusal> {
        self.field(offset_of!(Block, state))
    }

    /// Stops the main thread, which runs the script or queues the call.
    fn visit_main(&mut self, block: &Block) -> Result<(), Refusal> {
        if self.is_inside()? {
            return Ok(());
        }
        let Some(stopped) = Stopped::new(self.pid, self.pid)? else {
            return Ok(());
        };
        if stopped.is_by_job_control() {
            return Ok(());
        }
        let place = stopped.place();
        let may_run = place == Place::Wait && !self.unfit.contains(&self.pid);
        if !may_run && self.is_queued {
            // It has begun to wait for a lock, and does not see the call.
            return if place == Place::Lock {
                stopped.wake()
            } else {
                Ok(())
            };
        }
        if may_run && !has_room(self.pid, &stopped)? {
            self.unfit.insert(self.pid);
            return Ok(());
        }
        let entry = if may_run { stub::gil() } else { stub::add() };
        self.enter(stopped, self.pid, block, entry, place == Place::Lock)?;
        if !may_run && self.wait_until_left()? {
            let added = self.field(offset_of!(Block, added))?;
            self.is_queued = added == 0;
        }
        Ok(())
    }

    /// Lets another thread run the script, which waits in a system call without the GIL.
    fn visit_others(&mut self, block: &Block) -> Result<(), Refusal> {
        let threads = process::threads(self.pid);
        for &thread in threads.iter().take(MOST_THREADS) {
            if thread == self.pid || self.unfit.contains(&thread) || self.is_inside()? {
                continue;
            }
            if !process::sleeps_in(self.pid, thread).is_some_and(is_wait) {
                continue;
            }
            let Some(stopped) = Stopped::new(self.pid, thread)? else {
                continue;
            };
            if stopped.is_by_job_control() || stopped.place() != Place::Wait {
                continue;
            }
            if !has_room(self.pid, &stopped)? {
                self.unfit.insert(thread);
                continue;
            }
            self.enter(stopped, thread, block, stub::gil(), false)?;
            if self.wait_until_left()? && self.state()? == state::DONE {
                return Ok(());
            }
            self.after_refusal()?;
        }
        Ok(())
    }

    /// Leads a stopped thread into the code, and lets it go.
    fn enter(
        &mut self,
        mut stopped: Stopped,
        thread: u32,
        block: &Block,
        entry: u64,
        is_woken: bool,
    ) -> Result<(), Refusal> {
        let pages = match self.pages {
            Some(pages) => pages,
            None => match self.place(&mut stopped, block)? {
                Some(pages) => pages,
                None => return Ok(()),
            },
        };
        self.set_field(offset_of!(Block, left), 0);
        let (signals, after) = stopped.ends_of_wait().unwrap_or_default();
        self.write(offset_of!(Block, ends_wait), &signals.to_le_bytes());
        self.write(offset_of!(Block, after_wait), &after.to_le_bytes());
        self.write(offset_of!(Block, wakes), &0_u64.to_le_bytes());
        let frame = pages.data + offset_of!(Block, frame) as u64;
        self.inside = Some(thread);
        self.visited.insert(thread);
        if !stopped.enter(self.memory, pages.code + entry, pages.data, frame, is_woken)? {
            self.inside = None;
        }
        Ok(())
    }

    /// Makes the areas, by a thread of the process: no page is writable and executable at once.
    fn place(&mut self, stopped: &mut Stopped, block: &Block) -> Result<Option<Pages>, Refusal> {
        let memory = self.memory;
        let mut at = 0;
        let mut problem = None;
        let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let mut calls = |number: usize, result: i64| match number {
            0 => Some([
                libc::SYS_mmap as u64,
                0,
                DATA + CODE,
                writable,
                private,
                u64::MAX,
                0,
            ]),
            1 if result < 0 && result > -4096 => {
                problem = Some(refuse!("the process gives no memory: {}", error_of(result)));
                None
            }
            1 => {
                at = result.cast_unsigned();
                let bytes = bytes_of(block);
                if memory.write(at, bytes) && memory.write(at + DATA, stub::code()) {
                    let protect = libc::SYS_mprotect as u64;
                    return Some([protect, at + DATA, CODE, executable, 0, 0, 0]);
                }
                problem = Some(refuse!("the memory of the process cannot be written"));
                Some([libc::SYS_munmap as u64, at, DATA + CODE, 0, 0, 0, 0])
            }
            2 if problem.is_none() && result != 0 => {
                problem = Some(refuse!(
                    "the process gives no executable memory: {}; start the program with \
                     NTHBYTE=ready",
                    error_of(result)
                ));
                Some([libc::SYS_munmap as u64, at, DATA + CODE, 0, 0, 0, 0])
            }
            _ => None,
        };
        let made = stopped.system_calls(memory, self.gadgets, &mut calls)?;
        if let Some(problem) = problem {
            self.has_no_page = true;
            return Err(problem);
        }
        if made.is_some() {
            self.pages = Some(Pages {
                data: at,
                code: at + DATA,
            });
        }
        Ok(self.pages)
    }

    /// Whether a thread that was led into the code has not left it.
    fn is_inside(&mut self) -> Result<bool, Refusal> {
        if self.inside.is_some() && self.field(offset_of!(Block, left))? == 1 {
            self.inside = None;
        }
        Ok(self.inside.is_some())
    }

    /// Waits until a thread has left the code: a moment, unless it waits for the GIL.
    fn wait_until_left(&mut self) -> Result<bool, Refusal> {
        let end = Instant::now() + Duration::from_secs(1);
        while self.is_inside()? {
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(true)
    }

    /// A thread could not run the script: it is not asked again, and the next way is tried.
    fn after_refusal(&mut self) -> Result<(), Refusal> {
        let found = self.state()?;
        let refused = [state::HAS_GIL, state::FINALIZING, state::NOT_PYTHON];
        if !refused.contains(&found) {
            return Ok(());
        }
        let thread = self.inside;
        if !self.wait_until_left()? {
            return Ok(());
        }
        if found == state::FINALIZING {
            return Err(refuse!("process {} is about to end", self.pid));
        }
        self.unfit.extend(thread);
        self.set_field(offset_of!(Block, state), state::NEW);
        self.next = Instant::now();
        Ok(())
    }

    /// Gives up: the script does not run any more, unless it runs already. Returns whether that is so.
    fn cancel(&mut self) -> Result<bool, Refusal> {
        self.set_field(offset_of!(Block, once), 1);
        // A thread that has just seen the old value is about to say so.
        std::thread::sleep(Duration::from_millis(10));
        if self.state()? != state::NEW {
            // It ends, and says how.
            return Ok(false);
        }
        self.must_stay = self.is_queued || self.is_inside()?;
        self.clean()?;
        Ok(true)
    }

    fn no_answer(&self, limit: Duration) -> Refusal {
        let (pid, seconds) = (self.pid, limit.as_secs_f64());
        if process::is_stopped(pid) {
            return refuse!("process {pid} is stopped: let it go on with kill -CONT {pid}");
        }
        refuse!(
            "process {pid} runs no Python code, but C code that keeps the interpreter's lock, for \
             {seconds:.1} s: nothing was changed; try again, or give it more time with --timeout"
        )
    }

    /// Waits a moment for a queued call whose script has run elsewhere.
    fn wait_for_queued(&mut self) {
        let end = Instant::now() + LONGEST_FOR_QUEUED;
        while self.is_queued {
            match self.field(offset_of!(Block, consumed)) {
                Ok(0) if Instant::now() < end => std::thread::sleep(Duration::from_micros(100)),
                Ok(1) => self.is_queued = false,
                _ => break,
            }
        }
        self.must_stay |= self.is_queued;
    }

    fn result(&self) -> Result<Ended, Refusal> {
        let Some(pages) = self.pages else {
            return Ok(Ended::Interrupted);
        };
        let length = self.field(offset_of!(Block, length))? as usize;
        if length == 0 && self.field(offset_of!(Block, failed))? == 1 {
            return Ok(Ended::Interrupted);
        }
        let at = pages.data + offset_of!(Block, result) as u64;
        let bytes = self.memory.bytes(at, length.min(RESULT));
        let bytes = bytes.ok_or_else(|| refuse!("process {} has ended", self.pid))?;
        Ok(Ended::With(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Takes the areas away, unless something may still use them.
    fn clean(&mut self) -> Result<(), Refusal> {
        let Some(pages) = self.pages else {
            return Ok(());
        };
        self.must_stay |= !self.wait_until_left()?;
        self.must_stay |= self.field(offset_of!(Block, raising))? == 1;
        if self.must_stay {
            self.pages = None;
            return Ok(());
        }
        // `left` is set a few instructions before the end, and `consumed` too. Only the main thread makes the queued call.
        let code = pages.code..pages.code + CODE;
        let mut others: Vec<u32> = self.visited.iter().copied().collect();
        others.retain(|&thread| thread != self.pid);
        for _ in 0..MOST_LOOKS {
            let mut is_inside = false;
            for &thread in &others {
                let stopped = Stopped::new(self.pid, thread)?;
                is_inside |= stopped.is_some_and(|stopped| code.contains(&stopped.at()));
            }
            let main = Stopped::new(self.pid, self.pid)?;
            let Some(mut main) = main.filter(|main| !main.is_by_job_control()) else {
                break;
            };
            if is_inside || code.contains(&main.at()) {
                continue;
            }
            let unmap = [libc::SYS_munmap as u64, pages.data, DATA + CODE, 0, 0, 0, 0];
            let mut calls = |number: usize, _: i64| (number == 0).then_some(unmap);
            main.system_calls(self.memory, self.gadgets, &mut calls)?;
            break;
        }
        self.pages = None;
        Ok(())
    }
}

fn block_of(pid: u32, interpreter: &Interpreter, script: &str) -> Result<Box<Block>, Refusal> {
    // SAFETY: the block has numbers only, which may be zero.
    let mut block: Box<Block> = unsafe { Box::new(std::mem::zeroed()) };
    if script.len() >= SCRIPT {
        return Err(refuse!("the request is too long: shorten the paths"));
    }
    block.pid = process::own_number(pid);
    block.added = u32::MAX;
    block.functions = interpreter.functions;
    block.keyboard_interrupt = interpreter.keyboard_interrupt;
    for (to, name) in block.names.iter_mut().zip(NAMES) {
        to[..name.len()].copy_from_slice(name.as_bytes());
    }
    block.script[..script.len()].copy_from_slice(script.as_bytes());
    Ok(block)
}

fn bytes_of(block: &Block) -> &[u8] {
    // SAFETY: the block was zeroed and has no padding that was written to; it lives as long as the slice.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(block).cast(), size_of::<Block>()) }
}

/// The system's words for a negative result of a system call.
fn error_of(result: i64) -> String {
    let number = i32::try_from(-result).unwrap_or(0);
    crate::refusal::plain(&std::io::Error::from_raw_os_error(number))
}

/// Whether there is room for Python code below a thread's stack pointer: a signal handler may run on a small stack of its
/// own.
fn has_room(pid: u32, stopped: &Stopped) -> Result<bool, Refusal> {
    let at = stopped.stack();
    let maps = mappings(pid)?;
    let stack = maps.iter().find(|one| (one.start..one.end).contains(&at));
    // The main thread's stack grows.
    Ok(stack.is_some_and(|one| one.name == "[stack]" || at - one.start >= STACK_NEEDED))
}

/// Finds the code for system calls in the process: `getpid` of the C library is one, and signal handlers return to the
/// other.
pub fn find_gadgets(pid: u32, memory: &Memory) -> Result<Gadgets, Refusal> {
    const CALL: [u8; 3] = [0x0f, 0x05, 0xc3];
    const RESTORE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let find = |bytes: &[u8], code: &[u8], start: u64| {
        let at = bytes.windows(code.len()).position(|found| found == code)?;
        Some(start + at as u64)
    };
    let (mut call, mut restore) = (None, None);
    let maps = mappings(pid)?;
    if maps.is_empty() {
        return Err(refuse!("process {pid} has ended"));
    }
    let is_file = |name: &str| name.starts_with('/');
    let mut executable: Vec<_> = maps
        .iter()
        .filter(|one| one.is_executable && is_file(&one.name))
        .collect();
    executable.sort_by_key(|one| !one.name.contains("/libc"));
    for one in executable {
        let length = usize::try_from(one.end - one.start).unwrap_or(0);
        let Some(bytes) = memory.bytes(one.start, length) else {
            continue;
        };
        call = call.or_else(|| find(&bytes, &CALL, one.start));
        restore = restore.or_else(|| find(&bytes, &RESTORE, one.start));
        if let (Some(call), Some(restore)) = (call, restore) {
            return Ok(Gadgets { call, restore });
        }
    }
    Err(refuse!(
        "process {pid} has no C library that nthbyte knows: start the program with NTHBYTE=ready"
    ))
}

const _: () = assert!(FRAME > 2 * 4096 && size_of::<Block>() < 1 << 16);
