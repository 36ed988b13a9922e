//! Which blocks of the fallbacks may be sampled: a counting Bloom filter with one hash function (Fan, Cao, Almeida and
//! Broder, "Summary Cache", 1998).
//!
//! A free of a block that is not in the filter needs nothing else of the heap. Its counters stay where they are, so a
//! caller without the lock may read them; only a caller with the lock writes.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

const BITS: u32 = 12;

/// The filter: how many blocks of the set each counter stands for. A counter that was full once stays full.
pub struct Filter {
    counters: [AtomicU8; 1 << BITS],
}

impl Filter {
    pub const fn new() -> Self {
        Self {
            counters: [const { AtomicU8::new(0) }; 1 << BITS],
        }
    }

    /// Whether a block may be in the set.
    #[inline(always)]
    pub fn may_hold(&self, address: usize) -> bool {
        self.counter(address).load(Relaxed) != 0
    }

    /// Notes that a block was inserted into the set.
    #[inline]
    pub fn insert(&self, address: usize) {
        let counter = self.counter(address);
        counter.store(counter.load(Relaxed).saturating_add(1), Relaxed);
    }

    /// Notes that a block was removed from the set.
    #[inline]
    pub fn remove(&self, address: usize) {
        let counter = self.counter(address);
        let count = counter.load(Relaxed);
        if count != u8::MAX {
            counter.store(count - 1, Relaxed);
        }
    }

    /// Fibonacci hashing, as in `addresses.rs`.
    #[inline(always)]
    fn counter(&self, address: usize) -> &AtomicU8 {
        let product = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.counters[(product >> (u64::BITS - BITS)) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// Whatever is in the set may be in it; an empty set holds nothing, unless a counter was full.
        #[test]
        fn holds_what_was_inserted(addresses in prop::collection::hash_set(1usize..1 << 20, 1..2000), kept in 0usize..50) {
            let filter = Filter::new();
            let addresses: Vec<usize> = addresses.into_iter().map(|address| address << 4).collect();
            addresses.iter().for_each(|address| filter.insert(*address));
            let kept: HashSet<usize> = addresses.iter().copied().take(kept).collect();
            for address in addresses.iter().filter(|address| !kept.contains(address)) {
                prop_assert!(filter.may_hold(*address));
                filter.remove(*address);
            }
            for address in &kept {
                prop_assert!(filter.may_hold(*address));
                filter.remove(*address);
            }
            prop_assert!(addresses.iter().all(|address| !filter.may_hold(*address)));
        }
    }

    #[test]
    fn a_full_counter_stays_full() {
        let filter = Filter::new();
        (0..300).for_each(|_| filter.insert(64));
        (0..300).for_each(|_| filter.remove(64));
        assert!(filter.may_hold(64));
    }
}
