//! The Firefox Profiler's tracks: counters, markers and samples, read as its page reads them.

use std::collections::BTreeMap;

use nthbyte_profile::event::{
    Collection, CollectionKind, FrameKind, Memory, Nanos, SampleId, ThreadId,
};
use nthbyte_profile::model::{Samples, ThreadNames, TimeSample};
use serde_json::Value;

use super::firefox::{changed, check_table, column_sum, export, list, numbers};
use super::profile;

/// What the page shows at a row while it shows all rows from another one on: `processCounter` and
/// `accumulateCounterSamples` of its `profile-data.ts`, and the sources of the rows of a tooltip.
fn shown(counter: &Value, from: usize, at: usize) -> BTreeMap<String, f64> {
    let column = |name: &str| {
        let values = list(&counter["samples"][name]).iter();
        let mut values: Vec<f64> = values.map(|value| value.as_f64().unwrap()).collect();
        // "These lines zero out the first values of the counters, as they are unreliable."
        values[0] = 0.0;
        values
    };
    let (count, number) = (column("count"), column("number"));
    let rows = list(&counter["display"]["tooltipRows"]).iter();
    let shown = rows.filter_map(|row| {
        let value = match row["source"].as_str().unwrap() {
            "sample-number" => number[at],
            "selection-total" => count[from + 1..=at].iter().sum(),
            "accumulated" => count[from..=at].iter().sum(),
            _ => return None,
        };
        Some((row["label"].as_str().unwrap().to_owned(), value))
    });
    shown.collect()
}

