//! The page's threads: a sample table, allocations and deallocations, and markers.

use nthbyte_profile::event::{Nanos, NodeId, ThreadId};
use nthbyte_profile::model::TimeSample;
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};

use super::export::{Export, Track, TrackKind, cpu_nanos, millis};
use super::markers::Markers;
use super::tables::{Column, object};
use crate::names;
use crate::objects::Change;
use crate::rounding::Rounding;

pub(super) struct Tracks<'e, 'a>(pub &'e Export<'a>);

impl Serialize for Tracks<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.0.tracks.len()))?;
        for track in &self.0.tracks {
            seq.serialize_element(&OneTrack {
                export: self.0,
                track,
            })?;
        }
        seq.end()
    }
}

struct OneTrack<'e, 'a> {
    export: &'e Export<'a>,
    track: &'e Track,
}

impl Serialize for OneTrack<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { export, track } = *self;
        let profile = export.profile;
        let thread = track.thread;
        let number = profile.process_of(thread);
        let process = &profile.processes[number.index()];
        let ended = export.end_of(number);
        let os_id = profile.threads.get(thread.index()).map_or(0, |of| of.os_id);
        object(serializer, |map| {
            // One of Firefox's own names for the kinds of its processes.
            map.serialize_entry("processType", "")?;
            map.serialize_entry("processName", &names::process(profile, number))?;
            map.serialize_entry("processStartupTime", &millis(process.start))?;
            map.serialize_entry("processShutdownTime", &millis(ended))?;
            map.serialize_entry("registerTime", &millis(process.start))?;
            map.serialize_entry("unregisterTime", &None::<f64>)?;
            map.serialize_entry("pausedRanges", &[(); 0])?;
            map.serialize_entry("showMarkersInTimeline", &true)?;
            map.serialize_entry("name", &track.name)?;
            // The page shows the process's name for a main thread, instead of the thread's name.
            map.serialize_entry("isMainThread", &false)?;
            map.serialize_entry("pid", &process.meta.pid.to_string())?;
            match track.kind {
                TrackKind::Allocations => {
                    map.serialize_entry("tid", &os_id)?;
                    map.serialize_entry("samples", &AllocationSamples { export, thread })?;
                    let changes = export.changes.get(thread.index());
                    if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
                        let table = NativeAllocations {
                            export,
                            os_id,
                            changes,
                        };
                        map.serialize_entry("nativeAllocations", &table)?;
                    }
                    map.serialize_entry("markers", &Markers::of(export, track))
                }
                TrackKind::Time => {
                    map.serialize_entry("tid", &format!("{os_id} time"))?;
                    map.serialize_entry("samples", &TimeSamples { export, thread })?;
                    map.serialize_entry("markers", &Markers::none(export, track))
                }
            }
        })
    }
}

/// Differences of successive times, in milliseconds; the first one from zero.
fn deltas(times: impl Iterator<Item = Nanos>) -> impl Iterator<Item = f64> {
    let mut before = Nanos(0);
    times.map(move |time| {
        // Both times are rounded to microseconds first, so that rounding errors do not add up.
        let delta = (time.0 / 1_000).saturating_sub(before.0 / 1_000);
        before = before.max(time);
        millis(Nanos(delta * 1_000))
    })
}

/// The time of a row without a stack and without weight, in front of the samples of a thread: the start of its process. The page
/// hatches the time before the first row, and says there that its buffer was full.
fn lead(export: &Export<'_>, thread: ThreadId, first: Option<Nanos>) -> Option<Nanos> {
    let process = export.profile.process_of(thread);
    let start = export.profile.processes[process.index()].start;
    first.filter(|first| start.0 / 1_000 < first.0 / 1_000)?;
    Some(start)
}

/// Allocation samples, weighted by estimated bytes.
struct AllocationSamples<'e, 'a> {
    export: &'e Export<'a>,
    thread: ThreadId,
}

