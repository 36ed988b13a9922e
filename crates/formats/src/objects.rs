//! The times at which sampled objects were allocated and freed, for views of retained memory.
//!
//! Like a [timeline](crate::timeline), but a row has two ends. Up to a limit a row is one sampled
//! object. Above the limit, objects of one key are one row if they were allocated in the same bucket
//! of time and freed in the same bucket. Objects of a source that does not record their ends are left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;
use nthbyte_profile::event::{Nanos, SampleId, ThreadId};
use nthbyte_profile::model::Lifetime;
use nthbyte_profile::{Lifetimes, Profile};

use crate::rounding::Rounding;

const FINEST_BUCKETS: u64 = 1 << 12;

/// A sampled object, or several merged ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Object {
    pub thread: ThreadId,
    pub key: u32,
    /// The first allocation.
    pub allocated: Nanos,
    /// The first deallocation; `None` if there was none, or if it was not recorded.
    pub freed: Option<Nanos>,
    /// Estimated bytes.
    pub bytes: f64,
}

/// An allocation or a deallocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub time: Nanos,
    pub key: u32,
    /// Positive for an allocation, negative for a deallocation.
    pub bytes: i64,
    /// The object's number, the same for both.
    pub object: u32,
}

/// All objects of a profile.
pub(crate) struct Objects {
    list: Vec<Object>,
    /// The width of the buckets; `None` if objects were not merged.
    pub bucket: Option<Nanos>,
}

impl Objects {
    /// `keys` has one for each sample.
    pub fn of(profile: &Profile, keys: &[u32], limit: usize) -> Self {
        if profile.samples.len() <= limit {
            let list = each(profile, keys).collect();
            return Self { list, bucket: None };
        }
        let mut buckets = FINEST_BUCKETS;
        loop {
            let width = Nanos((profile.end.0 / buckets).max(1));
            // One bucket gives the smallest possible number of rows.
            let limit = if buckets == 1 { usize::MAX } else { limit };
            if let Some(list) = merge(profile, keys, width, limit) {
                let bucket = Some(width);
                return Self { list, bucket };
            }
            buckets = (buckets / 8).max(1);
        }
    }

    /// The allocations and deallocations of each thread's objects, ordered by time.
    pub fn changes(&self, threads: usize, keys: usize) -> Vec<Vec<Change>> {
        let mut rounding = Rounding::new(keys);
        let mut changes = vec![Vec::new(); threads];
        for (number, object) in self.list.iter().enumerate() {
            let bytes = i64::try_from(rounding.whole(object.key, object.bytes)).unwrap_or(i64::MAX);
            let Some(of_thread) = changes.get_mut(object.thread.index()) else {
                continue;
            };
            let allocation = Change {
                time: object.allocated,
                key: object.key,
                bytes,
                object: number as u32,
            };
            of_thread.push(allocation);
            if let Some(freed) = object.freed {
                of_thread.push(Change {
                    time: freed.max(object.allocated),
                    bytes: -bytes,
                    ..allocation
                });
            }
        }
        for of_thread in &mut changes {
            // A stable sort: of two events at one time, an object's allocation stays first.
            of_thread.sort_by_key(|change| change.time);
        }
        changes
    }
}

/// Each sample as an object. One that died young without a known time went with the collection
/// of its process that found it dead, or with the session.
fn each<'a>(profile: &'a Profile, keys: &'a [u32]) -> impl Iterator<Item = Object> + 'a {
    let mut ends: Vec<Vec<Nanos>> = vec![Vec::new(); profile.processes.len()];
    for collection in &profile.collections {
        if collection.kind.ends_youth() {
            ends[profile.process_of(collection.thread).index()].push(collection.end());
        }
    }
    ends.iter_mut().for_each(|ends| ends.sort_unstable());
    let weights = profile.shape_weights();
    let samples = &profile.samples;
    // Where nobody records when an object ends, nobody knows which of them are alive.
    let known = samples
        .ids()
        .filter(|&id| profile.knowledge(id).lifetimes == Lifetimes::All);
    known.map(move |id: SampleId| {
        let allocated = samples.time(id);
        let freed = samples.freed(id).or_else(|| {
            (samples.lifetime(id) == Lifetime::DiedYoung).then(|| {
                let ends = &ends[profile.process_of(samples.thread(id)).index()];
                let next = ends.partition_point(|&end| end < allocated);
                ends.get(next).copied().unwrap_or(profile.end)
            })
        });
        Object {
            thread: samples.thread(id),
            key: keys[id.index()],
            allocated,
            freed,
            bytes: weights[samples.shape_id(id).0 as usize].bytes,
        }
    })
}

/// `None` if there are more than `limit` rows.
fn merge(profile: &Profile, keys: &[u32], width: Nanos, limit: usize) -> Option<Vec<Object>> {
    let mut list: Vec<Object> = Vec::new();
    let mut places: HashMap<(ThreadId, u32, Option<u64>), usize, RandomState> = HashMap::default();
    let mut bucket = u64::MAX;
    for object in each(profile, keys) {
        if object.allocated.0 / width.0 != bucket {
            bucket = object.allocated.0 / width.0;
            places.clear();
        }
        let freed = object.freed.map(|time| time.0 / width.0);
        match places.entry((object.thread, object.key, freed)) {
            Entry::Occupied(place) => list[*place.get()].bytes += object.bytes,
            Entry::Vacant(place) => {
                if list.len() == limit {
                    return None;
                }
                place.insert(list.len());
                list.push(object);
            }
        }
    }
    Some(list)
}
