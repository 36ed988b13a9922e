//! Samples become records: the same stack, type, lifetime, shape and part of time, counted.
//!
//! If they are too many for a page, neighbouring parts of time are merged, then shapes, and then
//! small calls are pruned, each only as far as it must be: see [`PLANS`].

use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;

use super::classes::Classes;
use super::grouped::Either;
use super::prune::{Scores, Stacks};

/// The largest number of equal parts into which a session's time is divided.
pub const BUCKETS: u32 = 1 << BUCKET_BITS;
pub(super) const BUCKET_BITS: u32 = 8;

/// The weight of the largest page: a record weighs 1, which is two to three bytes of the file. More is merged or pruned.
pub const MOST_WEIGHT: usize = 1_700_000;

/// What the first record of a stack, type, lifetime and shape weighs more than a record of another part of time.
pub(super) const GROUP_WEIGHT: usize = 2;

const STACK_WEIGHT: usize = 2;

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
/// and of all samples. `peak`: when most was alive. `grouped`: the outermost frames are groups. `limit` is the largest weight.
pub fn fit<'a>(
    sides: &[&'a Profile],
    peak: Option<Nanos>,
    grouped: bool,
    limit: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Fitted<'a> {
    let mut scores = None;
    for (at, plan) in PLANS.iter().enumerate() {
        let stacks = match plan.stacks {
            Some(most) => {
                let scores = scores.get_or_insert_with(|| Scores::of(sides, peak));
                Stacks::highest(sides, grouped, scores, most)
            }
            None => Stacks::all(sides[0]).grouped(grouped),
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
        let mut cpu: Vec<u64> = profile
            .cpu
            .iter()
            .map(|sample| key(stacks.of(sample.stack), bucket(sample.time, profile.end)))
            .collect();
        cpu.sort_unstable();
        let classes = match plan.shapes {
            Merged::Near => Classes::coarse(profile),
            Merged::Equal | Merged::OfGroup => Classes::exact(profile),
        };
        let mut allocations = Either::of(profile, stacks, &classes, progress);
        let classes = match plan.shapes {
            Merged::OfGroup => allocations.merge_classes(&classes),
            Merged::Equal | Merged::Near => classes,
        };
        let taken = STACK_WEIGHT * stacks.written();
        let mut merged = 0;
        while BUCKETS >> merged > plan.parts
            && allocations.weight(merged) + weight(&cpu, merged) + taken > limit
        {
            merged += 1;
        }
        Self {
            buckets: BUCKETS >> merged,
            allocations: allocations.records(merged),
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

    /// What they weigh on the page.
    pub fn weight(&self) -> usize {
        let group = |record: &Record| (record.stack, record.type_id, record.lifetime, record.class);
        let of = |records: &[Record]| {
            records.len() + GROUP_WEIGHT * records.chunk_by(|a, b| group(a) == group(b)).count()
        };
        of(&self.allocations) + of(&self.cpu)
    }
}

/// What sorted keys will weigh as records.
fn weight(sorted: &[u64], merged: u32) -> usize {
    distinct(sorted, merged) + GROUP_WEIGHT * distinct(sorted, BUCKET_BITS)
}

/// The part of time that a moment belongs to. The end of the session belongs to the last part.
pub fn bucket(time: Nanos, end: Nanos) -> u32 {
    let part = u128::from(time.0) * u128::from(BUCKETS) / u128::from(end.0.max(1));
    part.min(u128::from(BUCKETS - 1)) as u32
}

/// The record of a time sample without its count, as one number. The bucket is in the lowest bits, so that keys
/// with neighbouring buckets are neighbours in the sorted order.
fn key(stack: u32, bucket: u32) -> u64 {
    u64::from(stack) << BUCKET_BITS | u64::from(bucket)
}

fn unpack(key: u64, merged: u32, count: u32) -> Record {
    Record {
        stack: (key >> BUCKET_BITS) as u32,
        type_id: 0,
        lifetime: 0,
        class: 0,
        bucket: (key as u32 & (BUCKETS - 1)) >> merged,
        count,
    }
}

fn same(a: u64, b: u64, merged: u32) -> bool {
    a >> merged == b >> merged
}

fn distinct(sorted: &[u64], merged: u32) -> usize {
    sorted.chunk_by(|&a, &b| same(a, b, merged)).count()
}

fn count(sorted: &[u64], merged: u32) -> Vec<Record> {
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
        let all = (u32::MAX, BUCKETS - 1);
        let record = unpack(key(all.0, all.1), 0, 7);
        assert_eq!(
            (record.stack, record.bucket, record.count),
            (all.0, all.1, 7)
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
        let least = fit(&[&profile], None, false, 0, &mut |_, _| {});
        assert_eq!(least.sides[0].buckets, 1);
        let most = fit(&[&profile], None, false, usize::MAX, &mut |_, _| {});
        assert_eq!(most.sides[0].buckets, BUCKETS);
        assert!(most.stacks.pruned.is_none() && most.sides[0].classes.merged.is_none());
    }
}
