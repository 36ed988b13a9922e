//! Collections as markers, each kind with a schema.

use nthbyte_profile::event::{Collection, CollectionKind, MajorPhase, Nanos, ThreadId};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Value, json};

use super::categories;
use super::column::{object, same};
use super::export::{Export, millis};

/// The format's number for a marker with both a start and an end.
const INTERVAL: u32 = 1;

/// The markers of one track.
pub(super) struct Markers {
    names: Vec<u32>,
    starts: Vec<f64>,
    ends: Vec<f64>,
    data: Vec<Data>,
}

/// The data of a marker besides its time.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    #[serde(rename = "type")]
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
}

impl Markers {
    pub fn none() -> Self {
        Self {
            names: Vec::new(),
            starts: Vec::new(),
            ends: Vec::new(),
            data: Vec::new(),
        }
    }

    /// The collections in a thread, ordered by their starts.
    pub fn of(export: &Export<'_>, thread: ThreadId) -> Self {
        let mut markers = Self::none();
        let all = &export.profile.collections;
        let mut list: Vec<&Collection> = all.iter().filter(|of| of.thread == thread).collect();
        list.sort_by_key(|collection| collection.start);
        for collection in list {
            let end = collection.start.0.saturating_add(collection.duration.0);
            markers.names.push(export.string(&name(collection.kind)));
            markers.starts.push(millis(collection.start));
            markers.ends.push(millis(Nanos(end)));
            markers.data.push(data(collection));
        }
        markers
    }
}

impl Serialize for Markers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let len = self.names.len();
        object(serializer, |map| {
            map.serialize_entry("name", &self.names)?;
            map.serialize_entry("startTime", &self.starts)?;
            map.serialize_entry("endTime", &self.ends)?;
            map.serialize_entry("phase", &same(INTERVAL, len))?;
            map.serialize_entry("category", &same(categories::GC.0, len))?;
            map.serialize_entry("data", &self.data)?;
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

fn name(kind: CollectionKind) -> String {
    match kind {
        CollectionKind::Generation(generation) => format!("Collection of generation {generation}"),
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

fn data(collection: &Collection) -> Data {
    let (before, after) = (collection.bytes_before, collection.bytes_after);
    Data {
        schema: schema_of(collection.kind),
        generation: match collection.kind {
            CollectionKind::Generation(generation) => Some(generation),
            _ => None,
        },
        phase: match collection.kind {
            CollectionKind::MajorStep(phase) => Some(phase_name(phase)),
            _ => None,
        },
        freed_objects: collection.freed_objects,
        // Memory may grow during a collection (when the nursery's objects move to old memory). Then
        // only the totals are given.
        freed_bytes: before
            .zip(after)
            .and_then(|(before, after)| before.checked_sub(after)),
        before,
        after,
    }
}

/// The schemas of all markers, for `meta.markerSchema`.
pub(super) fn schemas() -> Value {
    let field = |key, label, format| json!({ "key": key, "label": label, "format": format });
    let generation = field("generation", "Generation", "integer");
    let phase = field("phase", "Phase", "string");
    let totals = [
        field("freedObjects", "Objects freed", "integer"),
        field("freedBytes", "Bytes freed", "bytes"),
        field("before", "Memory before", "bytes"),
        field("after", "Memory after", "bytes"),
    ];
    let schema = |name: &str, label: &str, table: &str, first: Option<&Value>, what: &str| {
        let fields: Vec<&Value> = first.into_iter().chain(&totals).collect();
        json!({
            "name": name,
            "tooltipLabel": label,
            "tableLabel": table,
            "chartLabel": label,
            "display": ["marker-chart", "marker-table", "timeline-overview", "timeline-memory"],
            "fields": fields,
            "description": what,
        })
    };
    let freed = "freed {marker.data.freedBytes}, left {marker.data.after}";
    json!([
        schema(
            schema_of(CollectionKind::Minor),
            "Minor collection",
            freed,
            None,
            "PyPy empties the nursery: reachable objects move to old memory, all others died young.",
        ),
        schema(
            schema_of(CollectionKind::MajorStep(MajorPhase::Scanning)),
            "Major collection: {marker.data.phase}",
            "{marker.data.phase}",
            Some(&phase),
            "One step of an incremental collection of PyPy's old memory.",
        ),
        schema(
            schema_of(CollectionKind::Major),
            "Major collection",
            freed,
            None,
            "A collection of PyPy's old memory, from its first step to its last.",
        ),
        schema(
            schema_of(CollectionKind::Generation(0)),
            "Collection of generation {marker.data.generation}",
            "freed {marker.data.freedObjects} objects",
            Some(&generation),
            "CPython looks for unreachable cycles in this generation and all younger ones.",
        ),
    ])
}
