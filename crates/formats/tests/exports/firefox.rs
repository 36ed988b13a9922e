//! The Firefox Profiler's format, read as `src/types/profile.ts` describes it. That the profiler's
//! own engine reads it is tested from Python, in `tests/formats`.

use std::collections::BTreeMap;

use nthbyte_formats::firefox::{self, FirefoxOptions};
use nthbyte_profile::model::{Lifetime, Samples};
use nthbyte_profile::{Method, Profile};
use serde_json::Value;

use super::{by_function, close, profile, total};

fn export_with(profile: &Profile, options: FirefoxOptions) -> Value {
    let mut out = Vec::new();
    firefox::write_with(profile, options, &mut out, &mut |_, _| ()).unwrap();
    serde_json::from_slice(&out).unwrap()
}

pub fn export(profile: &Profile) -> Value {
    export_with(profile, FirefoxOptions::default())
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub fn numbers(value: &Value) -> Vec<usize> {
    let numbers = list(value).iter();
    numbers
        .map(|number| number.as_u64().unwrap() as usize)
        .collect()
}

pub fn column_sum(value: &Value) -> f64 {
    list(value)
        .iter()
        .map(|number| number.as_f64().unwrap())
        .sum()
}

/// The stack and the weight of each sample, without the rows in front.
fn samples(thread: &Value) -> Vec<(Option<usize>, f64)> {
    let samples = &thread["samples"];
    let stacks = list(&samples["stack"]).iter();
    let stacks = stacks.map(|stack| stack.as_u64().map(|stack| stack as usize));
    let weights = list(&samples["weight"]).iter();
    let mut rows: Vec<_> = stacks
        .zip(weights.map(|weight| weight.as_f64().unwrap()))
        .collect();
    let lead = rows.iter().take_while(|row| **row == (None, 0.0)).count();
    rows.drain(..lead);
    rows
}

/// Every column of a table is as long as the table says.
pub fn check_table(table: &Value) {
    let len = table["length"].as_u64().unwrap() as usize;
    for (name, column) in table.as_object().unwrap() {
        if let Some(column) = column.as_array() {
            assert_eq!(column.len(), len, "{name}");
        }
    }
}

/// The top of each stack, and the frame below it: function indexes.
struct Stacks {
    top: Vec<usize>,
    below: Vec<Option<usize>>,
}

impl Stacks {
    fn of(file: &Value) -> Self {
        let shared = &file["shared"];
        let functions = numbers(&shared["frameTable"]["func"]);
        let frames = numbers(&shared["stackTable"]["frame"]);
        let offsets = numbers(&shared["stackTable"]["prefixOffset"]);
        let top: Vec<usize> = frames.iter().map(|&frame| functions[frame]).collect();
        let below = offsets.iter().enumerate().map(|(at, &offset)| {
            assert!(offset <= at, "a caller comes before what it calls");
            (offset > 0).then(|| top[at - offset])
        });
        Self {
            below: below.collect(),
            top: top.clone(),
        }
    }
}

fn function_name(file: &Value, function: usize) -> &str {
    let shared = &file["shared"];
    let name = shared["funcTable"]["name"][function].as_u64().unwrap() as usize;
    shared["stringArray"][name].as_str().unwrap()
}

/// The export of a profile with a change.
pub fn changed(change: impl FnOnce(&mut Profile)) -> Value {
    let mut profile = profile(2_000, false);
    change(&mut profile);
    export(&profile)
}

#[test]
fn tables_are_well_formed() {
    for (samples, hostile) in [(0, false), (3_000, false), (3_000, true)] {
        let file = export(&profile(samples, hostile));
        let shared = &file["shared"];
        for (name, table) in shared.as_object().unwrap() {
            if name != "stringArray" {
                check_table(table);
            }
        }
        let stacks = Stacks::of(&file).top.len();
        assert!(!list(&file["threads"]).is_empty());
        for thread in list(&file["threads"]) {
            check_table(&thread["samples"]);
            check_table(&thread["markers"]);
            for stack in list(&thread["samples"]["stack"]) {
                assert!(stack.is_null() || (stack.as_u64().unwrap() as usize) < stacks);
            }
            let deltas = list(&thread["samples"]["timeDeltas"]);
            assert!(deltas.iter().all(|delta| delta.as_f64().unwrap() >= 0.0));
        }
        let categories = list(&file["meta"]["categories"]).len();
        let of_frames = numbers(&shared["frameTable"]["category"]);
        assert!(of_frames.into_iter().all(|category| category < categories));
        for counter in list(&file["counters"]) {
            check_table(&counter["samples"]);
        }
    }
}

#[test]
fn bytes_below_the_type_are_those_of_the_functions() {
    for hostile in [false, true] {
        let profile = profile(5_000, hostile);
        let file = export(&profile);
        let stacks = Stacks::of(&file);
        let mut found: BTreeMap<String, f64> = BTreeMap::new();
        for thread in list(&file["threads"]) {
            if thread["samples"]["weightType"] != "bytes" {
                continue;
            }
            for (stack, weight) in samples(thread) {
                let below = stacks.below[stack.unwrap()];
                let name = below.map_or("", |function| function_name(&file, function));
                *found.entry(name.to_owned()).or_default() += weight;
            }
        }
        for (name, bytes) in by_function(&profile) {
            let name = if name.is_empty() { "(unnamed)" } else { &name };
            assert!(close(found[name], bytes), "{name}: {} {bytes}", found[name]);
        }
    }
}

#[test]
fn a_type_is_a_function_for_each_fate_with_its_colour() {
    let profile = profile(5_000, false);
    let file = export(&profile);
    let frames = &file["shared"]["frameTable"];
    let categories = list(&file["meta"]["categories"]);
    let mut seen = 0;
    for (frame, &function) in numbers(&frames["func"]).iter().enumerate() {
        let category = frames["category"][frame].as_u64().unwrap() as usize;
        let expected = match function_name(&file, function) {
            name if name.ends_with(" (died young)") => "green",
            name if name.ends_with(" (freed later)") => "brown",
            name if name.ends_with(" (survived)") => "red",
            name if name.ends_with(" (still live)") => "magenta",
            _ => continue,
        };
        assert_eq!(categories[category]["color"], expected);
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn what_is_retained_is_what_was_not_freed() {
    let profile = profile(5_000, false);
    let options = [
        FirefoxOptions::default(),
        FirefoxOptions {
            max_objects: 500,
            ..FirefoxOptions::default()
        },
    ];
    for options in options {
        let file = export_with(&profile, options);
        let mut retained = 0.0;
        for thread in list(&file["threads"]) {
            let table = &thread["nativeAllocations"];
            if table.is_null() {
                continue;
            }
            check_table(table);
            let mut alive = BTreeMap::new();
            let mut before = 0.0;
            let rows = list(&table["weight"]).iter().enumerate();
            for (row, weight) in rows {
                let time = table["time"][row].as_f64().unwrap();
                assert!(time >= before);
                before = time;
                let address = table["memoryAddress"][row].as_u64().unwrap();
                let weight = weight.as_f64().unwrap();
                // Where an object was freed is not known.
                assert_eq!(table["stack"][row].is_null(), weight < 0.0);
                if weight < 0.0 {
                    assert_eq!(alive.remove(&address), Some(-weight));
                } else if weight > 0.0 {
                    assert_eq!(alive.insert(address, weight), None);
                }
            }
            retained += alive.values().sum::<f64>();
        }
        let kept = profile.samples.ids().filter(|&id| {
            matches!(
                profile.samples.lifetime(id),
                Lifetime::StillLive | Lifetime::Survived
            )
        });
        let kept: f64 = kept.map(|id| profile.weight(id).bytes).sum();
        assert!(close(retained, kept), "{retained} {kept}");
    }
}

#[test]
fn objects_without_known_ends_are_not_retained() {
    let file = changed(|profile| {
        for source in &mut profile.sources {
            source.method = Method::NurseryLimit.name().to_owned();
        }
        let mut samples = Samples::default();
        for id in profile.samples.ids() {
            let mut sample = profile.samples.get(id);
            if sample.lifetime != Lifetime::DiedYoung {
                (sample.lifetime, sample.freed) = (Lifetime::Survived, None);
            }
            samples.push(sample).unwrap();
        }
        profile.samples = samples;
    });
    for thread in list(&file["threads"]) {
        assert!(thread["nativeAllocations"].is_null());
    }
}

#[test]
fn merging_in_time_keeps_every_sum_and_says_so() {
    let profile = profile(20_000, false);
    let whole = export(&profile);
    let options = FirefoxOptions {
        max_samples: 2_000,
        max_objects: 1_000,
        ..FirefoxOptions::default()
    };
    let merged = export_with(&profile, options);
    let note = serde_json::to_string(&merged["meta"]["extra"]).unwrap();
    assert!(
        note.contains("Samples merged") && note.contains("Objects merged"),
        "{note}"
    );
    let sums = |file: &Value| {
        let stacks = Stacks::of(file);
        let mut sums: BTreeMap<(usize, String), f64> = BTreeMap::new();
        for (number, thread) in list(&file["threads"]).iter().enumerate() {
            if thread["samples"]["weightType"] == "bytes" {
                for (stack, weight) in samples(thread) {
                    let name = function_name(file, stacks.top[stack.unwrap()]).to_owned();
                    *sums.entry((number, name)).or_default() += weight;
                }
            }
        }
        sums
    };
    let rows = |file: &Value| -> usize {
        let threads = list(&file["threads"]).iter();
        let tables = threads.filter(|thread| thread["samples"]["weightType"] == "bytes");
        tables.map(|thread| samples(thread).len()).sum()
    };
    assert_eq!(rows(&whole), 20_000);
    assert!(rows(&merged) < 20_000);
    let (whole, merged) = (sums(&whole), sums(&merged));
    assert_eq!(whole.len(), merged.len());
    for (key, bytes) in whole {
        assert!(close(bytes, merged[&key]), "{key:?}");
    }
}

#[test]
fn time_samples_markers_and_counters_are_all_there() {
    let profile = profile(5_000, false);
    let file = export(&profile);
    let threads = list(&file["threads"]);
    let time: usize = threads
        .iter()
        .filter(|thread| thread["samples"]["weightType"] == "tracing-ms")
        .map(|thread| samples(thread).len())
        .sum();
    assert_eq!(time, profile.cpu.len());
    let markers: f64 = threads
        .iter()
        .map(|thread| thread["markers"]["length"].as_f64().unwrap())
        .sum();
    assert_eq!(markers as usize, profile.collections.len());
    let schemas: Vec<&Value> = list(&file["meta"]["markerSchema"])
        .iter()
        .map(|schema| &schema["name"])
        .collect();
    for data in threads
        .iter()
        .flat_map(|thread| list(&thread["markers"]["data"]))
    {
        assert!(schemas.contains(&&data["type"]));
    }
}

#[test]
fn names_are_unchanged_and_weights_add_up() {
    let profile = profile(3_000, true);
    let file = export(&profile);
    for (function, of) in profile.functions.iter().enumerate() {
        let expected = if of.name.is_empty() {
            "(unnamed)"
        } else {
            &of.name
        };
        assert_eq!(function_name(&file, function), expected);
    }
    let tables = list(&file["threads"])
        .iter()
        .map(|thread| &thread["samples"]);
    let bytes: f64 = tables
        .filter(|samples| samples["weightType"] == "bytes")
        .map(|samples| column_sum(&samples["weight"]))
        .sum();
    assert!(close(bytes, total(&profile)));
}

#[test]
fn only_python_files_are_read_and_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("app.py");
    let secret = folder.path().join("secret.key");
    std::fs::write(&script, "print('source')\n").unwrap();
    std::fs::write(&secret, "do not read me").unwrap();
    let mut profile = profile(1_000, false);
    profile.functions[0].file = script.display().to_string();
    profile.functions[1].file = secret.display().to_string();
    let texts = |file: &Value| list(&file["shared"]["sources"]["content"]).to_vec();
    let sources = FirefoxOptions {
        sources: true,
        ..FirefoxOptions::default()
    };
    let found = texts(&export_with(&profile, sources));
    assert_eq!(found.iter().filter(|text| !text.is_null()).count(), 1);
    assert!(found.contains(&Value::from("print('source')\n")));
    assert!(texts(&export(&profile)).iter().all(Value::is_null));
}
