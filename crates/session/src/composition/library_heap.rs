//! The C library's own count of its heaps.
//!
//! glibc counts the blocks with mappings of their own and what it has taken for its heaps, but the free blocks only when
//! it is asked: it takes the lock of one heap after the other, and walks its lists of free blocks. Threads that allocate
//! in that heap wait meanwhile. So it is asked rarely, and never again once it has been slow.
//!
//! A thread of the program may hold such a lock for ever: it was interrupted inside `malloc` by a signal, whose handler has
//! called `exit`, and ends the session. So the writer thread has another thread ask, which may stay behind.

use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nthbyte_host::threads::OsThread;
use nthbyte_host::{exit, preload};

use super::stopwatch::{Budget, Stopwatch};
use crate::termination;

/// After an answer that took longer, glibc is not asked again.
const TOO_SLOW: Duration = Duration::from_millis(5);
/// The share of the session's time that answers may take: one part of so many.
const SHARE: u32 = 2000;
/// Time for the first answers.
const TO_BEGIN_WITH: Duration = Duration::from_millis(1);

/// The longest wait for an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 1 });
/// The same where the process ends at once, and waits a second for the whole profile.
const LONGEST_WAIT_AT_ONCE: Duration = Duration::from_millis(250);

/// Counts of the C library, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LibraryHeap {
    /// Blocks in use in its heaps, headers included.
    pub(super) used: u64,
    /// Free blocks in its heaps.
    pub(super) free: u64,
    /// Blocks with mappings of their own.
    pub(super) mapped: u64,
}

/// Asks the C library, within limits.
#[derive(Debug)]
pub(super) struct Asker {
    budget: Budget,
    last: Duration,
}

impl Default for Asker {
    fn default() -> Self {
        Self {
            budget: Budget::new(TO_BEGIN_WITH, SHARE),
            last: Duration::ZERO,
        }
    }
}

impl Asker {
    /// The counts when the session begins; `is_writer` says whether the writer thread asks. `None` if the C library has
    /// none.
    pub(super) fn ask_at_first(&mut self, is_writer: bool) -> Option<LibraryHeap> {
        let mallinfo2 = mallinfo2()?;
        let answer = match is_writer {
            true => counts_in_time(mallinfo2, longest_wait()),
            false => Some(counts(mallinfo2)),
        };
        self.learn(answer)
    }

    /// The counts. `None` if the C library has none, or if asking takes too much time. The last answer of a session need
    /// not be within the budget: the report of the end is worth it.
    pub(super) fn ask(&mut self, session: Duration, is_last: bool) -> Option<LibraryHeap> {
        // It may have twice as many free blocks by now.
        let is_allowed = || is_last || self.budget.allows(session, 2 * self.last);
        if self.last > TOO_SLOW || !is_allowed() {
            return None;
        }
        let mallinfo2 = mallinfo2()?;
        let watch = Stopwatch::start();
        let answer = counts_in_time(mallinfo2, longest_wait());
        self.budget.spend(watch.worked());
        self.learn(answer)
    }

    /// Learns how long an answer took. Without one, the C library is not asked again.
    fn learn(&mut self, answer: Option<(LibraryHeap, Duration)>) -> Option<LibraryHeap> {
        let Some((counts, worked)) = answer else {
            self.last = Duration::MAX;
            return None;
        };
        // The lock is held while the thread waits for a processor, but that is no reason to ask more rarely.
        self.last = worked;
        self.budget.spend(worked);
        Some(counts)
    }
}

fn longest_wait() -> Duration {
    match termination::requested() {
        None => LONGEST_WAIT,
        Some(_) => LONGEST_WAIT_AT_ONCE,
    }
}

