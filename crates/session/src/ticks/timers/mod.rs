//! The timers of time samples: one for each thread, on the thread's own CPU clock. Their signal interrupts the thread, and
//! the host's handler stores a tick ([`crate::ticks`]).
//!
//! ```text
//! mod      timers of threads, and what their clocks say of lost samples
//! signal   the signal, and what came with it
//! room     the stack that a handler has left
//! ```
//!
//! The kernel deletes such timers, and the signals that they have sent, when another program replaces this one (`exec`),
//! and a forked child has none. An interval timer (`setitimer`) would go on in the new program, which has no handler.
//!
//! The keeper looks for threads in `/proc/self/task`: threads that Python does not know are there too. A thread that is
//! found late has used CPU time without a timer; its sample points in that time count as lost. The same holds for sample
//! points whose signals did not arrive, because the thread blocks them: the clock of a thread says how many there must
//! have been.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use nthbyte_host::clock::{cpu_clock_of as clock, read, thread_cpu};
use nthbyte_host::process::ProcessIdentity;

use crate::begin::record_now;
use crate::ticks::Rate;
use crate::ticks::TICKS;
use signal::{DELIVERED, MARK, MOST};

mod room;
mod signal;

pub use room::has_room;
pub use signal::{TickHandler, samples_of};

/// The time between two calls of [`keep`] while the process uses the processor, and while it does not.
const BUSY: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_millis(200);
/// The process is busy if it has used this much CPU time since the last call, in nanoseconds.
const BUSY_FROM: u64 = 1_000_000;
/// How often, and for how long each time, a thread waits for another one that uses the table.
const WAITS: u32 = 10_000;
const WAIT: Duration = Duration::from_micros(200);
/// Sample points that may be on their way when a clock is read.
const ON_THEIR_WAY: u64 = 3;
/// With more threads than this, one that has just started is not looked for in the list of all, which takes about a
/// microsecond for each of them.
const FEW: usize = 64;
/// How many numbers are tried then. Linux numbers the threads of all processes in the order of their start.
const TRIED: c_int = 16;

/// The thread that has no timer: the writer thread.
static LEFT_OUT: AtomicI32 = AtomicI32::new(0);
/// The settings of the session: see [`Table`]. A forked child has the same.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
/// CPU time of the process at the last call of [`keep`] that looked for threads.
static CPU_BEFORE: AtomicU64 = AtomicU64::new(0);
/// Whether timers may be made. The writer thread may still be looking for threads when the session has ended.
static ARE_WANTED: AtomicBool = AtomicBool::new(false);
/// The timers of this process; in a forked child, its parent's until it has a table of its own.
static TIMERS: AtomicPtr<Timers> = AtomicPtr::new(std::ptr::null_mut());

/// The timers of one process. A child does not use its parent's: the table may have been locked at the fork, and the
/// kernel's numbers in it may be numbers of the program's own timers in the child.
struct Timers {
    process: ProcessIdentity,
    table: Mutex<Table>,
}

struct Table {
    signal: c_int,
    /// CPU time between two sample points, in nanoseconds.
    period: u64,
    random: u64,
    threads: BTreeMap<c_int, Timer>,
    /// Numbers of ended timers, and the first number that was never in use.
    free: Vec<usize>,
    next: usize,
    /// The thread that was found last.
    newest: c_int,
    /// Whether the threads that existed when the session began are known.
    has_scanned: bool,
}

/// The timer of one thread.
struct Timer {
    number: usize,
    /// The kernel's timer; `None` if it could not be made.
    timer: Option<usize>,
    /// The thread's CPU time at its first sample point with a timer.
    first: u64,
    /// The thread's CPU time when it was last looked at.
    seen: u64,
}

/// CPU time of the process in nanoseconds.
fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Installs the handler, and begins to sample the calling thread. [`keep`] finds the others.
///
/// # Errors
/// One line that says what prevents it.
pub fn begin(handler: TickHandler, rate: Rate, seed: u64) -> Result<(), String> {
    CPU_BEFORE.store(0, Relaxed);
    room::prepare();
    begin_with(signal::install(handler)?, rate.period_nanos(), seed)
}

fn begin_with(signal: c_int, period: u64, seed: u64) -> Result<(), String> {
    SIGNAL.store(signal, Relaxed);
    PERIOD.store(period, Relaxed);
    SEED.store(seed, Relaxed);
    let mut table = match table() {
        Some(mut table) => {
            *table = Table::new();
            table
        }
        None => replace(Table::new()),
    };
    if std::fs::metadata("/proc/self/task").is_err() {
        return Err("--cpu needs /proc, which is not mounted here; mount it".to_owned());
    }
    ARE_WANTED.store(true, SeqCst);
    let this = this_thread();
    let cpu = thread_cpu(this).unwrap_or(0);
    table.add(this, cpu, cpu);
    if table.threads[&this].timer.is_none() {
        let error = std::io::Error::last_os_error();
        return Err(if error.raw_os_error() == Some(libc::EAGAIN) {
            "cannot make a timer for --cpu; raise the limit on pending signals (ulimit -i)"
                .to_owned()
        } else {
            format!("--cpu needs timer_create, which failed here: {error}")
        });
    }
    Ok(())
}

