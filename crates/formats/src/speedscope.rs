//! speedscope's own JSON (<https://www.speedscope.app/file-format-schema.json>).
//!
//! Each thread has up to three profiles of the "sampled" type: allocated bytes, allocated bytes whose
//! deallocation was not recorded, and time samples. In "Time Order" the x axis of the first
//! two is bytes. The format repeats the whole stack for every row, so above [`MAX_ROWS`] samples are
//! merged in time, and stacks that are deep together are cut: see [`crate::depth`]. Sums do not change.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};

use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, NodeId, ThreadId};
use nthbyte_profile::model::Lifetime;
use serde::ser::{Serialize, SerializeSeq as _, Serializer};

use crate::depth::{Cut, Depths};
use crate::meter::Meter;
use crate::rounding::Rounding;
use crate::timeline::Timeline;
use crate::{Progress, names};

/// More allocation samples than this are merged in time.
pub const MAX_ROWS: usize = 200_000;

/// The frames that the rows of a file have together before stacks are cut to less than they have.
const MOST_FRAMES: u64 = 16 << 20;

/// Writes the profile. One step of `progress` is one row.
///
/// # Errors
/// If `out` fails.
pub fn write(profile: &Profile, out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    let keys = Keys::of(profile);
    let timeline = Timeline::new(profile, &keys.of_sample, MAX_ROWS);
    let steps = timeline.total_len() * 2 + profile.cpu.len();
    let meter = Meter::new(steps as u64, progress);
    let threads = || (0..profile.threads.len() as u32).map(ThreadId);
    let rows = threads().flat_map(|thread| timeline.rows(thread));
    let rows = rows.flat_map(|row| {
        let (stack, is_retained) = keys.list[row.key as usize];
        std::iter::repeat_n(stack, 1 + usize::from(is_retained))
    });
    let rows = rows.chain(profile.cpu.iter().map(|sample| sample.stack));
    let cut = Depths::of(profile).cut(rows, MOST_FRAMES);
    let note = cut.note();
    let added = [Some(names::NO_FRAME), note.as_deref()];
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: names::program(profile),
        exporter: format!("nthbyte {}", env!("CARGO_PKG_VERSION")),
        active_profile_index: 0,
        shared: Shared {
            frames: profile
                .frames
                .iter()
                .map(|frame| describe(profile, frame))
                .chain(added.into_iter().flatten().map(no_frame))
                .collect(),
        },
        profiles: Profiles {
            profile,
            timeline: &timeline,
            time: time_by_thread(profile),
            is_period_known: profile.time_hz().is_some(),
            meter: &meter,
            keys: &keys,
            cut,
            rounding: [0, 1].map(|_| RefCell::new(Rounding::new(keys.list.len()))),
        },
    };
    serde_json::to_writer(&mut out, &file)?;
    meter.finish();
    out.flush()
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'a str,
    exporter: String,
    active_profile_index: u32,
    shared: Shared<'a>,
    profiles: Profiles<'a>,
}

#[derive(serde::Serialize)]
struct Shared<'a> {
    frames: Vec<FrameNames<'a>>,
}

#[derive(serde::Serialize)]
struct FrameNames<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// A frame has the line of its function's definition: for speedscope, frames with equal names, files and
/// lines are one function. With the lines that run, its table would have a row for each of them.
fn describe<'a>(profile: &'a Profile, frame: &nthbyte_profile::model::Frame) -> FrameNames<'a> {
    let function = &profile.functions[frame.function as usize];
    FrameNames {
        name: names::function(function),
        file: Some(function.file.as_str()).filter(|file| !file.is_empty()),
        line: Some(function.first_line)
            .filter(|&line| line != 0 && frame.kind != FrameKind::Native),
    }
}

/// The frame of samples without a stack, after all others; the one that stands for cut frames follows it.
const fn no_frame(name: &str) -> FrameNames<'_> {
    FrameNames {
        name,
        file: None,
        line: None,
    }
}

/// A key is a stack, and whether the object may still be live. They are numbered as they occur.
struct Keys {
    list: Vec<(NodeId, bool)>,
    of_sample: Vec<u32>,
}

