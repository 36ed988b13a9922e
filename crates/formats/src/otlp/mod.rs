//! OTLP profiles: what an OpenTelemetry Collector takes, as one message for each window of a recording.
//!
//! The signal is in development: this is `v1development` of version 1.11 of the protocol. A profile has one type of sample there, so a window has
//! a profile for each of `alloc_objects`, `alloc_space`, `inuse_objects`, `inuse_space`, and `samples` where time was sampled. They share a dictionary, of
//! which element 0 of each table has no value, and which has nothing that no sample refers to. The type of an object and the labels of a sample
//! are attributes of it; attributes of the whole process belong to the resource.

mod message;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;
use prost::Message as _;

use crate::depth::Depths;
use crate::meter::Meter;
use crate::names;
use crate::window::{Window, sum};
use message::{
    AnyValue, Attribute, Dictionary, Function, KeyValue, Line, Location, Nothing, Request,
    Resource, ResourceProfiles, Sample, Scope, ScopeProfiles, Stack, ValueType,
};

/// The frames that the stacks of a message have together before they are cut to less than they have.
const MOST_FRAMES: u64 = 4 << 20;

/// The key of the attribute with the type of an object.
const TYPE: &str = "nthbyte.type";

/// An `ExportProfilesServiceRequest` with a window of a profile. `id` identifies it: a receiver that gets it twice can tell. `resource` has the
/// attributes of the resource, beside those that the profile itself says.
#[must_use]
pub fn encode(
    profile: &Profile,
    window: Window,
    id: [u8; 16],
    resource: &[(String, String)],
) -> Vec<u8> {
    let mut nobody = |_, _| ();
    let rows = sum(profile, Some(window), &Meter::new(0, &mut nobody));
    let cut = Depths::of(profile).cut(rows.iter().map(|((stack, ..), _)| *stack), MOST_FRAMES);
    let mut tables = Tables::new(profile, cut.note());
    let has_time = rows.iter().any(|(_, sums)| sums.time_samples > 0);
    let kinds = KINDS.iter().filter(|kind| kind.2 || has_time);
    let mut profiles: Vec<message::Profile> = kinds
        .zip(0_u8..)
        .map(|(&(kind, unit, _), number)| message::Profile {
            sample_type: Some(tables.value_type(kind, unit)),
            time_unix_nano: profile
                .meta
                .started_unix_nanos
                .saturating_add(window.since.0),
            duration_nano: window.until.0.saturating_sub(window.since.0),
            period_type: Some(tables.value_type("space", "bytes")),
            // Where it has changed, none is right for all; values do not need it.
            period: match profile.periods()[..] {
                [period] => i64::try_from(period).unwrap_or(i64::MAX),
                _ => 0,
            },
            // Each of them is one of its own.
            profile_id: {
                let mut id = id;
                id[15] ^= number;
                id.to_vec()
            },
            ..message::Profile::default()
        })
        .collect();
    let mut frames = Vec::new();
    for ((stack, type_id, process, set), sums) in rows {
        let is_cut = cut.innermost(profile, stack, &mut frames);
        let stack_index = tables.stack(stack, &frames, is_cut);
        let of_type = type_id.map(|of| (TYPE, names::type_name(profile, of)));
        let labels = profile.labels(set).into_iter();
        let pid = profile.processes[process.index()].meta.pid.to_string();
        let of_process = (profile.processes.len() > 1).then_some(("process.pid", pid.as_str()));
        let attribute_indices: Vec<i32> = of_type
            .into_iter()
            .chain(of_process)
            .chain(labels)
            .map(|(key, value)| tables.attribute(key, value))
            .collect();
        let values = [
            sums.allocations,
            sums.bytes,
            sums.in_use,
            sums.in_use_bytes,
            sums.time_samples as f64,
        ];
        for (of, value) in profiles.iter_mut().zip(values) {
            if value.round() > 0.0 {
                of.samples.push(Sample {
                    stack_index,
                    attribute_indices: attribute_indices.clone(),
                    values: vec![value.round() as i64],
                });
            }
        }
    }
    let scope = Scope {
        name: "nthbyte".to_owned(),
        version: profile.meta.nthbyte.clone(),
    };
    let attributes = resource_of(profile, resource);
    let request = Request {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource { attributes }),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles,
            }],
        }],
        dictionary: Some(tables.made),
    };
    request.encode_to_vec()
}

/// The types of samples with their units, and whether they are there without time samples.
const KINDS: [(&str, &str, bool); 5] = [
    ("alloc_objects", "count", true),
    ("alloc_space", "bytes", true),
    ("inuse_objects", "count", true),
    ("inuse_space", "bytes", true),
    ("samples", "count", false),
];

