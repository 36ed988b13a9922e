//! Words of the calling thread's stack.
//!
//! A stack is one range of mapped memory from the stack pointer to its end, so its words are read as they are, if its
//! bounds are known:
//!
//! - The main thread's ends at `__libc_stack_end`.
//! - Another thread's are in the C library's description of it ([`bounds`]), as long as the thread lives.
//!
//! Any other stack is one that the program has made itself, for a coroutine or a signal handler. Where it ends is not
//! known, and what lies behind it may be unmapped at any moment. The OS page with the stack pointer is there, for this code
//! runs on it. The others are read through the kernel, which answers a bad address with an error. A call takes 1.1 µs,
//! and 0.25 µs more for each OS page after the first one; so a walk makes one call for all its frames, whose part of the
//! stack has about the size that it had in the walks before.

use std::ops::Range;

use nthbyte_host::memory::SMALLEST_PAGE;
use nthbyte_host::process::Probe;

use crate::bounds;

/// The most bytes that are read through the kernel at a time.
pub(crate) const CHUNK: usize = 32 << 10;
/// The bytes that are read if nothing is known of the stack: the part of some thirty frames.
const USUAL: usize = 6 << 10;
pub(crate) type Words = [u64; CHUNK / 8];
/// No other mapping is nearer to the end of the main thread's stack: the least gap that the kernel leaves below it.
const MAIN_STACK: usize = 128 << 20;

/// The end of the main thread's stack; 0 if it is not known.
pub(crate) fn main_end() -> usize {
    // SAFETY: the name is a C string.
    let place = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) };
    // SAFETY: the dynamic linker's variable of this name is a pointer.
    unsafe { place.cast::<usize>().as_ref() }.map_or(0, |end| *end)
}

/// Whether a stack pointer is in the main thread's stack.
pub(crate) const fn is_main(pointer: usize, main_end: usize) -> bool {
    pointer < main_end && main_end - pointer < MAIN_STACK
}

/// The stack during one walk.
pub(crate) struct Stack<'a> {
    /// What may be read as it is.
    mapped: Range<usize>,
    memory: Probe,
    chunk: &'a mut Chunk,
}

/// Bytes that were read through the kernel.
pub(crate) struct Chunk {
    start: usize,
    length: usize,
    /// The first address that this walk has read through the kernel, and the bytes from there to the end of what it used.
    first: usize,
    used: usize,
    /// The bytes that the next walk will use, as far as those before tell.
    expected: usize,
    /// The calls of the kernel in this walk.
    pub(crate) reads: u32,
    pub(crate) words: Words,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            start: 0,
            length: 0,
            first: 0,
            used: 0,
            expected: USUAL,
            reads: 0,
            words: [0; CHUNK / 8],
        }
    }
}

impl Chunk {
    /// Begins a walk.
    fn begin(&mut self) {
        if self.reads > 0 {
            // One deep stack among others is not expected for long.
            let less = self.expected.saturating_sub(self.used) / 4;
            self.expected = self.used.max(self.expected - less);
        }
        (self.length, self.used, self.reads) = (0, 0, 0);
    }

    /// The word at an address, a multiple of 8. `None` if it is not there.
    fn word(&mut self, address: usize, memory: Probe) -> Option<u64> {
        if address.wrapping_sub(self.start) >= self.length {
            self.read(address, memory);
        }
        let within = address.wrapping_sub(self.start);
        if within >= self.length {
            return None;
        }
        let before = address.wrapping_sub(self.first);
        if before < CHUNK {
            self.used = self.used.max(before + 8);
        }
        Some(self.words[within / 8])
    }

    /// Reads what lies from an address on. A frame is read from its inner end on, so what comes before is rarely needed.
    fn read(&mut self, address: usize, memory: Probe) {
        let wanted = if self.reads == 0 {
            self.first = address;
            self.expected
        } else {
            USUAL
        };
        let whole = (address % SMALLEST_PAGE + wanted).next_multiple_of(SMALLEST_PAGE)
            - address % SMALLEST_PAGE;
        self.reads += 1;
        self.start = address;
        // SAFETY: these are the bytes of the words.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), CHUNK) };
        self.length = memory.bytes(address, &mut bytes[..whole.min(CHUNK)]) & !7;
    }
}

