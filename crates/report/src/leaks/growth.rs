//! The growth of a site's live bytes: the curve, and statistical tests of it.
//!
//! The curve is `L(t)`: the weights of the samples born before `t` minus those freed before `t`. It is
//! examined from [`Growth::start`], when start-up is over and the site has allocated for the first
//! time, to the end, in [`CELLS`] equal cells of one of the [clocks](super::clock).

use nthbyte_profile::model::Weight;
use statrs::function::beta::beta_reg;

use super::analysis::Analysis;
use super::clock::Clock;
use super::sites::{Life, NEVER};

/// Cells of the window.
pub(crate) const CELLS: usize = 32;

/// The part of the run that counts as start-up for every site.
pub(crate) const START_UP: f64 = 0.1;

/// If an object is sampled with more than this probability, its size is treated as known, not
/// estimated.
const CERTAIN: f64 = 0.98;

/// The growth of one site in one clock.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    /// The start of the window, as a position of the clock.
    pub(crate) start: f64,
    /// Live bytes at the limits of the cells.
    pub(crate) levels: [f64; CELLS + 1],
    /// The effective number of sampled objects behind the live bytes: it is smaller if some objects
    /// are much larger than the others.
    pub(crate) objects: f64,
    /// The same number, with clusters counted once.
    pub(crate) effective: f64,
    /// Bytes that were alive in the middle of the window and were freed before its end.
    pub(crate) freed_late: f64,
    /// Bytes alive at the end that were born in the first half of the window.
    pub(crate) kept_early: f64,
    /// Numbers of objects in the test of growth after the first third of the window: for growth,
    /// and against it.
    pub(crate) later: (f64, f64),
    /// The same for growth in its second half.
    pub(crate) late: (f64, f64),
    /// Cells after the first third: with births of objects alive at the end, and with frees of objects alive after the
    /// first third.
    pub(crate) cells: (u32, u32),
}

/// The end of a run for a site, as a position; objects that die later count as alive.
pub(crate) type End = f64;