fn resource_of(profile: &Profile, more: &[(String, String)]) -> Vec<KeyValue> {
    let meta = &profile.meta;
    let text = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            string_value: Some(value.to_owned()),
            int_value: None,
        }),
    };
    let mut attributes: Vec<KeyValue> = more.iter().map(|(key, value)| text(key, value)).collect();
    let is_new = |attributes: &[KeyValue], key: &str| attributes.iter().all(|of| of.key != key);
    let pid = KeyValue {
        key: "process.pid".to_owned(),
        value: Some(AnyValue {
            string_value: None,
            int_value: Some(meta.pid.into()),
        }),
    };
    let host = meta.host.iter().map(|host| text("host.name", host));
    let version = [text("process.runtime.description", &meta.interpreter)];
    let tags = meta.tags().map(|(key, value)| text(key, value));
    for one in [pid].into_iter().chain(host).chain(version).chain(tags) {
        if is_new(&attributes, &one.key) {
            attributes.push(one);
        }
    }
    attributes
}

/// The tables of a message, with the numbers of their entries.
struct Tables<'a> {
    profile: &'a Profile,
    /// What stands for the outer frames of a stack that is cut.
    note: Option<String>,
    strings: HashMap<String, i32, RandomState>,
    functions: HashMap<u32, i32, RandomState>,
    locations: HashMap<u32, i32, RandomState>,
    stacks: HashMap<NodeId, i32, RandomState>,
    attributes: HashMap<(String, String), i32, RandomState>,
    made: Dictionary,
}

impl<'a> Tables<'a> {
    fn new(profile: &'a Profile, note: Option<String>) -> Self {
        Self {
            profile,
            note,
            strings: [(String::new(), 0)].into_iter().collect(),
            functions: HashMap::default(),
            locations: HashMap::default(),
            stacks: HashMap::default(),
            attributes: HashMap::default(),
            made: Dictionary {
                mapping_table: vec![Nothing {}],
                location_table: vec![Location::default()],
                function_table: vec![Function::default()],
                link_table: vec![Nothing {}],
                string_table: vec![String::new()],
                attribute_table: vec![Attribute::default()],
                stack_table: vec![Stack::default()],
            },
        }
    }

    fn string(&mut self, text: &str) -> i32 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let number = push(&mut self.made.string_table, text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            type_strindex: self.string(kind),
            unit_strindex: self.string(unit),
        }
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let pair = (key.to_owned(), value.to_owned());
        if let Some(&known) = self.attributes.get(&pair) {
            return known;
        }
        let attribute = Attribute {
            key_strindex: self.string(key),
            value: Some(AnyValue {
                string_value: Some(value.to_owned()),
                int_value: None,
            }),
        };
        let number = push(&mut self.made.attribute_table, attribute);
        self.attributes.insert(pair, number);
        number
    }

    /// A stack of these frames, innermost first.
    fn stack(&mut self, stack: NodeId, frames: &[u32], is_cut: bool) -> i32 {
        if let Some(&known) = self.stacks.get(&stack) {
            return known;
        }
        let mut location_indices: Vec<i32> =
            frames.iter().map(|&frame| self.location(frame)).collect();
        if location_indices.is_empty() {
            location_indices.push(self.named(NO_FRAME, names::NO_FRAME));
        } else if let (true, Some(note)) = (is_cut, self.note.clone()) {
            location_indices.push(self.named(CUT, &note));
        }
        let number = push(&mut self.made.stack_table, Stack { location_indices });
        self.stacks.insert(stack, number);
        number
    }

    fn location(&mut self, frame: u32) -> i32 {
        if let Some(&known) = self.locations.get(&frame) {
            return known;
        }
        let of = self.profile.frames[frame as usize];
        let line = Line {
            function_index: self.function(of.function),
            line: of.line.into(),
        };
        self.place(frame, line)
    }

    /// The location of something that is no frame.
    fn named(&mut self, number: u32, name: &str) -> i32 {
        if let Some(&known) = self.locations.get(&number) {
            return known;
        }
        let function = Function {
            name_strindex: self.string(name),
            ..Function::default()
        };
        let function_index = push(&mut self.made.function_table, function);
        self.place(
            number,
            Line {
                function_index,
                line: 0,
            },
        )
    }

    fn place(&mut self, frame: u32, line: Line) -> i32 {
        let location = Location { lines: vec![line] };
        let number = push(&mut self.made.location_table, location);
        self.locations.insert(frame, number);
        number
    }

    fn function(&mut self, function: u32) -> i32 {
        if let Some(&known) = self.functions.get(&function) {
            return known;
        }
        let of = &self.profile.functions[function as usize];
        let made = Function {
            name_strindex: self.string(names::function(of)),
            filename_strindex: self.string(&of.file),
            start_line: of.first_line.into(),
        };
        let number = push(&mut self.made.function_table, made);
        self.functions.insert(function, number);
        number
    }
}

/// Numbers of locations that are no frames.
const NO_FRAME: u32 = u32::MAX;
const CUT: u32 = u32::MAX - 1;

/// The place of a value at the end of a table.
fn push<T>(table: &mut Vec<T>, value: T) -> i32 {
    table.push(value);
    table.len() as i32 - 1
}
