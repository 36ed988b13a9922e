//! Memory totals (section 3.6 of the paper).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_profile::event::{Memory, Nanos};
use nthbyte_profile::{Composition, Part};

use super::totals::{self, Totals};
use nthbyte_session::Recording;

/// The shortest time between two records of memory totals.
const EVERY: Nanos = Nanos(20_000_000);
/// While the collector sweeps, it counts the old objects again from zero. If it is not known whether it sweeps, a total
/// that has fallen is ignored for this long.
const SWEEP: Nanos = Nanos(2_000_000_000);

const PARTS: [Part; 4] = [
    Part::PypyArenas,
    Part::PypyObjects,
    Part::PypyLarge,
    Part::PypyNursery,
];
/// The last recorded bytes of each of the parts; 0 if unknown. The writer thread cannot tell whether the collector is
/// sweeping, and then counts its objects from zero. So it gets these, which are right: at most some milliseconds old while
/// the program allocates.
static LAST: [AtomicU64; PARTS.len()] = [const { AtomicU64::new(0) }; PARTS.len()];

/// Adds the last totals to what the writer thread records. The arenas are blocks of the C library.
pub fn account(composition: &mut Composition) {
    for (part, bytes) in PARTS.into_iter().zip(&LAST) {
        let bytes = bytes.load(Relaxed);
        if bytes > 0 {
            composition.set(part, bytes);
        }
    }
}

/// The readings of one session.
#[derive(Debug)]
pub struct Statistics {
    totals: Option<Totals>,
    nursery: Option<usize>,
    written: Nanos,
    in_arenas: InArenas,
    /// The totals before the current minor collection.
    before_minor: Option<Old>,
}

/// Bytes of old objects in arenas. During a sweep this is the value before the sweep.
#[derive(Debug, Default)]
struct InArenas {
    bytes: u64,
    /// The time since which the collector's number has been smaller.
    fallen: Option<Nanos>,
}

impl InArenas {
    fn read(&mut self, now: Nanos, bytes: u64, is_sweeping: Option<bool>) -> u64 {
        let is_partial = is_sweeping.unwrap_or_else(|| {
            let fallen = (bytes < self.bytes).then(|| *self.fallen.get_or_insert(now));
            fallen.is_some_and(|fallen| now.0.saturating_sub(fallen.0) < SWEEP.0)
        });
        if is_partial && self.bytes > 0 {
            return self.bytes;
        }
        (self.bytes, self.fallen) = (bytes, None);
        bytes
    }
}

/// The collector's totals at one moment, in bytes. During a sweep they are partial.
#[derive(Clone, Copy, Debug)]
struct Old {
    in_arenas: u64,
    large: u64,
}

impl Statistics {
    /// No readings yet.
    #[must_use]
    pub fn new(nursery_size: Option<usize>) -> Self {
        Self {
            totals: None,
            nursery: nursery_size,
            written: Nanos(0),
            in_arenas: InArenas::default(),
            before_minor: None,
        }
    }

    /// Forgets the readings: their times belong to another session.
    pub fn forget(&mut self) {
        *self = Self {
            totals: self.totals,
            ..Self::new(self.nursery)
        };
    }

    /// Makes the next totals be recorded, however old the last ones are.
    pub fn become_due(&mut self) {
        self.written = Nanos(0);
    }

    /// Bytes that the collector counts as in use, if the place of this total is known.
    pub fn in_use(&mut self) -> Option<u64> {
        let old = self.old()?;
        Some(old.in_arenas.saturating_add(old.large))
    }

    fn old(&mut self) -> Option<Old> {
        let totals = self.totals()?;
        Some(Old {
            in_arenas: read(totals.in_arenas),
            large: read(totals.large),
        })
    }

    /// Notes the totals before a minor collection.
    pub fn before_minor(&mut self) {
        self.before_minor = self.old();
    }

    /// Bytes in use before and after the minor collection that has just ended, where they are known. The nursery is not part of
    /// them: they differ by what survived, less the large objects that were freed.
    pub fn after_minor(
        &mut self,
        now: Nanos,
        is_sweeping: Option<bool>,
    ) -> (Option<u64>, Option<u64>) {
        let old = self.before_minor.take();
        let Some((old, new)) = old.zip(self.old()) else {
            return (None, None);
        };
        let in_arenas = self.in_arenas.read(now, new.in_arenas, is_sweeping);
        // A minor collection does not sweep: if both numbers are partial, their difference is right.
        let moved = new.in_arenas.saturating_sub(old.in_arenas);
        let before = in_arenas.checked_sub(moved);
        (
            before.map(|before| before.saturating_add(old.large)),
            Some(in_arenas.saturating_add(new.large)),
        )
    }

    fn totals(&mut self) -> Option<Totals> {
        self.totals = self.totals.or_else(totals::found);
        self.totals
    }

    /// Records memory totals, if the last record is old enough. `is_sweeping`: see
    /// [`Majors::is_sweeping`](nthbyte_rpython::Majors::is_sweeping); `None` if it is not known.
    pub fn memory(
        &mut self,
        recording: &mut Recording<'_>,
        now: Nanos,
        allocated: u64,
        is_sweeping: Option<bool>,
    ) {
        if self.written != Nanos(0) && now.0.saturating_sub(self.written.0) < EVERY.0 {
            return;
        }
        self.written = now;
        let totals = self.totals();
        let used = totals
            .map(|totals| (read(totals.in_arenas), read(totals.large)))
            .map(|(in_arenas, large)| (self.in_arenas.read(now, in_arenas, is_sweeping), large));
        let arenas = totals.and_then(|totals| totals.arenas.map(read));
        let sum = |(one, other): (u64, u64)| one.saturating_add(other);
        let nursery = self.nursery.unwrap_or(0) as u64;
        let (objects, large) = used.unwrap_or_default();
        let parts = [arenas.unwrap_or(0), objects, large, nursery];
        for (place, bytes) in LAST.iter().zip(parts) {
            place.store(bytes, Relaxed);
        }
        recording.memory(Memory {
            time: now,
            heap_used: used.map(sum),
            heap_reserved: arenas
                .zip(used)
                .map(|(arenas, (_, large))| sum((arenas + nursery, large))),
            // The writer thread reads the resident set.
            rss: None,
            allocated: Some(allocated),
            peak_rss: None,
        });
    }
}

/// A total. The interpreter's lock must be held.
fn read(address: usize) -> u64 {
    // SAFETY: the words were found inside structs of the collector, which are never freed.
    unsafe { (address as *const u64).read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_does_not_show() {
        let mut arenas = InArenas::default();
        let mut now = 0;
        let mut read = |arenas: &mut InArenas, bytes, is_sweeping| {
            now += EVERY.0;
            arenas.read(Nanos(now), bytes, is_sweeping)
        };
        // The sweep has begun before.
        assert_eq!(read(&mut arenas, 30, Some(true)), 30);
        assert_eq!(read(&mut arenas, 50, Some(false)), 50);
        assert_eq!(read(&mut arenas, 60, Some(false)), 60);
        let swept = [0, 10, 40].map(|bytes| read(&mut arenas, bytes, Some(true)));
        assert_eq!(swept, [60; 3]);
        assert_eq!(read(&mut arenas, 42, Some(false)), 42);

        // It is not known whether the collector sweeps.
        assert_eq!(read(&mut arenas, 43, None), 43);
        let held = (0..1000)
            .take_while(|_| read(&mut arenas, 41, None) == 43)
            .count();
        assert_eq!(held as u64, SWEEP.0 / EVERY.0);
        assert_eq!(read(&mut arenas, 42, None), 42);
    }
}
