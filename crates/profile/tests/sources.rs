//! Sources of samples, their periods, and labels, in the tables that a file becomes.

use nthbyte_profile::event::{
    Allocation, CpuSample, Event, Extension, Label, LabelSetId, Nanos, NodeId, SampleId,
    SourceDefinition, SourceId, Survival, Thread, ThreadId, TypeId,
};
use nthbyte_profile::model::{Lifetime, Weight};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Meta, Method, Profile, Source, SourceKind, Unit, Writer};

const THREAD: Event<'static> = Event::Thread(Thread {
    os_id: 7,
    name: "main",
});

fn allocation(source: u16, labels: u32) -> Event<'static> {
    Event::Allocation(Allocation {
        time: Nanos(1000),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        size: 1000,
        block: 1008,
        points: 1,
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId(labels),
        source: SourceId(source),
        survival: Survival::Unsaid,
    })
}

fn cpu(source: u16) -> Event<'static> {
    Event::Cpu(CpuSample {
        time: Nanos(2000),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        labels: LabelSetId::NONE,
        source: SourceId(source),
    })
}

fn label<'a>(parent: u32, key: &'a str, value: &'a str) -> Event<'a> {
    Event::Label(Label {
        parent: LabelSetId(parent),
        key,
        value,
    })
}

