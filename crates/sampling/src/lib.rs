//! When to sample: intervals, sample points and weights.
