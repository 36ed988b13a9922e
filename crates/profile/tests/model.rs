//! What the tables say that events were made into.

use std::collections::HashSet;

use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, End, Event, FrameKind, LabelSetId, Lines,
    LostKind, Memory, Nanos, Node, NodeId, SampleId, SourceId, Survival, Thread, ThreadId, TypeId,
    TypeName,
};
use nthbyte_profile::model::{Lifetime, Sampling};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Profile, Unit, Writer};

fn load(events: &[Event<'_>]) -> Profile {
    let mut writer = Writer::new(Vec::new(), &Synthetic::default().meta()).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
    writer.flush().unwrap();
    let profile = Profile::read(&writer.get_ref()[..]).unwrap();
    assert_eq!(profile.damage, []);
    profile
}

fn allocation(millis: u64, survival: Survival) -> Event<'static> {
    Event::Allocation(Allocation {
        time: Nanos(millis * 1_000_000),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        size: 64,
        block: 64,
        points: 1,
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
        survival,
    })
}

fn collection(kind: CollectionKind) -> Event<'static> {
    Event::Collection(Collection {
        start: Nanos(0),
        duration: Nanos(5),
        thread: ThreadId(0),
        kind,
        freed_objects: None,
        bytes_before: None,
        bytes_after: None,
    })
}

fn freed(sample: u32, millis: u64) -> Event<'static> {
    Event::Freed(SampleId(sample), Nanos(millis * 1_000_000))
}

const THREAD: Event<'static> = Event::Thread(Thread {
    os_id: 7,
    name: "before",
});

#[test]
fn fates_follow_from_the_order_of_events() {
    let young = CollectionKind::Generation(0);
    let profile = load(&[
        THREAD,
        allocation(1, Survival::Unsaid), // 0: freed before any collection
        allocation(2, Survival::Unsaid), // 1: freed by the first one
        allocation(3, Survival::Unsaid), // 2: freed after it
        allocation(4, Survival::Unsaid), // 3: never freed
        allocation(5, Survival::DiedYoung), // 4
        allocation(6, Survival::Survived), // 5
        allocation(7, Survival::Survived), // 6: and freed
        freed(0, 8),
        freed(1, 9),
        collection(young),
        freed(2, 10),
        allocation(11, Survival::Unsaid), // 7: young in the second youth
        collection(CollectionKind::Major),
        freed(7, 12),
        freed(6, 13),
    ]);
    let lifetimes: Vec<Lifetime> = profile
        .samples
        .iter()
        .map(|sample| sample.lifetime)
        .collect();
    assert_eq!(
        lifetimes,
        [
            Lifetime::DiedYoung,
            Lifetime::DiedYoung,
            Lifetime::Freed,
            Lifetime::StillLive,
            Lifetime::DiedYoung,
            Lifetime::Survived,
            Lifetime::Freed,
            Lifetime::DiedYoung,
        ]
    );
    assert_eq!(profile.samples.freed(SampleId(2)), Some(Nanos(10_000_000)));
    assert_eq!(profile.samples.freed(SampleId(3)), None);
    assert_eq!(profile.end, Nanos(13_000_000));
    assert!(!profile.complete);
}

#[test]
fn nodes_of_one_line_are_one() {
    let code = |name| {
        Event::Code(Code {
            name,
            file: "app.py",
            first_line: 10,
            // Two units on line 10, two on line 11.
            lines: Lines::LocationTable(&[0x80 | 1, 0, 0x80 | 11 << 3 | 1, 0, 0]),
        })
    };
    let node = |parent, code, position| {
        Event::Node(Node {
            parent: NodeId(parent),
            code: CodeId(code),
            position,
            kind: FrameKind::Interpreted,
        })
    };
    let profile = load(&[
        code("f"),
        code("f"), // the same function, defined again
        code("g"),
        node(0, 0, 0), // 1
        node(0, 0, 2), // 2: the same line
        node(0, 1, 2), // 3: the same function
        node(0, 0, 4), // 4: the next line
        node(3, 2, 6), // 5: below the first
        node(1, 2, 4), // 6: the same
    ]);
    assert_eq!(profile.functions.len(), 2);
    // The root, f:10, f:11, g:11 below f:10.
    assert_eq!(profile.stacks.len(), 4);
    let lines = |node| -> Vec<u32> {
        profile
            .stack(NodeId(node))
            .map(|frame| frame.line)
            .collect()
    };
    assert_eq!(
        (lines(1), lines(2), lines(3)),
        (vec![10], vec![11], vec![11, 10])
    );
}

