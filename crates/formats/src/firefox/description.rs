//! The profile's `meta`: the format, the settings of the page, and the description of the session.

use nthbyte_profile::event::LostKind;
use nthbyte_profile::model::Process;
use nthbyte_profile::{Distances, Method};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Value, json};

use super::export::{Export, TrackKind, millis};
use super::tables::object;
use super::{categories, markers};
use crate::names;

/// The version of the processed profile format that is written.
pub const FORMAT_VERSION: u32 = 70;

/// The number of tracks that are visible at first; the page's track menu has the others.
const VISIBLE: usize = 30;

pub(super) struct Meta<'e, 'a>(pub &'e Export<'a>);

impl Serialize for Meta<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let export = self.0;
        let profile = export.profile;
        let meta = &profile.meta;
        let start = meta.started_unix_nanos as f64 / 1e6;
        let native = super::sources::native_functions(profile);
        object(serializer, |map| {
            // The version of Firefox's own format from which the processed format is derived.
            map.serialize_entry("version", &36)?;
            map.serialize_entry("preprocessedProfileVersion", &FORMAT_VERSION)?;
            map.serialize_entry("interval", &interval(export))?;
            map.serialize_entry("startTime", &start)?;
            map.serialize_entry("endTime", &(start + millis(profile.end)))?;
            map.serialize_entry("profilingStartTime", &0)?;
            map.serialize_entry("profilingEndTime", &millis(profile.end))?;
            map.serialize_entry("processType", &0)?;
            map.serialize_entry("stackwalk", &1)?;
            map.serialize_entry("product", names::program(profile))?;
            map.serialize_entry("importedFrom", &format!("nthbyte {}", meta.nthbyte))?;
            map.serialize_entry("arguments", &meta.command.join(" "))?;
            map.serialize_entry("platform", "X11")?;
            map.serialize_entry("oscpu", "Linux")?;
            map.serialize_entry("symbolicated", &true)?;
            map.serialize_entry("symbolicationNotSupported", &true)?;
            map.serialize_entry("sourceCodeIsNotOnSearchfox", &true)?;
            // Without native frames the page's filter of stacks has no use.
            map.serialize_entry("usesOnlyOneStackType", &!native.contains(&true))?;
            map.serialize_entry("keepProfileThreadOrder", &true)?;
            map.serialize_entry("initialVisibleThreads", &visible(export))?;
            map.serialize_entry("initialSelectedThreads", &[busiest(export)])?;
            map.serialize_entry("sampleUnits", &SampleUnits)?;
            map.serialize_entry("categories", &categories::ALL)?;
            map.serialize_entry("markerSchema", &markers::schemas())?;
            map.serialize_entry("extra", &extra(export))
        })
    }
}

struct SampleUnits;

impl Serialize for SampleUnits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object(serializer, |map| {
            map.serialize_entry("time", "ms")?;
            map.serialize_entry("eventDelay", "ms")?;
            map.serialize_entry("threadCPUDelta", "ns")
        })
    }
}

/// The distance of time samples for the page, in milliseconds. Without time samples the same in all exports: the compare
/// view multiplies the weights of each profile by its interval, and bytes must not depend on the length of a run.
fn interval(export: &Export<'_>) -> f64 {
    match export.profile.time_hz() {
        Some(hz) if !export.profile.cpu.is_empty() => 1_000.0 / hz,
        _ => 1.0,
    }
}

/// The allocation track with the most bytes; without any, the first track.
fn busiest(export: &Export<'_>) -> usize {
    let tracks = export.tracks.iter().enumerate();
    tracks
        .filter(|(_, track)| track.kind == TrackKind::Allocations)
        // Reversed, since `max_by` returns the last of equal elements, and the first is needed.
        .rev()
        .max_by(|(_, one), (_, other)| one.activity.total_cmp(&other.activity))
        .map_or(0, |(at, _)| at)
}

/// The allocation tracks with the most bytes and the time tracks with the most CPU time, in their order: as many of each kind, if
/// there are so many. The kinds do not compete, since of hundreds of threads that ran for a moment, each has one time sample.
fn visible(export: &Export<'_>) -> Vec<usize> {
    let tracks = &export.tracks;
    let largest = |kind: TrackKind| {
        let all = tracks.iter().enumerate();
        let of_kind = all.filter(|(_, track)| track.kind == kind);
        let mut of_kind: Vec<usize> = of_kind.map(|(at, _)| at).collect();
        of_kind.sort_by(|&one, &other| tracks[other].activity.total_cmp(&tracks[one].activity));
        of_kind
    };
    let (allocations, times) = (largest(TrackKind::Allocations), largest(TrackKind::Time));
    let half = VISIBLE / 2;
    let of_times = times.len().min(VISIBLE - allocations.len().min(half));
    let of_allocations = allocations.len().min(VISIBLE - of_times);
    let mut order = [&allocations[..of_allocations], &times[..of_times]].concat();
    order.sort_unstable();
    order
}