/// Begins to sample the only thread of a forked child.
pub fn begin_in_child() {
    CPU_BEFORE.store(0, Relaxed);
    let this = this_thread();
    let mut table = replace(Table::new());
    let cpu = thread_cpu(this).unwrap_or(0);
    table.add(this, cpu, cpu);
}

/// Stops all timers of this process. A thread that holds the table for seconds stops them when it goes on.
pub fn end() {
    ARE_WANTED.store(false, SeqCst);
    if let Some(mut table) = table() {
        table.remove_all();
    }
}

/// Whether there are timers, or would be if they could be made.
pub(crate) fn are_wanted() -> bool {
    ARE_WANTED.load(SeqCst)
}

/// Called by the writer thread between two blocks: finds threads that have started, and takes another signal if the program
/// has a handler for ours by now. Returns the longest time until the next call.
pub(crate) fn keep() -> Duration {
    leave_out_this_thread();
    if signal::is_taken() {
        match signal::install_again() {
            Ok(signal) => change_signal(signal),
            Err(_) => end(),
        }
    }
    let cpu = process_cpu();
    if cpu.saturating_sub(CPU_BEFORE.load(Relaxed)) < BUSY_FROM {
        return IDLE;
    }
    CPU_BEFORE.store(cpu, Relaxed);
    scan();
    BUSY
}

/// Called when a thread has been started, by the thread that has started it: the new one gets its timer before it can run
/// the program's code.
///
/// Not in a forked child before its first recording: until then it has the parent's timers in its memory, but none of them.
pub fn thread_has_started() {
    if TICKS.are_stored()
        && !find_new()
        && let Some(mut recording) = record_now()
    {
        recording.wake_writer();
    }
}

/// Sends another signal from here on.
fn change_signal(signal: c_int) {
    SIGNAL.store(signal, Relaxed);
    if let Some(mut table) = table() {
        table.remove_all();
        *table = Table::new();
    }
    scan();
}

/// Leaves the calling thread out.
fn leave_out_this_thread() {
    LEFT_OUT.store(this_thread(), Relaxed);
}

/// Finds threads that have started. Returns false if there may be one that was not found: another thread is looking for
/// them, this process has no table, or it has many threads.
fn find_new() -> bool {
    let Some(mut table) = of_this_process().and_then(|table| table.try_lock().ok()) else {
        return false;
    };
    let known = table.threads.len();
    let is_long = known > FEW;
    table.while_wanted(|table| {
        if is_long {
            let next = table.newest.saturating_add(1);
            table.look_for((next..next.saturating_add(TRIED)).filter(may_have_timer));
        } else {
            table.look_for(threads());
        }
    });
    !is_long || table.threads.len() > known
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "iterators pass a reference"
)]
fn may_have_timer(thread: &c_int) -> bool {
    *thread != LEFT_OUT.load(Relaxed)
}

/// The threads of this process that may have timers, in order.
fn threads() -> Vec<c_int> {
    let folder = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let mut there: Vec<c_int> = folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(may_have_timer)
        .collect();
    there.sort_unstable();
    there
}

/// Finds threads that have started and threads that have ended.
fn scan() {
    let Some(mut table) = table() else {
        return;
    };
    let there = threads();
    if there.is_empty() {
        // The program has used up all descriptors.
        return;
    }
    table.while_wanted(|table| {
        let known: Vec<c_int> = table.threads.keys().copied().collect();
        for thread in known {
            if there.binary_search(&thread).is_err() {
                table.remove(thread, None);
            }
        }
        for thread in there {
            if let Some(cpu) = thread_cpu(thread) {
                table.look_at(thread, cpu);
            }
        }
        table.has_scanned = true;
    });
}

impl Table {
    /// A table without threads.
    fn new() -> Self {
        Self {
            signal: SIGNAL.load(Relaxed),
            period: PERIOD.load(Relaxed).max(1),
            // A child draws other numbers than its parent. The generator stays at 0 for ever.
            random: (SEED.load(Relaxed) ^ u64::from(std::process::id()) << 32).max(1),
            threads: BTreeMap::new(),
            free: Vec::new(),
            next: 0,
            newest: 0,
            has_scanned: false,
        }
    }

    /// Calls `work` if timers may be made. If [`end`] was called meanwhile and did not wait any longer, stops them all.
    fn while_wanted(&mut self, work: impl FnOnce(&mut Self)) {
        if ARE_WANTED.load(SeqCst) {
            work(self);
            if !ARE_WANTED.load(SeqCst) {
                self.remove_all();
            }
        }
    }