impl Keys {
    fn of(profile: &Profile) -> Self {
        let samples = &profile.samples;
        let mut numbers = vec![[u32::MAX; 2]; profile.stacks.len()];
        let mut list = Vec::new();
        let key = |id| {
            let is_retained = matches!(
                samples.lifetime(id),
                Lifetime::StillLive | Lifetime::Survived
            );
            let stack = samples.stack(id);
            let number = &mut numbers[stack.index()][usize::from(is_retained)];
            if *number == u32::MAX {
                *number = list.len() as u32;
                list.push((stack, is_retained));
            }
            *number
        };
        let of_sample = samples.ids().map(key).collect();
        Self { list, of_sample }
    }
}

/// The time samples of each thread: indexes.
fn time_by_thread(profile: &Profile) -> Vec<Vec<u32>> {
    let mut threads = vec![Vec::new(); profile.threads.len()];
    for (sample, at) in profile.cpu.iter().zip(0..) {
        if let Some(of_thread) = threads.get_mut(sample.thread.index()) {
            of_thread.push(at);
        }
    }
    threads
}

struct Profiles<'a> {
    profile: &'a Profile,
    timeline: &'a Timeline<'a>,
    /// By thread.
    time: Vec<Vec<u32>>,
    is_period_known: bool,
    meter: &'a Meter<'a>,
    keys: &'a Keys,
    cut: Cut,
    /// Of what was allocated, and of what of it was not freed.
    rounding: [RefCell<Rounding>; 2],
}

impl Serialize for Profiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        let mut written = 0;
        for thread in (0..self.profile.threads.len() as u32).map(ThreadId) {
            let name = names::thread_of_process(self.profile, thread);
            let allocated = self.allocations(thread, format!("{name}: allocated"), false);
            let kept = self.allocations(thread, format!("{name}: not freed"), true);
            let time = self.time(thread, format!("{name}: time"));
            for profile in [allocated, kept, time] {
                if !profile.weights.is_empty() {
                    seq.serialize_element(&profile)?;
                    written += 1;
                }
            }
        }
        if written == 0 {
            // speedscope refuses a file without profiles.
            seq.serialize_element(&self.sampled("no samples".to_owned(), "bytes"))?;
        }
        seq.end()
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Stacks<'a>,
    weights: Vec<u64>,
}

/// The stacks of the rows, which become lists of frames as they are written.
struct Stacks<'a> {
    profile: &'a Profile,
    cut: Cut,
    rows: Vec<NodeId>,
}

impl Sampled<'_> {
    fn push(&mut self, stack: NodeId, weight: u64) {
        self.samples.rows.push(stack);
        self.weights.push(weight);
        self.end_value += weight;
    }
}

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let no_frame = self.profile.frames.len() as u32;
        let mut frames = Vec::new();
        serializer.collect_seq(self.rows.iter().map(|&stack| {
            let is_cut = self.cut.innermost(self.profile, stack, &mut frames);
            if frames.is_empty() {
                frames.push(no_frame);
            } else if is_cut {
                frames.push(no_frame + 1);
            }
            // Outermost first.
            frames.reverse();
            frames.clone()
        }))
    }
}

impl<'a> Profiles<'a> {
    fn sampled(&self, name: String, unit: &'static str) -> Sampled<'a> {
        Sampled {
            r#type: "sampled",
            name,
            unit,
            start_value: 0,
            end_value: 0,
            samples: Stacks {
                profile: self.profile,
                cut: self.cut,
                rows: Vec::new(),
            },
            weights: Vec::new(),
        }
    }

    fn allocations(&self, thread: ThreadId, name: String, only_retained: bool) -> Sampled<'a> {
        let mut sampled = self.sampled(name, "bytes");
        let mut rounding = self.rounding[usize::from(only_retained)].borrow_mut();
        for row in self.timeline.rows(thread) {
            self.meter.step();
            let (stack, is_retained) = self.keys.list[row.key as usize];
            if is_retained || !only_retained {
                sampled.push(stack, rounding.whole(row.key, row.bytes));
            }
        }
        sampled
    }

    /// Each sample counts for the period of its source, if that is known.
    fn time(&self, thread: ThreadId, name: String) -> Sampled<'a> {
        let is_known = self.is_period_known;
        let unit = if is_known { "microseconds" } else { "none" };
        let mut sampled = self.sampled(name, unit);
        for &at in &self.time[thread.index()] {
            let sample = &self.profile.cpu[at as usize];
            self.meter.step();
            let weight = match self.profile.sampling(sample.sampling).period {
                period if is_known => period / 1_000,
                _ => 1,
            };
            sampled.push(sample.stack, weight);
        }
        sampled
    }
}