#[test]
fn tooltips_have_the_memory_itself_in_any_range() {
    let profile = profile(5_000, false);
    let file = export(&profile);
    let counters = list(&file["counters"]);
    let named = |name: &str| counters.iter().find(|of| of["name"] == name).unwrap();
    for (name, value) in [
        (
            "Heap used",
            (|at| at.heap_used) as fn(&Memory) -> Option<u64>,
        ),
        ("RSS", |at| at.rss),
    ] {
        let counter = named(name);
        let known: Vec<f64> = profile
            .memory
            .iter()
            .filter_map(|at| value(at).map(|bytes| bytes as f64))
            .collect();
        assert!(known.len() > 2);
        let label = format!("{name} at this time");
        for (at, expected) in known.iter().enumerate() {
            // The row in front has the time of the first one.
            for from in [0, at / 2 + 1] {
                assert_eq!(shown(counter, from, at + 1)[&label], *expected);
            }
        }
        let last = known.len();
        let growth = shown(counter, 1, last)["growth in the selection"];
        assert_eq!(growth, known[last - 1] - known[0]);
        let times = list(&counter["samples"]["time"]);
        assert_eq!(times[0], times[1]);
    }
    let rate = named("Allocation rate");
    let times: Vec<f64> = list(&rate["samples"]["time"])
        .iter()
        .map(|time| time.as_f64().unwrap())
        .collect();
    // A rate over no time would be infinite.
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_minor_collection_has_the_papers_figures() {
    let minor = |start: u64, before, after| Collection {
        start: Nanos(start),
        duration: Nanos(1_000_000),
        thread: ThreadId(0),
        kind: CollectionKind::Minor,
        freed_objects: None,
        bytes_before: Some(before),
        bytes_after: Some(after),
    };
    let reading = |time: u64, rss| Memory {
        time: Nanos(time),
        heap_used: Some(5),
        heap_reserved: rss,
        rss,
        ..Memory::default()
    };
    let file = changed(|profile| {
        profile.collections = vec![
            minor(10_000_000, 100, 150),
            minor(20_000_000, 150, 120),
            minor(30_000_000, 120, 180),
        ];
        profile.memory = vec![
            reading(5_000_000, Some(7)),
            reading(12_000_000, Some(8)),
            reading(31_000_000, Some(9)),
        ];
    });
    let threads = list(&file["threads"]);
    let with = threads
        .iter()
        .find(|of| of["markers"]["length"] == 3)
        .unwrap();
    let data = list(&with["markers"]["data"]);
    let column =
        |name: &str| -> Vec<Option<u64>> { data.iter().map(|of| of[name].as_u64()).collect() };
    assert_eq!(column("survived"), [Some(50), Some(0), Some(60)]);
    assert_eq!(column("freedBytes"), [None, Some(30), None]);
    assert_eq!(column("after"), [Some(150), Some(120), Some(180)]);
    // Read after the collection, and before the next one.
    assert_eq!(column("rss"), [Some(8), None, Some(9)]);
    assert_eq!(column("reserved"), column("rss"));
    let counters = list(&file["counters"]);
    let used = counters
        .iter()
        .find(|of| of["name"] == "Heap used")
        .unwrap();
    let numbers: Vec<u64> = list(&used["samples"]["number"])
        .iter()
        .map(|number| number.as_u64().unwrap())
        .collect();
    // The row in front, a value for each reading, and one for each collection.
    assert_eq!(numbers, [0, 5, 150, 5, 120, 5, 180]);
}

#[test]
fn a_process_has_its_collections_on_one_track() {
    let profile = profile(5_000, false);
    let file = export(&profile);
    let threads = list(&file["threads"]).iter();
    let with: Vec<&Value> = threads.filter(|of| of["markers"]["length"] != 0).collect();
    assert_eq!(with.len(), 1);
    let selected = file["meta"]["initialSelectedThreads"][0].as_u64().unwrap() as usize;
    assert_eq!(with[0]["name"], file["threads"][selected]["name"]);
}

#[test]
fn the_biggest_tracks_are_selected_and_visible() {
    const THREADS: u32 = 277;
    // The last five have the most bytes, in few samples; the five before them the most CPU time.
    const BIG: u32 = THREADS - 5;
    const BUSY: u32 = BIG - 5;
    let file = changed(|profile| {
        let mut samples = Samples::default();
        profile.threads = (0..THREADS)
            .map(|number| ThreadNames {
                os_id: number.into(),
                name: format!("Thread-{number}"),
            })
            .collect();
        let tick = profile.cpu[0];
        profile.cpu.clear();
        for thread in 0..THREADS {
            let is_big = thread >= BIG;
            for _ in 0..if is_big { 1 } else { 20 } {
                let mut sample = profile.samples.get(SampleId(0));
                sample.thread = ThreadId(thread);
                if is_big {
                    sample.shape.size = (24 << 20) + (u64::from(thread) << 10);
                    sample.shape.block = sample.shape.size;
                    sample.shape.points = 48;
                }
                samples.push(sample).unwrap();
            }
            // One time sample is a larger part of all than what a big thread has of the bytes.
            let ticks = match thread {
                BUSY..BIG => 2,
                0..60 | BIG.. => 1,
                _ => 0,
            };
            for _ in 0..ticks {
                let mut tick = tick;
                tick.thread = ThreadId(thread);
                profile.cpu.push(tick);
            }
        }
        profile.samples = samples;
        profile.collections.clear();
    });
    let threads = list(&file["threads"]);
    let name = |index: usize| threads[index]["name"].as_str().unwrap();
    assert_eq!(threads.len(), 277 + 60 + 5 + 5);
    // The kind comes first, since the page cuts names off; the most bytes come first of all.
    for (at, thread) in (BIG..THREADS).rev().enumerate() {
        assert_eq!(name(2 * at), format!("Alloc · Thread-{thread}"));
        assert_eq!(name(2 * at + 1), format!("CPU · Thread-{thread}"));
    }
    assert_eq!(numbers(&file["meta"]["initialSelectedThreads"]), [0]);
    let visible = numbers(&file["meta"]["initialVisibleThreads"]);
    assert_eq!(visible.len(), 30);
    let big = (BIG..THREADS).map(|thread| format!("Alloc · Thread-{thread}"));
    let busy = (BUSY..BIG).map(|thread| format!("CPU · Thread-{thread}"));
    for big in big.chain(busy) {
        assert!(visible.iter().any(|&index| name(index) == big), "{big}");
    }
}

#[test]
fn time_samples_weigh_milliseconds_of_cpu() {
    let profile = profile(5_000, false);
    let file = export(&profile);
    let nanos = |sample: &TimeSample| profile.sampling(sample.sampling).period as f64;
    let all: f64 = profile.cpu.iter().map(nanos).sum();
    let (mut weights, mut used) = (0.0, 0.0);
    for thread in list(&file["threads"]) {
        let samples = &thread["samples"];
        if samples["weightType"] == "tracing-ms" {
            weights += column_sum(&samples["weight"]) * 1e6;
            used += column_sum(&samples["threadCPUDelta"]);
            check_table(samples);
        }
    }
    assert!(all > 0.0);
    assert!((weights - all).abs() < 1e-6 * all, "{weights} {all}");
    assert!((used - all).abs() < 1e-6 * all, "{used} {all}");
    assert_eq!(file["meta"]["sampleUnits"]["threadCPUDelta"], "ns");
}

#[test]
fn no_part_of_a_track_is_said_to_be_lost() {
    // The page hatches the time before the first row: "the profiling buffer was full".
    for file in [
        export(&profile(5_000, false)),
        changed(|profile| profile.processes[0].start = Nanos(3_000)),
    ] {
        let threads = list(&file["threads"]);
        assert!(threads.len() > 3);
        for thread in threads {
            let samples = &thread["samples"];
            let first = |column: &str| samples[column][0].as_f64();
            assert_eq!(first("timeDeltas"), thread["registerTime"].as_f64());
            assert_eq!((first("stack"), first("weight")), (None, Some(0.0)));
            let second = samples["timeDeltas"][1].as_f64().unwrap();
            if samples["weightType"] == "bytes" {
                // Nothing is drawn before the first sample.
                assert!(samples["stack"][1].is_null() && samples["stack"][2].is_u64());
                assert_eq!(samples["weight"][1], 0);
                assert_eq!(samples["timeDeltas"][2], 0.001);
            } else {
                // There is no rate between two rows of one time.
                assert!(second > 0.0);
            }
            assert!(matches!(first("threadCPUDelta"), None | Some(0.0)));
        }
    }
    // A sample at the start, in microseconds, is the first row.
    let file = changed(|profile| {
        profile.processes[0].start = Nanos(3_000);
        profile.cpu.truncate(1);
        profile.cpu[0].time = Nanos(3_500);
    });
    let threads = list(&file["threads"]).iter();
    let mut times = threads.filter(|of| of["samples"]["weightType"] == "tracing-ms");
    assert_eq!(times.next().unwrap()["samples"]["length"], 1);
}

#[test]
fn a_function_has_one_category_however_it_runs() {
    let file = changed(|profile| {
        for (at, frame) in profile.frames.iter_mut().enumerate() {
            frame.kind = [FrameKind::Interpreted, FrameKind::Jit][at % 2];
        }
    });
    let frames = &file["shared"]["frameTable"];
    let categories = list(&file["meta"]["categories"]);
    let mut of_function: BTreeMap<usize, usize> = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    for (at, function) in numbers(&frames["func"]).into_iter().enumerate() {
        let category = numbers(&frames["category"])[at];
        assert_eq!(*of_function.entry(function).or_insert(category), category);
        let subcategory = numbers(&frames["subcategory"])[at];
        let name = categories[category]["subcategories"][subcategory].as_str();
        *kinds.entry(name.unwrap().to_owned()).or_insert(0) += 1;
    }
    assert!(kinds["Interpreted"] > 3 && kinds["JIT"] > 3, "{kinds:?}");
}