#[test]
fn names_totals_and_losses() {
    let memory = |millis: u64, allocated| {
        Event::Memory(Memory {
            time: Nanos(millis * 1_000_000),
            allocated,
            ..Memory::default()
        })
    };
    let profile = load(&[
        THREAD,
        Event::ThreadName(ThreadId(0), "after"),
        Event::ThreadName(ThreadId(9), "of nobody"),
        Event::Type(TypeName {
            name: "int",
            native: "W_IntObject",
        }),
        memory(5, Some(100)),
        memory(6, None),
        Event::Lost(LostKind::CpuSamples, 0),
        Event::Lost(LostKind::Other, 2),
        Event::Lost(LostKind::Other, 3),
    ]);
    assert_eq!(
        (profile.threads.len(), profile.threads[0].name.as_str()),
        (1, "after")
    );
    assert_eq!(profile.types[1].native, "W_IntObject");
    // The session did not end: what was counted on the way is not all.
    assert_eq!((profile.complete, profile.allocated), (false, None));
    assert_eq!(profile.lost, [(LostKind::Other, 5)]);
    assert_eq!(profile.memory.len(), 2);
}

#[test]
fn an_end_is_the_end() {
    let setup = Synthetic {
        samples: 50,
        distances: Distances::Every,
        ..Synthetic::default()
    };
    let mut writer = Writer::new(Vec::new(), &setup.meta()).unwrap();
    setup.events(|event| writer.write(event).unwrap());
    let end = End {
        time: Nanos(77_000_000_000),
        allocated: Some(5),
    };
    let bytes = writer.finish(end).unwrap();
    let mut steps = Vec::new();
    let path = std::env::temp_dir().join(format!("nthbyte-end-{}.nthb", std::process::id()));
    std::io::Write::write_all(&mut nthbyte_profile::create(&path).unwrap(), &bytes).unwrap();
    let profile = Profile::load_with(&path, |done, total| steps.push((done, total))).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        (profile.complete, profile.end, profile.allocated),
        (true, end.time, Some(5))
    );
    assert_eq!(
        steps.last(),
        Some(&(bytes.len() as u64, bytes.len() as u64))
    );
    let missing = Profile::load("/nonexistent/x.nthb".as_ref()).unwrap_err();
    assert!(missing.to_string().contains("No such file"), "{missing}");
    let unwritable = nthbyte_profile::create("/nonexistent/x.nthb".as_ref()).unwrap_err();
    assert_eq!(
        unwritable.to_string(),
        "cannot write the profile /nonexistent/x.nthb: its folder does not exist"
    );
}

#[test]
fn a_sample_is_what_its_columns_say() {
    let profile = Profile::read(&Synthetic::default().bytes()[..]).unwrap();
    let samples = &profile.samples;
    let mut shapes = HashSet::new();
    let weights = profile.shape_weights();
    for (id, sample) in samples.ids().zip(samples.iter()) {
        let shape = samples.shapes()[samples.shape_id(id).0 as usize];
        assert_eq!(shape, sample.shape);
        assert_eq!(weights[samples.shape_id(id).0 as usize], profile.weight(id));
        assert_eq!(samples.size(id), shape.size);
        assert_eq!(samples.block(id), shape.block);
        assert_eq!(samples.points(id), shape.points);
        assert_eq!(samples.time(id), sample.time);
        assert_eq!(samples.thread(id), sample.thread);
        assert_eq!(samples.stack(id), sample.stack);
        assert_eq!(samples.type_id(id), sample.type_id);
        assert_eq!(samples.labels(id), sample.labels);
        assert_eq!(samples.lifetime(id), sample.lifetime);
        assert_eq!(samples.freed(id), sample.freed);
        shapes.insert(shape);
    }
    assert!(shapes.len() > 100);
    assert_eq!(samples.shapes().len(), shapes.len());
}

#[test]
fn samplings_are_told_apart_by_their_unit() {
    for samples in [2000, 0] {
        let made = Synthetic {
            samples,
            ..Synthetic::default()
        };
        let profile = Profile::read(&made.bytes()[..]).unwrap();
        assert_eq!(profile.cpu.is_empty(), samples == 0);
        let units = |those: Vec<Sampling>| those.iter().map(|of| of.unit).collect::<Vec<_>>();
        assert_eq!(units(profile.allocation_samplings()), [Unit::Bytes]);
        assert_eq!(units(profile.time_samplings()), [Unit::Nanoseconds]);
        assert_eq!(profile.periods(), [made.period]);
        let hz = profile.time_hz().unwrap();
        assert!((hz - 100.0).abs() < 1e-6, "{hz}");
        assert!(!profile.is_exact());
    }
    let exact = Synthetic {
        period: 1,
        distances: Distances::Every,
        ..Synthetic::default()
    };
    assert!(Profile::read(&exact.bytes()[..]).unwrap().is_exact());
}