    fn remove_all(&mut self) {
        let threads: Vec<c_int> = self.threads.keys().copied().collect();
        for thread in threads {
            let cpu = thread_cpu(thread);
            self.remove(thread, cpu);
        }
    }

    /// Adds the timers of those threads that exist and are not known yet.
    fn look_for(&mut self, threads: impl IntoIterator<Item = c_int>) {
        for thread in threads {
            if !self.threads.contains_key(&thread)
                && let Some(cpu) = thread_cpu(thread)
            {
                self.look_at(thread, cpu);
            }
        }
    }

    fn look_at(&mut self, thread: c_int, cpu: u64) {
        match self.threads.get_mut(&thread) {
            Some(known) if known.seen <= cpu => known.seen = cpu,
            Some(_) => {
                // The number belongs to another thread now, whose clock began later.
                self.remove(thread, None);
                self.add(thread, 0, cpu);
            }
            None => self.add(thread, if self.has_scanned { 0 } else { cpu }, cpu),
        }
    }

    /// Adds a thread that is sampled from the CPU time `from` on, and whose CPU time is `now`.
    fn add(&mut self, thread: c_int, from: u64, now: u64) {
        let number = self.free.pop().unwrap_or(self.next);
        if number >= MOST {
            return;
        }
        self.next = self.next.max(number + 1);
        self.newest = thread;
        DELIVERED[number].store(0, Relaxed);
        // The first sample point lies anywhere in the first period, so that short threads get their share.
        let mut first = from + self.draw() % self.period + 1;
        if first <= now {
            let late = (now - first) / self.period + 1;
            TICKS.lose_several(late);
            first += late * self.period;
        }
        let timer = self.make(thread, number, first - now);
        self.threads.insert(
            thread,
            Timer {
                number,
                timer,
                first,
                seen: now,
            },
        );
    }

    fn make(&self, thread: c_int, number: usize, first: u64) -> Option<usize> {
        // SAFETY: zero is a valid value of both structs; the kernel checks the thread and the clock.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = self.signal;
            event.sigev_notify_thread_id = thread;
            event.sigev_value.sival_ptr = (MARK << 32 | number) as *mut _;
            let mut timer: libc::timer_t = std::mem::zeroed();
            if libc::timer_create(clock(thread), &raw mut event, &raw mut timer) != 0 {
                return None;
            }
            let times = libc::itimerspec {
                it_interval: timespec(self.period),
                it_value: timespec(first),
            };
            libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut());
            Some(timer as usize)
        }
    }

    /// Removes a thread. `cpu` is its CPU time, if it has not ended.
    fn remove(&mut self, thread: c_int, cpu: Option<u64>) {
        let Some(timer) = self.threads.remove(&thread) else {
            return;
        };
        if let Some(kernels) = timer.timer {
            // SAFETY: the timer was made by this process, and is not used again.
            unsafe { libc::timer_delete(kernels as libc::timer_t) };
        }
        let seen = cpu.unwrap_or(timer.seen);
        let points = match seen.checked_sub(timer.first) {
            Some(used) => used / self.period + 1,
            None => 0,
        };
        let missing = points.saturating_sub(DELIVERED[timer.number].load(Relaxed));
        if missing > ON_THEIR_WAY {
            TICKS.lose_several(missing);
        }
        self.free.push(timer.number);
    }

    /// A random number (Marsaglia's xorshift).
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Makes this the table of the process. The one before stays in memory.
fn replace(table: Table) -> MutexGuard<'static, Table> {
    let timers: &Timers = Box::leak(Box::new(Timers {
        process: ProcessIdentity::of_this(),
        table: Mutex::new(table),
    }));
    // Before the keeper can find it.
    let table = timers.table.lock().unwrap_or_else(PoisonError::into_inner);
    TIMERS.store(std::ptr::from_ref(timers).cast_mut(), Release);
    table
}

/// The table of this process, not locked. `None` if there is none, or only the parent's.
fn of_this_process() -> Option<&'static Mutex<Table>> {
    // SAFETY: timers are never freed, and no code writes through the pointer.
    let timers = unsafe { TIMERS.load(Acquire).as_ref()? };
    (timers.process == ProcessIdentity::of_this()).then_some(&timers.table)
}

/// The table of this process, locked. `None` if there is none, or if a thread that holds it does not run for seconds.
fn table() -> Option<MutexGuard<'static, Table>> {
    let table = of_this_process()?;
    for _ in 0..WAITS {
        match table.try_lock() {
            Ok(table) => return Some(table),
            Err(TryLockError::Poisoned(table)) => return Some(table.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(WAIT),
        }
    }
    None
}

const SECOND: u64 = 1_000_000_000;

const fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / SECOND).cast_signed(),
        tv_nsec: (nanos % SECOND).cast_signed(),
    }
}

fn this_thread() -> c_int {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests;
