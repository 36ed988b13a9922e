//! Samples become records: the same stack, type, lifetime, shape and part of time, counted.
//!
//! If they are too many for a page, neighbouring parts of time are merged, then shapes, and then
//! small calls are pruned, each only as far as it must be: see [`PLANS`].

use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;

use super::classes::Classes;
use super::prune::{Scores, Stacks};
use crate::estimate::Totals;

/// The largest number of equal parts into which a session's time is divided.
pub const BUCKETS: u32 = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 8;

/// The weight of the largest page: a record weighs 1, which is two to three bytes of the file. More is merged or pruned.
pub const MOST_WEIGHT: usize = 1_700_000;

/// What the first record of a stack, type, lifetime and shape weighs more than a record of another part of time.
const GROUP_WEIGHT: usize = 2;

/// What a stack weighs.
const STACK_WEIGHT: usize = 2;

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

/// How samples become records.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The shapes that are one.
    pub shapes: Merged,
    /// Neighbouring parts of time are merged at most until there are so many, a power of two.
    pub parts: u32,
    /// The number of stacks that are kept; `None` for all.
    pub stacks: Option<usize>,
}

/// Which shapes are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Equal ones.
    Equal,
    /// Those above 1 KiB of nearly the same size.
    Near,
    /// All of one stack, type and lifetime.
    OfGroup,
}

const fn plan(shapes: Merged, parts: u32, stacks: Option<usize>) -> Plan {
    Plan {
        shapes,
        parts,
        stacks,
    }
}

/// The plans, from the one that keeps most. The first one with few enough records is used.
const PLANS: [Plan; 10] = [
    plan(Merged::Equal, 64, None),
    plan(Merged::Near, 64, None),
    plan(Merged::OfGroup, 64, None),
    plan(Merged::OfGroup, 64, Some(50_000)),
    plan(Merged::OfGroup, 32, Some(24_000)),
    plan(Merged::OfGroup, 32, Some(12_000)),
    plan(Merged::OfGroup, 16, Some(12_000)),
    plan(Merged::OfGroup, 16, Some(6_000)),
    plan(Merged::OfGroup, 16, Some(3_000)),
    plan(Merged::OfGroup, 1, Some(3_000)),
];

/// The sides of a page, as records.
pub struct Fitted<'a> {
    /// The stacks that the records refer to.
    pub stacks: Stacks<'a>,
    /// The records of each side.
    pub sides: Vec<Records>,
}

/// Counts the samples of a profile, or of both sides of a difference. `progress` gets the number of samples counted
/// and of all samples. `limit` is the largest weight.
pub fn fit<'a>(
    sides: &[&'a Profile],
    limit: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Fitted<'a> {
    let mut scores = None;
    for (at, plan) in PLANS.iter().enumerate() {
        let stacks = match plan.stacks {
            Some(most) => {
                let scores = scores.get_or_insert_with(|| Scores::of(sides));
                Stacks::highest(sides, scores, most)
            }
            None => Stacks::all(sides[0]),
        };
        let records: Vec<Records> = sides
            .iter()
            .map(|side| Records::of(side, &stacks, *plan, limit / sides.len(), progress))
            .collect();
        let weight: usize = records.iter().map(Records::weight).sum();
        if weight + STACK_WEIGHT * stacks.written() <= limit || at + 1 == PLANS.len() {
            return Fitted {
                stacks,
                sides: records,
            };
        }
    }
    unreachable!("the last plan is always used")
}

