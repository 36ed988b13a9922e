//! How long the collector takes, and which places feed it.
//!
//! CPython's collector runs when so many more containers were made than freed, and goes through those that are alive: so what
//! feeds it is containers that are alive when it next runs. PyPy's runs when the nursery is full, so every byte that is allocated in it
//! brings it nearer, and it copies what survives.

use std::cell::Cell;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{CollectionKind, Nanos, SampleId};
use nthbyte_profile::model::{Lifetime, ProcessId};

use super::places::{self, By, is_clear, types_text};
use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::{Estimate, Totals};
use crate::leaks::name;
use crate::text;

/// From this part of the run on, it is one of the first answers.
const LARGE: f64 = 0.1;

/// Below this part it does not matter what feeds it.
const SMALL: f64 = 0.01;

/// Types of CPython that its collector does not track: they refer to no other object, or are a part of one.
const UNTRACKED: [&str; 17] = [
    "",
    "str",
    "bytes",
    "int",
    "float",
    "complex",
    "bool",
    "bytearray",
    "range",
    "dict keys",
    "list items",
    "set table",
    "bytearray buffer",
    "deque block",
    "instance attributes",
    "code",
    "raw memory",
];

pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let profile = facts.profile;
    let (mut young, mut steps, mut nanos) = (0_u64, 0_u64, 0_u64);
    for collection in &profile.collections {
        match collection.kind {
            // Its steps are counted.
            CollectionKind::Major => continue,
            CollectionKind::MajorStep(_) => steps += 1,
            CollectionKind::Generation(_) | CollectionKind::Minor => young += 1,
        }
        nanos = nanos.saturating_add(collection.duration.0);
    }
    if young + steps == 0 {
        return None;
    }
    let part = facts.part_of_time(nanos);
    let weight = match part {
        part if part >= LARGE => weight::COLLECTOR_IS_LARGE,
        part if part >= SMALL => weight::COLLECTOR,
        _ => weight::FINE + 1,
    };
    let mut answer = facts.answer(Topic::Collector, weight, &["view"]);
    // A figure so small needs no look at each collection, which is all that the Firefox Profiler adds.
    if part < LARGE {
        answer.more.clear();
    }
    let runs = match (young, steps) {
        (1, 0) => "1 collection".to_owned(),
        (young, 0) => format!("{} collections", text::grouped(young)),
        (young, steps) => format!(
            "{} minor collections and {} steps of major ones",
            text::grouped(young),
            text::grouped(steps)
        ),
    };
    let whose = if profile.processes.len() > 1 {
        "that the processes ran"
    } else {
        "of the run"
    };
    answer.say(format!(
        "The collector takes {} of the time {whose}: {runs} in {}.",
        text::percent(part),
        text::duration(nanos)
    ));
    answer.figure("seconds", Estimate::exact(nanos as f64 / 1e9));
    answer.figure("share", Estimate::exact(part));
    answer.figure("collections", Estimate::exact((young + steps) as f64));
    if part >= SMALL {
        feeds(facts, &mut answer);
    }
    if part >= LARGE && facts.profile.meta.interpreter.starts_with("CPython") {
        answer.say(
            "What stays is left out of its work by gc.freeze(); gc.set_threshold() makes it run less often."
                .to_owned(),
        );
    }
    Some(answer)
}

/// The place that feeds the collector most.
fn feeds(facts: &Facts<'_>, answer: &mut Answer) {
    let profile = facts.profile;
    let samples = &profile.samples;
    let knows_frees = crate::selection::lifetimes_are_known(profile);
    let starts = knows_frees.then(|| Starts::of(profile));
    let shapes = samples.shapes().iter();
    let is_collected: Vec<bool> = shapes
        .map(|shape| profile.knowledge_of(shape.sampling).is_collected)
        .collect();
    let types = profile.types.iter();
    let is_tracked: Vec<bool> = types
        .map(|names| !UNTRACKED.contains(&names.name.as_str()))
        .collect();
    let counts = |id: SampleId| {
        is_collected[samples.shape_id(id).0 as usize]
            && match &starts {
                Some(starts) => {
                    is_tracked[samples.type_id(id).index()] && starts.has_met(profile, id)
                }
                None => samples.lifetime(id) == Lifetime::Survived,
            }
    };
    let sums = facts
        .places
        .sums(|id| counts(id).then(|| facts.places.totals(id)));
    let estimator = &facts.aggregate.estimator;
    let figure = |sum: &Totals| match knows_frees {
        true => estimator.allocations(sum),
        false => estimator.bytes(sum),
    };
    let lines = facts.places.group(&sums, By::OwnLine).into_iter();
    let mut lines = places::ranked(lines.map(|(key, sum)| (key, figure(&sum))));
    let clear = is_clear(&lines);
    lines.sort_by(|one, other| other.figure.low.total_cmp(&one.figure.low));
    let Some(first) = lines.first() else {
        return;
    };
    let mut all = Totals::default();
    sums.iter().for_each(|(_, sum)| all.add(sum));
    let whole = figure(&all);
    let place = facts.places.place(first.key);
    let than = match clear {
        true => format!(", more than for any other {}", places::noun(first.key)),
        false => String::new(),
    };
    let at = facts.places.at(first.key, By::OwnLine);
    let here = |id: SampleId| {
        let is_here = at[samples.site_id(id).index()] && counts(id);
        is_here.then(|| facts.places.totals(id))
    };
    let types = types_text(&facts.places.types(here));
    let (made, of) = if knows_frees {
        answer.figure("objects", whole);
        answer.figure("line_objects", first.figure);
        let of = format!(
            "{} containers that were alive when it next ran",
            facts.count(&whole)
        );
        (facts.count(&first.figure), of)
    } else {
        answer.figure("survived_bytes", whole);
        answer.figure("line_survived_bytes", first.figure);
        let of = format!("{} that survived it", of_bytes(&whole));
        (of_bytes(&first.figure), of)
    };
    answer.say(format!(
        "Of the {of}, {made} were made for {}{than}; of their bytes, {types}.",
        name(&place)
    ));
    answer.places.push(place);
}

/// When the youngest generation was collected.
struct Starts {
    /// By process.
    of: Vec<Vec<Nanos>>,
    /// The last one that was found: samples are nearly in the order of time.
    last: Cell<usize>,
}

impl Starts {
    fn of(profile: &Profile) -> Self {
        let mut of = vec![Vec::new(); profile.processes.len().max(1)];
        for collection in profile.collections.iter().filter(|of| of.kind.ends_youth()) {
            let process = profile.process_of(collection.thread);
            if let Some(starts) = of.get_mut(process.index()) {
                starts.push(collection.start);
            }
        }
        of.iter_mut().for_each(|starts| starts.sort_unstable());
        let last = Cell::new(0);
        Self { of, last }
    }

    /// Whether the object was alive when the collector next ran after its allocation.
    fn has_met(&self, profile: &Profile, id: SampleId) -> bool {
        let samples = &profile.samples;
        let process: ProcessId = profile.process_of(samples.thread(id));
        let starts = self.of.get(process.index()).map_or(&[][..], Vec::as_slice);
        let born = samples.time(id);
        let is_next = |next: usize| {
            let is_before = |at: usize| starts.get(at).is_none_or(|&start| start < born);
            (next == 0 || is_before(next - 1)) && starts.get(next).is_some_and(|&at| at >= born)
        };
        if !is_next(self.last.get()) {
            self.last.set(starts.partition_point(|&start| start < born));
        }
        starts
            .get(self.last.get())
            .is_some_and(|&start| samples.freed(id).is_none_or(|freed| freed >= start))
    }
}
