//! The samples of each thread, ordered by time; merged if there are too many.
//!
//! A *timeline* has a track for each thread. Up to a limit, a row is a sample, and only its number
//! is stored. Above the limit, time is divided into buckets, and the samples of one key in one
//! bucket become one row, at the time of the first of them. Of a few widths, the narrowest one is
//! used with which the rows fit the limit. Weights are added, so views without time do not change.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, SampleId, ThreadId};

/// Buckets in the session at the first try. Each further try has an eighth of them.
const FINEST_BUCKETS: u64 = 1 << 16;

/// A sample, or several merged ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MergedSample {
    /// The time of the first sample.
    pub time: Nanos,
    /// The key of all of them.
    pub key: u32,
    /// The sum of their estimated bytes.
    pub bytes: f64,
}

enum Track {
    Samples(Vec<SampleId>),
    Merged(Vec<MergedSample>),
}

/// See the module.
pub(crate) struct Timeline<'a> {
    profile: &'a Profile,
    keys: &'a [u32],
    /// Bytes that a sample stands for, by shape.
    bytes: Vec<f64>,
    tracks: Vec<Track>,
    /// The width of the buckets; `None` if samples were not merged.
    pub bucket: Option<Nanos>,
}

impl<'a> Timeline<'a> {
    /// `keys` has one for each sample; `limit` is for all threads together.
    pub fn new(profile: &'a Profile, keys: &'a [u32], limit: usize) -> Self {
        let weights = profile.shape_weights();
        let mut timeline = Self {
            profile,
            keys,
            bytes: weights.iter().map(|weight| weight.bytes).collect(),
            tracks: Vec::new(),
            bucket: None,
        };
        let threads = by_thread(profile);
        if profile.samples.len() > limit {
            let (bucket, tracks) = timeline.merge(&threads, limit);
            timeline.bucket = Some(bucket);
            timeline.tracks = tracks.into_iter().map(Track::Merged).collect();
        } else {
            timeline.tracks = threads.into_iter().map(Track::Samples).collect();
        }
        timeline
    }

    /// The number of rows of a thread.
    pub fn len(&self, thread: ThreadId) -> usize {
        match self.tracks.get(thread.index()) {
            Some(Track::Samples(ids)) => ids.len(),
            Some(Track::Merged(rows)) => rows.len(),
            None => 0,
        }
    }

    /// The number of rows of all threads.
    pub fn total_len(&self) -> usize {
        let threads = (0..self.tracks.len() as u32).map(ThreadId);
        threads.map(|thread| self.len(thread)).sum()
    }

    /// The rows of a thread, ordered by time.
    pub fn rows(&self, thread: ThreadId) -> Box<dyn Iterator<Item = MergedSample> + '_> {
        match self.tracks.get(thread.index()) {
            Some(Track::Samples(ids)) => Box::new(ids.iter().map(|&id| self.row(id))),
            Some(Track::Merged(rows)) => Box::new(rows.iter().copied()),
            None => Box::new(std::iter::empty()),
        }
    }

    fn row(&self, id: SampleId) -> MergedSample {
        let samples = &self.profile.samples;
        MergedSample {
            time: samples.time(id),
            key: self.keys[id.index()],
            bytes: self.bytes[samples.shape_id(id).0 as usize],
        }
    }

    fn merge(&self, threads: &[Vec<SampleId>], limit: usize) -> (Nanos, Vec<Vec<MergedSample>>) {
        let mut buckets = FINEST_BUCKETS;
        loop {
            let width = Nanos((self.profile.end.0 / buckets).max(1));
            // One bucket gives one row for each key, the smallest possible number.
            let limit = if buckets == 1 { usize::MAX } else { limit };
            if let Some(tracks) = self.merge_within(threads, width, limit) {
                return (width, tracks);
            }
            buckets = (buckets / 8).max(1);
        }
    }

    /// `None` if there are more than `limit` rows.
    fn merge_within(
        &self,
        threads: &[Vec<SampleId>],
        width: Nanos,
        limit: usize,
    ) -> Option<Vec<Vec<MergedSample>>> {
        let keys = self.keys.iter().max().map_or(0, |&key| key as usize + 1);
        let mut tracks = Vec::with_capacity(threads.len());
        let mut left = limit;
        // The last row of each key, counted from the first row of all threads; it is used only if it is in the current bucket
        // of the same thread.
        let mut places = vec![u32::MAX; keys];
        for ids in threads {
            // There are fewer rows than samples, and samples have 32-bit numbers.
            let before = (limit - left) as u32;
            let mut rows: Vec<MergedSample> = Vec::new();
            let mut bucket = u64::MAX;
            let mut first_of_bucket = 0;
            for &id in ids {
                let row = self.row(id);
                if row.time.0 / width.0 != bucket {
                    bucket = row.time.0 / width.0;
                    first_of_bucket = rows.len();
                }
                let place = &mut places[row.key as usize];
                let of_thread = place.checked_sub(before).map(|place| place as usize);
                match of_thread.and_then(|place| rows.get_mut(place)) {
                    Some(earlier) if of_thread >= Some(first_of_bucket) => {
                        earlier.bytes += row.bytes;
                    }
                    _ => {
                        left = left.checked_sub(1)?;
                        *place = before + rows.len() as u32;
                        rows.push(row);
                    }
                }
            }
            tracks.push(rows);
        }
        Some(tracks)
    }
}

/// The samples of each thread, ordered by time. The order in the file is only nearly the same: an
/// allocation may be written a little after later ones.
fn by_thread(profile: &Profile) -> Vec<Vec<SampleId>> {
    let samples = &profile.samples;
    let mut counts = vec![0; profile.threads.len()];
    for id in samples.ids() {
        let thread = samples.thread(id).index();
        if thread >= counts.len() {
            counts.resize(thread + 1, 0);
        }
        counts[thread] += 1;
    }
    let mut threads: Vec<Vec<SampleId>> = counts.into_iter().map(Vec::with_capacity).collect();
    for id in samples.ids() {
        threads[samples.thread(id).index()].push(id);
    }
    for ids in &mut threads {
        if !ids.is_sorted_by_key(|&id| samples.time(id)) {
            ids.sort_by_key(|&id| samples.time(id));
        }
    }
    threads
}
