//! Memory totals as counter tracks with names and units.
//!
//! The page has two columns for a counter. It draws `count`, the changes, and it sets the first one to zero. So the
//! first row is one of our own, with the value 0, and what was in use at the session's start is the second change. `number` has the
//! values themselves, for the tooltip: what the page sums up from the changes begins anew with each range that the
//! user zooms into.

use nthbyte_profile::event::{CollectionKind, Memory, Nanos};
use nthbyte_profile::model::ProcessId;
use serde_json::{Value, json};

use super::export::{Export, millis};

/// A total: its name, meaning and colour.
struct Kind {
    name: &'static str,
    description: &'static str,
    color: &'static str,
}

const HEAP_USED: Kind = Kind {
    name: "Heap used",
    description: "Heap memory in blocks that are in use",
    color: "green",
};
const HEAP_RESERVED: Kind = Kind {
    name: "Heap reserved",
    description: "Heap memory taken from the operating system",
    color: "orange",
};
const NATIVE: Kind = Kind {
    name: "Native memory",
    description: "Native memory in use (malloc, mmap), estimated from samples",
    color: "teal",
};
const RSS: Kind = Kind {
    name: "RSS",
    description: "Resident set size of the process",
    color: "purple",
};
const RATE: Kind = Kind {
    name: "Allocation rate",
    description: "Bytes that the program allocates in a second: objects as counted, native memory as estimated from samples",
    color: "blue",
};

/// A value at each of several times, ordered by time.
type Series = Vec<(Nanos, u64)>;

/// The counters that the session has values for, of each process that has a track.
pub(super) fn of(export: &Export<'_>) -> Vec<Value> {
    let mut counters = Vec::new();
    for process in export.profile.process_ids() {
        let mut tracks = export.tracks.iter();
        let first = tracks.position(|track| export.profile.process_of(track.thread) == process);
        if let Some(track) = first {
            let place = Place { process, track };
            of_process(export, place, &mut counters);
        }
    }
    counters
}

/// Whose counter it is.
#[derive(Clone, Copy)]
struct Place {
    process: ProcessId,
    /// The process's first track.
    track: usize,
}

fn of_process(export: &Export<'_>, place: Place, counters: &mut Vec<Value>) {
    let memory = export.profile.memory_of(place.process);
    let native = &export.native[place.process.index()];
    let mut used = series(memory, |at| at.heap_used);
    if !used.is_empty() {
        used.extend(after_minors(export, place.process));
        used.sort_by_key(|&(time, _)| time);
    }
    let totals = [
        (HEAP_USED, used),
        (HEAP_RESERVED, series(memory, |at| at.heap_reserved)),
        (NATIVE, native.in_use(export.end_of(place.process))),
        (RSS, series(memory, |at| at.rss)),
    ];
    for (weight, (total, values)) in totals.into_iter().enumerate() {
        if !values.is_empty() {
            let here = format!("{} at this time", total.name);
            let rows = json!([
                row("sample-number", "bytes", &here),
                row("count-range", "bytes", "change across the graph"),
                of_selection("selection-total", "bytes", "growth in the selection"),
            ]);
            let display = display(&total, weight, "line-accumulated", &rows);
            counters.push(counter(export, place, &total, &values, &display));
        }
    }
    let values = native.added_to(series(memory, |at| at.allocated));
    if !values.is_empty() {
        let rows = json!([
            row("rate", "bytes-per-second", "allocated"),
            row("sample-number", "bytes", "allocated up to this time"),
            of_selection("selection-total", "bytes", "allocated in the selection"),
            of_selection(
                "selection-rate",
                "bytes-per-second",
                "allocated in the selection"
            ),
        ]);
        let display = display(&RATE, 4, "line-rate", &rows);
        counters.push(counter(export, place, &RATE, &values, &display));
    }
}

/// The known values, ordered by time.
fn series(memory: &[Memory], value: fn(&Memory) -> Option<u64>) -> Series {
    let known = memory.iter().filter_map(|at| Some((at.time, value(at)?)));
    let mut series: Series = known.collect();
    series.sort_by_key(|&(time, _)| time);
    series
}

/// What each of PyPy's minor collections left in use.
fn after_minors(export: &Export<'_>, process: ProcessId) -> Series {
    let profile = export.profile;
    let minors = profile.collections.iter().filter(|collection| {
        collection.kind == CollectionKind::Minor && profile.process_of(collection.thread) == process
    });
    minors
        .filter_map(|minor| Some((minor.end(), minor.bytes_after?)))
        .collect()
}

fn row(source: &str, unit: &str, label: &str) -> Value {
    json!({ "type": "value", "source": source, "format": { "unit": unit }, "label": label })
}

/// A row that is there while a part of the graph is selected.
fn of_selection(source: &str, unit: &str, label: &str) -> Value {
    let mut row = row(source, unit, label);
    row["requiresPreviewSelection"] = json!(true);
    row
}

fn display(kind: &Kind, weight: usize, graph: &str, rows: &Value) -> Value {
    json!({
        "graphType": graph,
        "unit": "bytes",
        "color": kind.color,
        "markerSchemaLocation": if weight == 0 { Some("timeline-memory") } else { None },
        "sortWeight": weight,
        "label": kind.name,
        "tooltipRows": rows,
    })
}

fn counter(
    export: &Export<'_>,
    place: Place,
    kind: &Kind,
    values: &[(Nanos, u64)],
    display: &Value,
) -> Value {
    let process = &export.profile.processes[place.process.index()];
    // At a rate, the first row is the start of the session, when nothing was allocated. Of a total, it is at the time of the
    // first value, so that nobody sees it.
    let first = values.first().map_or(process.start, |&(time, _)| time);
    let start = if display["graphType"] == "line-rate" {
        process.start.min(first)
    } else {
        first
    };
    let mut all = vec![(start, 0)];
    all.extend_from_slice(values);
    if display["graphType"] == "line-rate" {
        // There is no rate between two rows of one time.
        let micros = |row: &(Nanos, u64)| row.0.0 / 1000;
        all.dedup_by(|later, row| {
            let is_same = micros(later) == micros(row);
            if is_same {
                row.1 = later.1;
            }
            is_same
        });
    }
    let mut times = Vec::with_capacity(all.len());
    let mut numbers = Vec::with_capacity(all.len());
    let mut changes: Vec<i64> = Vec::with_capacity(all.len());
    let mut before = 0;
    for (time, value) in all {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        times.push(millis(time));
        numbers.push(value);
        changes.push(value - std::mem::replace(&mut before, value));
    }
    json!({
        "name": kind.name,
        "category": "Memory",
        "description": kind.description,
        "pid": process.meta.pid.to_string(),
        "mainThreadIndex": place.track,
        "samples": { "time": times, "number": numbers, "count": changes, "length": times.len() },
        "display": display,
    })
}