impl Records {
    /// Counts the samples of a profile, and merges parts of time until they weigh no more than `limit` together with
    /// the stacks.
    fn of(
        profile: &Profile,
        stacks: &Stacks<'_>,
        plan: Plan,
        limit: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Self {
        let mut cpu: Vec<u128> = profile
            .cpu
            .iter()
            .map(|sample| {
                key(
                    stacks.of(sample.stack),
                    0,
                    0,
                    0,
                    bucket(sample.time, profile.end),
                )
            })
            .collect();
        cpu.sort_unstable();
        let classes = match plan.shapes {
            Merged::Near => Classes::coarse(profile),
            Merged::Equal | Merged::OfGroup => Classes::exact(profile),
        };
        let mut allocations = keys(profile, stacks, &classes, progress);
        let classes = match plan.shapes {
            Merged::OfGroup => merge_groups(&mut allocations, &classes),
            Merged::Equal | Merged::Near => classes,
        };
        let taken = STACK_WEIGHT * stacks.written();
        let mut merged = 0;
        while BUCKETS >> merged > plan.parts
            && weight(&allocations, merged) + weight(&cpu, merged) + taken > limit
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

    /// The same with another number of parts of time.
    pub fn divide(&mut self, buckets: u32) {
        for record in self.allocations.iter_mut().chain(&mut self.cpu) {
            record.bucket =
                (u64::from(record.bucket) * u64::from(buckets) / u64::from(self.buckets)) as u32;
        }
        self.buckets = buckets;
    }

    fn weight(&self) -> usize {
        let group = |record: &Record| (record.stack, record.type_id, record.lifetime, record.class);
        let of = |records: &[Record]| {
            records.len() + GROUP_WEIGHT * records.chunk_by(|a, b| group(a) == group(b)).count()
        };
        of(&self.allocations) + of(&self.cpu)
    }
}

/// What sorted keys will weigh as records.
fn weight(sorted: &[u128], merged: u32) -> usize {
    distinct(sorted, merged) + GROUP_WEIGHT * distinct(sorted, BUCKET_BITS)
}

/// Gives all samples of one stack, type and lifetime the class of their mean.
fn merge_groups(sorted: &mut [u128], exact: &Classes) -> Classes {
    let (mut classes, mut numbers) = Classes::means();
    let group = |key: u128| key >> (32 + BUCKET_BITS);
    for together in sorted.chunk_by_mut(|&a, &b| group(a) == group(b)) {
        let mut sum = Totals::default();
        for &key in together.iter() {
            let class = &exact.totals[unpack(key, 0, 1).class as usize];
            sum.add(class);
        }
        let class = classes.add_mean(&mut numbers, &sum);
        for key in together.iter_mut() {
            let bits = u128::from(u32::MAX) << BUCKET_BITS;
            *key = (*key & !bits) | (u128::from(class) << BUCKET_BITS);
        }
        together.sort_unstable();
    }
    classes
}

/// The sorted keys of all samples.
fn keys(
    profile: &Profile,
    stacks: &Stacks<'_>,
    classes: &Classes,
    progress: &mut dyn FnMut(u64, u64),
) -> Vec<u128> {
    let samples = &profile.samples;
    let mut keys: Vec<u128> = samples
        .ids()
        .map(|id| {
            if id.index() % REPORTED == 0 {
                progress(id.index() as u64, samples.len() as u64);
            }
            key(
                stacks.of(samples.stack(id)),
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

    fn total(records: &[Record]) -> u64 {
        records.iter().map(|r| u64::from(r.count)).sum()
    }

    #[test]
    fn every_plan_keeps_every_sample_and_their_sum() {
        let mut profile = super::super::data::tests::small();
        let sum = |records: &Records| -> f64 {
            let each = |r: &Record| {
                let class = &records.classes.totals[r.class as usize];
                f64::from(r.count) * class.bytes.estimate / class.samples as f64
            };
            records.allocations.iter().map(each).sum()
        };
        let all = Stacks::all(&profile);
        let exact = Records::of(&profile, &all, PLANS[0], usize::MAX, &mut |_, _| {});
        for plan in PLANS {
            let merged = Records::of(&profile, &all, plan, 0, &mut |_, _| {});
            assert_eq!(merged.buckets, plan.parts);
            assert_eq!(total(&merged.allocations), profile.samples.len() as u64);
            assert_eq!(total(&merged.cpu), profile.cpu.len() as u64);
            assert!((sum(&merged) / sum(&exact) - 1.0).abs() < 1e-9);
            assert!(merged.allocations.iter().all(|r| r.bucket < merged.buckets));
        }
        drop(all);
        profile.cpu.clear();
        let least = fit(&[&profile], 0, &mut |_, _| {});
        assert_eq!(least.sides[0].buckets, 1);
        let most = fit(&[&profile], usize::MAX, &mut |_, _| {});
        assert_eq!(most.sides[0].buckets, BUCKETS);
        assert!(most.stacks.pruned.is_none() && most.sides[0].classes.merged.is_none());
    }
}
