//! The mean distance between sample points.

use core::num::NonZeroU64;

/// The mean distance between two sample points, in bytes: 1, or anything from
/// [`Period::MIN`] to [`Period::MAX`].
///
/// With a period of 1 every byte is a sample point, so that every allocation is sampled and the
/// figures are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(NonZeroU64);

impl Period {
    /// The smallest period that samples: 64 bytes.
    pub const MIN: u64 = 64;
    /// The largest period: 2^40 bytes, 1 TiB.
    pub const MAX: u64 = 1 << 40;
    /// Every byte is a sample point.
    pub const EVERY: Self = Self(NonZeroU64::MIN);

    /// A period of `bytes` bytes; `None` unless it is 1 or from [`Period::MIN`] to [`Period::MAX`].
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        if bytes != 1 && (bytes < Self::MIN || bytes > Self::MAX) {
            return None;
        }
        match NonZeroU64::new(bytes) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }

    /// The period in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0.get()
    }

    /// The period as a divisor that is known not to be zero.
    pub(crate) const fn divisor(self) -> NonZeroU64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Period;

    #[test]
    fn only_one_and_the_documented_range() {
        for bytes in [0, 2, 63, Period::MAX + 1, u64::MAX] {
            assert_eq!(Period::new(bytes), None);
        }
        for bytes in [1, 64, 65, 524_288, Period::MAX] {
            assert_eq!(Period::new(bytes).map(Period::bytes), Some(bytes));
        }
    }
}
