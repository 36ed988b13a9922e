//! Changes code in a page while other threads execute code in the same page.
//!
//! No page is ever writable and executable at the same time. A copy of the page is made elsewhere, changed, and given
//! the protection of the page. Then `mremap` moves the copy to the address of the page. For other threads this is one
//! step: a thread that executes the page meanwhile either still uses the old page, or takes a page fault, waits for
//! the kernel's lock of the address space, and then finds the new page. Only the changed bytes differ between the two
//! pages.
//!
//! (A second mapping of the file does not help: data written to a private mapping of a file is not visible in another
//! mapping.)

use std::ffi::{c_int, c_void};
use std::io;

use nthbyte_host::memory::page_size;

/// Changes code in pages that have this protection. If an error is returned, nothing was changed.
///
/// # Safety
/// No thread executes, or returns to, an instruction that is changed. The new bytes are valid code. Only one thread
/// at a time changes code of these pages. The pages are readable and have this protection.
///
/// # Errors
/// One clause, if the system does not allow the change.
pub unsafe fn write(at: usize, bytes: &[u8], protection: c_int) -> Result<(), String> {
    let start = at & !(page_size() - 1);
    let length = (at + bytes.len() - start).next_multiple_of(page_size());
    // SAFETY: passed on to the caller; the bytes lie in these pages.
    unsafe { replace(start, length, at - start, bytes, protection) }
        .map_err(|error| refused(&error))
}

/// Replaces the pages at `start` with pages of the same content, except for `bytes` at `offset`.
///
/// # Safety
/// As for [`write()`].
unsafe fn replace(
    start: usize,
    length: usize,
    offset: usize,
    bytes: &[u8],
    protection: c_int,
) -> io::Result<()> {
    let copy = fresh(length)?;
    // SAFETY: all pages are mapped, the copy is writable and used only here, and the bytes lie in
    // it.
    unsafe {
        std::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (copy + offset) as *mut u8, bytes.len());
    }
    make_visible(copy, length);
    let place = || -> io::Result<()> {
        protect(copy, length, protection)?;
        // SAFETY: the new pages differ from the old ones only in `bytes`, which the caller guarantees to
        // be valid.
        let moved = unsafe {
            libc::mremap(
                copy as *mut c_void,
                length,
                length,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                start as *mut c_void,
            )
        };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    place().inspect_err(|_| {
        // SAFETY: the copy was not moved, and nothing refers to it.
        unsafe { libc::munmap(copy as *mut c_void, length) };
    })
}

/// New memory of whole pages, readable and writable.
pub(super) fn fresh(length: usize) -> io::Result<usize> {
    // SAFETY: asks for new memory and replaces no mapping.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(memory as usize)
}

