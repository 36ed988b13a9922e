//! The kinds of memory whose periods are decided, and the way from the numbers of samples to the next period.

use nthbyte_profile::Meta;
use nthbyte_sampling::Period;

/// A decision makes a period at most this many times longer or shorter: the costs of the first samples, whose stacks are
/// new and whose memory is touched for the first time, say little of later ones.
pub(super) const FASTEST: u64 = 8;

/// A number of samples counts as too large or too small only where it is so by this many of its standard deviations.
const SURE: f64 = 1.5;
/// So much of what was taken and allowed before still counts after each decision.
const REMEMBERED: f64 = 0.9;

/// Kinds of memory, each with a period of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The interpreter's.
    Own = 0,
    Native = 1,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Own, Self::Native];

    /// A bit for each source of native memory.
    pub(crate) fn native_sources(meta: &Meta) -> u64 {
        let sources = meta.sources.iter().take(64).enumerate();
        let native = sources.filter(|(_, source)| source.is_native());
        native.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Own => Self::Native,
            Self::Native => Self::Own,
        }
    }
}

/// Samples of one kind, and how many were allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) samples: f64,
    pub(super) allowed: f64,
}

impl Tally {
    pub(super) const NONE: Self = Self {
        samples: 0.0,
        allowed: 0.0,
    };

    /// With the samples of the present decision.
    pub(super) fn and(self, samples: f64, allowed: f64) -> Self {
        Self {
            samples: self.samples * REMEMBERED + samples,
            allowed: self.allowed * REMEMBERED + allowed,
        }
    }

    /// The next period, from `shortest` on, if these were taken with the present one.
    #[unsafe(link_section = "nthbyte_hot")]
    pub(super) fn next_period(self, period: u64, shortest: u64) -> u64 {
        let wanted = |margin: f64| {
            let bytes = period as f64 * self.samples / self.allowed * margin;
            step_up(bytes.clamp(1.0, Period::MAX as f64) as u64)
        };
        let chance = SURE * self.samples.sqrt();
        let next = if self.samples - chance > 1.1 * self.allowed {
            wanted(1.0 / 1.1).min(period.saturating_mul(FASTEST))
        } else if self.samples + chance < 0.7 * self.allowed {
            wanted(1.1).max(period / FASTEST)
        } else {
            period
        };
        next.clamp(shortest, Period::MAX)
    }
}

/// The next period that there is: a power of two, or a quarter of the way, half of it or three quarters to the next one.
#[inline]
const fn step_up(bytes: u64) -> u64 {
    let step = bytes.next_power_of_two() / 8;
    match step {
        0 => bytes,
        step => bytes.div_ceil(step) * step,
    }
}
