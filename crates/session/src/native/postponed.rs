//! Frees that wait for the next recording, because another thread held the session's lock.

use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::preload::NOT_INTERESTED;
use nthbyte_host::sync::AtomicU64;

/// Tokens of freed blocks; [`NOT_INTERESTED`] in an unused place. A token says all about its free, so no other memory has
/// to become visible with it.
pub(crate) struct Postponed<const PLACES: usize>([AtomicU64; PLACES]);

impl<const PLACES: usize> Postponed<PLACES> {
    /// Without a token. Each place holds [`NOT_INTERESTED`].
    pub(crate) const fn new(places: [AtomicU64; PLACES]) -> Self {
        Self(places)
    }

    /// Keeps a token. Returns false if there is no room. Any thread may call this, also in a signal handler.
    #[cold]
    pub(crate) fn add(&self, token: u64) -> bool {
        let replaces =
            |place: &AtomicU64| place.compare_exchange(NOT_INTERESTED, token, Relaxed, Relaxed);
        self.0.iter().any(|place| replaces(place).is_ok())
    }

    /// Takes all tokens, each once.
    pub(crate) fn take_all(&self, mut take: impl FnMut(u64)) {
        for place in &self.0 {
            // A load comes first: the exchange costs more, and most places are unused.
            if place.load(Relaxed) != NOT_INTERESTED {
                let token = place.swap(NOT_INTERESTED, Relaxed);
                if token != NOT_INTERESTED {
                    take(token);
                }
            }
        }
    }
}