/// The answer of another thread, and its processor time. Where there can be no thread, this one asks, unless the process
/// ends. `None` if there is no answer in time.
fn counts_in_time(mallinfo2: Mallinfo2, longest: Duration) -> Option<(LibraryHeap, Duration)> {
    let answer = Arc::new((Mutex::new(None), Condvar::new()));
    let sender = Arc::clone(&answer);
    let spawned = OsThread::spawn(move || {
        preload::ignore_thread();
        let counts = counts(mallinfo2);
        *sender.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
        sender.1.notify_all();
    });
    let Ok(thread) = spawned else {
        let is_end = exit::has_begun() || termination::requested().is_some();
        return (!is_end).then(|| counts(mallinfo2));
    };
    let place = answer.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = answer
        .1
        .wait_timeout_while(place, longest, |counts| counts.is_none());
    let counts = waited.unwrap_or_else(PoisonError::into_inner).0.take()?;
    thread.join();
    Some(counts)
}

type Mallinfo2 = unsafe extern "C" fn() -> libc::mallinfo2;

/// The function of glibc 2.33 and later. `None` with another C library.
fn mallinfo2() -> Option<Mallinfo2> {
    /// Stands for a function that there is not. The dynamic linker is asked once: each time, it would make a message.
    const MISSING: usize = 1;
    // No `OnceLock`: the child of a fork must not wait for a thread that it does not have.
    static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut found = FUNCTION.load(Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if found.is_null() {
            found = std::ptr::without_provenance_mut(MISSING);
        }
        FUNCTION.store(found, Relaxed);
    }
    let is_there = found as usize != MISSING;
    // SAFETY: the function of this name has this type.
    is_there.then(|| unsafe { std::mem::transmute::<*mut c_void, Mallinfo2>(found) })
}

/// glibc's answer, and the processor time that it took.
fn counts(mallinfo2: Mallinfo2) -> (LibraryHeap, Duration) {
    let watch = Stopwatch::start();
    // SAFETY: the function has no preconditions.
    let counts = unsafe { mallinfo2() };
    let heap = LibraryHeap {
        used: counts.uordblks as u64,
        free: counts.fordblks as u64,
        mapped: counts.hblkhd as u64,
    };
    (heap, watch.worked())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nthbyte_host::threads::BlockedSignals;

    #[test]
    fn blocks_in_use_are_counted() {
        let _lock = crate::tests::one_at_a_time();
        let Some(mallinfo2) = mallinfo2() else {
            eprintln!("not tested: the C library has no mallinfo2");
            return;
        };
        // Larger than all else that the process of the tests has: other tests allocate and free meanwhile.
        const SIZE: usize = 256 << 20;
        // SAFETY: the block is freed once.
        let block = unsafe { libc::malloc(SIZE) };
        assert!(!block.is_null());
        let (heap, _) = counts_in_time(mallinfo2, LONGEST_WAIT).unwrap();
        // SAFETY: as above.
        unsafe { libc::free(block) };
        assert!(heap.used + heap.mapped >= SIZE as u64);
    }

    #[test]
    fn a_library_that_does_not_answer_is_not_asked_again() {
        let _lock = crate::tests::one_at_a_time();
        unsafe extern "C" fn never() -> libc::mallinfo2 {
            loop {
                std::thread::park();
            }
        }
        // Another test looks at the signals of a thread with this name.
        let _signals = BlockedSignals::all();
        let mut asker = Asker::default();
        let answer = counts_in_time(never, Duration::from_millis(1));
        assert_eq!(asker.learn(answer), None);
        assert_eq!(asker.ask(Duration::from_secs(1 << 30), true), None);
    }

    #[test]
    fn a_slow_library_is_not_asked_again() {
        let _lock = crate::tests::one_at_a_time();
        let mut asker = Asker {
            last: TOO_SLOW + Duration::from_nanos(1),
            ..Asker::default()
        };
        assert_eq!(asker.ask(Duration::from_secs(1 << 30), true), None);
        let mut asker = Asker::default();
        asker.budget.spend(Duration::from_millis(2));
        assert_eq!(asker.ask(Duration::ZERO, false), None);
        // At the end it is asked without a budget.
        assert_eq!(
            asker.ask(Duration::ZERO, true).is_some(),
            mallinfo2().is_some()
        );
    }
}
