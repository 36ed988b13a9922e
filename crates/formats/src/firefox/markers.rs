//! Collections, and what a JIT compiler does, as markers, each kind with a schema.
//!
//! A collection stops all threads of its process. So a process has its markers on one track: the track of the thread which
//! allocated the most. Then the page draws one track of collections for each process, not one for each thread.

use nthbyte_profile::Profile;
use nthbyte_profile::compilation::{Compilation, CompilationOutcome};
use nthbyte_profile::event::{Collection, CollectionKind, MajorPhase, Memory, Nanos, ThreadId};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Value, json};

use super::categories;
use super::export::{Export, Track, TrackKind, millis};
use super::tables::{Column, object, same};
use crate::names;

/// The format's number for a marker with both a start and an end.
const INTERVAL: u32 = 1;

/// A collection that stops the program for this long has a colour of its own.
const LONG: Nanos = Nanos(10_000_000);

/// The markers of one track. Their data is made when it is written: there may be as many collections as a file has room for.
pub(super) struct Markers<'a> {
    profile: &'a Profile,
    /// The thread of the track.
    thread: ThreadId,
    /// Ordered by their starts.
    collections: Vec<&'a Collection>,
    /// The work of the process's JIT compiler, ordered by its starts.
    compilations: Vec<&'a Compilation>,
    /// The process's totals of memory, ordered by time.
    readings: Vec<&'a Memory>,
    names: Vec<u32>,
}

/// The data of a marker besides its time.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    #[serde(rename = "type")]
    schema: &'static str,
    color: &'static str,
    /// The thread, if the track is another one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    /// The duration, for the track of collections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    survived: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    optimizing: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assembling: Option<f64>,
}

/// The schema of what a JIT compiler does.
const COMPILER: &str = "JitCompiler";

/// The name of a marker.
const fn work(outcome: CompilationOutcome) -> &'static str {
    match outcome {
        CompilationOutcome::Loop => "JIT: loop compiled",
        CompilationOutcome::Bridge => "JIT: bridge compiled",
        CompilationOutcome::Aborted => "JIT: trace given up",
        CompilationOutcome::Other => "JIT: other work",
    }
}

