//! Whole bytes out of estimated ones, so that sums stay right.
//!
//! The weight of a sample is an estimate with a fraction. Rounding each sample by itself would bias
//! the sums where weights are small (64-byte period: a third of a byte in a hundred). Instead,
//! every key carries what rounding took or gave on to its next row: the sum over the rows of a
//! key is never more than half a byte from the exact one.

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

    /// The next row of a key, in whole units.
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
            rounding.whole(0, 0.49); // another key does not disturb
            exact += weight;
            whole += rounding.whole(1, weight);
            assert!((exact - whole as f64).abs() <= 0.501, "step {step}");
        }
    }
}
