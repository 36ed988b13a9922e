//! Words of memory of which it is not certain that it is there. What is looked for lies close together, so
//! that a block is fetched by each system call.

use std::cell::RefCell;

use nthbyte_session::process::memory;

/// Bytes of a block. It lies within one page, so it can be read as a whole or not at all.
const BLOCK: usize = 1024;
/// Blocks that are kept, each in the place that its address says.
const KEPT: usize = 16;

type Words = [usize; BLOCK / 8];

/// A block's address, and its content if it could be read.
type Block = (usize, Option<Words>);

/// One look at the memory: what has changed since a block was fetched is not seen.
pub struct Peek {
    process: libc::pid_t,
    blocks: RefCell<[Option<Block>; KEPT]>,
}

impl Peek {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            // SAFETY: no arguments.
            process: unsafe { libc::getpid() },
            blocks: RefCell::new([None; KEPT]),
        }
    }

    /// The word at an address; `None` if it is not aligned, or there is no readable memory.
    #[must_use]
    pub fn word(&self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let start = address - address % BLOCK;
        let mut blocks = self.blocks.borrow_mut();
        let place = &mut blocks[start / BLOCK % KEPT];
        let words = match place {
            Some((kept, words)) if *kept == start => words,
            _ => &place.insert((start, self.fetch(start))).1,
        };
        words.map(|words| words[address % BLOCK / 8])
    }

    fn fetch(&self, start: usize) -> Option<Words> {
        let mut bytes = [0; BLOCK];
        (memory::read(self.process, start, &mut bytes) == BLOCK).then(|| {
            let mut words = [0; BLOCK / 8];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = usize::from_ne_bytes(*bytes);
            }
            words
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_bad_addresses_are_none() {
        let words: Vec<usize> = (0..1000).map(|word| word * word).collect();
        let peek = Peek::new();
        for (index, &word) in words.iter().enumerate() {
            let address = words.as_ptr() as usize + 8 * index;
            assert_eq!(peek.word(address), Some(word));
            assert_eq!(peek.word(address + 1), None);
        }
        assert_eq!(peek.word(0), None);
        assert_eq!(peek.word(usize::MAX - 7), None);
    }
}
