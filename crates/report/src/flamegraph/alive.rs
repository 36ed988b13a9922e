//! What was alive: at the peak and at a moment that was asked for, and at the end of each part of time.
//!
//! A *snapshot* counts the samples that were alive at its moment by stack, type, lifetime and class. At the peak it has the half of
//! the samples that did not find the moment, so it has the figures and intervals of all other reports ([`crate::selection`]).
//!
//! What was alive at the end of a part of time follows from *changes*: a sample that is not alive at the end of the session adds
//! one in the part in which it was allocated and takes one away in the part in which it was freed. A sample that lives within a part adds
//! nothing. A sample that is alive at the end is one of the page's records already; it only has a change where its process ended
//! earlier. So changes are few unless much of the live memory comes and goes.
//!
//! Both have a limit: first parts of time are merged, then classes, and then small groups count as their callers'.

use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;
use nthbyte_profile::model::Lifetime;

use super::prune::Stacks;
use super::records::{BUCKETS, GROUP_WEIGHT, bucket};
use super::table::Table;
use crate::estimate::{Moments, Totals};
use crate::selection::{Alive, Lives, Moment};

/// Parts of time are merged down to this number before classes are merged, and before small groups count as their callers'.
const FEWEST_PARTS: u32 = 16;

/// What a kind of samples weighs that the page has for nothing else.
const KIND_WEIGHT: usize = 4;

/// The name of the type of small groups, of any type.
pub const SMALLER: &str = "smaller allocations";

/// A change of the number of live samples with these properties in a part of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Index of the stack in the page's tables.
    pub stack: u32,
    /// Index of the type; the number of types for [`SMALLER`].
    pub type_id: u32,
    /// The lifetime's discriminant.
    pub lifetime: u32,
    /// The class in the [`Table`].
    pub class: u32,
    /// The part of time, from 0.
    pub part: u32,
    /// How many more samples are alive at its end than at its start.
    pub change: i32,
}

/// Changes in so many parts of time.
#[derive(Debug)]
pub struct Changes {
    /// Number of parts of time, a power of two.
    pub parts: u32,
    /// In the order of stacks and types.
    pub all: Vec<Change>,
    /// Whether sizes of one stack, type and lifetime count as their mean.
    pub merged: bool,
    /// Whether small groups count as their callers'.
    pub carried: bool,
}

/// A sample that is alive at the end of a part of time, or at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    stack: u32,
    type_id: u32,
    lifetime: u32,
    /// The index of what one sample adds, in the [`Events`].
    kind: u32,
    part: u16,
    /// How many come, less how many go.
    change: i32,
}

/// From so many events on equal ones are added up, and parts of time are merged if twice as many are left: memory is in proportion to
/// what the page can show, not to the samples.
const MOST_EVENTS: usize = 1 << 18;

/// Events, and what one sample of each kind adds.
struct Events {
    all: Vec<Event>,
    kinds: Vec<Totals>,
    /// What a kind weighs.
    kind_weight: usize,
    /// Number of parts of time, and how often they were halved.
    parts: u32,
    halved: u32,
    /// From so many on, they are added up.
    most: usize,
}

/// What was alive at a moment.
pub fn snapshot(
    profile: &Profile,
    stacks: &Stacks<'_>,
    moment: Moment,
    limit: usize,
    table: &mut Table,
) -> Changes {
    let alive = Alive::at(profile, moment);
    let samples = &profile.samples;
    // A shape has at most two kinds: the points of a sample are divided between the halves.
    let mut kinds: Vec<[Option<u32>; 2]> = vec![[None; 2]; samples.shapes().len()];
    let mut events = Events {
        all: Vec::new(),
        kinds: Vec::new(),
        kind_weight: KIND_WEIGHT,
        parts: 1,
        halved: 0,
        most: 2 * MOST_EVENTS,
    };
    for id in samples.ids() {
        let Some(totals) = alive.totals(id) else {
            continue;
        };
        let known = &mut kinds[samples.shape_id(id).0 as usize];
        let found = known.iter().flatten().copied();
        let kind = found
            .into_iter()
            .find(|&kind| events.kinds[kind as usize] == *totals)
            .unwrap_or_else(|| {
                let kind = events.kinds.len() as u32;
                events.kinds.push(*totals);
                let place = known.iter_mut().find(|place| place.is_none());
                if let Some(place) = place {
                    *place = Some(kind);
                }
                kind
            });
        events.push(Event {
            stack: stacks.of(samples.stack(id)),
            type_id: samples.type_id(id).0,
            lifetime: samples.lifetime(id) as u32,
            kind,
            part: 0,
            change: 1,
        });
    }
    events.fit(profile, stacks, limit, table)
}

