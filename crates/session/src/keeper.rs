//! What the recorder and the writer thread have done by those above them: by the session, and by its [`Host`](crate::Host).

use std::ops::Range;
use std::time::Duration;

use nthbyte_profile::Composition;
use nthbyte_profile::event::Nanos;

/// The session and its host, as the recorder and the writer thread see them. Hosts have it by their own trait.
pub trait Keeper: Sync {
    /// See [`Host::prepare`](crate::Host::prepare).
    fn prepare(&self);

    /// Called by the writer thread between two blocks, without a lock: decides about the period where no sample comes, looks for
    /// new threads, and records ticks. Returns the longest time until the next call, if there is one.
    fn keep(&self) -> Option<Duration>;

    /// Called by the writer thread before it completes the profile because the process ends, again and again, until it
    /// returns false: records the ticks that wait, as far as the ring has room. Returns whether more wait.
    fn record_waiting(&self) -> bool;

    /// Looks at mappings as of a time, all of them or those that are not wholly in memory. Returns whether there was any.
    fn look(&self, now: Nanos, all: bool) -> bool;

    /// See [`Host::begin_in_child`](crate::Host::begin_in_child).
    fn begin_in_child(&self);

    /// Sets the period of native memory, if it is recorded.
    fn set_native_period(&self, period: u64);

    /// See [`Host::arenas`](crate::Host::arenas).
    fn arenas(&self, visit: &mut dyn FnMut(Range<usize>));

    /// See [`Host::restore_huge_pages`](crate::Host::restore_huge_pages).
    fn restore_huge_pages(&self, from: u32) -> Option<u32>;

    /// See [`Host::own_memory`](crate::Host::own_memory).
    fn own_memory(&self, visit: &mut dyn FnMut(Range<usize>));

    /// See [`Host::account`](crate::Host::account).
    fn account(&self, composition: &mut Composition, is_thorough: bool);
}
