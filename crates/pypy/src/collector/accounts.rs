//! What the writer thread learns of the collector's memory: see [`nthbyte_session::composition`].
//!
//! The writer thread cannot tell whether the collector is sweeping, and then counts its objects from zero. So it gets the
//! last recorded totals, which are right: at most some milliseconds old while the program allocates.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_profile::{Composition, Part};

const PARTS: [Part; 4] = [
    Part::PypyArenas,
    Part::PypyObjects,
    Part::PypyLarge,
    Part::PypyNursery,
];

/// Bytes of each of the parts; 0 if unknown.
static LAST: [AtomicU64; PARTS.len()] = [const { AtomicU64::new(0) }; PARTS.len()];

/// Totals in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    pub(super) arenas: u64,
    pub(super) objects: u64,
    pub(super) large: u64,
    pub(super) nursery: u64,
}

/// Sets what the writer thread adds to compositions.
pub(super) fn publish(last: Last) {
    let totals = [last.arenas, last.objects, last.large, last.nursery];
    for (place, total) in LAST.iter().zip(totals) {
        place.store(total, Relaxed);
    }
}

/// Adds the last totals. The arenas are blocks of the C library.
pub fn add(composition: &mut Composition) {
    for (part, bytes) in PARTS.into_iter().zip(&LAST) {
        let bytes = bytes.load(Relaxed);
        if bytes > 0 {
            composition.set(part, bytes);
        }
    }
}
