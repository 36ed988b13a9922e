//! Snapshots of who holds what: a child process that is a copy of this one, and what it leaves.
//!
//! ```text
//! thread of the program            child                               writer thread
//! ─────────────────────            ─────                               ─────────────
//! take() ── clone ───────────────▶ looks at all objects
//!   goes on                        leaves bytes in shared memory ────▶ collect(): one event of the file
//! ```
//!
//! The child is made by the system call `clone` without flags and without a signal at its end. So the program gets no
//! SIGCHLD, no handler of `fork` runs, and `waitpid(-1)` does not see the child. But the child may be a copy of a moment in
//! which another thread holds a lock of the C library, so it calls nothing of it but plain system calls; memory is this
//! library's, which has no lock.
//!
//! What the child leaves lies in memory that both share, not in a pipe: a program closes descriptors that are not its own.
//!
//! The kernel kills the child first when memory is short. It has its own limits of time and memory, and when it has not ended
//! in time, the writer thread ends it.

pub mod cost;
pub mod due;
pub mod room;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use nthbyte_host::threads::BlockedSignals;
use nthbyte_host::{clock, memory};
use nthbyte_profile::event::Nanos;
use nthbyte_profile::holders::{self, Reason, Snapshot};

/// The longest content of an event.
const LONGEST: usize = 1 << 20;
/// The longest content after the head.
pub const LONGEST_BODY: usize = LONGEST - 64;
/// Bytes before the content: its length, when it is complete.
const HEADER: usize = 64;
const SHARED: usize = LONGEST + HEADER;

/// How long a child may stand still, and how long it may take in all, in real time: its processor time is limited, but a busy
/// machine gives it a part of a processor only.
const LONGEST_STILL: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How long somebody waits for it: the end of the session.
const LONGEST_AT_END: Duration = Duration::from_secs(20);
/// How long the end of the session waits for the snapshot before.
const LONGEST_BEFORE_END: Duration = Duration::from_secs(5);
/// Between two looks at a child that somebody waits for.
const BETWEEN_LOOKS: Duration = Duration::from_micros(500);

/// How much a child that yields adds to its nice value. Beside a thread that never waits it has a tenth of a processor then. With
/// `SCHED_IDLE` it had none on a busy machine, where snapshots are wanted most; and only a privileged process leaves that.
const YIELDS: i64 = 10;
/// `getpriority`, as the kernel has it, returns the nice value taken from this number.
const KERNEL_NICE: i64 = 20;

/// What a child may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processor time.
    pub cpu: Duration,
    /// Whether the child has a lower priority than the program. Not where somebody waits for it.
    pub yields: bool,
}

/// Snapshots that the writer thread has not taken over yet.
static NEW: AtomicPtr<Flight> = AtomicPtr::new(std::ptr::null_mut());
/// The last child.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The process that has a child, or 0: there is one at a time.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Processor time of all children that have ended.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// Processor time that huge pages have taken since, which the copies have split.
static RESTORING: AtomicU64 = AtomicU64::new(0);

/// Does a part of what brings huge pages back. Its processor time counts as snapshots'.
pub(crate) fn restore<T>(work: impl FnOnce() -> T) -> T {
    let now = || clock::read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0);
    let began = now();
    let done = work();
    RESTORING.fetch_add(now().saturating_sub(began), Relaxed);
    done
}

/// Processor time that copies have taken of the machine until now.
#[must_use]
pub fn spent() -> Nanos {
    Nanos(SPENT.load(Relaxed))
}

/// A snapshot on its way into the file.
pub(crate) struct Flight {
    /// The one before it in [`NEW`].
    next: *mut Self,
    /// The process that began it: a forked child finds its parent's here.
    owner: u32,
    state: State,
}

// SAFETY: it belongs to one thread at a time: the one that pushes it, and then the writer thread.
unsafe impl Send for Flight {}

enum State {
    /// The content of the event.
    Complete(Vec<u8>),
    Child(Child),
}

struct Child {
    pid: libc::pid_t,
    memory: Shared,
    deadline: Deadline,
    time: Nanos,
    reason: Reason,
    pause: Nanos,
    /// The processor time that it may use.
    cpu: Duration,
}

/// How long a child is waited for: as long as it gets on.
struct Deadline {
    end: Instant,
    /// The processor time that it had used when it was last seen to get on, and when that was.
    used: Duration,
    moved: Instant,
}

