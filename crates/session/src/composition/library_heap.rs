//! The C library's own count of its heaps.
//!
//! glibc counts the blocks with mappings of their own and what it has taken for its heaps, but the free blocks only when
//! it is asked: it takes the lock of one heap after the other, and walks its lists of free blocks. Threads that allocate
//! in that heap wait meanwhile. So it is asked rarely, and never again once it has been slow.

use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::stopwatch::{Budget, Stopwatch};

/// After an answer that took longer, glibc is not asked again.
const TOO_SLOW: Duration = Duration::from_millis(5);
/// The share of the session's time that answers may take: one part of so many.
const SHARE: u32 = 2000;
/// Time for the first answers.
const TO_BEGIN_WITH: Duration = Duration::from_millis(1);

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
    /// The counts. `None` if the C library has none, or if asking takes too much time. The last answer of a session need
    /// not be within the budget: the report of the end is worth it.
    pub(super) fn ask(&mut self, session: Duration, is_last: bool) -> Option<LibraryHeap> {
        // It may have twice as many free blocks by now.
        let is_allowed = || is_last || self.budget.allows(session, 2 * self.last);
        if self.last > TOO_SLOW || !is_allowed() {
            return None;
        }
        let watch = Stopwatch::start();
        let counts = counts();
        // The lock is held while the thread waits for a processor, but that is no reason to ask more rarely.
        self.last = watch.worked();
        self.budget.spend(self.last);
        counts
    }
}

/// glibc's answer; `None` with another C library.
fn counts() -> Option<LibraryHeap> {
    type Mallinfo2 = unsafe extern "C" fn() -> libc::mallinfo2;
    static FUNCTION: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut found = FUNCTION.load(Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        FUNCTION.store(found, Relaxed);
    }
    if found.is_null() {
        return None;
    }
    // SAFETY: the function of this name, glibc 2.33 and later, has this type and no preconditions.
    let counts = unsafe { std::mem::transmute::<*mut c_void, Mallinfo2>(found)() };
    Some(LibraryHeap {
        used: counts.uordblks as u64,
        free: counts.fordblks as u64,
        mapped: counts.hblkhd as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_use_are_counted() {
        let Some(before) = counts() else {
            eprintln!("not tested: the C library has no mallinfo2");
            return;
        };
        const SIZE: usize = 80 << 20;
        // SAFETY: the block is freed once.
        let block = unsafe { libc::malloc(SIZE) };
        assert!(!block.is_null());
        let after = counts().unwrap();
        // SAFETY: as above.
        unsafe { libc::free(block) };
        let total = |of: LibraryHeap| of.used + of.mapped;
        assert!(total(after) + (16 << 20) >= total(before) + SIZE as u64);
    }

    #[test]
    fn a_slow_library_is_not_asked_again() {
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
            counts().is_some()
        );
    }
}
