//! Which blocks are drawn.

/// Blocks that are drawn, as a rule: a share of 1 % is known to a tenth then.
const DRAWN: u64 = 5000;
/// The shortest period: a block of 16 bytes is drawn for certain there.
const SHORTEST: u64 = 16;
/// Sizes are looked up in steps of so many bytes, up to the largest one.
const STEP: usize = 16;
const LARGEST: usize = 2048;

/// Draws blocks by a hash of their address: one of `b` bytes with probability `1 − exp(−b / period)`.
#[derive(Debug)]
pub struct Draw {
    /// The mean distance between two drawn bytes.
    pub period: u64,
    seed: u64,
    /// For each size, below which hash a block is drawn; 0 if that was not computed yet.
    thresholds: Vec<u64>,
}

impl Draw {
    /// Draws about 5,000 blocks of so many bytes in all.
    #[must_use]
    pub fn of(bytes: u64, seed: u64) -> Self {
        Self::with_period((bytes / DRAWN).max(SHORTEST), seed)
    }

    fn with_period(period: u64, seed: u64) -> Self {
        Self {
            period,
            seed,
            thresholds: vec![0; LARGEST / STEP + 1],
        }
    }

    /// Whether a block is drawn.
    #[inline]
    pub fn takes(&mut self, address: usize, size: usize) -> bool {
        hash(address as u64 ^ self.seed) < self.threshold(size)
    }

    #[inline]
    fn threshold(&mut self, size: usize) -> u64 {
        let period = self.period;
        let compute = || {
            let probability = -(-(size as f64) / period as f64).exp_m1();
            (probability * u64::MAX as f64) as u64
        };
        // Sizes between two steps have no place.
        let known = match size.is_multiple_of(STEP) {
            true => self.thresholds.get_mut(size / STEP),
            false => None,
        };
        let Some(known) = known else {
            return compute();
        };
        if *known == 0 {
            *known = compute();
        }
        *known
    }
}

/// A hash whose bits all depend on all bits of the number: the finalizer of MurmurHash3, by Austin Appleby.
#[must_use]
#[inline]
pub fn hash(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of blocks of a size, as much is drawn as the weight of a sample says.
    #[test]
    fn blocks_are_drawn_as_often_as_their_weight_says() {
        let mut draw = Draw::with_period(500, 1);
        for (size, probability) in [(16, 0.0315), (480, 0.617), (1600, 0.9592), (24, 0.0469)] {
            let mut drawn = 0;
            for block in 0..20_000_usize {
                drawn += u32::from(draw.takes(0x7f00_0000_0030 + 16 * block, size));
            }
            let share = f64::from(drawn) / 20_000.0;
            assert!((share - probability).abs() < 0.01, "{size}: {share}");
        }
    }
}