/// A file with a block for each list of events, and where blocks end.
fn write(blocks: &[&[Event<'_>]]) -> (Vec<u8>, Vec<usize>) {
    let mut writer = Writer::new(Vec::new(), &Synthetic::default().meta()).expect("memory");
    let mut ends = vec![writer.get_ref().len()];
    for events in blocks {
        for event in *events {
            writer.write(event).expect("memory");
        }
        writer.flush().expect("memory");
        ends.push(writer.get_ref().len());
    }
    (writer.get_ref().clone(), ends)
}

fn read(blocks: &[&[Event<'_>]]) -> Profile {
    let profile = Profile::read(&write(blocks).0[..]).expect("a profile");
    assert_eq!(profile.damage, []);
    profile
}

fn bytes(period: u64) -> f64 {
    Weight::of(Distances::Exponential, period, 1000, 1008, 1).bytes
}

fn weights(profile: &Profile) -> Vec<f64> {
    let ids = profile.samples.ids();
    ids.map(|id| profile.weight(id).bytes).collect()
}

#[test]
fn a_sample_has_the_period_that_was_in_force() {
    let (first, second) = (Synthetic::default().period, 64 << 10);
    let change = Event::Period(SourceId::ALLOCATIONS, second);
    let back = Event::Period(SourceId::ALLOCATIONS, first);
    let all = allocation(0, 0);
    let (file, ends) = write(&[
        &[THREAD, all, change, all],
        &[all, cpu(1), Event::Period(SourceId::TIME, 5), cpu(1)],
        &[all, back, all],
    ]);
    let profile = Profile::read(&file[..]).expect("a profile");
    let expected = [first, second, second, second, first].map(bytes);
    assert_eq!(weights(&profile), expected);
    assert_eq!(profile.periods(), [second, first]);
    assert!(!profile.is_exact());
    let of = |at: usize| profile.sampling(profile.cpu[at].sampling).period;
    assert_eq!((of(0), of(1)), (10_000_000, 5));
    let hz = profile.time_hz().expect("periods are known");
    assert!((hz - 2e9 / 10_000_005.0).abs() < 1e-6, "{hz}");

    // Without the block in which it changed, the period is right all the same.
    for lost in 0..2 {
        let mut file = file.clone();
        file.drain(ends[lost]..ends[lost + 1]);
        let profile = Profile::read(&file[..]).expect("a profile");
        let expected = match lost {
            0 => &expected[2..],
            _ => &[expected[0], expected[1], expected[3], expected[4]][..],
        };
        assert_eq!(weights(&profile), expected);
    }
}

#[test]
fn a_source_of_time_has_the_nearest_period() {
    for (hz, nanoseconds) in [
        (0, 0),
        (1, 1_000_000_000),
        (7, 142_857_143),
        (1000, 1_000_000),
    ] {
        assert_eq!(Source::time(Method::Timer, hz).period, nanoseconds);
    }
}

#[test]
fn a_session_is_described_by_its_first_source_of_allocations() {
    let time = Source::time(Method::Timer, 100);
    let source =
        |kind, method, distances, period| Source::allocations(kind, method, distances, period);
    let heap = source(
        SourceKind::ObjectHeap,
        Method::CutFreeLists,
        Distances::Fixed,
        4096,
    );
    let malloc = source(SourceKind::Native, Method::Preload, Distances::Every, 64);
    for (sources, period, distances, method, has_collector) in [
        (
            vec![time.clone(), heap.clone(), malloc.clone()],
            4096,
            Distances::Fixed,
            Method::CutFreeLists.name(),
            true,
        ),
        (
            vec![time.clone(), malloc, heap],
            64,
            Distances::Every,
            Method::Preload.name(),
            false,
        ),
        (vec![time], 1, Distances::Exponential, "", true),
    ] {
        let meta = Meta {
            sources,
            ..Meta::default()
        };
        assert_eq!(meta.period(), period);
        assert_eq!(meta.distances(), distances);
        assert_eq!(meta.method(), method);
        assert_eq!(meta.has_collector(), has_collector);
    }
}

#[test]
fn a_source_may_begin_during_the_session() {
    let native = Source::allocations(
        SourceKind::Native,
        Method::Imported,
        Distances::Exponential,
        4096,
    );
    let begin = Event::Source(SourceId(9), native.definition());
    let (file, ends) = write(&[
        &[THREAD, begin, allocation(0, 0)],
        &[allocation(9, 0), Event::Period(SourceId(9), 8192)],
        &[allocation(9, 0)],
    ]);
    let whole = Profile::read(&file[..]).expect("a profile");
    let first = Synthetic::default().period;
    assert_eq!(weights(&whole), [first, 4096, 8192].map(bytes));
    assert_eq!(whole.sources.len(), 3);
    let sampling = whole.samples.shape(whole.samples.shape_id(SampleId(2)));
    let sampling = whole.sampling(sampling.sampling);
    assert_eq!(whole.sources[sampling.source.index()], native);
    assert_eq!((sampling.unit, sampling.period), (Unit::Bytes, 8192));
    let mut lossy = file.clone();
    lossy.drain(ends[0]..ends[2]);
    let lossy = Profile::read(&lossy[..]).expect("a profile");
    assert_eq!(weights(&lossy), [bytes(8192)]);
    assert_eq!(lossy.sources.len(), 3);
}

#[test]
fn what_a_later_version_wrote_is_left_out_and_said() {
    let definition = |kind, unit, distances| SourceDefinition {
        kind,
        unit,
        method: "magic",
        distances,
        period: 100,
    };
    let source = |number, kind, unit, distances| {
        Event::Source(SourceId(number), definition(kind, unit, distances))
    };
    let freed = |sample| Event::Freed(SampleId(sample), Nanos(9000));
    let extension = |kind| {
        Event::Extension(Extension {
            kind,
            bytes: b"anything",
        })
    };
    let profile = read(&[
        &[
            THREAD,
            source(5, "gpu", "bytes", "exponential"),
            source(6, "object-heap", "furlongs", "exponential"),
            source(7, "object-heap", "bytes", "in a spiral"),
            allocation(5, 0), // 0
            extension(200),
            allocation(0, 0), // 1
            allocation(5, 0), // 2
            allocation(6, 0), // 3
            allocation(0, 0), // 4
            extension(200),
        ],
        &[
            allocation(7, 0), // 5
            allocation(8, 0), // 6: never defined
            allocation(1, 0), // 7: a source of time samples
            cpu(0),
            cpu(1),
            extension(64),
            allocation(0, 0), // 8
            freed(1),
            freed(2),
            freed(8),
        ],
    ]);
    // The remaining samples are numbered as if the others had not been, and freed as it should be.
    let lifetimes: Vec<Lifetime> = profile
        .samples
        .iter()
        .map(|sample| sample.lifetime)
        .collect();
    assert_eq!(
        lifetimes,
        [
            Lifetime::DiedYoung,
            Lifetime::StillLive,
            Lifetime::DiedYoung
        ]
    );
    assert_eq!(profile.cpu.len(), 1);
    assert_eq!(
        profile.meta.notes[1..],
        [
            "2 samples of a source that this version does not know (kind `gpu`) were left out; use a newer nthbyte",
            "1 samples of a source that this version does not know (unit `furlongs`) were left out; use a newer nthbyte",
            "1 samples of a source that this version does not know (distances `in a spiral`) were left out; use a newer nthbyte",
            "2 events that this version does not know (kind 200) were left out; use a newer nthbyte",
            "1 samples of a source whose definition is lost were left out",
            "2 samples that do not fit their source were left out; use a newer nthbyte",
            "1 events that this version does not know (kind 64) were left out; use a newer nthbyte",
        ]
    );
}

#[test]
fn notes_on_what_is_unknown_are_few() {
    let kinds: Vec<String> = (0..1000)
        .map(|kind| format!("{kind}{}", "x".repeat(99)))
        .collect();
    let mut events = vec![THREAD];
    for (number, kind) in (10..).zip(&kinds) {
        let definition = SourceDefinition {
            kind,
            unit: "bytes",
            method: "",
            distances: "every",
            period: 1,
        };
        events.push(Event::Source(SourceId(number), definition));
        events.push(allocation(number, 0));
    }
    let profile = read(&[&events]);
    assert!(profile.samples.is_empty() && profile.meta.notes.len() < 30);
    assert!(profile.meta.notes.iter().all(|note| note.len() < 200));
}

#[test]
fn samples_have_labels() {
    let (file, ends) = write(&[
        &[
            THREAD,
            allocation(0, 0),
            label(0, "request", "/a"),
            allocation(0, 1),
        ],
        &[
            label(1, "task", "t1"),
            allocation(0, 2),
            label(2, "request", "/b"),
        ],
        &[allocation(0, 3), allocation(0, 1)],
    ]);
    let labels = |profile: &Profile| -> Vec<Vec<(String, String)>> {
        let samples = profile.samples.iter();
        samples
            .map(|sample| {
                let labels = profile.labels(sample.labels).into_iter();
                labels
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect()
            })
            .collect()
    };
    let of = |labels: &[(&str, &str)]| -> Vec<(String, String)> {
        labels
            .iter()
            .map(|&(key, value)| (key.into(), value.into()))
            .collect()
    };
    let profile = Profile::read(&file[..]).expect("a profile");
    let expected = [
        of(&[]),
        of(&[("request", "/a")]),
        of(&[("request", "/a"), ("task", "t1")]),
        of(&[("task", "t1"), ("request", "/b")]),
        of(&[("request", "/a")]),
    ];
    assert_eq!(labels(&profile), expected);
    // What a lost block defined is missing, and nothing else.
    let mut lossy = file.clone();
    lossy.drain(ends[0]..ends[1]);
    let lossy = Profile::read(&lossy[..]).expect("a profile");
    assert_eq!(
        labels(&lossy),
        [
            of(&[("task", "t1")]),
            of(&[("task", "t1"), ("request", "/b")]),
            of(&[]),
        ]
    );
}

#[test]
fn a_file_that_is_cut_has_samples_from_early_on() {
    // Even if nothing was written but what was full.
    let setup = Synthetic {
        samples: 1000,
        ..Synthetic::default()
    };
    let bytes = setup.bytes();
    let profile = Profile::read(&bytes[..bytes.len() * 2 / 3]).expect("a profile");
    assert!(!profile.complete && profile.samples.len() > 50);
    assert!(weights(&profile).iter().sum::<f64>() > 0.0);
}

/// An allocation of native memory of this size at a time in microseconds.
fn block(time: u64, size: u64) -> Event<'static> {
    Event::Allocation(Allocation {
        time: Nanos(time * 1000),
        size,
        block: size,
        ..match allocation(5, 0) {
            Event::Allocation(allocation) => allocation,
            _ => unreachable!(),
        }
    })
}

#[test]
fn native_memory_dies_young_by_bytes_and_not_by_collections() {
    let source = SourceDefinition {
        kind: "native",
        unit: "bytes",
        method: "preload",
        distances: "every",
        period: 1,
    };
    let freed = |sample, time: u64| Event::Freed(SampleId(sample), Nanos(time * 1000));
    let mega = 1 << 20;
    let profile = read(&[&[
        THREAD,
        Event::Source(SourceId(5), source),
        block(10, 100), // 0: freed while nothing else is allocated
        freed(0, 1_000_000),
        block(1_000_001, 100), // 1: no collection follows, but two mebibytes do
        block(1_000_002, 2 * mega), // 2: freed when one as large is there
        block(1_000_003, 2 * mega),
        freed(2, 1_000_004),
        freed(1, 1_000_005),
        block(1_000_006, 2 * mega), // 4: freed after three times its size
        block(1_000_007, 6 * mega),
        freed(4, 1_000_008),
    ]]);
    let lifetimes: Vec<Lifetime> = profile.samples.iter().map(|of| of.lifetime).collect();
    use Lifetime::{DiedYoung, Freed, StillLive};
    assert_eq!(
        lifetimes,
        [DiedYoung, Freed, DiedYoung, StillLive, Freed, StillLive]
    );
}
