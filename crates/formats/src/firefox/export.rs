//! The data that several tables of the export share.

use std::cell::RefCell;
use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, ThreadId, TypeId};
use nthbyte_profile::model::{Lifetime, ProcessId, TimeSample};

use super::native::{Native, native_samples};
use super::packages::Callers;
use super::sources::Sources;
use crate::leaves::Leaves;
use crate::meter::Meter;
use crate::objects::{Change, Objects};
use crate::strings::Strings;
use crate::timeline::Timeline;
use crate::{Progress, names};

/// The optional content of the export, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirefoxOptions {
    /// Whether to put the text of the program's Python files into the profile, if they can
    /// be read, for the page's source view. Files above 1 MiB are left out, and everything after
    /// 32 MiB in total.
    ///
    /// The session names the files. A session from another machine, or a forged one, may name any Python
    /// file of this machine. So set this only if the user asks for it.
    pub sources: bool,
    /// More samples than this are merged in time.
    pub max_samples: usize,
    /// More objects than this are merged in time in the retained view.
    pub max_objects: usize,
}

impl Default for FirefoxOptions {
    /// Ten million samples and one million objects, about the limit of the page; no sources.
    fn default() -> Self {
        Self {
            sources: false,
            max_samples: 10_000_000,
            max_objects: 1_000_000,
        }
    }
}

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

/// The frame on top of a stack of allocations: what was allocated, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Top {
    pub type_id: TypeId,
    pub lifetime: Lifetime,
    /// Who called, if it is native memory and its type does not say so: `malloc` alone says little.
    pub caller: Option<String>,
}

/// One thread of the page.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub thread: ThreadId,
    pub kind: TrackKind,
    pub name: String,
    /// The thread's bytes, or its nanoseconds of CPU time.
    pub activity: f64,
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
    /// Native memory, by process.
    pub native: Vec<Native>,
    /// Types on top of stacks. Each has a function and a frame, after the program's.
    pub tops: Vec<Top>,
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
        options: FirefoxOptions,
        progress: Progress<'a>,
    ) -> Self {
        let timeline = Timeline::new(profile, &leaves.of_sample, options.max_samples);
        let objects = Objects::of(profile, &leaves.of_sample, options.max_objects);
        let threads = profile.threads.len();
        let changes = objects.changes(threads, leaves.list.len());
        let rows = 3 * timeline.total_len() + 5 * changes.iter().map(Vec::len).sum::<usize>();
        let (tops, top_of_leaf) = tops(profile, leaves);
        let mut strings = Strings::default();
        let sources = Sources::of(profile, options.sources, &mut strings);
        Self {
            profile,
            leaves,
            tracks: tracks(profile, &timeline),
            native: Native::of(profile),
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

    /// The end of a process.
    pub fn end_of(&self, process: ProcessId) -> Nanos {
        match &self.profile.processes[..] {
            [] | [_] => self.profile.end,
            several => several[process.index()].end,
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

/// The distinct tops, and which one each leaf has.
fn tops(profile: &Profile, leaves: &Leaves) -> (Vec<Top>, Vec<u32>) {
    let mut lacks_caller = vec![false; profile.types.len()];
    for id in native_samples(profile) {
        let of = profile.samples.type_id(id).index();
        // The own name of `malloc by numpy` is `malloc`.
        lacks_caller[of] = profile.types[of].native.is_empty();
    }
    let mut callers = Callers::of(profile);
    let mut numbers = HashMap::new();
    let mut list = Vec::new();
    let of_leaf = leaves.list.iter().map(|leaf| {
        let top = Top {
            type_id: leaf.type_id,
            lifetime: leaf.lifetime,
            caller: lacks_caller[leaf.type_id.index()]
                .then(|| callers.of_stack(leaf.stack))
                .flatten(),
        };
        *numbers.entry(top.clone()).or_insert_with(|| {
            list.push(top);
            list.len() as u32 - 1
        })
    });
    let of_leaf = of_leaf.collect();
    (list, of_leaf)
}

/// What a thread did, for the order of tracks.
#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    bytes: f64,
    cpu_nanos: f64,
}

fn activities(profile: &Profile) -> Vec<Activity> {
    let mut threads = vec![Activity::default(); profile.threads.len()];
    let weights = profile.shape_weights();
    let samples = &profile.samples;
    for id in samples.ids() {
        if let Some(of) = threads.get_mut(samples.thread(id).index()) {
            of.bytes += weights[samples.shape_id(id).0 as usize].bytes;
        }
    }
    for sample in &profile.cpu {
        if let Some(of) = threads.get_mut(sample.thread.index()) {
            of.cpu_nanos += cpu_nanos(profile, sample);
        }
    }
    threads
}

/// The CPU time that a time sample stands for; a millisecond if it is not known.
pub(super) fn cpu_nanos(profile: &Profile, sample: &TimeSample) -> f64 {
    match profile.sampling(sample.sampling).period {
        0 => 1e6,
        period => period as f64,
    }
}

/// Up to two tracks for each thread; empty tracks are left out. Of a process, the threads with the most bytes are first.
/// A session without samples has one empty track, because the page refuses a profile without tracks.
fn tracks(profile: &Profile, timeline: &Timeline<'_>) -> Vec<Track> {
    let activities = activities(profile);
    let mut with_time = vec![false; profile.threads.len()];
    for sample in &profile.cpu {
        if let Some(with_time) = with_time.get_mut(sample.thread.index()) {
            *with_time = true;
        }
    }
    let mut with_allocations: Vec<bool> = (0..profile.threads.len() as u32)
        .map(|thread| timeline.len(ThreadId(thread)) > 0)
        .collect();
    // The collections of a process need a track: see `markers`.
    let mut has_track = vec![false; profile.processes.len()];
    for (thread, _) in with_allocations.iter().enumerate().filter(|of| *of.1) {
        has_track[profile.process_of(ThreadId(thread as u32)).index()] = true;
    }
    for collection in &profile.collections {
        let process = profile.process_of(collection.thread).index();
        if let Some(with_allocations) = with_allocations.get_mut(collection.thread.index())
            && !std::mem::replace(&mut has_track[process], true)
        {
            *with_allocations = true;
        }
    }
    let mut threads: Vec<usize> = (0..profile.threads.len()).collect();
    threads.sort_by(|&one, &other| {
        let place = |thread: usize| profile.process_of(ThreadId(thread as u32));
        let (first, second) = (activities[one], activities[other]);
        place(one)
            .cmp(&place(other))
            .then(second.bytes.total_cmp(&first.bytes))
            .then(second.cpu_nanos.total_cmp(&first.cpu_nanos))
    });
    let mut tracks = Vec::new();
    for at in threads {
        let thread = ThreadId(at as u32);
        let name = names::thread(profile, thread);
        // The page has room for about twenty letters, so the kind is first.
        if with_allocations[at] {
            tracks.push(Track {
                thread,
                kind: TrackKind::Allocations,
                name: format!("Alloc · {name}"),
                activity: activities[at].bytes,
            });
        }
        if with_time[at] {
            tracks.push(Track {
                thread,
                kind: TrackKind::Time,
                name: format!("CPU · {name}"),
                activity: activities[at].cpu_nanos,
            });
        }
    }
    if tracks.is_empty() {
        tracks.push(Track {
            thread: ThreadId(0),
            kind: TrackKind::Allocations,
            name: "no samples".to_owned(),
            activity: 0.0,
        });
    }
    tracks
}