impl Growth {
    /// `first`: the site's first birth.
    pub(crate) fn of<'a>(
        analysis: &Analysis<'_>,
        lives: impl Iterator<Item = &'a Life> + Clone,
        first: f64,
        end: End,
        clock: Clock,
    ) -> Self {
        let start = (START_UP * end).max(first).min(end * 0.999);
        let width = (end - start) / CELLS as f64;
        let middle = f64::midpoint(start, end);
        let cell = |at: f64| (((at - start) / width) as usize).min(CELLS - 1);
        let mut growth = Self {
            start,
            levels: [0.0; CELLS + 1],
            objects: 0.0,
            effective: 0.0,
            freed_late: 0.0,
            kept_early: 0.0,
            later: (0.0, 0.0),
            late: (0.0, 0.0),
            cells: (0, 0),
        };
        let mut net = [0.0; CELLS];
        let (mut gains, mut losses) = ([false; CELLS], [false; CELLS]);
        let (mut live, mut squares) = (0.0, 0.0);
        let third = start + (end - start) / 3.0;
        let mut sides = [
            (third, [Side::default(); 2]),
            (middle, [Side::default(); 2]),
        ];
        for life in lives {
            let shape = analysis.profile.samples.shape_id(life.sample);
            let weight = &analysis.weights[shape.0 as usize];
            let birth = f64::from(life.birth[clock as usize]);
            let death = life.death[clock as usize];
            let lives_on = death == NEVER || f64::from(death) > end;
            let death = f64::from(death);
            if birth > end {
                continue;
            }
            if birth <= start {
                if death > start {
                    growth.levels[0] += weight.bytes;
                }
            } else {
                net[cell(birth)] += weight.bytes;
            }
            if !lives_on && death > start {
                net[cell(death)] -= weight.bytes;
            }
            if lives_on {
                live += weight.bytes;
                squares += weight.bytes * weight.bytes;
                if birth > start && birth <= middle {
                    growth.kept_early += weight.bytes;
                }
            } else if birth <= middle && death > middle {
                growth.freed_late += weight.bytes;
            }
            gains[cell(birth)] |= lives_on && birth > third;
            losses[cell(death)] |= !lives_on && birth <= third && death > third;
            for (from, [gained, lost]) in &mut sides {
                if lives_on && birth > *from {
                    gained.add(weight);
                } else if !lives_on && birth <= *from && death > *from {
                    lost.add(weight);
                }
            }
        }
        for (number, change) in net.iter().enumerate() {
            growth.levels[number + 1] = growth.levels[number] + change;
        }
        let count = |cells: [bool; CELLS]| cells.into_iter().map(u32::from).sum();
        growth.cells = (count(gains), count(losses));
        growth.later = counts(&sides[0].1, analysis.longest_period);
        growth.late = counts(&sides[1].1, analysis.longest_period);
        if live > 0.0 {
            growth.objects = live * live / squares;
            growth.effective = growth.objects / dispersion(&net, squares / live);
        }
        growth
    }

    /// Live bytes at the end.
    pub(crate) fn held(&self) -> f64 {
        self.levels[CELLS]
    }

    /// Growth over the whole window.
    pub(crate) fn net(&self) -> f64 {
        self.levels[CELLS] - self.levels[0]
    }

    /// Growth over the second half of it.
    pub(crate) fn net_late(&self) -> f64 {
        self.levels[CELLS] - self.levels[CELLS / 2]
    }

    /// The largest number of live bytes in the window.
    pub(crate) fn peak(&self) -> f64 {
        self.levels.iter().copied().fold(0.0, f64::max)
    }

    /// The largest fall of live bytes from any time to a later one.
    pub(crate) fn drawdown(&self) -> f64 {
        let mut peak = f64::MIN;
        let mut fall: f64 = 0.0;
        for &level in &self.levels {
            peak = peak.max(level);
            fall = fall.max(peak - level);
        }
        fall
    }

    /// The mean position of the growth in the window: 1/2 if it was steady, less if it came early
    /// and levelled off. It is one less the mean height of the curve.
    pub(crate) fn mean_position(&self) -> f64 {
        let net = self.net();
        if net <= 0.0 {
            return 0.0;
        }
        let heights = self
            .levels
            .windows(2)
            .map(|pair| f64::midpoint(pair[0], pair[1]) - self.levels[0]);
        1.0 - heights.sum::<f64>() / (CELLS as f64 * net)
    }

    /// How many standard deviations the mean position is below steady growth's: Laplace's test for a trend of a Poisson
    /// process (Cox and Lewis, "The Statistical Analysis of Series of Events", 1966, section 3.3).
    pub(crate) fn slowing(&self) -> f64 {
        (0.5 - self.mean_position()) * (12.0 * self.effective.max(1.0)).sqrt()
    }

    /// The probability of so much growth after the first third, if truly there is none.
    ///
    /// Objects born later than that and still alive, and objects alive then and freed since, are
    /// disjoint sets, so the numbers of samples in them are independent Poisson variables. If
    /// the live bytes are the same at both ends, so are their means, and given their sum the first is
    /// binomial with probability 1/2 (Przyborowski and Wilenski, 1940).
    pub(crate) fn later_p(&self) -> f64 {
        at_least(self.later.0, self.later.1, 0.5)
    }

    /// The same for the second half.
    pub(crate) fn late_p(&self) -> f64 {
        at_least(self.late.0, self.late.1, 0.5)
    }

    /// The same with cells in place of samples: a cell counts once, however many objects are born or die in it. So a few large
    /// events, such as the import of a module, count as few.
    pub(crate) fn cells_p(&self) -> f64 {
        at_least(self.cells.0.into(), self.cells.1.into(), 0.5)
    }

    /// The smallest possible value of the larger one of both, with the same amount of evidence, all
    /// of it for growth.
    pub(crate) fn least_p(&self) -> f64 {
        let later = 0.5_f64.powf(self.later.0 + self.later.1);
        later.max(self.least_p_of_cells())
    }

    /// The same of the cells alone.
    pub(crate) fn least_p_of_cells(&self) -> f64 {
        0.5_f64.powf(f64::from(self.cells.0 + self.cells.1))
    }

    /// Whether growth stopped before the end: from one of these cells on there is significantly less
    /// of it than there would be at half the rate of before.
    pub(crate) fn stops(&self, cells: &[usize]) -> bool {
        let unit = self.held() / self.effective.max(1e-9);
        cells.iter().any(|&from| {
            let before = (self.levels[from] - self.levels[0]).max(0.0) / unit;
            let after = (self.held() - self.levels[from]).max(0.0) / unit;
            let part = (CELLS - from) as f64 / CELLS as f64;
            let share = part / 2.0 / (part / 2.0 + 1.0 - part);
            // The test for few late objects is the test for many early ones.
            at_least(before, after, 1.0 - share) < STOPPED
        })
    }
}