/// What comes and goes between the ends of `parts` parts of time. `has_shapes`: the table has a class for each shape.
pub fn changes(
    profile: &Profile,
    stacks: &Stacks<'_>,
    has_shapes: bool,
    parts: u32,
    limit: usize,
    table: &mut Table,
) -> Changes {
    let lives = Lives::of(profile);
    let samples = &profile.samples;
    let mut events = Events {
        all: Vec::new(),
        kinds: Totals::of_shapes(profile),
        kind_weight: if has_shapes { 0 } else { KIND_WEIGHT },
        parts,
        halved: 0,
        most: 2 * MOST_EVENTS,
    };
    let merged = (BUCKETS / parts).trailing_zeros();
    for id in samples.ids() {
        let Some((from, to)) = lives.life_of(samples, id) else {
            continue;
        };
        let lifetime = samples.lifetime(id);
        let part = |time: Nanos| bucket(time, profile.end) >> merged;
        let is_still_live = lifetime == Lifetime::StillLive;
        let (born, died) = (part(from), to.map(part));
        if died.is_none_or(|died| died == born && !is_still_live) {
            continue;
        }
        let event = |part: u32, change| Event {
            stack: stacks.of(samples.stack(id)),
            type_id: samples.type_id(id).0,
            lifetime: lifetime as u32,
            kind: samples.shape_id(id).0,
            part: part as u16,
            change,
        };
        if !is_still_live {
            events.push(event(born, 1));
        }
        if let Some(died) = died {
            events.push(event(died, -1));
        }
    }
    events.fit(profile, stacks, limit, table)
}

impl Events {
    /// Merges as little as the limit needs.
    fn fit(
        mut self,
        profile: &Profile,
        stacks: &Stacks<'_>,
        limit: usize,
        table: &mut Table,
    ) -> Changes {
        let mut changes = Changes {
            parts: 0,
            all: Vec::new(),
            merged: false,
            carried: false,
        };
        self.add_up();
        while self.weight(limit) > limit {
            if self.parts > FEWEST_PARTS {
                self.halve();
            } else if !changes.merged {
                changes.merged = true;
                self.merge_kinds();
            } else {
                changes.carried = true;
                let mut room = limit / 2;
                self.carry(profile, stacks, room);
                while self.weight(limit) > limit && room > 0 {
                    room /= 2;
                    self.carry(profile, stacks, room);
                }
                break;
            }
        }
        changes.parts = self.parts;
        let mut classes: Vec<Option<u32>> = vec![None; self.kinds.len()];
        changes.all = self
            .all
            .iter()
            .map(|event| Change {
                stack: event.stack,
                type_id: event.type_id,
                lifetime: event.lifetime,
                class: *classes[event.kind as usize]
                    .get_or_insert_with(|| table.class(&self.kinds[event.kind as usize])),
                part: event.part.into(),
                change: event.change,
            })
            .collect();
        changes
    }

    fn push(&mut self, mut event: Event) {
        if self.all.len() >= self.most {
            self.add_up();
            while self.all.len() > MOST_EVENTS && self.parts > FEWEST_PARTS {
                self.halve();
            }
            // Each pass is paid for by as many events.
            self.most = 2 * self.all.len().max(MOST_EVENTS);
        }
        event.part >>= self.halved;
        self.all.push(event);
    }

    /// Makes one event of those that are equal but for their changes, in order, and forgets those without a change.
    fn add_up(&mut self) {
        self.all.sort_unstable();
        self.all.dedup_by(|next, first| {
            let is_same =
                key(next) == key(first) && (next.kind, next.part) == (first.kind, first.part);
            if is_same {
                first.change += next.change;
            }
            is_same
        });
        self.all.retain(|event| event.change != 0);
    }

    /// Merges neighbouring parts of time.
    fn halve(&mut self) {
        self.parts /= 2;
        self.halved += 1;
        self.all.iter_mut().for_each(|event| event.part /= 2);
        self.add_up();
    }

