//! Who holds what was allocated under a label.
//!
//! Only the recording's samples have labels: so amounts are of its samples that the snapshot knows, and not of the blocks
//! that it drew. Of sampled blocks of the heap that it did not draw, a snapshot has a few thousand at most, by chance; the
//! weights of those that it has allow for it.

use nthbyte_profile::event::{LabelSetId, SampleId};
use nthbyte_profile::holders::{Held, Snapshot};
use nthbyte_profile::{Domain, NO_LABEL, Profile};

use super::amounts::Amounts;
use super::{ByLabel, HolderRow, HoldersAsked, HoldersError, OfLabel, rows};
use crate::estimate::{Moments, Totals};
use crate::periods;
use crate::selection::{Lives, Moment, Selection};
use crate::text;

/// Values that have rows, and holders of each.
const MOST_VALUES: usize = 20;
const MOST_HOLDERS: usize = 3;
/// With fewer blocks of the heap that were not drawn, a snapshot has all of them.
const ALL: usize = 3_500;

/// Why labels cannot be told.
pub const NONE: &str = "it knows none of the recording's samples";

/// The recording's samples in a snapshot.
pub struct Labelled<'a> {
    profile: &'a Profile,
    snapshot: &'a Snapshot,
    /// Whether each label set is asked for; `None`: all are.
    selected: Option<Vec<bool>>,
    /// The part that the snapshot has of the sampled blocks that it did not draw.
    taken: f64,
}

impl<'a> Labelled<'a> {
    /// `None` if nothing is asked about labels.
    pub fn of(
        profile: &'a Profile,
        process: usize,
        snapshot: &'a Snapshot,
        asked: &HoldersAsked<'_>,
    ) -> Result<Option<Self>, HoldersError> {
        if asked.labels.is_empty() && asked.by.is_none() {
            return Ok(None);
        }
        let selection = Selection {
            labels: asked.labels.to_vec(),
            ..Selection::default()
        };
        let selected = selection.label_sets(profile)?;
        let is_pypy = profile.processes[process].meta.is_pypy();
        if is_pypy || !snapshot.samples.iter().any(|of| of.recorded.is_some()) {
            let why = match is_pypy {
                true => "on PyPy it knows samples of old, small objects only",
                false => NONE,
            };
            return Err(HoldersError::NoSamples(why));
        }
        Ok(Some(Self {
            profile,
            snapshot,
            selected,
            taken: taken(profile, process, snapshot),
        }))
    }

    pub fn is_selected(&self, set: LabelSetId) -> bool {
        let selected = self.selected.as_ref();
        selected.is_none_or(|sets| sets[set.index()])
    }

    /// The snapshot with the samples of some label sets only.
    pub fn part(&self, is_wanted: impl Fn(LabelSetId) -> bool) -> Snapshot {
        let is_wanted = |of: &&Held| {
            let sample = of.recorded;
            sample.is_some_and(|sample| is_wanted(self.profile.samples.labels(sample)))
        };
        let samples = self.snapshot.samples.iter().filter(is_wanted).copied();
        Snapshot {
            samples: samples.collect(),
            ..self.snapshot.clone()
        }
    }

    /// What each node holds of a part.
    pub fn amounts(&self, part: &Snapshot) -> Amounts {
        let heaviest = periods::longest(self.profile) / self.taken;
        Amounts::weighed(self.profile, part, heaviest, |of| {
            of.recorded
                .map_or_else(Moments::default, |sample| self.weight(of, sample))
        })
    }

    /// The bytes that a sample stands for.
    fn weight(&self, of: &Held, sample: SampleId) -> Moments {
        let samples = &self.profile.samples;
        let shape = samples.shape(samples.shape_id(sample));
        let is_of_heap = of.is_drawn || !of.counts;
        if self.taken >= 1.0 || !is_of_heap {
            return Totals::of_sample(self.profile, shape).bytes;
        }
        let drawn = self.snapshot.weight(of).probability;
        let is_there = drawn + (1.0 - drawn) * self.taken;
        let weight = self.profile.sampling(shape.sampling).weight(&shape);
        Moments::of_sample(
            shape.size as f64,
            weight.bytes / is_there,
            weight.probability * is_there,
        )
    }

    /// A row for each value of a label. `part`: the selected part, with its amounts.
    pub fn by_value(&self, key: &str, part: &Snapshot, amounts: &Amounts) -> ByLabel {
        let found = self.profile.label_values(key);
        let none = found.values.len();
        let value_of = |set| found.of(set).unwrap_or(none);
        let mut sums = vec![Moments::default(); none + 1];
        for (of, moments) in part.samples.iter().zip(&amounts.of_samples) {
            if let Some(sample) = of.recorded {
                sums[value_of(self.profile.samples.labels(sample))].add(moments);
            }
        }
        let mut order: Vec<usize> = (0..sums.len()).collect();
        order.retain(|&value| sums[value].estimate > 0.0);
        order.sort_by(|&one, &other| sums[other].estimate.total_cmp(&sums[one].estimate));
        order.truncate(MOST_VALUES);
        let row = |value: usize| {
            let own = self.part(|set| self.is_selected(set) && value_of(set) == value);
            let held = rows::of(self.profile, &own, &self.amounts(&own)).into_iter();
            let of_all = |mut row: HolderRow| {
                row.share = row.bytes.estimate / amounts.all.estimate.max(1.0);
                row
            };
            OfLabel {
                value: text::clean(found.values.get(value).copied().unwrap_or(NO_LABEL)),
                bytes: amounts.estimate(&sums[value]),
                share: amounts.share(&sums[value]),
                holders: held
                    .take(MOST_HOLDERS)
                    .map(|row| of_all(row.shown))
                    .collect(),
            }
        };
        ByLabel {
            key: key.to_owned(),
            rows: order.into_iter().map(row).collect(),
        }
    }
}

/// The part that a snapshot has of the sampled blocks of the heap that were alive and that it did not draw.
fn taken(profile: &Profile, process: usize, snapshot: &Snapshot) -> f64 {
    let has = |what: &dyn Fn(&Held, SampleId) -> bool| {
        let recorded = snapshot.samples.iter();
        recorded
            .filter(|of| of.recorded.is_some_and(|sample| what(of, sample)))
            .count()
    };
    let others = has(&|of, _| !of.is_drawn && !of.counts);
    if others < ALL {
        return 1.0;
    }
    let is_native = |sample| profile.domain(sample) == Domain::Native;
    let besides = has(&|of, sample| of.is_drawn || of.counts && !is_native(sample));
    let lives = Lives::of(profile);
    let moment = Moment::Time(snapshot.time);
    let is_of_process = |sample| {
        let thread = profile.samples.thread(sample);
        profile.process_of(thread).index() == process
    };
    let alive = profile.samples.ids().filter(|&sample| {
        !is_native(sample) && is_of_process(sample) && lives.has(&profile.samples, sample, moment)
    });
    let there = alive.count().saturating_sub(besides).max(others);
    others as f64 / there as f64
}
