//! Memory totals as counter tracks with names and units.

use nthbyte_profile::event::{Memory, Nanos};
use nthbyte_profile::model::ProcessId;
use serde_json::{Value, json};

use super::export::{Export, millis};

/// A total: its name, meaning, colour, and the field that has it.
struct Kind {
    name: &'static str,
    description: &'static str,
    color: &'static str,
    value: fn(&Memory) -> Option<u64>,
}

const TOTALS: [Kind; 3] = [
    Kind {
        name: "Heap used",
        description: "Heap memory in blocks that are in use",
        color: "green",
        value: |memory| memory.heap_used,
    },
    Kind {
        name: "Heap reserved",
        description: "Heap memory taken from the operating system",
        color: "orange",
        value: |memory| memory.heap_reserved,
    },
    Kind {
        name: "RSS",
        description: "Resident set size of the process",
        color: "purple",
        value: |memory| memory.rss,
    },
];

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
    for (weight, total) in TOTALS.iter().enumerate() {
        let values = series(memory, total.value);
        if !values.is_empty() {
            let rows = json!([
                row(
                    "accumulated",
                    "bytes",
                    &format!("{} at this time", total.name)
                ),
                row("count-range", "bytes", "highest in the visible range"),
            ]);
            let display = display(total, weight, "line-accumulated", &rows);
            counters.push(counter(export, place, total, &values, &display));
        }
    }
    let rate = Kind {
        name: "Allocation rate",
        description: "Bytes that the program allocates in a second, sampled or not",
        color: "blue",
        value: |memory| memory.allocated,
    };
    let values = series(memory, rate.value);
    if !values.is_empty() {
        let rows = json!([
            row("rate", "bytes-per-second", "allocated"),
            row("accumulated", "bytes", "allocated up to this time"),
        ]);
        let display = display(&rate, TOTALS.len(), "line-rate", &rows);
        counters.push(counter(export, place, &rate, &values, &display));
    }
}

/// The known values, ordered by time.
fn series(memory: &[Memory], value: fn(&Memory) -> Option<u64>) -> Vec<(Nanos, u64)> {
    let known = memory.iter().filter_map(|at| Some((at.time, value(at)?)));
    let mut series: Vec<(Nanos, u64)> = known.collect();
    series.sort_by_key(|&(time, _)| time);
    series
}

fn row(source: &str, unit: &str, label: &str) -> Value {
    json!({ "type": "value", "source": source, "format": { "unit": unit }, "label": label })
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

/// The format requires differences: each value minus the one before. The first value is unchanged.
fn counter(
    export: &Export<'_>,
    place: Place,
    kind: &Kind,
    values: &[(Nanos, u64)],
    display: &Value,
) -> Value {
    let mut before = 0;
    let changes: Vec<i64> = values
        .iter()
        .map(|&(_, value)| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            value - std::mem::replace(&mut before, value)
        })
        .collect();
    let times: Vec<f64> = values.iter().map(|&(time, _)| millis(time)).collect();
    json!({
        "name": kind.name,
        "category": "Memory",
        "description": kind.description,
        "pid": export.profile.processes[place.process.index()].meta.pid.to_string(),
        "mainThreadIndex": place.track,
        "samples": { "time": times, "count": changes, "length": values.len() },
        "display": display,
    })
}
