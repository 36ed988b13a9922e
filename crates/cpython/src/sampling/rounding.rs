//! The ratio of block sizes to requested sizes.

use nthbyte_profile::event::Allocation;
use nthbyte_sampling::{Distances, Period, Weight};
use nthbyte_session::Counted;

/// The ratio of block sizes to requested sizes, from the samples so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounding {
    requested: f64,
    set_aside: f64,
}

impl Rounding {
    /// Adds a sample, weighted by the number of blocks that it stands for.
    pub fn add(&mut self, sample: &Allocation, period: Period) {
        let (period, block) = (period.bytes(), sample.block);
        let blocks = Weight::of(Distances::Exponential, period, block, block, 1).bytes;
        self.set_aside += blocks;
        self.requested += blocks * (sample.size as f64 / sample.block.max(1) as f64);
    }

    /// What was allocated. The heap counts only blocks, to keep its fast path short; the samples tell which part of them was
    /// requested.
    pub fn counted(&self, bytes_in_blocks: u64) -> Counted {
        Counted {
            allocated: self.requested(bytes_in_blocks),
            blocks: Some(bytes_in_blocks),
        }
    }

    /// The bytes that were requested, of the bytes in blocks.
    pub fn requested(&self, bytes_in_blocks: u64) -> u64 {
        if self.set_aside > 0.0 {
            (bytes_in_blocks as f64 * (self.requested / self.set_aside)).round() as u64
        } else {
            bytes_in_blocks
        }
    }
}
