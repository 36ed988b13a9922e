//! The data that several tables of the export share.

use std::cell::RefCell;
use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, ThreadId, TypeId};
use nthbyte_profile::model::Lifetime;

use super::Options;
use super::sources::Sources;
use super::strings::Strings;
use crate::leaves::Leaves;
use crate::meter::Meter;
use crate::objects::{Change, Objects};
use crate::timeline::Timeline;
use crate::{Progress, names};

/// Milliseconds, the page's unit of time, rounded to microseconds.
pub(super) fn millis(time: Nanos) -> f64 {
    (time.0 / 1_000) as f64 / 1_000.0
}

/// The content of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrackKind {
    /// Allocation samples, objects and collections.
    Allocations,
    /// Time samples.
    Time,
}

/// One thread of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Track {
    pub thread: ThreadId,
    pub kind: TrackKind,
    pub name: String,
}

pub(super) struct Export<'a> {
    pub profile: &'a Profile,
    pub leaves: &'a Leaves,
    pub timeline: Timeline<'a>,
    /// By thread.
    pub changes: Vec<Vec<Change>>,
    /// The width of the buckets in which objects were merged; `None` if they were not.
    pub objects_bucket: Option<Nanos>,
    pub tracks: Vec<Track>,
    /// Types on top of stacks. Each has a function and a frame, after those of the program.
    pub tops: Vec<(TypeId, Lifetime)>,
    /// The type and fate on top of each leaf.
    pub top_of_leaf: Vec<u32>,
    pub sources: Sources,
    pub strings: RefCell<Strings>,
    pub meter: Meter<'a>,
}

impl<'a> Export<'a> {
    pub fn new(
        profile: &'a Profile,
        leaves: &'a Leaves,
        options: Options,
        progress: Progress<'a>,
    ) -> Self {
        let timeline = Timeline::new(profile, &leaves.of_sample, options.max_samples);
        let objects = Objects::of(profile, &leaves.of_sample, options.max_objects);
        let threads = profile.threads.len();
        let changes = objects.changes(threads, leaves.list.len());
        let rows = 3 * timeline.total_len() + 5 * changes.iter().map(Vec::len).sum::<usize>();
        let (tops, top_of_leaf) = tops(leaves);
        let mut strings = Strings::default();
        let sources = Sources::of(profile, options.sources, &mut strings);
        Self {
            profile,
            leaves,
            tracks: tracks(profile, &timeline),
            timeline,
            changes,
            objects_bucket: objects.bucket,
            tops,
            top_of_leaf,
            sources,
            strings: RefCell::new(strings),
            meter: Meter::new((rows + 2 * profile.cpu.len()) as u64, progress),
        }
    }

    /// The index of a string.
    pub fn string(&self, text: &str) -> u32 {
        self.strings.borrow_mut().index(text)
    }

    /// The index in the stack table of the stack that ends in a leaf. These stacks come after all
    /// stacks of the profile except the root, which is left out.
    pub fn leaf_stack(&self, leaf: u32) -> u32 {
        (self.profile.stacks.len().max(1) - 1) as u32 + leaf
    }
}

/// The distinct types with their lifetimes, and which one each leaf has.
fn tops(leaves: &Leaves) -> (Vec<(TypeId, Lifetime)>, Vec<u32>) {
    let mut numbers = HashMap::new();
    let mut list = Vec::new();
    let of_leaf = leaves.list.iter().map(|leaf| {
        let top = (leaf.type_id, leaf.lifetime);
        *numbers.entry(top).or_insert_with(|| {
            list.push(top);
            list.len() as u32 - 1
        })
    });
    let of_leaf = of_leaf.collect();
    (list, of_leaf)
}

/// Up to two tracks for each thread; empty tracks are left out. A session without samples has one
/// empty track, because the page refuses a profile without tracks.
fn tracks(profile: &Profile, timeline: &Timeline<'_>) -> Vec<Track> {
    let mut with_time = vec![false; profile.threads.len()];
    for sample in &profile.cpu {
        if let Some(with_time) = with_time.get_mut(sample.thread.index()) {
            *with_time = true;
        }
    }
    let mut with_markers = vec![false; profile.threads.len()];
    for collection in &profile.collections {
        if let Some(with_markers) = with_markers.get_mut(collection.thread.index()) {
            *with_markers = true;
        }
    }
    let mut tracks = Vec::new();
    for thread in (0..profile.threads.len() as u32).map(ThreadId) {
        let name = names::thread(profile, thread);
        if timeline.len(thread) > 0 || with_markers[thread.index()] {
            tracks.push(Track {
                thread,
                kind: TrackKind::Allocations,
                name: format!("{name}: allocations"),
            });
        }
        if with_time[thread.index()] {
            tracks.push(Track {
                thread,
                kind: TrackKind::Time,
                name: format!("{name}: time"),
            });
        }
    }
    if tracks.is_empty() {
        tracks.push(Track {
            thread: ThreadId(0),
            kind: TrackKind::Allocations,
            name: "no samples".to_owned(),
        });
    }
    tracks
}
