//! State for the thread that has a recording.

use std::cell::UnsafeCell;

use super::interner::PerEpoch;
use crate::recording::Recording;

/// State that only the thread with a [`Recording`] uses. There is one recording at a time, so it needs no lock of its own.
pub struct RecordingCell<T>(UnsafeCell<T>);

// SAFETY: only the thread with a recording uses the content, and there is one recording at a time.
unsafe impl<T> Sync for RecordingCell<T> {}

impl<T> RecordingCell<T> {
    /// With this state.
    pub const fn new(state: T) -> Self {
        Self(UnsafeCell::new(state))
    }

    /// The state. The recording is borrowed as long as it is used.
    #[inline]
    #[allow(clippy::mut_from_ref)] // the recording makes it exclusive
    pub fn with<'a>(&'a self, _recording: &'a mut Recording<'_>) -> &'a mut T {
        // SAFETY: there is a recording, which is borrowed as long as the state is.
        unsafe { &mut *self.0.get() }
    }

    /// The state, beside a recording that is used as well.
    ///
    /// # Safety
    /// The calling thread has a recording as long as the reference is used, or is the only thread; and there is no other reference
    /// to the state.
    #[inline]
    #[allow(clippy::mut_from_ref)] // by the contract
    pub unsafe fn beside_recording(&self) -> &mut T {
        // SAFETY: by the contract.
        unsafe { &mut *self.0.get() }
    }
}

impl<T: Default> RecordingCell<PerEpoch<T>> {
    /// The state in the recording's epoch.
    #[inline]
    #[allow(clippy::mut_from_ref)] // the recording makes it exclusive
    pub fn in_epoch<'a>(&'a self, recording: &'a mut Recording<'_>) -> &'a mut T {
        let epoch = recording.epoch();
        self.with(recording).of(epoch)
    }
}
