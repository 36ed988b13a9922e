//! Epochs: what belongs to which profile.
//!
//! A session begins an epoch, and so does the child of a fork when it begins a profile of its own. Numbers of
//! functions, types, threads, stack nodes and samples are good for one epoch only. State that a host derives
//! from them is kept in a [`PerEpoch`], which cannot be borrowed without an epoch and forgets what is of another one.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// A profile of this process; no two of its profiles have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// One that was not there before.
    pub(crate) fn begin() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    /// One to try a host's state with.
    #[must_use]
    pub fn for_test(number: u32) -> Self {
        Self(u32::MAX - number)
    }
}

/// State that is good for one epoch.
#[derive(Debug, Default)]
pub struct PerEpoch<T> {
    epoch: Option<Epoch>,
    state: T,
}

impl<T> PerEpoch<T> {
    /// State that has yet to begin; what it is until then is seen by nobody but `begin` of
    /// [`of_or_begin`](Self::of_or_begin).
    pub const fn new(state: T) -> Self {
        Self { epoch: None, state }
    }

    /// The state in this epoch. If it is of another one, `begin` changes it into what it is at the beginning.
    #[inline]
    pub fn of_or_begin(&mut self, epoch: Epoch, begin: impl FnOnce(&mut T)) -> &mut T {
        if self.epoch != Some(epoch) {
            begin(&mut self.state);
            self.epoch = Some(epoch);
        }
        &mut self.state
    }

    /// Makes the state begin anew with its next use.
    pub const fn forget(&mut self) {
        self.epoch = None;
    }

    /// Whether the state is of this epoch.
    #[must_use]
    pub fn is_of(&self, epoch: Epoch) -> bool {
        self.epoch == Some(epoch)
    }
}

impl<T: Default> PerEpoch<T> {
    /// The state in this epoch: a default one, if it is of another epoch.
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
