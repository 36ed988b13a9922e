//! Rounds estimated bytes to whole ones, so that sums stay correct.
//!
//! The weight of a sample is an estimate with a fraction. Rounding each sample alone would bias
//! the sums if weights are small (with a period of 64 bytes, by a third of a byte in a hundred).
//! Instead, the rounding error of a row is added to the next row of the same key. So the sum over
//! the rows of a key differs from the exact sum by at most half a byte.

/// Rounds weights by key. See the module.
pub(crate) struct Rounding {
    carry: Vec<f64>,
}

impl Rounding {
    /// For keys below `keys`.
    pub fn new(keys: usize) -> Self {
        Self {
            carry: vec![0.0; keys],
        }
    }

    /// Rounds the next row of a key to whole units.
    pub fn whole(&mut self, key: u32, weight: f64) -> u64 {
        let carry = &mut self.carry[key as usize];
        let exact = weight + *carry;
        let whole = exact.round().max(0.0);
        *carry = exact - whole;
        // Saturates for weights over 2^64, which no real size reaches.
        whole as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Rounding;

    #[test]
    fn sum_stays_within_half_a_unit_after_every_row() {
        let weights = [0.3, 96.33, 1.49, 0.0, 524_320.001, 7.5];
        let mut rounding = Rounding::new(2);
        let (mut exact, mut whole) = (0.0, 0);
        for step in 0..10_000 {
            let weight = weights[step % weights.len()];
            rounding.whole(0, 0.49); // another key has no effect
            exact += weight;
            whole += rounding.whole(1, weight);
            assert!((exact - whole as f64).abs() <= 0.501, "step {step}");
        }
    }
}
