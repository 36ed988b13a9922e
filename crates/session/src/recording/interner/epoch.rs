//! Epochs: they say which profile a number belongs to.
//!
//! A session begins an epoch. The child of a fork begins another one with its own profile. Numbers of functions, types,
//! threads, stack nodes and samples are valid in one epoch only. A host keeps the state that it derives from them in a
//! [`PerEpoch`]: borrowing it needs an epoch, and state of another epoch is discarded.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Identifies a profile of this process. No two profiles of a process have the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// Returns a new epoch.
    pub(crate) fn begin() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    /// A number that no other epoch of this process has.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns a new epoch for tests of a host's state.
    #[must_use]
    pub fn for_test(number: u32) -> Self {
        Self(u32::MAX - number)
    }
}

/// State that is valid in one epoch.
#[derive(Debug, Default)]
pub struct PerEpoch<T> {
    epoch: Option<Epoch>,
    state: T,
}

impl<T> PerEpoch<T> {
    /// State of no epoch. Only the `begin` argument of [`of_or_begin`](Self::of_or_begin) sees it.
    pub const fn new(state: T) -> Self {
        Self { epoch: None, state }
    }

    /// Returns the state in this epoch. If the state is of another epoch, `begin` resets it first.
    #[inline]
    pub fn of_or_begin(&mut self, epoch: Epoch, begin: impl FnOnce(&mut T)) -> &mut T {
        if self.epoch != Some(epoch) {
            begin(&mut self.state);
            self.epoch = Some(epoch);
        }
        &mut self.state
    }

    /// Returns the state of the last epoch in which it was used.
    pub const fn current(&mut self) -> &mut T {
        &mut self.state
    }

    /// Makes the next use reset the state.
    pub const fn forget(&mut self) {
        self.epoch = None;
    }

    /// Whether the state belongs to this epoch.
    #[must_use]
    pub fn is_of(&self, epoch: Epoch) -> bool {
        self.epoch == Some(epoch)
    }
}

impl<T: Default> PerEpoch<T> {
    /// Returns the state in this epoch. If the state is of another epoch, it is replaced by the default first.
    #[inline]
    pub fn of(&mut self, epoch: Epoch) -> &mut T {
        self.of_or_begin(epoch, |state| *state = T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_another_epoch_begins_anew() {
        let (first, second) = (Epoch::begin(), Epoch::begin());
        assert_ne!(first, second);
        let mut state = PerEpoch::<Vec<u32>>::default();
        state.of(first).push(1);
        state.of(first).push(2);
        assert_eq!(state.of(first), &[1, 2]);
        assert!(state.is_of(first) && !state.is_of(second));
        assert_eq!(state.of(second), &[0; 0]);
        state.of(second).push(3);
        state.forget();
        assert_eq!(state.of_or_begin(second, |old| old.push(4)), &[3, 4]);
    }
}