fn extra(export: &Export<'_>) -> Value {
    let profile = export.profile;
    let meta = &profile.meta;
    let mut session = Entries::default();
    session.text("Command", &meta.command.join(" "));
    session.text("Interpreter", &meta.interpreter);
    session.text("Executable", &meta.executable);
    session.text("Profiler", &format!("nthbyte {}", meta.nthbyte));
    match &profile.processes[..] {
        [] | [_] => session.text("Process", &meta.pid.to_string()),
        several => {
            let labels: Vec<String> = several.iter().map(Process::label).collect();
            session.text("Processes", &labels.join("; "));
        }
    }
    if let Some(parent) = meta.parent_pid {
        session.text("Parent process", &parent.to_string());
    }
    let end = if profile.complete {
        "normally"
    } else {
        "incomplete: the process was killed, or the file is damaged"
    };
    session.text("Session ended", end);

    let mut sampling = Entries::default();
    sampling.text("Period", &period(export));
    sampling.text("Method", method(meta.method()));
    sampling.number("Allocation samples", profile.samples.len() as u64);
    let weights = profile.shape_weights();
    let samples = &profile.samples;
    let bytes = samples
        .ids()
        .map(|id| weights[samples.shape_id(id).0 as usize].bytes);
    sampling.bytes("Allocated, estimated", bytes.sum::<f64>().round() as u64);
    if let Some(counted) = profile.counted {
        sampling.bytes("Allocated in blocks, counted", counted);
    }
    sampling.number("Time samples", profile.cpu.len() as u64);
    if let Some(hz) = profile.time_hz().map(f64::round) {
        sampling.text(
            "Time sampling",
            &format!("{hz} samples per second of CPU time"),
        );
    }
    sampling.text("Lost events", &lost(export));
    for (label, bucket, what) in [
        (
            "Samples merged",
            export.timeline.bucket,
            "samples of one stack, type and fate",
        ),
        (
            "Objects merged",
            export.objects_bucket,
            "objects of one stack, type and fate",
        ),
    ] {
        if let Some(bucket) = bucket {
            let width = millis(bucket);
            let text = format!("{what} within {width} ms are one row; sums do not change");
            sampling.text(label, &text);
        }
    }

    let mut reading = Entries::default();
    reading.text(
        "Weights",
        "estimated bytes: a sample stands for all allocations that were not sampled",
    );
    reading.text(
        "Died young",
        "freed by the first collection of the youngest generation after the allocation; native memory: freed before its process had allocated a mebibyte more, or twice its size",
    );
    reading.text(
        "Freed later",
        "lived longer and was freed during the session",
    );
    reading.text("Survived", "survived it; its end was not recorded (PyPy)");
    reading.text("Still live", "alive when the session ended");
    reading.text(
        "Retained memory",
        "what was alive when the session ended; PyPy's objects are not in it, because their ends are not known",
    );
    for note in &meta.notes {
        reading.text("Note", note);
    }
    for damage in &profile.damage {
        reading.text(
            "Damage",
            &format!("at byte {}: {}", damage.offset, damage.what),
        );
    }
    json!([
        { "label": "Session", "entries": session.0 },
        { "label": "Sampling", "entries": sampling.0 },
        { "label": "How to read it", "entries": reading.0 },
    ])
}

#[derive(Default)]
struct Entries(Vec<Value>);

impl Entries {
    fn text(&mut self, label: &str, value: &str) {
        self.0
            .push(json!({ "label": label, "format": "string", "value": value }));
    }

    fn number(&mut self, label: &str, value: u64) {
        self.0
            .push(json!({ "label": label, "format": "integer", "value": value }));
    }

    fn bytes(&mut self, label: &str, value: u64) {
        self.0
            .push(json!({ "label": label, "format": "bytes", "value": value }));
    }
}

fn period(export: &Export<'_>) -> String {
    let samplings = export.profile.allocation_samplings();
    let of = |distances: Distances| {
        let periods = samplings.iter().filter(|of| of.distances == distances);
        let periods = periods.map(|of| of.period);
        let (shortest, longest) = (periods.clone().min()?, periods.max()?);
        let size = match names::size(shortest) {
            size if shortest == longest => size,
            size => format!("{size} to {}", names::size(longest)),
        };
        Some(match distances {
            Distances::Exponential => format!("one sample every {size} on average, at random"),
            Distances::Fixed => format!("one sample every {size} exactly"),
            Distances::Every => "every allocation".to_owned(),
        })
    };
    let all = [Distances::Exponential, Distances::Fixed, Distances::Every];
    let said: Vec<String> = all.into_iter().filter_map(of).collect();
    said.join("; ")
}

fn method(name: &str) -> &str {
    let Some(method) = Method::of_name(name) else {
        return name;
    };
    match method {
        Method::Preload => "at each sample point of a thread's calls of malloc",
        Method::GlobalAllocator => {
            "at each sample point of a thread's calls of the global allocator"
        }
        Method::Timer => "at equal intervals of CPU time",
        Method::CutFreeLists => "CPython: free lists cut at the sample point",
        Method::NurseryLimit => "RPython: the nursery's limit moved to the sample point",
        Method::GcHooks => "PyPy: one sample every few minor collections, through gc.hooks",
        Method::Imported => "converted from another profiler's file",
    }
}

fn lost(export: &Export<'_>) -> String {
    let kinds = export.profile.lost.iter().map(|&(kind, count)| {
        let kind = match kind {
            LostKind::Allocations => "allocation samples",
            LostKind::CpuSamples => "time samples",
            LostKind::Other => "other events",
        };
        format!("{count} {kind}")
    });
    let text = kinds.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        "none".to_owned()
    } else {
        text
    }
}
