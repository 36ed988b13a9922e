//! The allocation samples of a profile in the order of their records, without a key for all that a record has.
//!
//! The samples of one stack and type are a group, so these two are stored once. The rest of a sample is a number of four
//! bytes, or eight if there are very many shapes: lifetime, class and part of time.

use nthbyte_profile::Profile;

use super::classes::{Classes, MeanNumbers};
use super::prune::Stacks;
use super::records::{BUCKET_BITS, BUCKETS, GROUP_WEIGHT, Record, bucket};
use crate::estimate::Totals;

/// Samples between two reports of progress.
const REPORTED: usize = 1 << 16;

/// Bits of a class in a key of four bytes.
const NARROW: u32 = u32::BITS - BUCKET_BITS - 2;

/// Lifetime, class and part of time of a sample, in this order from the highest bit on.
pub(super) trait PackedKey: Copy + Ord {
    const CLASS_BITS: u32;
    /// From a number of as many bits as it has.
    fn of(bits: u64) -> Self;
    /// That number.
    fn bits(self) -> u64;
}

impl PackedKey for u32 {
    const CLASS_BITS: u32 = NARROW;
    fn of(bits: u64) -> Self {
        bits as Self
    }
    fn bits(self) -> u64 {
        self.into()
    }
}

impl PackedKey for u64 {
    const CLASS_BITS: u32 = 32;
    fn of(bits: u64) -> Self {
        bits
    }
    fn bits(self) -> u64 {
        self
    }
}

fn key<K: PackedKey>(lifetime: u32, class: u32, bucket: u32) -> K {
    let high = u64::from(lifetime) << K::CLASS_BITS | u64::from(class);
    K::of(high << BUCKET_BITS | u64::from(bucket))
}

fn class<K: PackedKey>(key: K) -> u32 {
    (key.bits() >> BUCKET_BITS & ((1 << K::CLASS_BITS) - 1)) as u32
}

fn lifetime<K: PackedKey>(key: K) -> u32 {
    (key.bits() >> (BUCKET_BITS + K::CLASS_BITS)) as u32
}

/// The samples of one stack and type.
struct Group {
    stack: u32,
    type_id: u32,
    /// Where its keys end. They begin where the keys of the group before end.
    end: usize,
}

/// See the module.
pub(super) struct Grouped<K> {
    groups: Vec<Group>,
    keys: Vec<K>,
}

/// Samples grouped, with keys as short as they can be.
pub(super) enum Either {
    Narrow(Grouped<u32>),
    Wide(Grouped<u64>),
}

