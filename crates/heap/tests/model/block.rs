//! A block in use, filled with a pattern: two blocks that overlap would destroy each other's.

use core::ffi::c_void;

/// A block in use.
#[derive(Clone)]
pub struct Live {
    pub block: *mut c_void,
    /// The requested size.
    pub size: usize,
    /// The size that the heap counts: the requested size if a fallback serves it.
    pub block_size: usize,
    /// The number that the block is filled with.
    pub stamp: u64,
    /// The token and the session of a sampled block.
    pub sampled: Option<(u32, u32)>,
    pub by_fallback: bool,
}

impl Live {
    fn word(&self) -> [u8; 8] {
        self.stamp.to_ne_bytes()
    }

    /// Writes the pattern: the stamp, repeated; in very large blocks only at both ends.
    pub fn fill(&self) {
        for (start, end) in self.parts(self.size) {
            // SAFETY: the block has `size` bytes, and the parts lie in them.
            let bytes = unsafe {
                core::slice::from_raw_parts_mut(self.block.cast::<u8>().add(start), end - start)
            };
            let word = self.word();
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
        }
    }

    /// Checks the first `size` bytes of the pattern.
    pub fn check(&self, size: usize) {
        for (start, end) in self.parts(self.size) {
            let end = end.min(size);
            if start >= end {
                continue;
            }
            // SAFETY: as in `fill`; after a resize the first `size` bytes are kept.
            let bytes = unsafe {
                core::slice::from_raw_parts(self.block.cast::<u8>().add(start), end - start)
            };
            let word = self.word();
            for chunk in bytes.chunks(8) {
                assert_eq!(chunk, &word[..chunk.len()], "contents of {:?}", self.block);
            }
        }
    }

    fn parts(&self, size: usize) -> [(usize, usize); 2] {
        const END: usize = 4096;
        if size <= 2 * END {
            return [(0, size), (size, size)];
        }
        [(0, END), ((size - END) / 8 * 8, size)]
    }
}