/// The error of the first kind of each of the tests for a stop.
const STOPPED: f64 = 0.005;

/// One of two sets of samples whose bytes are compared.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Bytes of sampled objects that are certain.
    certain: f64,
    /// Bytes of the other objects.
    bytes: f64,
    /// Their sum of weight times bytes.
    squares: f64,
}

impl Side {
    fn add(&mut self, weight: &Weight) {
        if weight.probability >= CERTAIN {
            self.certain += weight.bytes;
        } else {
            self.bytes += weight.bytes;
            self.squares += weight.bytes * weight.bytes;
        }
    }
}

/// Two sets as numbers of samples of one common weight: the weight of the uncertain samples, or the
/// period. A certain difference counts as this number of samples, which is less than its real
/// evidence.
fn counts(sides: &[Side; 2], period: f64) -> (f64, f64) {
    let bytes = sides[0].bytes + sides[1].bytes;
    let unit = if bytes > 0.0 {
        (sides[0].squares + sides[1].squares) / bytes
    } else {
        period.max(1.0)
    };
    let certain = sides[0].certain - sides[1].certain;
    (
        (sides[0].bytes + certain.max(0.0)) / unit,
        (sides[1].bytes + (-certain).max(0.0)) / unit,
    )
}

/// P(X ≥ yes) for X binomial of `yes + no` trials, extended to numbers that are not whole.
pub(crate) fn at_least(yes: f64, no: f64, probability: f64) -> f64 {
    if yes <= 1e-9 {
        return 1.0;
    }
    beta_reg(yes.min(1e9), (no + 1.0).min(1e9), probability)
}

/// Variance against mean of the cells' changes in units of a sample: 1 if samples are
/// independent, more if they come in clusters; 1 if it is not significantly more.
fn dispersion(net: &[f64; CELLS], unit: f64) -> f64 {
    let mean = net.iter().sum::<f64>() / CELLS as f64;
    if mean <= 0.0 {
        return 1.0;
    }
    let variance = net
        .iter()
        .map(|change| (change - mean).powi(2))
        .sum::<f64>()
        / (CELLS - 1) as f64;
    let index = variance / mean / unit;
    // The 95 % point of chi-squared with 31 degrees of freedom, divided by them.
    if index > 1.45 { index } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_tails() {
        assert!((at_least(10.0, 0.0, 0.5) - 0.5_f64.powi(10)).abs() < 1e-12);
        // (10 choose 8 + 9 + 10) / 1024
        assert!((at_least(8.0, 2.0, 0.5) - 56.0 / 1024.0).abs() < 1e-12);
        assert_eq!(at_least(0.0, 5.0, 0.5), 1.0);
    }

    #[test]
    fn clusters_count_once() {
        let mut net = [0.0; CELLS];
        for cell in [3, 10, 20] {
            net[cell] = 100.0;
        }
        let effective = 300.0 / dispersion(&net, 1.0);
        assert!((2.0..5.0).contains(&effective), "{effective}");
        assert_eq!(dispersion(&[7.0; CELLS], 1.0), 1.0);
    }
}