impl Either {
    pub(super) fn of(
        profile: &Profile,
        stacks: &Stacks<'_>,
        classes: &Classes,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Self {
        // A group may have a mean class for each lifetime.
        let most = classes.totals.len().max(profile.samples.sites().len() * 4);
        if most <= 1 << NARROW {
            Self::Narrow(Grouped::of(profile, stacks, classes, progress))
        } else {
            Self::Wide(Grouped::of(profile, stacks, classes, progress))
        }
    }

    /// See [`Grouped::merge_classes`].
    pub(super) fn merge_classes(&mut self, exact: &Classes) -> Classes {
        match self {
            Self::Narrow(grouped) => grouped.merge_classes(exact),
            Self::Wide(grouped) => grouped.merge_classes(exact),
        }
    }

    /// What they will weigh as records.
    pub(super) fn weight(&self, merged: u32) -> usize {
        match self {
            Self::Narrow(grouped) => grouped.weight(merged),
            Self::Wide(grouped) => grouped.weight(merged),
        }
    }

    pub(super) fn records(&self, merged: u32) -> Vec<Record> {
        match self {
            Self::Narrow(grouped) => grouped.records(merged),
            Self::Wide(grouped) => grouped.records(merged),
        }
    }
}

impl<K: PackedKey> Grouped<K> {
    /// Two passes over the samples, and a sort of each group.
    fn of(
        profile: &Profile,
        stacks: &Stacks<'_>,
        classes: &Classes,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Self {
        let samples = &profile.samples;
        let mut counts = vec![0_u32; samples.sites().len()];
        for id in samples.ids() {
            counts[samples.site_id(id).index()] += 1;
        }
        let sites = samples.sites();
        let group_of = |number: u32| {
            let site = &sites[number as usize];
            (stacks.of(site.stack), site.type_id.0)
        };
        let mut order: Vec<u32> = (0..counts.len() as u32)
            .filter(|&number| counts[number as usize] > 0)
            .collect();
        order.sort_unstable_by_key(|&number| group_of(number));
        let mut groups: Vec<Group> = Vec::new();
        // By site: where its next key goes.
        let mut next = vec![0_u32; counts.len()];
        let mut end = 0;
        for &number in &order {
            next[number as usize] = end as u32;
            end += counts[number as usize] as usize;
            let (stack, type_id) = group_of(number);
            match groups.last_mut() {
                Some(group) if (group.stack, group.type_id) == (stack, type_id) => group.end = end,
                _ => groups.push(Group {
                    stack,
                    type_id,
                    end,
                }),
            }
        }
        drop((counts, order));
        let mut keys = vec![K::of(0); end];
        for id in samples.ids() {
            if id.index() % REPORTED == 0 {
                progress(id.index() as u64, samples.len() as u64);
            }
            let next = &mut next[samples.site_id(id).index()];
            keys[*next as usize] = key(
                samples.lifetime(id) as u32,
                classes.of(samples.shape_id(id)),
                bucket(samples.time(id), profile.end),
            );
            *next += 1;
        }
        let mut grouped = Self { groups, keys };
        grouped.each_mut(|_, keys| keys.sort_unstable());
        grouped
    }

    fn each(&self) -> impl Iterator<Item = (&Group, &[K])> {
        let mut start = 0;
        self.groups.iter().map(move |group| {
            let keys = &self.keys[start..group.end];
            start = group.end;
            (group, keys)
        })
    }

    fn each_mut(&mut self, mut with: impl FnMut(&Group, &mut [K])) {
        let mut start = 0;
        for group in &self.groups {
            with(group, &mut self.keys[start..group.end]);
            start = group.end;
        }
    }

    /// Gives all samples of one stack, type and lifetime the class of their mean.
    fn merge_classes(&mut self, exact: &Classes) -> Classes {
        let (mut classes, mut numbers): (Classes, MeanNumbers) = Classes::means();
        self.each_mut(|_, keys| {
            for together in keys.chunk_by_mut(|&one, &other| lifetime(one) == lifetime(other)) {
                let mut sum = Totals::default();
                for &key in together.iter() {
                    sum.add(&exact.totals[class(key) as usize]);
                }
                let class = classes.add_mean(&mut numbers, &sum);
                for of in together.iter_mut() {
                    let part = (of.bits() & u64::from(BUCKETS - 1)) as u32;
                    *of = key(lifetime(*of), class, part);
                }
                together.sort_unstable();
            }
        });
        classes
    }

    fn weight(&self, merged: u32) -> usize {
        let distinct = |keys: &[K], merged| Self::equal(keys, merged).count();
        self.each()
            .map(|(_, keys)| distinct(keys, merged) + GROUP_WEIGHT * distinct(keys, BUCKET_BITS))
            .sum()
    }

    /// The keys that are equal without the lowest bits.
    fn equal(keys: &[K], merged: u32) -> impl Iterator<Item = &[K]> {
        keys.chunk_by(move |one, other| one.bits() >> merged == other.bits() >> merged)
    }

    fn records(&self, merged: u32) -> Vec<Record> {
        let number = self
            .each()
            .map(|(_, keys)| Self::equal(keys, merged).count());
        let mut records = Vec::with_capacity(number.sum());
        for (group, keys) in self.each() {
            records.extend(Self::equal(keys, merged).map(|equal| Record {
                stack: group.stack,
                type_id: group.type_id,
                lifetime: lifetime(equal[0]),
                class: class(equal[0]),
                bucket: (equal[0].bits() as u32 & (BUCKETS - 1)) >> merged,
                // Sample numbers are 32 bits wide, so a count is too.
                count: equal.len() as u32,
            }));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps<K: PackedKey>() {
        let largest = ((1_u64 << K::CLASS_BITS) - 1) as u32;
        for parts in [(0, 0, 0), (3, largest, BUCKETS - 1), (2, largest - 1, 1)] {
            let made: K = key(parts.0, parts.1, parts.2);
            let part = made.bits() as u32 & (BUCKETS - 1);
            assert_eq!((lifetime(made), class(made), part), parts);
        }
    }

    #[test]
    fn a_key_has_its_parts() {
        keeps::<u32>();
        keeps::<u64>();
    }

    /// However long the keys are, the records are the same.
    #[test]
    fn both_widths_make_the_same_records() {
        let profile = super::super::data::tests::small();
        let (stacks, classes) = (Stacks::all(&profile), Classes::exact(&profile));
        let mut narrow = Grouped::<u32>::of(&profile, &stacks, &classes, &mut |_, _| {});
        let mut wide = Grouped::<u64>::of(&profile, &stacks, &classes, &mut |_, _| {});
        for merged in [0, 3, BUCKET_BITS] {
            assert_eq!(narrow.records(merged), wide.records(merged));
            assert_eq!(narrow.weight(merged), wide.weight(merged));
        }
        let (one, other) = (narrow.merge_classes(&classes), wide.merge_classes(&classes));
        assert_eq!(one.totals, other.totals);
        assert_eq!(narrow.records(0), wide.records(0));
    }
}