impl Deadline {
    fn new(now: Instant) -> Self {
        Self {
            end: now + LONGEST_WAIT,
            used: Duration::ZERO,
            moved: now,
        }
    }

    /// Whether a child that has used so much processor time until now is waited for no longer.
    fn is_over(&mut self, now: Instant, used: Duration) -> bool {
        if used > self.used {
            (self.used, self.moved) = (used, now);
        }
        now >= self.end || now >= self.moved + LONGEST_STILL
    }
}

/// Memory that this process and its child share.
struct Shared {
    start: *mut u8,
    /// The process that has made it. Its forked children do not have it.
    owner: u32,
}

// SAFETY: memory of this process, which one thread at a time uses.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which replaces nothing. By the kernel's number: calls of `mmap` may be the program's to
        // record.
        let start = unsafe {
            libc::syscall(
                libc::SYS_mmap,
                0_usize,
                SHARED,
                access,
                kind,
                -1_isize,
                0_usize,
            )
        };
        (start > 0).then(|| Self {
            start: std::ptr::with_exposed_provenance_mut(start as usize),
            owner: std::process::id(),
        })
    }

    fn length(&self) -> &AtomicU32 {
        // SAFETY: the mapping begins with it, and both processes use it as an atomic number.
        unsafe { AtomicU32::from_ptr(self.start.cast()) }
    }

    /// Called by the child, once. Bytes beyond the end are left out.
    fn put(&self, bytes: &[u8]) {
        if bytes.len() <= LONGEST {
            // SAFETY: there is room for so many, and the parent reads them when it sees the length.
            unsafe {
                let content = self.start.add(HEADER);
                content.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            self.length().store(bytes.len() as u32, Release);
        }
    }

    /// What the child has left; `None` if it has left nothing.
    fn content(&self) -> Option<&[u8]> {
        let length = self.length().load(Acquire) as usize;
        // SAFETY: the child has written so many bytes, and writes no more.
        (1..=LONGEST)
            .contains(&length)
            .then(|| unsafe { std::slice::from_raw_parts(self.start.add(HEADER), length) })
    }

    /// Keeps the mapping out of the program's own forks.
    fn hide_from_forks(&self) {
        // SAFETY: the mapping is this library's alone.
        unsafe { libc::madvise(self.start.cast(), SHARED, libc::MADV_DONTFORK) };
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A forked child drops what its parent's writer thread has, and may have something else there.
        if self.owner == std::process::id() {
            // SAFETY: nobody uses the mapping any more.
            unsafe { libc::syscall(libc::SYS_munmap, self.start, SHARED) };
        }
    }
}

/// Records that a snapshot was not taken. `why`: one clause.
pub fn not_taken(time: Nanos, reason: Reason, why: &str) {
    push(State::Complete(
        Snapshot::not_taken(time, reason, why).encode(0),
    ));
}

/// Takes a snapshot: `work` runs in a child, in a copy of this process, and returns the content of the event after its head
/// ([`Snapshot::body`]). The caller sees to it that no other thread changes what `work` reads.
///
/// In the child, `work` calls nothing of the C library that takes a lock or memory, and does not panic.
///
/// # Errors
/// One clause that says why there is no snapshot.
pub fn take(
    time: Nanos,
    reason: Reason,
    limits: Limits,
    work: impl FnOnce() -> Vec<u8>,
) -> Result<(), String> {
    match split(time, reason, limits)? {
        Some(duplicate) => duplicate.leave(&work()),
        None => Ok(()),
    }
}

/// The same for a host whose own code runs in the child: this function returns there, too, with what the child needs to
/// [leave](Duplicate::leave) its result.
///
/// # Errors
/// One clause that says why there is no snapshot.
pub fn split(time: Nanos, reason: Reason, limits: Limits) -> Result<Option<Duplicate>, String> {
    let own = std::process::id();
    if reason == Reason::End {
        let_finish(own);
    }
    // A forked child has its parent's number here.
    let busy = OWNER.load(Acquire);
    if busy == own {
        return Err("the one before is not finished".to_owned());
    }
    if OWNER.compare_exchange(busy, own, AcqRel, Relaxed).is_err() {
        return Err("another thread takes one".to_owned());
    }
    match begin(limits) {
        Ok(Side::Duplicate(duplicate)) => Ok(Some(duplicate)),
        Ok(Side::Program(pid, memory, pause)) => {
            due::begun(time);
            CHILD.store(pid, Release);
            push(State::Child(Child {
                pid,
                memory,
                deadline: Deadline::new(Instant::now()),
                time,
                reason,
                pause,
                cpu: limits.cpu,
            }));
            Ok(None)
        }
        Err(why) => {
            OWNER.store(0, Release);
            Err(why)
        }
    }
}

