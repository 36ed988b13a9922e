//! The bounds of the calling thread's own stack.
//!
//! The C library has a function for them, `pthread_getattr_np`. It takes a lock of the thread and calls `malloc`, so a
//! thread that takes a sample must not call it: it may be in that very call. But the words that the function answers
//! with lie in the C library's description of the thread (`struct pthread` of glibc, to which the thread pointer
//! points), side by side:
//!
//! ```text
//! stackblock    ┌─ where the thread's memory begins     stackblock + guardsize         = the stack's lowest byte
//! stackblock_size                                       stackblock + stackblock_size   = its end
//! guardsize                                             (the description itself lies in between, near the end)
//! ```
//!
//! Their place is not public, and the same in all threads of a process. When a session begins, a thread of its own
//! asks the function about itself, and looks for three words in its description that agree with the answer
//! ([`learn`]). If there are none, or more than one such place, as with another C library, no bounds are known.
//!
//! Any thread reads its three words anew at each walk: its stack may have been another thread's before, with other
//! bounds, and nothing has to be forgotten when a thread ends. In the child of a fork they stay as they are. The main
//! thread has no block. A stack pointer outside of the bounds is in a stack that the program has made itself.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::processor::description;

/// A word of the description.
const WORD: usize = size_of::<usize>();
/// [`PLACE`] before [`learn`] was called.
const NOT_ASKED: usize = 0;
/// [`PLACE`] if the words were not found.
const UNKNOWN: usize = 1;

/// Where the three words are in the description of a thread: bytes from its start. Or one of the two values above.
static PLACE: AtomicUsize = AtomicUsize::new(NOT_ASKED);

/// Finds out where the bounds are, once in the process. Call it in a thread other than the main thread, which is not in
/// a sample.
pub(crate) fn learn() {
    if PLACE.load(Relaxed) == NOT_ASKED {
        PLACE.store(find_place().unwrap_or(UNKNOWN), Relaxed);
    }
}

/// The part of the calling thread's own stack from this stack pointer on, up to the thread's description. `None` if the
/// pointer is in another stack, or if the bounds are not known.
///
/// Cost: five loads.
#[inline]
pub(crate) fn own_stack(pointer: usize) -> Option<Range<usize>> {
    let place = PLACE.load(Relaxed);
    if place == NOT_ASKED || place == UNKNOWN {
        return None;
    }
    let own = description()?;
    let words = (own + place) as *const [usize; 3];
    // SAFETY: three words of the calling thread's description, which has the same fields in each thread.
    stack_from(pointer, own, unsafe { words.read_volatile() })
}

/// The part of the stack of a thread from this pointer on; `own` is the address of its description, in which these words
/// are.
fn stack_from(
    pointer: usize,
    own: usize,
    [block, size, guard]: [usize; 3],
) -> Option<Range<usize>> {
    // The main thread has no block.
    let is_own = block != 0 && own.checked_sub(block)? < size;
    let lowest = block.checked_add(guard)?;
    (is_own && (lowest..own).contains(&pointer)).then_some(pointer..own)
}

/// Compares what the C library says about the calling thread with the words of its description.
fn find_place() -> Option<usize> {
    let stack = of_c_library()?;
    let own = description().filter(|own| stack.contains(own))?;
    let agrees = |place: &usize| {
        // SAFETY: words between the thread's description and the end of its stack, which is behind it.
        let [block, size, guard] = unsafe { ((own + place) as *const [usize; 3]).read_volatile() };
        block != 0
            && block.checked_add(size) == Some(stack.end)
            && block.checked_add(guard) == Some(stack.start)
    };
    let mut places = (WORD..(stack.end - own).checked_sub(3 * WORD)?)
        .step_by(WORD)
        .filter(agrees);
    let place = places.next()?;
    places.next().is_none().then_some(place)
}

