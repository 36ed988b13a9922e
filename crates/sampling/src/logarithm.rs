//! Logarithm and exponential without a mathematical library: `core` has neither.

use core::f64::consts::{FRAC_1_SQRT_2, LN_2};

/// `-ln(x)` for a normal `x` in (0, 1]. The relative error is below 2^-50 (tested against `std`).
///
/// With x = m·2^e, m in [√½, √2), and s = (m-1)/(m+1):
/// ln x = e·ln 2 + 2·(s + s³/3 + s⁵/5 + …). As |s| ≤ 0.172, ten terms leave less than 2^-56. Twelve are summed, in
/// two rows of every second term, which a processor computes side by side.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_wrap)] // exponents are small
pub const fn negative_ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    const HALF: u64 = 0x3FE << 52;
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 0x3FE;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | HALF);
    if mantissa < FRAC_1_SQRT_2 {
        mantissa *= 2.0;
        exponent -= 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let z = s * s;
    let zz = z * z;
    let (mut one, mut other) = (0.0, 0.0);
    let mut odd = 21.0;
    while odd > 0.0 {
        one = one * zz + 1.0 / odd;
        other = other * zz + 1.0 / (odd + 2.0);
        odd -= 4.0;
    }
    -(exponent as f64 * LN_2 + 2.0 * s * (one + other * z))
}

/// `1 - exp(-x)` for `x` ≥ 0. The relative error is below 2^-48 (tested against `std`).
///
/// exp(-x) - 1 is taken from its Taylor series at x/2^k ≤ 1/4, and then doubled k times by
/// exp(2y) - 1 = (exp(y) - 1)·(exp(y) - 1 + 2), which cancels nothing.
pub const fn one_minus_exp(x: f64) -> f64 {
    // exp(-64) is below half a unit in the last place of 1.
    if x >= 64.0 {
        return 1.0;
    }
    let mut y = x;
    let mut doublings = 0;
    while y > 0.25 {
        y *= 0.5;
        doublings += 1;
    }
    let mut sum = 0.0;
    let mut n = 14.0;
    while n > 0.0 {
        sum = (1.0 + sum) * -y / n;
        n -= 1.0;
    }
    while doublings > 0 {
        sum *= sum + 2.0;
        doublings -= 1;
    }
    -sum
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{negative_ln, one_minus_exp};
    use crate::Random;
    use proptest::prelude::*;

    fn relative_error(ours: f64, exact: f64) -> f64 {
        if exact == 0.0 {
            ours.abs()
        } else {
            ((ours - exact) / exact).abs()
        }
    }

    #[test]
    fn logarithm_of_what_the_generator_yields() {
        let mut random = Random::new(1);
        for _ in 0..1_000_000 {
            let x = random.next_unit();
            assert!(
                relative_error(negative_ln(x), -x.ln()) < 2f64.powi(-50),
                "{x}"
            );
        }
    }

    proptest! {
        #[test]
        fn logarithm_everywhere(x in 5e-20f64..=1.0) {
            prop_assert!(relative_error(negative_ln(x), -x.ln()) < 2f64.powi(-50));
        }

        #[test]
        fn logarithm_near_one_and_near_zero(bits in 1u64..1 << 40, near_one: bool) {
            let x = if near_one { f64::from_bits(1f64.to_bits() - bits) } else { bits as f64 * 5e-20 };
            prop_assert!(relative_error(negative_ln(x), -x.ln()) < 2f64.powi(-50), "{}", x);
        }

        #[test]
        fn exponential_everywhere(exponent in -60f64..7.0) {
            let x = exponent.exp2();
            prop_assert!(relative_error(one_minus_exp(x), -(-x).exp_m1()) < 2f64.powi(-48), "{}", x);
        }
    }

    #[test]
    fn edges() {
        assert_eq!(negative_ln(1.0), 0.0);
        assert_eq!(one_minus_exp(0.0), 0.0);
        assert_eq!(one_minus_exp(1e300), 1.0);
        assert_eq!(one_minus_exp(f64::INFINITY), 1.0);
    }
}