/// In the child: the way for its result.
pub struct Duplicate {
    memory: Shared,
    parent: u32,
}

impl Duplicate {
    /// Leaves the content of the event after its head, and ends the child.
    pub fn leave(&self, body: &[u8]) -> ! {
        self.memory.put(body);
        end()
    }

    /// Whether nobody waits for the result any more.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        // SAFETY: no arguments. By the kernel's number, as all else here.
        unsafe { libc::syscall(libc::SYS_getppid) != libc::c_long::from(self.parent) }
    }
}

/// Which of the two processes this is.
enum Side {
    Duplicate(Duplicate),
    /// The child's number, the memory for its result, and how long the program stood still.
    Program(libc::pid_t, Shared, Nanos),
}

fn end() -> ! {
    loop {
        // SAFETY: ends this process.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

/// Waits for the snapshot that is being taken, if there is one: the writer thread sees its end.
fn let_finish(own: u32) {
    let end = Instant::now() + LONGEST_BEFORE_END;
    if OWNER.load(Acquire) == own {
        hurry(CHILD.load(Acquire));
    }
    while OWNER.load(Acquire) == own && Instant::now() < end {
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Gives a child the priority of this process, where the system allows that: somebody waits for it.
fn hurry(child: libc::pid_t) {
    // SAFETY: numbers only. The child is there until the writer thread has seen its end.
    unsafe {
        let own = libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0);
        libc::syscall(
            libc::SYS_setpriority,
            libc::PRIO_PROCESS,
            child,
            KERNEL_NICE - own,
        );
    }
}

fn begin(limits: Limits) -> Result<Side, String> {
    let memory = Shared::new().ok_or("there is no memory for its result")?;
    let parent = std::process::id();
    // The child begins with all signals blocked: they are the program's. A fault ends it nevertheless.
    let signals = BlockedSignals::all();
    let began = Instant::now();
    let (flags, nothing) = (0_usize, 0_usize);
    // SAFETY: a child without shared memory. What it runs is above.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, nothing, nothing, nothing, nothing) };
    if pid == 0 {
        // Signals stay blocked.
        std::mem::forget(signals);
        let duplicate = Duplicate { memory, parent };
        settle_in(&duplicate, limits);
        return Ok(Side::Duplicate(duplicate));
    }
    let pause = Nanos(began.elapsed().as_nanos() as u64);
    let error = std::io::Error::last_os_error();
    drop(signals);
    if pid < 0 {
        return Err(match error.raw_os_error() {
            Some(libc::ENOMEM) => "the system has no memory for a copy of the process".to_owned(),
            Some(libc::EAGAIN) => "the limit on processes is reached".to_owned(),
            Some(libc::EPERM | libc::ENOSYS) => "the system forbids child processes".to_owned(),
            _ => format!("a child process cannot be made: {error}"),
        });
    }
    memory.hide_from_forks();
    #[allow(clippy::cast_possible_truncation)] // process numbers have 22 bits
    let pid = pid as libc::pid_t;
    Ok(Side::Program(pid, memory, pause))
}

/// What the child does first. By the kernel's numbers: the C library's functions may need a lock that nobody releases here.
fn settle_in(duplicate: &Duplicate, limits: Limits) {
    // SAFETY: each call changes this process alone, with arguments that live until it returns.
    unsafe {
        let name = c"nthbyte-holders";
        libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr());
        let score = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/proc/self/oom_score_adj".as_ptr(),
            libc::O_WRONLY,
        );
        if score >= 0 {
            libc::syscall(libc::SYS_write, score, c"1000".as_ptr(), 4_usize);
        }
        libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32);
        limit(libc::RLIMIT_CORE as i32, 0);
        // A second more than the child's own limit.
        limit(libc::RLIMIT_CPU as i32, limits.cpu.as_secs() + 2);
        if limits.yields {
            let own = libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0);
            let nice = KERNEL_NICE - own + YIELDS;
            libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice);
        }
    }
    if duplicate.is_alone() {
        end();
    }
}

