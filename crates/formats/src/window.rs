//! A window of a recording that goes on: what was allocated in it, and is in use at its end.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{LabelSetId, Nanos, NodeId, TypeId};
use nthbyte_profile::model::{Lifetime, ProcessId};

use crate::meter::Meter;

/// A part of a profile's time. In use are blocks that were allocated before its end and not freed until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first moment, in the profile's time.
    pub since: Nanos,
    /// The first moment after it.
    pub until: Nanos,
}

impl Window {
    pub(crate) fn has(&self, time: Nanos) -> bool {
        self.since <= time && time < self.until
    }
}

/// A stack, the type of what it allocated (time samples have none), the process, and the labels.
pub(crate) type Key = (NodeId, Option<TypeId>, ProcessId, LabelSetId);

/// Sums over the samples of one stack and type.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) allocations: f64,
    pub(crate) bytes: f64,
    pub(crate) in_use: f64,
    pub(crate) in_use_bytes: f64,
    pub(crate) time_samples: u64,
}

/// Ordered by stack and type, so that equal profiles give equal files. Of a window, if one is given.
pub(crate) fn sum(
    profile: &Profile,
    window: Option<Window>,
    meter: &Meter<'_>,
) -> Vec<(Key, Sums)> {
    let samples = &profile.samples;
    let weights = profile.shape_weights();
    let is_new = |time: Nanos| window.is_none_or(|window| window.has(time));
    let is_in_use = |id, time: Nanos| {
        let is_left = match samples.lifetime(id) {
            Lifetime::StillLive | Lifetime::Survived => true,
            Lifetime::DiedYoung | Lifetime::Freed => samples
                .freed(id)
                .zip(window)
                .is_some_and(|(freed, window)| freed >= window.until),
        };
        is_left && window.is_none_or(|window| time < window.until)
    };
    let mut sums: HashMap<Key, Sums, RandomState> = HashMap::default();
    for id in samples.ids() {
        meter.step();
        let time = samples.time(id);
        let (is_in_use, is_new) = (is_in_use(id, time), is_new(time));
        if !is_in_use && !is_new {
            continue;
        }
        let weight = weights[samples.shape_id(id).0 as usize];
        let process = profile.process_of(samples.thread(id));
        let type_id = Some(samples.type_id(id));
        let key = (samples.stack(id), type_id, process, samples.labels(id));
        let sums = sums.entry(key).or_default();
        if is_new {
            sums.allocations += weight.allocations;
            sums.bytes += weight.bytes;
        }
        if is_in_use {
            sums.in_use += weight.allocations;
            sums.in_use_bytes += weight.bytes;
        }
    }
    for sample in profile.cpu.iter().filter(|sample| is_new(sample.time)) {
        let process = profile.process_of(sample.thread);
        let key = (sample.stack, None, process, sample.labels);
        let sums = sums.entry(key).or_default();
        sums.time_samples += 1;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    sums
}
