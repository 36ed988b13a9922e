//! How many free blocks a list retains: those that the program takes again at once.
//!
//! A program that fills a list of a thousand objects and drops it, again and again, frees a *wave* of blocks and takes
//! as many again. If the class's list retains fewer, each wave returns blocks to their pages in vain. So a class
//! compares what it returned with what was taken from pages afterwards, and retains the whole wave if that is small
//! enough to stay in the processor's caches. A larger wave is returned, and its class retains little: blocks are
//! returned while they are still in the first-level cache. (docs/fast-path.md has the measurements.)

/// What a list retains, in bytes: at first, and at most.
const MIN_BYTES: usize = 8 << 10;
pub const MAX_BYTES: usize = 256 << 10;

/// The waves of a class. All numbers but `retained_bytes` are of blocks.
pub struct Wave {
    /// The size in bytes of the blocks that the class's list retains when its budget is spent.
    retained_bytes: usize,
    /// Number of blocks that were returned since a wave began to fall.
    returned: usize,
    /// Number of blocks that were taken from pages after that.
    taken: usize,
}

impl Wave {
    pub const fn new() -> Self {
        Self {
            retained_bytes: MIN_BYTES,
            returned: 0,
            taken: 0,
        }
    }

    /// The size in bytes of the blocks that the list retains, if no sample point is near.
    pub const fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Notes that the list was filled with `blocks` blocks of pages.
    pub const fn take(&mut self, blocks: usize) {
        self.taken += blocks;
    }

    /// Notes that `blocks` blocks of `size` bytes were returned to their pages, because the list was too long.
    pub fn give_back(&mut self, blocks: usize, size: usize) {
        if self.taken > 0 {
            let in_vain = self.returned.min(self.taken) * size;
            self.retained_bytes = if self.retained_bytes + in_vain <= MAX_BYTES {
                self.retained_bytes + in_vain
            } else {
                MIN_BYTES
            };
            self.returned = 0;
            self.taken = 0;
        }
        self.returned += blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 64;

    /// A wave of `blocks` blocks: the list returns what it does not retain, and takes it again.
    fn pass(wave: &mut Wave, blocks: usize) {
        let beyond = blocks.saturating_sub(wave.retained_bytes() / SIZE);
        if beyond > 0 {
            wave.give_back(beyond, SIZE);
            wave.take(beyond);
        }
    }

    #[test]
    fn a_wave_that_returns_in_vain_is_retained() {
        for blocks in [MIN_BYTES / SIZE + 1, 1000, MAX_BYTES / SIZE] {
            let mut wave = Wave::new();
            pass(&mut wave, blocks);
            assert_eq!(wave.retained_bytes(), MIN_BYTES);
            pass(&mut wave, blocks);
            assert_eq!(wave.retained_bytes(), blocks * SIZE);
        }
    }

    #[test]
    fn a_wave_that_is_too_large_is_returned_early() {
        let mut wave = Wave::new();
        for _ in 0..3 {
            pass(&mut wave, 1000);
        }
        assert_eq!(wave.retained_bytes(), 1000 * SIZE);
        for _ in 0..2 {
            pass(&mut wave, MAX_BYTES / SIZE + 1);
        }
        assert_eq!(wave.retained_bytes(), MIN_BYTES);
    }

    #[test]
    fn blocks_that_nobody_takes_again_are_not_retained() {
        let mut wave = Wave::new();
        wave.take(5000);
        for _ in 0..10 {
            wave.give_back(100, SIZE);
        }
        assert_eq!(wave.retained_bytes(), MIN_BYTES);
        wave.take(3);
        wave.give_back(100, SIZE);
        assert_eq!(wave.retained_bytes(), MIN_BYTES + 3 * SIZE);
    }
}