/// Memory of this process in the system's RAM, in bytes; 0 if that is not known. For a child: nothing but system calls.
#[must_use]
pub fn resident() -> u64 {
    let mut text = [0_u8; 64];
    // SAFETY: the path and the buffer live until the calls return.
    let count = unsafe {
        let path = c"/proc/self/statm".as_ptr();
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY);
        if file < 0 {
            return 0;
        }
        let count = libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, file);
        usize::try_from(count).unwrap_or(0)
    };
    let mut words = text[..count].split(|&byte| byte == b' ');
    let pages = words.nth(1).and_then(|word| std::str::from_utf8(word).ok());
    let pages = pages.and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * memory::page_size() as u64
}

fn limit(resource: i32, value: u64) {
    let limits = [value, value];
    // SAFETY: two numbers, as the kernel has them.
    unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, limits.as_ptr(), 0_usize);
    }
}

fn push(state: State) {
    let flight = Box::into_raw(Box::new(Flight {
        next: std::ptr::null_mut(),
        owner: std::process::id(),
        state,
    }));
    let mut last = NEW.load(Relaxed);
    loop {
        // SAFETY: nobody else knows it yet.
        unsafe { (*flight).next = last };
        match NEW.compare_exchange_weak(last, flight, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => last = now,
        }
    }
}

/// Snapshots that the writer thread has taken over, the last one first.
#[derive(Default)]
pub(crate) struct Flights(Vec<Flight>);

impl Flights {
    /// The contents of the events that are complete, in order. `is_last`: waits for the others, for a bounded time, and calls
    /// `alive` meanwhile.
    pub(crate) fn collect(&mut self, is_last: bool, mut alive: impl FnMut()) -> Vec<Vec<u8>> {
        let mut next = NEW.swap(std::ptr::null_mut(), Acquire);
        let first = self.0.len();
        while !next.is_null() {
            // SAFETY: `push` has made it, and the swap has given it to this thread.
            let flight = unsafe { Box::from_raw(next) };
            next = flight.next;
            self.0.insert(first, *flight);
        }
        if self.0.is_empty() {
            return Vec::new();
        }
        let own = std::process::id();
        // A forked child does not have the memory of its parent's.
        self.0.retain(|flight| flight.owner == own);
        let end = Instant::now() + LONGEST_AT_END;
        let mut events = Vec::new();
        for mut flight in std::mem::take(&mut self.0) {
            let event = loop {
                match flight.state.event(is_last && Instant::now() >= end) {
                    None if is_last => {
                        // Again and again: a child that has just begun lowers its own.
                        if let State::Child(child) = &flight.state {
                            hurry(child.pid);
                        }
                        alive();
                        std::thread::sleep(BETWEEN_LOOKS);
                    }
                    event => break event,
                }
            };
            match event {
                Some(event) => events.push(event),
                None => self.0.push(flight),
            }
        }
        events
    }

    /// Whether none is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends all children: the process ends.
    pub(crate) fn abandon(&mut self) {
        for flight in &mut self.0 {
            if let State::Child(child) = &mut flight.state {
                child.deadline.end = Instant::now();
            }
        }
    }
}

impl State {
    /// The content of the event, if it is complete. `ends`: ends the child.
    fn event(&mut self, ends: bool) -> Option<Vec<u8>> {
        match self {
            Self::Complete(event) => Some(std::mem::take(event)),
            Self::Child(child) => child.event(ends),
        }
    }
}