    /// As much as [records](super::records) weigh, and new kinds of samples more; counted up to just above a limit. What cannot be
    /// merged does not count.
    fn weight(&self, limit: usize) -> usize {
        let mut weight = 0;
        let mut last = None;
        let mut is_known = vec![false; self.kinds.len()];
        for event in self.all.iter().filter(|event| !takes_from_records(event)) {
            weight += 1;
            let group = Some((key(event), event.kind));
            if group != last {
                weight += GROUP_WEIGHT;
                last = group;
            }
            if !std::mem::replace(&mut is_known[event.kind as usize], true) {
                weight += self.kind_weight;
            }
            if weight > limit {
                break;
            }
        }
        weight
    }

    /// Gives all samples of one stack, type and lifetime their mean. The added and the removed samples are the same, so sums
    /// over whole lives stay.
    fn merge_kinds(&mut self) {
        self.kind_weight = KIND_WEIGHT;
        let mut kinds = Vec::new();
        for group in self.all.chunk_by_mut(|one, other| key(one) == key(other)) {
            if takes_from_records(&group[0]) {
                for equal in group.chunk_by_mut(|one, other| one.kind == other.kind) {
                    let kind = kinds.len() as u32;
                    kinds.push(mean(&self.kinds[equal[0].kind as usize]));
                    equal.iter_mut().for_each(|event| event.kind = kind);
                }
                continue;
            }
            let mut sum = Totals::default();
            for event in group.iter_mut() {
                let each = mean(&self.kinds[event.kind as usize]);
                sum.add(&times(&each, event.change.unsigned_abs()));
                event.kind = kinds.len() as u32;
            }
            kinds.push(sum);
        }
        self.kinds = kinds;
        self.add_up();
    }

    /// Lets the groups that are never large count as groups of their nearest caller that has a large one below it. The large ones
    /// weigh no more than `room`.
    fn carry(&mut self, profile: &Profile, stacks: &Stacks<'_>, mut room: usize) {
        let mut groups: Vec<(f64, usize, usize)> = Vec::new();
        let mut start = 0;
        for group in self.all.chunk_by(|one, other| key(one) == key(other)) {
            if !takes_from_records(&group[0]) {
                groups.push((self.most(group), start, start + group.len()));
            }
            start += group.len();
        }
        groups.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let smaller = profile.types.len() as u32;
        let mut is_kept: Vec<bool> = (0..stacks.nodes.len())
            .map(|stack| stacks.is_group(stack))
            .collect();
        let kept = groups
            .iter()
            .take_while(|&&(_, first, end)| {
                let cells = end - first + GROUP_WEIGHT + KIND_WEIGHT;
                let fits = room >= cells;
                room = room.saturating_sub(cells);
                fits
            })
            .count();
        for &(_, first, _) in &groups[..kept] {
            let mut stack = self.all[first].stack as usize;
            while !is_kept[stack] {
                is_kept[stack] = true;
                stack = stacks.nodes[stack].parent.index();
            }
        }
        // Parents come before their children.
        let mut nearest = vec![0_u32; is_kept.len()];
        for stack in 1..is_kept.len() {
            nearest[stack] = match is_kept[stack] {
                true => stack as u32,
                false => nearest[stacks.nodes[stack].parent.index()],
            };
        }
        for &(_, first, end) in &groups[kept..] {
            for event in &mut self.all[first..end] {
                event.stack = nearest[event.stack as usize];
                event.type_id = smaller;
            }
        }
        self.all.sort_unstable();
        self.merge_kinds();
    }

    /// The most bytes of a group that are alive at the end of a part.
    fn most(&self, group: &[Event]) -> f64 {
        let mut by_part: Vec<(u16, f64)> = group
            .iter()
            .map(|event| {
                let each = mean(&self.kinds[event.kind as usize]).bytes.estimate;
                (event.part, f64::from(event.change) * each)
            })
            .collect();
        by_part.sort_unstable_by_key(|&(part, _)| part);
        let (mut alive, mut most) = (0.0_f64, 0.0_f64);
        for together in by_part.chunk_by(|one, other| one.0 == other.0) {
            alive += together.iter().map(|&(_, bytes)| bytes).sum::<f64>();
            most = most.max(alive.abs());
        }
        most
    }
}

/// Whether it takes away what the page's records have added: what an ended process had. So it is taken where and as it was added.
const fn takes_from_records(event: &Event) -> bool {
    event.change < 0 && event.lifetime == Lifetime::StillLive as u32
}

fn key(event: &Event) -> (u32, u32, u32) {
    (event.stack, event.type_id, event.lifetime)
}