impl<'a> Markers<'a> {
    /// For a track that has none.
    pub fn none(export: &Export<'a>, track: &Track) -> Self {
        Self {
            profile: export.profile,
            thread: track.thread,
            collections: Vec::new(),
            compilations: Vec::new(),
            readings: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The collections of a process on its first track of allocations, ordered by their starts.
    pub fn of(export: &Export<'a>, track: &Track) -> Self {
        let profile = export.profile;
        let mut markers = Self::none(export, track);
        let process = profile.process_of(track.thread);
        let mut tracks = export.tracks.iter();
        let first = tracks.find(|one| {
            one.kind == TrackKind::Allocations && profile.process_of(one.thread) == process
        });
        if first.is_none_or(|first| first.thread != track.thread) {
            return markers;
        }
        let all = profile.collections.iter();
        markers.collections = all
            .filter(|of| profile.process_of(of.thread) == process)
            .collect();
        let list = &mut markers.collections;
        list.sort_by_key(|collection| collection.start);
        markers.readings = profile.memory_of(process).iter().collect();
        markers.readings.sort_by_key(|reading| reading.time);
        let names = list.iter();
        markers.names = names
            .map(|collection| export.string(&name(collection.kind)))
            .collect();
        let of_process = profile.processes.get(process.index());
        markers.compilations = of_process.map_or(Vec::new(), |of| of.compilations.iter().collect());
        let list = &mut markers.compilations;
        list.sort_by_key(|compilation| compilation.start);
        markers
            .names
            .extend(list.iter().map(|one| export.string(work(one.outcome))));
        markers
    }

    fn data(&self, at: usize) -> Data {
        let Some(&collection) = self.collections.get(at) else {
            return self.compilation(self.compilations[at - self.collections.len()]);
        };
        let mut data = data(collection);
        if collection.thread != self.thread {
            data.thread = Some(names::thread(self.profile, collection.thread));
        }
        if collection.kind == CollectionKind::Minor {
            // The totals that were read after this collection, and before the next one.
            let next = self.collections.get(at + 1);
            let next = next.map_or(self.profile.end, |next| next.start);
            let readings = &self.readings;
            let from = readings.partition_point(|reading| reading.time < collection.start);
            let after = readings[from..].iter().take_while(|of| of.time <= next);
            for reading in after {
                data.reserved = data.reserved.or(reading.heap_reserved);
                data.rss = data.rss.or(reading.rss);
            }
        }
        data
    }
}

impl Markers<'_> {
    fn compilation(&self, compilation: &Compilation) -> Data {
        let mut data = Data {
            schema: COMPILER,
            color: match compilation.outcome {
                CompilationOutcome::Loop | CompilationOutcome::Other => "blue",
                CompilationOutcome::Bridge => "teal",
                CompilationOutcome::Aborted => "red",
            },
            outcome: Some(compilation.outcome.name()),
            optimizing: Some(millis(compilation.optimizing)),
            assembling: Some(millis(compilation.assembling)),
            ..Data::default()
        };
        if compilation.thread != self.thread {
            data.thread = Some(names::thread(self.profile, compilation.thread));
        }
        data
    }
}

impl Serialize for Markers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let collections = self.collections.len();
        let len = collections + self.compilations.len();
        let of_collector = || self.collections.iter().map(|of| (of.start, of.end()));
        let of_compiler = || self.compilations.iter().map(|of| (of.start, of.end()));
        let times = || of_collector().chain(of_compiler());
        let categories = || {
            (0..len).map(|at| match at < collections {
                true => categories::GC.number,
                false => categories::JIT.number,
            })
        };
        object(serializer, |map| {
            map.serialize_entry("name", &self.names)?;
            map.serialize_entry("startTime", &Column(|| times().map(|of| millis(of.0))))?;
            map.serialize_entry("endTime", &Column(|| times().map(|of| millis(of.1))))?;
            map.serialize_entry("phase", &same(INTERVAL, len))?;
            map.serialize_entry("category", &Column(categories))?;
            map.serialize_entry("data", &Column(|| (0..len).map(|at| self.data(at))))?;
            map.serialize_entry("length", &len)
        })
    }
}

const fn schema_of(kind: CollectionKind) -> &'static str {
    match kind {
        CollectionKind::Generation(_) => "GcGeneration",
        CollectionKind::Minor => "GcMinor",
        CollectionKind::MajorStep(_) => "GcMajorStep",
        CollectionKind::Major => "GcMajor",
    }
}

/// The name of a row in the page's marker chart, and of a track.
fn name(kind: CollectionKind) -> String {
    match kind {
        CollectionKind::Generation(_) => "Collection".to_owned(),
        CollectionKind::Minor => "Minor collection".to_owned(),
        CollectionKind::MajorStep(phase) => format!("Major collection: {}", phase_name(phase)),
        CollectionKind::Major => "Major collection".to_owned(),
    }
}

const fn phase_name(phase: MajorPhase) -> &'static str {
    match phase {
        MajorPhase::Scanning => "scanning",
        MajorPhase::Marking => "marking",
        MajorPhase::Sweeping => "sweeping",
        MajorPhase::Finalizing => "finalizing",
    }
}

/// The older the generation, the warmer the colour; what stops the program for long is red.
fn color(collection: &Collection) -> &'static str {
    let stops = collection.kind != CollectionKind::Major;
    match collection.kind {
        _ if stops && collection.duration >= LONG => "red",
        CollectionKind::Generation(0) | CollectionKind::Minor => "teal",
        CollectionKind::Generation(1) => "blue",
        CollectionKind::Generation(_) | CollectionKind::MajorStep(_) => "orange",
        CollectionKind::Major => "purple",
    }
}