impl Serialize for AllocationSamples<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { export, thread } = *self;
        let rows = || {
            let rows = export.timeline.rows(thread);
            rows.inspect(|_| export.meter.step())
        };
        let first = export.timeline.rows(thread).next().map(|row| row.time);
        // The page draws a row up to the middle between it and the next one. So there is another one, just before the first sample.
        let lead: Vec<Nanos> = match (lead(export, thread, first), first) {
            (Some(start), Some(first)) => vec![start, Nanos(first.0 - 1_000)],
            _ => Vec::new(),
        };
        object(serializer, |map| {
            let stacks = Column(|| {
                let stacks = rows().map(|row| Some(export.leaf_stack(row.key)));
                lead.iter().map(|_| None).chain(stacks)
            });
            map.serialize_entry("stack", &stacks)?;
            let times = Column(|| {
                let times = rows().map(|row| row.time);
                deltas(lead.iter().copied().chain(times))
            });
            map.serialize_entry("timeDeltas", &times)?;
            let weights = Column(|| {
                let mut rounding = Rounding::new(export.leaves.list.len());
                let weights = rows().map(move |row| rounding.whole(row.key, row.bytes));
                lead.iter().map(|_| 0).chain(weights)
            });
            map.serialize_entry("weight", &weights)?;
            map.serialize_entry("weightType", "bytes")?;
            let length = export.timeline.len(thread) + lead.len();
            map.serialize_entry("length", &length)
        })
    }
}

/// Time samples, weighted by CPU time.
struct TimeSamples<'e, 'a> {
    export: &'e Export<'a>,
    thread: ThreadId,
}

impl Serialize for TimeSamples<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { export, thread } = *self;
        let samples = || {
            let all = export.profile.cpu.iter();
            all.filter(move |sample| sample.thread == thread)
                .inspect(|_| export.meter.step())
        };
        let mut times = export.profile.cpu.iter();
        let first = times.find(|sample| sample.thread == thread);
        let lead = lead(export, thread, first.map(|sample| sample.time));
        object(serializer, |map| {
            let stacks = Column(|| {
                let stacks = samples().map(|sample| sample.stack);
                let stacks = stacks.map(|stack| (stack != NodeId::ROOT).then(|| stack.0 - 1));
                lead.map(|_| None).into_iter().chain(stacks)
            });
            map.serialize_entry("stack", &stacks)?;
            let times =
                Column(|| deltas(lead.into_iter().chain(samples().map(|sample| sample.time))));
            map.serialize_entry("timeDeltas", &times)?;
            let of = |sample: &TimeSample| cpu_nanos(export.profile, sample);
            let weights = Column(|| {
                let weights = samples().map(|sample| of(sample) / 1e6);
                lead.map(|_| 0.0).into_iter().chain(weights)
            });
            map.serialize_entry("weight", &weights)?;
            map.serialize_entry("weightType", "tracing-ms")?;
            // The CPU time since the sample before it: of several samples at one time, the first has it all.
            let used = Column(|| {
                let samples: Vec<(Nanos, f64)> =
                    samples().map(|sample| (sample.time, of(sample))).collect();
                let at_one_time = samples.chunk_by(|one, other| one.0.0 / 1000 == other.0.0 / 1000);
                let used = at_one_time.flat_map(|chunk| {
                    let sum = chunk.iter().map(|sample| sample.1).sum::<f64>();
                    std::iter::once(sum).chain(std::iter::repeat_n(0.0, chunk.len() - 1))
                });
                let used = used.map(f64::round);
                lead.map(|_| 0.0)
                    .into_iter()
                    .chain(used)
                    .collect::<Vec<_>>()
            });
            map.serialize_entry("threadCPUDelta", &used)?;
            let length = samples().count() + usize::from(lead.is_some());
            map.serialize_entry("length", &length)
        })
    }
}

/// Allocations have positive weights, deallocations negative ones. The object's number is used as
/// its address: the page needs it only to match an allocation with its deallocation.
struct NativeAllocations<'e, 'a> {
    export: &'e Export<'a>,
    os_id: u64,
    changes: &'e [Change],
}

impl Serialize for NativeAllocations<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let export = self.export;
        let rows = || self.changes.iter().inspect(|_| export.meter.step());
        object(serializer, |map| {
            let times = Column(|| rows().map(|change| millis(change.time)));
            map.serialize_entry("time", &times)?;
            let weights = Column(|| rows().map(|change| change.bytes));
            map.serialize_entry("weight", &weights)?;
            map.serialize_entry("weightType", "bytes")?;
            // It is not known where an object was freed, only where it was allocated.
            let stacks = Column(|| {
                rows().map(|change| (change.bytes >= 0).then(|| export.leaf_stack(change.key)))
            });
            map.serialize_entry("stack", &stacks)?;
            let objects = Column(|| rows().map(|change| change.object));
            map.serialize_entry("memoryAddress", &objects)?;
            let threads = Column(|| rows().map(|_| self.os_id));
            map.serialize_entry("threadId", &threads)?;
            map.serialize_entry("length", &self.changes.len())
        })
    }
}