/// A new page, readable and writable, less than `reach` bytes from `target`. After code in the page was executed, the
/// page is never unmapped: a thread may still execute it when the hook is removed.
pub fn page_near(target: usize, reach: usize) -> Result<usize, String> {
    let page = page_size();
    let hint = target & !(page - 1);
    for step in (0x10_0000..reach).step_by(0x10_0000) {
        for at in [hint.checked_sub(step), hint.checked_add(step)]
            .into_iter()
            .flatten()
        {
            // SAFETY: asks for new memory and replaces no mapping (MAP_FIXED_NOREPLACE).
            let found = unsafe {
                libc::mmap(
                    at as *mut c_void,
                    page,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            if found == libc::MAP_FAILED {
                continue;
            }
            if found as usize == at {
                return Ok(at);
            }
            // SAFETY: an old kernel treated the address as a hint; the page is ours and unused.
            unsafe { libc::munmap(found, page) };
        }
    }
    Err("no memory within reach of the code".to_owned())
}

/// Makes a filled page of [`page_near`] executable and read-only.
///
/// # Errors
/// One clause, if the system does not allow that.
pub fn seal(page: usize) -> Result<(), String> {
    make_visible(page, page_size());
    protect(page, page_size(), libc::PROT_READ | libc::PROT_EXEC).map_err(|error| refused(&error))
}

/// Unmaps a page of [`page_near`] that no code refers to.
pub fn give_back(page: usize) {
    // SAFETY: the page belongs to the caller, who does not use it any more.
    unsafe { libc::munmap(page as *mut c_void, page_size()) };
}

fn refused(error: &io::Error) -> String {
    format!("this system does not let code pages be changed ({error})")
}

fn protect(page: usize, length: usize, protection: c_int) -> io::Result<()> {
    // SAFETY: whole pages, which nothing else uses yet.
    match unsafe { libc::mprotect(page as *mut c_void, length, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes code in a mapped range visible to what executes it (as `__clear_cache`).
#[cfg(target_arch = "aarch64")]
fn make_visible(start: usize, length: usize) {
    let kinds: usize;
    // SAFETY: Linux lets every process read the register.
    unsafe {
        std::arch::asm!("mrs {}, ctr_el0", out(reg) kinds, options(nostack, nomem, pure, preserves_flags));
    }
    let [instructions, data] = [kinds & 15, kinds >> 16 & 15].map(|words| 4 << words);
    let lines = |size: usize| (start & !(size - 1)..start + length).step_by(size);
    for line in lines(data) {
        // SAFETY: writes a line of mapped memory back, and changes nothing.
        unsafe { std::arch::asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in lines(instructions) {
        // SAFETY: the lines of the instruction cache are read again.
        unsafe { std::arch::asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: two barriers.
    unsafe { std::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// Makes code visible to what executes it: it always is.
#[cfg(not(target_arch = "aarch64"))]
const fn make_visible(_: usize, _: usize) {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::memory_map::MemoryMap;
    use super::*;

    /// `mov eax, number; ret`
    fn function(number: u8) -> [u8; 6] {
        [0xb8, number, 0, 0, 0, 0xc3]
    }

    fn call(at: usize) -> u32 {
        // SAFETY: the tests put a function of this type there.
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> u32>(at)() }
    }

    fn executable(pages: usize, functions: &[(usize, u8)]) -> usize {
        let memory = fresh(pages * page_size()).unwrap();
        for &(offset, number) in functions {
            let bytes = function(number);
            // SAFETY: fresh writable memory, with room for it.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    (memory + offset) as *mut u8,
                    bytes.len(),
                )
            };
        }
        protect(memory, pages * page_size(), PROTECTION).unwrap();
        memory
    }

    const PROTECTION: c_int = libc::PROT_READ | libc::PROT_EXEC;

    #[test]
    fn another_thread_executes_the_page_that_is_changed() {
        let memory = executable(1, &[(0, 7), (64, 1)]);
        let (begun, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(call(memory), 7);
                    begun.store(true, Ordering::Relaxed);
                }
            });
            while !begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for number in 0..1000_u32 {
                let number = number as u8;
                // SAFETY: no other thread executes this function.
                unsafe { write(memory + 64, &function(number), PROTECTION) }.unwrap();
                assert_eq!(call(memory + 64), u32::from(number));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let map = MemoryMap::read().unwrap();
        assert_eq!(map.protection(memory..memory + 1), Ok(PROTECTION));
    }

    #[test]
    fn a_page_near_code_is_executable_only_when_it_is_filled() {
        let target = executable(1, &[(0, 7)]);
        let protection = |page| {
            MemoryMap::read()
                .unwrap()
                .protection(page..page + page_size())
        };
        let page = page_near(target, 1 << 30).unwrap();
        assert!(page.abs_diff(target) < 1 << 30);
        assert_eq!(page % page_size(), 0);
        assert_eq!(protection(page), Ok(libc::PROT_READ | libc::PROT_WRITE));
        seal(page).unwrap();
        assert_eq!(protection(page), Ok(PROTECTION));
        // No memory is within reach.
        assert!(page_near(target, 0x10_0000).is_err());
        // Looked at in a process of one thread: another could map memory at the place that is given back.
        // SAFETY: the child ends below, and the C library lets it allocate.
        let child = unsafe { libc::fork() };
        if child == 0 {
            give_back(page);
            let is_gone = protection(page).is_err()
                && seal(page).is_err_and(|error| error.contains("code pages"));
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!is_gone)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child that was just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        give_back(page);
    }

    #[test]
    fn code_may_lie_in_two_pages() {
        let at = page_size() - 2;
        let memory = executable(3, &[(at, 5), (0, 8), (2 * page_size(), 9)]);
        assert_eq!(call(memory + at), 5);
        for number in [6, 4, 6] {
            // SAFETY: no other thread executes this code.
            unsafe { write(memory + at, &function(number), PROTECTION) }.unwrap();
            assert_eq!(
                [at, 0, 2 * page_size()].map(|at| call(memory + at)),
                [u32::from(number), 8, 9]
            );
        }
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let memory = executable(1, &[(0, 5)]);
        // SAFETY: no other thread executes this code.
        let refused = unsafe { write(memory, &function(6), -1) };
        assert!(refused.unwrap_err().contains("code pages"));
        assert_eq!(call(memory), 5);
    }
}