/// The stack of the calling thread, as the C library answers. It may take locks, and allocate.
fn of_c_library() -> Option<Range<usize>> {
    let (mut start, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: zeroes are a valid value of the struct, which the first call fills in and the last one empties.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let failed =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        if failed != 0 {
            return None;
        }
    }
    let start = start as usize;
    Some(start..start.checked_add(size)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::c_void;
    use std::ptr::{null_mut, without_provenance_mut};

    use super::*;

    /// Finds the bounds in a thread of its own, as a session does. Returns whether they are known.
    pub(crate) fn are_known() -> bool {
        std::thread::spawn(learn).join().unwrap();
        let are_known = ![NOT_ASKED, UNKNOWN].contains(&PLACE.load(Relaxed));
        if !are_known {
            eprintln!("not tested: the C library's description of threads is not known here");
        }
        are_known
    }

    /// The stack pointer, nearly.
    #[inline(never)]
    fn here() -> usize {
        let local = 0_u8;
        std::hint::black_box(&raw const local) as usize
    }

    /// Memory for stacks.
    pub(crate) fn mapped(size: usize) -> usize {
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(null_mut(), size, rights, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        start as usize
    }

    /// Runs `work` in a thread whose stack is this memory, or which has a guard of this size.
    pub(crate) fn in_thread(stack: Result<Range<usize>, usize>, mut work: impl FnMut()) {
        extern "C" fn run<F: FnMut()>(work: *mut c_void) -> *mut c_void {
            // SAFETY: the closure below, which nobody uses meanwhile.
            unsafe { (*work.cast::<F>())() };
            null_mut()
        }
        fn runner<F: FnMut()>(_: &F) -> extern "C" fn(*mut c_void) -> *mut c_void {
            run::<F>
        }
        let function = runner(&work);
        // SAFETY: zeroes are a valid value; the closure lives until the thread has ended.
        unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
            let failed = match stack {
                Ok(memory) => libc::pthread_attr_setstack(
                    &raw mut attributes,
                    without_provenance_mut(memory.start),
                    memory.len(),
                ),
                Err(guard) => libc::pthread_attr_setguardsize(&raw mut attributes, guard),
            };
            assert_eq!(failed, 0);
            let mut thread = std::mem::zeroed();
            let failed = libc::pthread_create(
                &raw mut thread,
                &raw const attributes,
                function,
                (&raw mut work).cast(),
            );
            assert_eq!(failed, 0);
            libc::pthread_attr_destroy(&raw mut attributes);
            assert_eq!(libc::pthread_join(thread, null_mut()), 0);
        }
    }

    #[test]
    fn bounds_are_those_that_the_c_library_tells() {
        if !are_known() {
            return;
        }
        // The C library uses the stack of a thread that has ended again, with another guard.
        for guard in [4096, 0, 64 << 10, 4096, 1 << 20] {
            in_thread(Err(guard), || {
                let stack = of_c_library().unwrap();
                let own = description().unwrap();
                assert!(stack.contains(&own));
                assert_eq!(own_stack(here()).map(|range| range.end), Some(own));
                assert_eq!(own_stack(stack.start), Some(stack.start..own));
                assert_eq!(own_stack(own - 8), Some(own - 8..own));
                for outside in [0, 8, stack.start - 8, own, stack.end, usize::MAX - 7] {
                    assert_eq!(own_stack(outside), None, "{outside:x} {stack:x?}");
                }
            });
        }
    }

    /// Two threads one after the other, whose stacks are parts of the same memory.
    #[test]
    fn a_stack_that_is_used_again_has_other_bounds() {
        if !are_known() {
            return;
        }
        let (memory, size) = (mapped(2 << 20), 2 << 20);
        for start in [memory, memory + (1 << 20), memory + (512 << 10)] {
            in_thread(Ok(start..memory + size), || {
                assert!(own_stack(here()).is_some());
                assert!(own_stack(start).is_some());
                // What was the stack of the thread before.
                assert_eq!(own_stack(start - 8), None);
                assert_eq!(own_stack(memory).is_some(), memory == start);
            });
        }
    }

    #[test]
    fn a_forked_child_has_the_stack_of_its_thread() {
        if !are_known() {
            return;
        }
        in_thread(Err(4096), || {
            let before = own_stack(here()).map(|range| range.end);
            // SAFETY: the child makes one comparison and ends.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(i32::from(
                        own_stack(here()).map(|range| range.end) != before,
                    ));
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            };
            assert!(before.is_some());
            assert_eq!(status, 0);
        });
    }

    #[test]
    fn words_that_are_no_stack() {
        let own = 0x7_0000;
        let stack = |pointer, words| stack_from(pointer, own, words);
        assert_eq!(
            stack(0x6_8000, [0x6_0000, 0x1_1000, 0x1000]),
            Some(0x6_8000..own)
        );
        // In the guard, and beside the memory.
        assert_eq!(stack(0x6_0800, [0x6_0000, 0x1_1000, 0x1000]), None);
        assert_eq!(stack(0x5_0000, [0x6_0000, 0x1_1000, 0x1000]), None);
        // The main thread has no block, and its end for a size.
        assert_eq!(stack(0x6_8000, [0, 0x7fff_ffff_f000, 0]), None);
        // The description is not in the block.
        assert_eq!(stack(0x6_8000, [0x6_0000, 0x1_0000, 0]), None);
        assert_eq!(stack(0x6_8000, [0x7_8000, 0x1_0000, 0]), None);
        assert_eq!(stack(0x6_8000, [0x6_0000, 0x1_1000, usize::MAX]), None);
    }
}