impl Child {
    fn event(&mut self, ends: bool) -> Option<Vec<u8>> {
        let mut ended = self.ended(libc::WNOHANG);
        let is_late = ended.is_none() && {
            let used = clock::read(clock::cpu_clock_of_process(self.pid)).unwrap_or(0);
            let is_over = self
                .deadline
                .is_over(Instant::now(), Duration::from_nanos(used));
            ends || is_over
        };
        if is_late {
            // SAFETY: this process's own child, which nobody has waited for: the number is not another one's.
            unsafe { libc::syscall(libc::SYS_kill, self.pid, libc::SIGKILL) };
            ended = self.ended(0);
        }
        let (status, used) = ended?;
        // The kernel kills one that has used up its time, too.
        let is_late = is_late || used >= self.cpu;
        OWNER.store(0, Release);
        if let Some(content) = self.memory.content() {
            let mut event = holders::head(0, self.time, self.reason, self.pause);
            event.extend_from_slice(content);
            return Some(event);
        }
        let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        let why = match signal {
            _ if is_late => "it took too long".to_owned(),
            Some(libc::SIGKILL) => "its process was killed: memory may be short".to_owned(),
            Some(signal) => format!("its process was ended by signal {signal}"),
            None => "its process left nothing".to_owned(),
        };
        let mut not = Snapshot::not_taken(self.time, self.reason, &why);
        not.pause = self.pause;
        Some(not.encode(0))
    }

    /// The child's status and the processor time that it has used, if it has ended.
    fn ended(&self, how: i32) -> Option<(i32, Duration)> {
        let mut status = 0_i32;
        // SAFETY: zeroes are a valid `rusage`, which the kernel fills.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: the status is written to a number of this function. By the kernel's number: `waitpid` is a point at which
            // a thread can be cancelled.
            let found = unsafe {
                libc::syscall(
                    libc::SYS_wait4,
                    self.pid,
                    &raw mut status,
                    how | libc::__WCLONE,
                    &raw mut used,
                )
            };
            match found {
                0 => return None,
                // Somebody else has waited for it.
                -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                -1 => return Some((0, Duration::ZERO)),
                _ => {
                    let of = |time: libc::timeval| {
                        time.tv_sec.unsigned_abs() * 1_000_000_000
                            + time.tv_usec.unsigned_abs() * 1000
                    };
                    let used = of(used.ru_utime) + of(used.ru_stime);
                    SPENT.fetch_add(used, Relaxed);
                    return Some((status, Duration::from_nanos(used)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of an extension may loop. Nothing in the child notices that but the kernel.
    #[test]
    fn a_walk_that_loops_is_ended_by_its_processor_time() {
        let limits = Limits {
            cpu: Duration::ZERO,
            yields: true,
        };
        let endless = || loop {
            std::hint::spin_loop();
        };
        assert_eq!(take(Nanos(1), Reason::Call, limits, endless), Ok(()));
        // It has two seconds of processor time. On a machine without time for it, it is ended after twenty.
        let nice = |of: libc::pid_t| {
            // SAFETY: no memory is passed.
            unsafe { libc::getpriority(libc::PRIO_PROCESS, of.cast_unsigned()) }
        };
        let mut found = Vec::new();
        let events = Flights::default().collect(true, || found.push(nice(CHILD.load(Acquire))));
        // It is hurried after it has lowered its priority, where that is allowed.
        // SAFETY: no arguments.
        let is_root = unsafe { libc::geteuid() } == 0;
        let expected = if is_root { nice(0) } else { nice(0) + 10 };
        assert_eq!(found.last(), Some(&expected));
        let [event] = &events[..] else {
            panic!("{} events", events.len())
        };
        let why = b"it took too long";
        assert!(event.windows(why.len()).any(|part| part == why));
        assert!(spent().0 > 0);
        assert_eq!(OWNER.load(Acquire), 0);
    }

    #[test]
    fn a_process_knows_its_memory() {
        let before = resident();
        let touched = vec![1_u8; 64 << 20];
        let after = resident();
        assert!(
            before > 1 << 20 && after > before + (48 << 20),
            "{before} {after}"
        );
        drop(touched);
    }

    #[test]
    fn a_child_is_waited_for_as_long_as_it_gets_on() {
        let begin = Instant::now();
        let mut deadline = Deadline::new(begin);
        let mut is_over = |seconds, millis| {
            deadline.is_over(
                begin + Duration::from_secs(seconds),
                Duration::from_millis(millis),
            )
        };
        // A busy machine gives it little.
        assert!((1..=10).all(|turn| !is_over(59 * turn, turn)));
        assert!(!is_over(599, 11));
        assert!(is_over(600, 12));
        let mut deadline = Deadline::new(begin);
        let mut stands = |seconds| {
            deadline.is_over(
                begin + Duration::from_secs(seconds),
                Duration::from_millis(1),
            )
        };
        assert!(!stands(1) && !stands(60) && stands(61));
    }
}