/// What one sample of a sum adds.
fn mean(sum: &Totals) -> Totals {
    Totals {
        samples: 1,
        ..scaled(sum, 1.0 / sum.samples.max(1) as f64)
    }
}

/// The sum over so many samples that add the same.
fn times(each: &Totals, samples: u32) -> Totals {
    Totals {
        samples: samples.into(),
        ..scaled(each, samples.into())
    }
}

fn scaled(sum: &Totals, by: f64) -> Totals {
    let of = |moments: &Moments| Moments {
        estimate: moments.estimate * by,
        seen: moments.seen * by,
        variance: moments.variance * by,
        third: moments.third * by,
    };
    Totals {
        samples: sum.samples,
        bytes: of(&sum.bytes),
        allocations: of(&sum.allocations),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nthbyte_profile::event::{ThreadId, TypeId};
    use nthbyte_profile::model::{ProcessId, Sample, Samples, Shape, ThreadNames};
    use proptest::prelude::*;

    use super::super::data::tests::small;
    use super::super::pack::Columns;
    use super::*;

    /// The small profile with other samples: when each is allocated and freed (not at all if that is too late), and its size. Every
    /// fifth is of a process that ends after two thirds of the session, if it is allocated before that.
    fn profile(lives: &[(u64, u64, u64)]) -> Profile {
        let mut profile = small();
        let first: Sample = profile.samples.iter().next().expect("there are samples");
        profile.samples = Samples::default();
        let mut child = profile.processes[0].clone();
        child.end = Nanos(profile.end.0 * 2 / 3);
        profile.processes[0].end = profile.end;
        profile.processes.push(child.clone());
        let thread = ThreadNames {
            name: String::new(),
            os_id: 1,
        };
        profile.threads = vec![thread.clone(), thread];
        profile.thread_processes = vec![ProcessId(0), ProcessId(1)];
        for (at, &(time, age, size)) in lives.iter().enumerate() {
            let is_of_child = at % 5 == 0 && Nanos(time) < child.end;
            let end = if is_of_child { child.end } else { profile.end };
            let freed = Some(Nanos(time + age)).filter(|&time| time < end);
            let size = 1 + size * 100;
            let sample = Sample {
                time: Nanos(time),
                thread: ThreadId(is_of_child.into()),
                stack: nthbyte_profile::event::NodeId(1 + (at % 2) as u32),
                type_id: TypeId((at % 3) as u32),
                shape: Shape {
                    size,
                    block: size,
                    ..first.shape
                },
                lifetime: match freed {
                    None => Lifetime::StillLive,
                    Some(_) if age < 100 => Lifetime::DiedYoung,
                    Some(_) => Lifetime::Freed,
                },
                freed,
                ..first
            };
            profile.samples.push(sample).expect("there is room");
        }
        profile
    }

    /// By stack, type and lifetime: samples and bytes.
    type Sums = BTreeMap<(u32, u32, u32), (i64, f64)>;

    fn add(sums: &mut Sums, key: (u32, u32, u32), samples: i64, bytes: f64) {
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + samples, sum.1 + samples as f64 * bytes);
        if sum.0 == 0 {
            sums.remove(&key);
        }
    }

    /// What was alive, sample by sample.
    fn alive(profile: &Profile, moment: Moment) -> Sums {
        let mut sums = Sums::new();
        let alive = Alive::at(profile, moment);
        for id in profile.samples.ids() {
            if let Some(totals) = alive.totals(id) {
                let sample = profile.samples.get(id);
                let key = (sample.stack.0, sample.type_id.0, sample.lifetime as u32);
                add(&mut sums, key, 1, totals.bytes.estimate);
            }
        }
        sums
    }

    /// The same from the page's data: the live samples at the end and the changes, before a part of time.
    fn by_changes(profile: &Profile, changes: &Changes, table: &Table, before: u32) -> Sums {
        let mut sums = Sums::new();
        let totals = Totals::of_shapes(profile);
        for id in profile.samples.ids() {
            let sample = profile.samples.get(id);
            let part = bucket(sample.time, profile.end) / (BUCKETS / changes.parts);
            if sample.lifetime == Lifetime::StillLive && part < before {
                let bytes = totals[profile.samples.shape_id(id).0 as usize]
                    .bytes
                    .estimate;
                let key = (sample.stack.0, sample.type_id.0, sample.lifetime as u32);
                add(&mut sums, key, 1, bytes);
            }
        }
        for of in changes.all.iter().filter(|of| of.part < before) {
            let key = (of.stack, of.type_id, of.lifetime);
            add(&mut sums, key, of.change.into(), table.bytes(of.class));
        }
        sums
    }

    fn near(one: &Sums, other: &Sums) -> bool {
        one.len() == other.len()
            && one.iter().zip(other).all(|((key, a), (other, b))| {
                key == other && a.0 == b.0 && (a.1 - b.1).abs() <= 1e-6 * a.1.abs().max(1.0)
            })
    }

    fn bytes(sums: &Sums) -> f64 {
        sums.values().map(|sum| sum.1).sum()
    }

    proptest! {
        /// At the end of each part, the live samples at the end of the session and the changes before it are what was
        /// alive.
        #[test]
        fn changes_add_up_to_what_was_alive(
            lives in prop::collection::vec((0_u64..1000, 0_u64..1400, 0_u64..4), 1..120),
        ) {
            let profile = profile(&lives);
            let stacks = Stacks::all(&profile);
            let mut table = Table::new(1);
            let changes = changes(&profile, &stacks, true, BUCKETS, usize::MAX, &mut table);
            prop_assert_eq!(changes.parts, BUCKETS);
            for part in [1, 7, 100, 255, BUCKETS] {
                let next = (profile.end.0 * u64::from(part)).div_ceil(BUCKETS.into());
                let expected = alive(&profile, Moment::Time(Nanos(next - 1)));
                let found = by_changes(&profile, &changes, &table, part);
                prop_assert!(near(&found, &expected), "{part}: {found:?} {expected:?}");
            }
        }

        /// However little a snapshot may weigh, its sums are the sums of all samples.
        #[test]
        fn a_snapshot_keeps_its_sum(
            lives in prop::collection::vec((0_u64..1000, 0_u64..1400, 0_u64..4), 1..120),
            limit in 0_usize..60,
        ) {
            let profile = profile(&lives);
            let stacks = Stacks::all(&profile);
            for moment in [Moment::Time(Nanos(500)), Moment::Found(Nanos(500))] {
                let expected = alive(&profile, moment);
                let mut table = Table::new(1);
                let snapshot = snapshot(&profile, &stacks, moment, limit, &mut table);
                let mut found = Sums::new();
                for of in &snapshot.all {
                    let key = (of.stack, of.type_id, of.lifetime);
                    add(&mut found, key, of.change.into(), table.bytes(of.class));
                }
                prop_assert!((bytes(&found) - bytes(&expected)).abs() <= 1e-9 * bytes(&expected));
                let samples = |sums: &Sums| sums.values().map(|sum| sum.0).sum::<i64>();
                prop_assert_eq!(samples(&found), samples(&expected));
                if !snapshot.carried {
                    prop_assert!(near(&found, &expected), "{found:?} {expected:?}");
                }
            }
        }
    }

    /// With less and less room: first parts of time are merged, then sizes, then small groups; and the sum stays at the last end.
    #[test]
    fn less_room_makes_moments_coarser() {
        let lives: Vec<(u64, u64, u64)> = (0..800)
            .map(|at| (at, 300 + at % 7 * 10, at % 40))
            .collect();
        let profile = profile(&lives);
        let stacks = Stacks::all(&profile);
        let of = |limit| {
            let mut table = Table::new(1);
            let changes = changes(&profile, &stacks, false, BUCKETS, limit, &mut table);
            let mut columns = Columns::default();
            table.write("", &mut columns);
            (changes, table, columns)
        };
        let (all, ..) = of(usize::MAX);
        assert_eq!(
            (all.parts, all.merged, all.carried),
            (BUCKETS, false, false)
        );
        let mut before = all.all.len();
        let mut steps = Vec::new();
        for limit in [900, 500, 160, 20] {
            let (changes, table, _) = of(limit);
            // What ended processes had does not become less.
            let live = Lifetime::StillLive as u32;
            let changed = changes.all.iter().filter(|of| of.lifetime != live).count();
            assert!(changed <= before && changed <= limit);
            before = changed;
            steps.push((changes.parts < BUCKETS, changes.merged, changes.carried));
            let end = alive(&profile, Moment::Time(Nanos(profile.end.0 - 1)));
            let found = by_changes(&profile, &changes, &table, changes.parts);
            assert!((bytes(&found) / bytes(&end) - 1.0).abs() < 1e-6);
        }
        assert!(steps.is_sorted(), "{steps:?}");
        assert!(steps[0].0);
        assert_eq!(steps[3], (true, true, true));
    }
}