impl<'a> Stack<'a> {
    /// The stack of the calling thread, whose stack pointer is `pointer`.
    pub(crate) fn from(
        pointer: usize,
        main_end: usize,
        memory: Probe,
        chunk: &'a mut Chunk,
    ) -> Self {
        chunk.begin();
        Self {
            mapped: if is_main(pointer, main_end) {
                pointer..main_end
            } else {
                bounds::own_stack(pointer)
                    .unwrap_or_else(|| pointer..pointer.next_multiple_of(SMALLEST_PAGE))
            },
            memory,
            chunk,
        }
    }

    /// The word at an address. `None` if it is not aligned or not there.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let address = usize::try_from(address).ok()?;
        if !address.is_multiple_of(8) {
            return None;
        }
        if self.mapped.contains(&address) {
            // SAFETY: an aligned word between the stack pointer and the end of the calling thread's stack, which is
            // mapped as long as the thread lives, or of the stack pointer's page. A range of multiples of 8 has the
            // whole word.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        self.chunk.word(address, self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of this process; `None` where the test cannot run.
    fn memory() -> Option<Probe> {
        let memory = Probe::new();
        if memory.is_none() {
            eprintln!("not tested: process_vm_readv is forbidden here");
        }
        memory
    }

    #[test]
    fn words_are_read_and_bad_addresses_are_none() {
        let Some(memory) = memory() else {
            return;
        };
        let words: Vec<u64> = (0..2000).map(|word| word * word).collect();
        let start = words.as_ptr() as u64;
        let end = start as usize + words.len() * 8;
        let mut chunk = Chunk::default();
        // Through the kernel, and as a main thread's stack.
        for main_end in [0, end] {
            let mut stack = Stack::from(start as usize, main_end, memory, &mut chunk);
            for at in [0, 1, 700, 699, 1999, 3] {
                assert_eq!(stack.word(start + 8 * at), Some(at * at));
            }
            assert_eq!(stack.word(start + 4), None);
            assert_eq!(stack.word(8), None);
            assert_eq!(stack.word(u64::MAX - 7), None);
        }
    }

    /// The frames of a walk, from the first to the last word.
    fn walk(start: usize, length: usize, memory: Probe, chunk: &mut Chunk) -> u32 {
        let mut stack = Stack::from(start, 0, memory, chunk);
        for address in (start..start + length).step_by(200) {
            assert!(stack.word(address as u64).is_some());
        }
        chunk.reads
    }

    #[test]
    fn a_walk_like_the_one_before_asks_the_kernel_once() {
        let Some(memory) = memory() else {
            return;
        };
        let words = vec![7_u64; 64 << 10];
        // The last words of a page, which need no call.
        let start = (words.as_ptr() as usize).next_multiple_of(SMALLEST_PAGE) + SMALLEST_PAGE - 16;
        let mut chunk = Chunk::default();
        // Two OS pages, six, and more than are read at a time.
        for (length, first, then) in [(5000, 1, 1), (24_000, 4, 1), (200_000, 28, 25)] {
            assert!(walk(start, length, memory, &mut chunk) <= first, "{length}");
            for _ in 0..3 {
                assert!(
                    walk(start + 8, length, memory, &mut chunk) <= then,
                    "{length}"
                );
            }
        }
        // A deep stack is forgotten after some walks.
        for _ in 0..12 {
            assert_eq!(walk(start, 1000, memory, &mut chunk), 1);
        }
        assert!(chunk.length <= 3 * SMALLEST_PAGE, "{}", chunk.length);
    }

    /// A word that a wrong rule leads to.
    #[test]
    fn a_far_word_is_not_part_of_the_stack() {
        let Some(memory) = memory() else {
            return;
        };
        let words = vec![7_u64; 64 << 10];
        let start = (words.as_ptr() as usize).next_multiple_of(SMALLEST_PAGE) as u64;
        let mut chunk = Chunk::default();
        for _ in 0..2 {
            let mut stack = Stack::from(start as usize, 0, memory, &mut chunk);
            for word in [0, 100, 0, 60_000] {
                assert_eq!(stack.word(start + 8 * word), Some(7));
            }
        }
        let used = 101 * 8;
        assert_eq!(
            (chunk.used, chunk.expected),
            (used, USUAL - (USUAL - used) / 4)
        );
    }
}