fn data(collection: &Collection) -> Data {
    let (before, after) = (collection.bytes_before, collection.bytes_after);
    let totals = before.zip(after);
    let is_minor = collection.kind == CollectionKind::Minor;
    let is_generation = matches!(collection.kind, CollectionKind::Generation(_));
    Data {
        schema: schema_of(collection.kind),
        color: color(collection),
        pause: is_generation.then(|| millis(collection.duration)),
        generation: match collection.kind {
            CollectionKind::Generation(generation) => Some(generation),
            _ => None,
        },
        phase: match collection.kind {
            CollectionKind::MajorStep(phase) => Some(phase_name(phase)),
            _ => None,
        },
        freed_objects: collection.freed_objects,
        freed_bytes: totals.and_then(|(before, after)| before.checked_sub(after)),
        survived: totals
            .filter(|_| is_minor)
            .map(|(before, after)| after.saturating_sub(before)),
        before,
        after,
        ..Data::default()
    }
}

/// The schemas of all markers, for `meta.markerSchema`.
pub(super) fn schemas() -> Value {
    let field = |key, label, format| json!({ "key": key, "label": label, "format": format });
    let thread = field("thread", "Thread", "string");
    let generation = field("generation", "Generation", "integer");
    let pause = field("pause", "Pause", "milliseconds");
    let phase = field("phase", "Phase", "string");
    let survived = field("survived", "Survived (became old)", "bytes");
    let objects = field("freedObjects", "Objects freed", "integer");
    let freed = field("freedBytes", "Bytes freed", "bytes");
    let before = field("before", "Heap used before", "bytes");
    let after = field("after", "Heap used after", "bytes");
    let reserved = field("reserved", "Heap reserved", "bytes");
    let rss = field("rss", "RSS", "bytes");
    let outcome = field("outcome", "Result", "string");
    let optimizing = field("optimizing", "Optimizer", "milliseconds");
    let assembling = field("assembling", "Assembler", "milliseconds");
    let schema = |name: &str, labels: [&str; 2], fields: &[&Value], graph: Value, what: &str| {
        let [label, table] = labels;
        let mut schema = json!({
            "name": name,
            "tooltipLabel": label,
            "tableLabel": table,
            "chartLabel": label,
            "display": ["marker-chart", "marker-table", "timeline-overview", "timeline-memory"],
            "fields": fields,
            "colorField": "color",
            "description": what,
        });
        if graph.is_object() {
            schema["graphs"] = json!([graph]);
        }
        schema
    };
    json!([
        schema(
            schema_of(CollectionKind::Minor),
            [
                "Minor collection",
                "survived {marker.data.survived}, heap used {marker.data.after}, reserved {marker.data.reserved}, RSS {marker.data.rss}",
            ],
            &[&survived, &freed, &before, &after, &reserved, &rss, &thread],
            json!({ "key": "survived", "type": "bar", "color": "teal" }),
            "The nursery is emptied: reachable objects move to old memory, all others died young. Heap used is old memory.",
        ),
        schema(
            schema_of(CollectionKind::MajorStep(MajorPhase::Scanning)),
            [
                "Major collection: {marker.data.phase}",
                "{marker.data.phase}"
            ],
            &[&phase, &thread],
            Value::Null,
            "One step of an incremental collection of old memory.",
        ),
        schema(
            schema_of(CollectionKind::Major),
            ["Major collection", "heap used {marker.data.after}"],
            &[&before, &after, &thread],
            Value::Null,
            "A collection of old memory, from its first step to its last. The program runs between the steps.",
        ),
        schema(
            schema_of(CollectionKind::Generation(0)),
            [
                "Collection of generation {marker.data.generation}",
                "generation {marker.data.generation} freed {marker.data.freedObjects} objects, {marker.data.freedBytes}",
            ],
            &[
                &generation,
                &pause,
                &objects,
                &freed,
                &before,
                &after,
                &thread
            ],
            json!({ "key": "pause", "type": "bar", "color": "teal" }),
            "CPython looks for unreachable cycles in this generation and all younger ones.",
        ),
        schema(
            COMPILER,
            [
                "JIT: {marker.data.outcome}",
                "{marker.data.outcome}, optimizer {marker.data.optimizing}, assembler {marker.data.assembling}",
            ],
            &[&outcome, &optimizing, &assembling, &thread],
            Value::Null,
            "PyPy's JIT compiler: from the start of tracing to the machine code, or until the trace was given up. The program stands still, but for what it does while it is traced.",
        ),
    ])
}
