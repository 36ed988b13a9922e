//! Words of the calling thread's stack.
//!
//! A stack is one range of mapped memory from the stack pointer to its end, so its words are read as they are, if its
//! bounds are known:
//!
//! - The main thread's ends at `__libc_stack_end`.
//! - Those of another thread are in the C library's description of it ([`bounds`]), as long as the
//!   thread lives.
//!
//! Any other stack is one that the program has made itself, for a coroutine or a signal handler. It is read through the
//! kernel, which answers a bad address with an error: [`CHUNK`] bytes at a time, because the frames of a stack lie
//! close together.

use std::ops::Range;

use nthbyte_session::process::Probe;

use crate::bounds;

/// Bytes that are read through the kernel at a time: the stack of some thirty frames.
pub(crate) const CHUNK: usize = 8192;
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

#[cfg(test)]
impl Chunk {
    /// Whether the last walk has read anything through the kernel.
    pub(crate) const fn is_used(&self) -> bool {
        self.length > 0
    }
}

/// Bytes that were read through the kernel.
pub(crate) struct Chunk {
    start: usize,
    length: usize,
    pub(crate) words: Words,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            start: 0,
            length: 0,
            words: [0; CHUNK / 8],
        }
    }
}

impl<'a> Stack<'a> {
    /// The stack of the calling thread, whose stack pointer is, or has been, `pointer`.
    pub(crate) fn from(
        pointer: usize,
        main_end: usize,
        memory: Probe,
        chunk: &'a mut Chunk,
    ) -> Self {
        chunk.length = 0;
        Self {
            mapped: if is_main(pointer, main_end) {
                pointer..main_end
            } else {
                bounds::own_stack(pointer).unwrap_or(0..0)
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
            // mapped as long as the thread lives. A range of multiples of 8 has the whole word.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        let chunk = &mut *self.chunk;
        let mut within = address.wrapping_sub(chunk.start);
        if within >= chunk.length {
            // A frame is read from its inner end on, so what comes before an address is rarely needed.
            chunk.start = address;
            // SAFETY: these are the bytes of the words.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(chunk.words.as_mut_ptr().cast::<u8>(), CHUNK)
            };
            chunk.length = self.memory.bytes(address, bytes) & !7;
            within = 0;
        }
        (within < chunk.length).then(|| chunk.words[within / 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_bad_addresses_are_none() {
        let Some(memory) = Probe::new() else {
            eprintln!("not tested: process_vm_readv is forbidden here");
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
}
