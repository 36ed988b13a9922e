//! Random numbers.

/// A small, fast, seeded generator of random numbers: `SplitMix64` (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014). Its 64-bit state takes every value
/// once, so any seed is as good as any other. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose sequence is determined by the seed alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number in (0, 1], uniformly distributed. Never 0, so that its logarithm is finite.
    #[allow(clippy::cast_precision_loss)] // rounding to the nearest double is intended
    pub const fn next_unit(&mut self) -> f64 {
        const TWO_TO_MINUS_64: f64 = 1.0 / 18_446_744_073_709_551_616.0;
        (self.next_u64() | 1) as f64 * TWO_TO_MINUS_64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The seeds after which the next random bits are 0 and 1.
    #[test]
    fn no_number_is_zero() {
        for (seed, bits) in [(0x61c8_8646_80b5_83eb, 0), (0xf836_4607_e9c9_49bd, 1)] {
            assert_eq!(Random::new(seed).next_u64(), bits);
            assert!(Random::new(seed).next_unit() > 0.0);
        }
    }

    /// The first outputs for seed 1234567, as published with the reference implementation in C
    /// (Sebastiano Vigna, splitmix64.c) and on Rosetta Code.
    #[test]
    fn known_sequence() {
        let mut random = Random::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for number in expected {
            assert_eq!(random.next_u64(), number);
        }
    }

    #[test]
    fn unit_is_never_zero_and_never_above_one() {
        let mut random = Random::new(7);
        for _ in 0..100_000 {
            let unit = random.next_unit();
            assert!(unit > 0.0 && unit <= 1.0);
        }
    }
}
