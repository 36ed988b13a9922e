//! The distribution of a difference of two gamma variables, each scaled and shifted.
//!
//! The probability is Lugannani and Rice's saddlepoint approximation ("Saddle point approximation for the
//! distribution of the sum of independent random variables", Advances in Applied Probability 12, 1980). Its relative
//! error is small in both tails, where a normal approximation is wrong by any factor. The saddlepoint
//! of two gamma variables is the root of a quadratic equation, so no search is needed.

use statrs::function::erf::erfc;
use statrs::function::gamma::{gamma_lr, gamma_ur};

use crate::crossing::crossing;

/// Below this shape a gamma variable is taken for 0.
const NOTHING: f64 = 1e-4;

/// `shift + up_scale * Gamma(up_shape) - down_scale * Gamma(down_shape)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GammaDifference {
    pub(crate) shift: f64,
    pub(crate) up_shape: f64,
    pub(crate) up_scale: f64,
    pub(crate) down_shape: f64,
    pub(crate) down_scale: f64,
}

impl GammaDifference {
    fn mean(&self) -> f64 {
        self.shift + self.up_shape * self.up_scale - self.down_shape * self.down_scale
    }

    fn deviation(&self) -> f64 {
        let up = self.up_shape * self.up_scale * self.up_scale;
        let down = self.down_shape * self.down_scale * self.down_scale;
        (up + down).sqrt()
    }

    /// The probability of a value of at most `x`.
    pub(crate) fn below(&self, x: f64) -> f64 {
        let distance = x - self.shift;
        let up = self.up_shape > NOTHING && self.up_scale > 0.0;
        let down = self.down_shape > NOTHING && self.down_scale > 0.0;
        match (up, down) {
            (false, false) => f64::from(u8::from(distance >= 0.0)),
            (true, false) if distance <= 0.0 => 0.0,
            (true, false) => gamma_lr(self.up_shape, distance / self.up_scale),
            (false, true) if distance >= 0.0 => 1.0,
            (false, true) => gamma_ur(self.down_shape, -distance / self.down_scale),
            (true, true) => self.saddlepoint(distance),
        }
    }

    /// The value that is not passed with this probability.
    pub(crate) fn quantile(&self, probability: f64) -> f64 {
        let deviation = self.deviation();
        if deviation == 0.0 {
            return self.shift;
        }
        let miss = |x: f64| self.below(x) - probability;
        let mut step = 2.5 * deviation;
        let (mut low, mut high) = (self.mean() - step, self.mean() + step);
        // Bounded: both tails fall exponentially at least.
        for _ in 0..60 {
            if miss(low) > 0.0 {
                low -= step;
            } else if miss(high) < 0.0 {
                high += step;
            } else {
                break;
            }
            step *= 2.0;
        }
        crossing(low, high, 1e-9 * deviation, miss)
    }

    /// `distance`: from the shift. All in units of the lower scale.
    fn saddlepoint(&self, distance: f64) -> f64 {
        let unit = self.down_scale;
        let (a, b, scale) = (self.down_shape, self.up_shape, self.up_scale / unit);
        let x = distance / unit;
        // K(t) = -b ln(1 - scale t) - a ln(1 + t), for -1 < t < 1 / scale; K'(t) = x at the saddlepoint.
        let square = x * scale;
        let linear = (a + b) * scale - x * (1.0 - scale);
        let constant = b * scale - a - x;
        let Some(t) = root(square, linear, constant, 1.0 / scale) else {
            return f64::from(u8::from(x >= 0.0));
        };
        let cumulant = -b * (-scale * t).ln_1p() - a * t.ln_1p();
        let (up, down) = (scale / (1.0 - scale * t), 1.0 / (1.0 + t));
        let second = b * up * up + a * down * down;
        let w = (2.0 * (t * x - cumulant)).max(0.0).sqrt().copysign(t);
        let u = t * second.sqrt();
        if w.abs() < 1e-3 {
            // The limit of what follows.
            let third = 2.0 * (b * up * up * up - a * down * down * down);
            let skewness = third / second.powf(1.5);
            return (0.5 * erfc(-w / std::f64::consts::SQRT_2)
                + skewness / (6.0 * std::f64::consts::TAU.sqrt()))
            .clamp(0.0, 1.0);
        }
        let density = (-0.5 * w * w).exp() / std::f64::consts::TAU.sqrt();
        let below = 0.5 * erfc(-w / std::f64::consts::SQRT_2) + density * (1.0 / w - 1.0 / u);
        below.clamp(0.0, 1.0)
    }
}

/// The root of `square t² + linear t + constant` between -1 and `end`.
fn root(square: f64, linear: f64, constant: f64, end: f64) -> Option<f64> {
    let discriminant = (linear * linear - 4.0 * square * constant).max(0.0);
    let half = -0.5 * (linear + discriminant.sqrt().copysign(linear));
    [constant / half, half / square]
        .into_iter()
        .find(|t| *t > -1.0 && *t < end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::function::beta::beta_reg;

    fn of_counts(up: f64, down: f64) -> GammaDifference {
        GammaDifference {
            shift: 0.0,
            up_shape: up,
            up_scale: 1.0,
            down_shape: down,
            down_scale: 1.0,
        }
    }

    #[test]
    fn two_counts_give_the_binomial_probability() {
        // P(Gamma(b) < Gamma(a)) is P(X >= b) for a binomial X of a + b - 1 throws: the conditional test.
        for (up, down) in [
            (1.0, 1.0),
            (5.0, 1.0),
            (13.0, 1.0),
            (20.0, 4.0),
            (3.0, 2.0),
            (900.0, 700.0),
        ] {
            let exact = beta_reg(up, down, 0.5);
            let found = of_counts(up, down).below(0.0);
            assert!(
                (found / exact - 1.0).abs() < 0.04,
                "{up} {down}: {found} {exact}"
            );
        }
    }

    #[test]
    fn scales_shift_and_one_side() {
        // P(w G(b) < G(a)) for scales 1 and 8.
        let mut of = of_counts(6.0, 40.0);
        of.up_scale = 8.0;
        let exact = beta_reg(6.0, 40.0, 1.0 / 9.0);
        assert!((of.below(0.0) / exact - 1.0).abs() < 0.03);
        of.down_scale = 0.0;
        of.shift = 3.0;
        assert!((of.below(11.0) - gamma_lr(6.0, 1.0)).abs() < 1e-12);
    }

    #[test]
    fn the_middle_is_smooth_and_quantiles_invert() {
        let of = of_counts(7.5, 3.5);
        let mut last = 0.0;
        for step in -400..400 {
            let below = of.below(4.0 + f64::from(step) * 0.01);
            assert!(below >= last - 1e-6, "{step}");
            assert!(
                below - last < 0.01 || step == -400,
                "{step}: {below} {last}"
            );
            last = below;
        }
        for probability in [1e-6, 0.025, 0.3, 0.5, 0.9, 0.975] {
            let x = of.quantile(probability);
            assert!((of.below(x) / probability - 1.0).abs() < 1e-3);
        }
    }
}
