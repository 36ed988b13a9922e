//! speedscope's own JSON (<https://www.speedscope.app/file-format-schema.json>).
//!
//! Each thread has up to three profiles of the "sampled" type: allocated bytes, allocated bytes whose
//! deallocation was not recorded, and time samples. In "Time Order" the x axis of the first
//! two is bytes. The format repeats the whole stack for every row, so above [`MAX_ROWS`] samples are
//! merged in time; sums do not change.

use std::io::{self, BufWriter, Write};

use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, NodeId, ThreadId};
use nthbyte_profile::model::{Lifetime, Samples};
use serde::ser::{Serialize, SerializeSeq as _, Serializer};

use crate::meter::Meter;
use crate::rounding::Rounding;
use crate::timeline::{Row, Timeline};
use crate::{Progress, names};

/// More allocation samples than this are merged in time.
pub const MAX_ROWS: usize = 200_000;

/// Writes the profile. One step of `progress` is one row.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    let keys = keys(profile);
    let timeline = Timeline::new(profile, &keys, MAX_ROWS);
    let steps = timeline.total_len() * 2 + profile.cpu.len();
    let meter = Meter::new(steps as u64, progress);
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
                .chain([no_frame()])
                .collect(),
        },
        profiles: Profiles {
            profile,
            timeline: &timeline,
            meter: &meter,
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

/// The frame of samples without a stack, after all others.
const fn no_frame() -> FrameNames<'static> {
    FrameNames {
        name: names::NO_FRAME,
        file: None,
        line: None,
    }
}

/// A key has the stack, and whether the object may still be live.
fn keys(profile: &Profile) -> Vec<u32> {
    let samples: &Samples = &profile.samples;
    let key = |id| {
        let retained = matches!(
            samples.lifetime(id),
            Lifetime::StillLive | Lifetime::Survived
        );
        // No overflow: a stack tree of 2^31 nodes does not fit into memory.
        (samples.stack(id).0 << 1) | u32::from(retained)
    };
    samples.ids().map(key).collect()
}

fn stack_of(row: &Row) -> NodeId {
    NodeId(row.key >> 1)
}

fn retained(row: &Row) -> bool {
    row.key & 1 == 1
}

struct Profiles<'a> {
    profile: &'a Profile,
    timeline: &'a Timeline<'a>,
    meter: &'a Meter<'a>,
}

impl Serialize for Profiles<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        let mut written = 0;
        for thread in (0..self.profile.threads.len() as u32).map(ThreadId) {
            let name = names::thread_of_process(self.profile, thread);
            let allocated = self.allocations(thread, format!("{name}: allocated"), |_| true);
            let kept = self.allocations(thread, format!("{name}: not freed"), retained);
            let time = self.time(thread, format!("{name}: time"));
            for profile in [allocated, kept, time] {
                if !profile.samples.is_empty() {
                    seq.serialize_element(&profile)?;
                    written += 1;
                }
            }
        }
        if written == 0 {
            // speedscope refuses a file without profiles.
            seq.serialize_element(&Sampled::new("no samples".to_owned(), "bytes"))?;
        }
        seq.end()
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

impl Sampled {
    const fn new(name: String, unit: &'static str) -> Self {
        Self {
            r#type: "sampled",
            name,
            unit,
            start_value: 0,
            end_value: 0,
            samples: Vec::new(),
            weights: Vec::new(),
        }
    }

    fn push(&mut self, stack: Vec<u32>, weight: u64) {
        self.samples.push(stack);
        self.weights.push(weight);
        self.end_value += weight;
    }
}

impl Profiles<'_> {
    fn allocations(&self, thread: ThreadId, name: String, keep: fn(&Row) -> bool) -> Sampled {
        let mut sampled = Sampled::new(name, "bytes");
        let mut rounding = Rounding::new(2 * self.profile.stacks.len());
        for row in self.timeline.rows(thread) {
            self.meter.step();
            if keep(&row) {
                let weight = rounding.whole(row.key, row.bytes);
                sampled.push(self.frames(stack_of(&row)), weight);
            }
        }
        sampled
    }

    /// Each sample counts for the period of its source, if that is known.
    fn time(&self, thread: ThreadId, name: String) -> Sampled {
        let is_known = self.profile.time_hz().is_some();
        let unit = if is_known { "microseconds" } else { "none" };
        let mut sampled = Sampled::new(name, unit);
        for sample in self.profile.cpu.iter().filter(|of| of.thread == thread) {
            self.meter.step();
            let weight = match self.profile.sampling(sample.sampling).period {
                period if is_known => period / 1_000,
                _ => 1,
            };
            sampled.push(self.frames(sample.stack), weight);
        }
        sampled
    }

    /// Outermost first.
    fn frames(&self, stack: NodeId) -> Vec<u32> {
        let mut frames = Vec::new();
        let mut at = stack;
        while at != NodeId::ROOT {
            let node = self.profile.stacks[at.index()];
            frames.push(node.frame);
            at = node.parent;
        }
        if frames.is_empty() {
            frames.push(self.profile.frames.len() as u32);
        }
        frames.reverse();
        frames
    }
}
