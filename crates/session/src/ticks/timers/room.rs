//! The stack that a signal handler has left.
//!
//! A thread may have 16 KiB of stack, and an alternate stack for signals 4 KiB, most of which the kernel's own frame takes.
//! A handler that writes below the end of such a stack destroys what lies there.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::memory::SMALLEST_PAGE;
use nthbyte_host::process::Probe;

/// The largest number of pages that are asked for.
const MOST_PAGES: usize = 16;

/// The highest address of the main thread's stack, about; 0 before [`prepare`].
static MAIN_END: AtomicUsize = AtomicUsize::new(0);

/// Called before [`has_room`].
pub(super) fn prepare() {
    // SAFETY: no preconditions. The program's name lies above all frames of the main thread.
    let end = unsafe { libc::getauxval(libc::AT_EXECFN) };
    MAIN_END.store(end as usize, Relaxed);
}

/// Whether the calling handler may use so many bytes of its stack, 60 KiB at most. Safe in a signal handler; needs about
/// 700 bytes itself.
///
/// Of an alternate stack, the kernel says where it ends. The main thread's stack grows up to a limit. Of any other, the
/// kernel is asked whether the pages are there: at the end of a stack is a page that nobody may touch. If the system forbids
/// such questions, the answer is yes.
///
/// # Safety
/// `context` is the third argument of a handler with `SA_SIGINFO`, which runs in this thread.
#[must_use]
#[inline(never)]
pub unsafe fn has_room(context: *const c_void, bytes: usize) -> bool {
    // SAFETY: by the contract.
    let alternate = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_stack };
    let start = alternate.ss_sp as usize;
    let is_there = alternate.ss_flags & libc::SS_DISABLE == 0;
    let alternate = is_there.then(|| start..start.saturating_add(alternate.ss_size));
    let here = std::hint::black_box(0_u8);
    room_at((&raw const here) as usize, alternate, bytes)
}

fn room_at(here: usize, alternate: Option<Range<usize>>, bytes: usize) -> bool {
    if let Some(stack) = alternate
        && stack.contains(&here)
    {
        return here - stack.start >= bytes;
    }
    let below_end = MAIN_END.load(Relaxed).wrapping_sub(here);
    // It may grow into the pages, so they need not be there.
    let limit = limit();
    if below_end <= limit {
        return limit - below_end >= bytes;
    }
    let last = here.saturating_sub(bytes) & !(SMALLEST_PAGE - 1);
    let pages = (here & !(SMALLEST_PAGE - 1)).saturating_sub(last) / SMALLEST_PAGE;
    // The page of this function's own frame is there.
    pages <= MOST_PAGES && Probe::of_pages(last, pages)
}

/// The size to which the main thread's stack may grow. Without a limit, nothing else lies near it: the kernel places mappings
/// from the other end on.
fn limit() -> usize {
    const WITHOUT_LIMIT: usize = 1 << 30;
    // SAFETY: zeroes are a valid `rlimit`, which the call fills.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit);
        limit.rlim_cur
    };
    if limit == libc::RLIM_INFINITY {
        WITHOUT_LIMIT
    } else {
        limit as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternate_stack_ends_where_the_kernel_says() {
        let stack = Some(0x10_0000..0x10_4000);
        assert!(room_at(0x10_2000, stack.clone(), 0x2000));
        assert!(!room_at(0x10_2000, stack, 0x2001));
    }

    #[test]
    fn a_stack_ends_at_a_page_that_nobody_may_touch() {
        if Probe::new().is_none() {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        }
        let size = 8 * SMALLEST_PAGE;
        // SAFETY: a fresh mapping, of which nobody else knows.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let none = std::ptr::null_mut();
            let all = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(none, size, all, flags, -1, 0);
            assert_eq!(libc::mprotect(start, SMALLEST_PAGE, libc::PROT_NONE), 0);
            start as usize
        };
        let end = start + SMALLEST_PAGE;
        for here in [end + 100, end + SMALLEST_PAGE, end + 3 * SMALLEST_PAGE + 17] {
            assert!(room_at(here, None, here - end), "{here:x}");
            assert!(!room_at(here, None, here - end + 1), "{here:x}");
        }
        prepare();
        // Another alternate stack than the one in use says nothing.
        let other = Some(0x10_0000..0x10_4000);
        assert!(!room_at(end + 100, other, 101));
        // SAFETY: mapped above.
        unsafe { libc::munmap(start as *mut c_void, size) };
    }
}
