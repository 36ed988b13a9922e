//! Samples become records: the same stack, type, lifetime, shape and part of time, counted.
//!
//! If there are too many, first shapes of nearly the same size are merged, and then neighbouring
//! parts of time.

use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;

use super::classes::Classes;

/// The largest number of equal parts into which a session's time is divided.
pub const BUCKETS: u32 = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 8;

/// With more records than this, neighbouring parts of time are merged.
const MOST_RECORDS: usize = 1 << 19;

/// Shapes are merged before parts of time become fewer than a quarter of [`BUCKETS`].
const MERGED_FIRST: u32 = 2;

/// After this many merges, few parts of time are left: 16.
const FEW_PARTS: u32 = 4;

/// Samples between two reports of progress.
const REPORTED: usize = 1 << 16;

/// Samples that are equal except for their exact time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Index of the stack in the profile.
    pub stack: u32,
    /// Index of the type; 0 for time samples.
    pub type_id: u32,
    /// The lifetime's discriminant; 0 for time samples.
    pub lifetime: u32,
    /// Index of the class of shapes; 0 for time samples.
    pub class: u32,
    /// The part of time, from 0.
    pub bucket: u32,
    /// Number of samples.
    pub count: u32,
}

/// All records of a profile.
#[derive(Debug)]
pub struct Records {
    /// Number of parts of time: a power of two.
    pub buckets: u32,
    /// The classes of shapes.
    pub classes: Classes,
    /// Allocation samples, sorted.
    pub allocations: Vec<Record>,
    /// Time samples, sorted.
    pub cpu: Vec<Record>,
}

impl Records {
    /// Counts the samples of a profile. `progress` gets the number of samples counted and of all samples.
    pub fn of(profile: &Profile, progress: &mut dyn FnMut(u64, u64)) -> Self {
        Self::with_limit(profile, MOST_RECORDS, progress)
    }

    /// The same with another number of parts of time.
    pub fn divide(&mut self, buckets: u32) {
        for record in self.allocations.iter_mut().chain(&mut self.cpu) {
            record.bucket =
                (u64::from(record.bucket) * u64::from(buckets) / u64::from(self.buckets)) as u32;
        }
        self.buckets = buckets;
    }

    fn with_limit(profile: &Profile, limit: usize, progress: &mut dyn FnMut(u64, u64)) -> Self {
        let mut cpu: Vec<u128> = profile
            .cpu
            .iter()
            .map(|sample| key(sample.stack.0, 0, 0, 0, bucket(sample.time, profile.end)))
            .collect();
        cpu.sort_unstable();
        let mut classes = Classes::exact(profile);
        let mut allocations = keys(profile, &classes, progress);
        if distinct(&allocations, MERGED_FIRST) + distinct(&cpu, MERGED_FIRST) > limit {
            classes = Classes::coarse(profile);
            allocations = keys(profile, &classes, progress);
        }

        let mut merged = 0;
        // With few parts a range of time is of little use, so the last merges need many more records.
        let limit_at = |merged| if merged < FEW_PARTS { limit } else { 4 * limit };
        while merged < BUCKET_BITS
            && distinct(&allocations, merged) + distinct(&cpu, merged) > limit_at(merged)
        {
            merged += 1;
        }
        Self {
            buckets: BUCKETS >> merged,
            allocations: count(&allocations, merged),
            cpu: count(&cpu, merged),
            classes,
        }
    }
}

/// The sorted keys of all samples.
fn keys(profile: &Profile, classes: &Classes, progress: &mut dyn FnMut(u64, u64)) -> Vec<u128> {
    let samples = &profile.samples;
    let mut keys: Vec<u128> = samples
        .ids()
        .map(|id| {
            if id.index() % REPORTED == 0 {
                progress(id.index() as u64, samples.len() as u64);
            }
            key(
                samples.stack(id).0,
                samples.type_id(id).0,
                samples.lifetime(id) as u32,
                classes.of(samples.shape_id(id)),
                bucket(samples.time(id), profile.end),
            )
        })
        .collect();
    keys.sort_unstable();
    keys
}

