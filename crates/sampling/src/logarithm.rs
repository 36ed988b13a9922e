//! Logarithm and exponential without a mathematical library: `core` has neither.

use core::f64::consts::{FRAC_1_SQRT_2, LN_2};
use core::hint::black_box;

/// The numbers of [`negative_ln`], in two cache lines. The compiler would store them as single constants in many places, and
/// a sample would wait for a dozen cache lines.
#[repr(align(64))]
struct Numbers {
    /// 1/21, 1/17, … 1/1 as the first of each pair, and 1/23, 1/19, … 1/3 as the second.
    odds: [[f64; 2]; 6],
    sqrt_half: f64,
    ln_2: f64,
    one: f64,
    two: f64,
}

static NUMBERS: Numbers = {
    let mut odds = [[0.0; 2]; 6];
    let mut next = 0;
    let mut odd = 21.0;
    while next < odds.len() {
        odds[next] = [1.0 / odd, 1.0 / (odd + 2.0)];
        odd -= 4.0;
        next += 1;
    }
    Numbers {
        odds,
        sqrt_half: FRAC_1_SQRT_2,
        ln_2: LN_2,
        one: 1.0,
        two: 2.0,
    }
};

/// `-ln(x)` for a normal `x` in (0, 1]. The relative error is below 2^-50 (tested against `std`).
///
/// With x = m·2^e, m in [√½, √2), and s = (m-1)/(m+1):
/// ln x = e·ln 2 + 2·(s + s³/3 + s⁵/5 + …). As |s| ≤ 0.172, ten terms leave an error below 2^-56. Twelve are summed, as
/// two sums of every second term, which a processor computes in parallel.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_wrap)] // exponents are small
#[inline(always)]
pub fn negative_ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    const HALF: u64 = 0x3FE << 52;
    // Hides the values from the compiler, which would make single constants of them.
    let numbers = black_box(&NUMBERS);
    let (one, two) = (numbers.one, numbers.two);
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 0x3FE;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | HALF);
    if mantissa < numbers.sqrt_half {
        mantissa *= two;
        exponent -= 1;
    }
    let s = (mantissa - one) / (mantissa + one);
    let z = s * s;
    let zz = z * z;
    let mut sums = [0.0; 2];
    for [first, second] in numbers.odds {
        sums = [sums[0] * zz + first, sums[1] * zz + second];
    }
    -(exponent as f64 * numbers.ln_2 + two * s * (sums[0] + sums[1] * z))
}

/// `1 - exp(-x)` for `x` ≥ 0. The relative error is below 2^-48 (tested against `std`).
///
/// The Taylor series gives exp(y) - 1 at y = -x/2^k, with x/2^k ≤ 1/4. Then y is doubled k times:
/// exp(2y) - 1 = (exp(y) - 1)·(exp(y) - 1 + 2), in which no digits cancel.
#[inline(always)]
pub const fn one_minus_exp(x: f64) -> f64 {
    // exp(-64) is less than half a unit in the last place of 1.
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