/// The part of time that a moment belongs to. The end of the session belongs to the last part.
pub fn bucket(time: Nanos, end: Nanos) -> u32 {
    let part = u128::from(time.0) * u128::from(BUCKETS) / u128::from(end.0.max(1));
    part.min(u128::from(BUCKETS - 1)) as u32
}

/// A record without its count, as one number. The bucket is in the lowest bits, so that keys
/// with neighbouring buckets are neighbours in the sorted order.
fn key(stack: u32, type_id: u32, lifetime: u32, class: u32, bucket: u32) -> u128 {
    (u128::from(stack) << (2 + 32 + 32 + BUCKET_BITS))
        | (u128::from(type_id) << (2 + 32 + BUCKET_BITS))
        | (u128::from(lifetime) << (32 + BUCKET_BITS))
        | (u128::from(class) << BUCKET_BITS)
        | u128::from(bucket)
}

fn unpack(key: u128, merged: u32, count: u32) -> Record {
    Record {
        stack: (key >> (2 + 32 + 32 + BUCKET_BITS)) as u32,
        type_id: (key >> (2 + 32 + BUCKET_BITS)) as u32,
        lifetime: (key >> (32 + BUCKET_BITS)) as u32 & 3,
        class: (key >> BUCKET_BITS) as u32,
        bucket: (key as u32 & (BUCKETS - 1)) >> merged,
        count,
    }
}

fn same(a: u128, b: u128, merged: u32) -> bool {
    a >> merged == b >> merged
}

fn distinct(sorted: &[u128], merged: u32) -> usize {
    sorted.chunk_by(|&a, &b| same(a, b, merged)).count()
}

fn count(sorted: &[u128], merged: u32) -> Vec<Record> {
    sorted
        .chunk_by(|&a, &b| same(a, b, merged))
        // Sample numbers are 32 bits wide, so a count is too.
        .map(|equal| unpack(equal[0], merged, equal.len() as u32))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_and_unpacking_a_key_keeps_the_record() {
        let all = (u32::MAX, u32::MAX - 1, 3, u32::MAX - 2, BUCKETS - 1);
        let record = unpack(key(all.0, all.1, all.2, all.3, all.4), 0, 7);
        assert_eq!(
            (
                record.stack,
                record.type_id,
                record.lifetime,
                record.class,
                record.bucket,
                record.count
            ),
            (all.0, all.1, all.2, all.3, all.4, 7)
        );
    }

    #[test]
    fn the_parts_of_time_are_equal_and_cover_the_session() {
        let end = Nanos(u64::MAX - 3);
        assert_eq!(bucket(Nanos(0), end), 0);
        assert_eq!(bucket(end, end), BUCKETS - 1);
        assert_eq!(bucket(Nanos(u64::MAX), end), BUCKETS - 1);
        let end = Nanos(u64::from(BUCKETS) * 10);
        for part in 0..BUCKETS {
            assert_eq!(bucket(Nanos(u64::from(part) * 10), end), part);
            assert_eq!(bucket(Nanos(u64::from(part) * 10 + 9), end), part);
        }
        assert_eq!(bucket(Nanos(0), Nanos(0)), 0);
    }

    #[test]
    fn merging_parts_keeps_every_sample() {
        let mut profile = super::super::data::tests::small();
        let whole = Records::with_limit(&profile, usize::MAX / 4, &mut |_, _| {});
        let merged = Records::with_limit(&profile, whole.allocations.len() / 2, &mut |_, _| {});
        assert!(merged.buckets < whole.buckets);
        let total = |records: &[Record]| records.iter().map(|r| u64::from(r.count)).sum::<u64>();
        assert_eq!(total(&whole.allocations), profile.samples.len() as u64);
        assert_eq!(total(&merged.allocations), profile.samples.len() as u64);
        assert_eq!(total(&merged.cpu), profile.cpu.len() as u64);
        assert!(merged.allocations.iter().all(|r| r.bucket < merged.buckets));

        profile.cpu.clear();
        let least = Records::with_limit(&profile, 0, &mut |_, _| {});
        assert_eq!(least.buckets, 1);
    }
}
