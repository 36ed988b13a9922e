//! Parts of a profile: the samples of one domain, or those that a condition selects.

use nthbyte_profile::composition::ArenaRun;
use nthbyte_profile::event::{
    Allocation, Code, CodeId, End, Event, FrameKind, LabelSetId, Lines, Nanos, Node, NodeId,
    SampleId, SourceId, Survival, Thread, ThreadId, TypeId,
};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Domain, Meta, Method, Profile, Source, SourceKind, Writer};

/// The sources of samples, in the order of their numbers.
const KINDS: [SourceKind; 3] = [
    SourceKind::ObjectHeap,
    SourceKind::Native,
    SourceKind::Mapping,
];

fn meta() -> Meta {
    let source =
        |kind| Source::allocations(kind, Method::Preload, Distances::Exponential, 512 << 10);
    Meta {
        sources: KINDS.map(source).to_vec(),
        ..Synthetic::default().meta()
    }
}

/// A profile with a sample of each of these sources. The sizes are 1, 2, 3 … bytes; the session allocated 1000.
fn profile(sources: &[u16]) -> Profile {
    let mut writer = Writer::new(Vec::new(), &meta()).unwrap();
    let mut write = |event| writer.write(&event).unwrap();
    write(Event::Thread(Thread {
        os_id: 7,
        name: "main",
    }));
    write(Event::Code(Code {
        name: "main",
        file: "app.py",
        first_line: 1,
        lines: Lines::LocationTable(&[0x80, 0]),
    }));
    write(Event::Node(Node {
        parent: NodeId::ROOT,
        code: CodeId(0),
        position: 0,
        kind: FrameKind::Interpreted,
    }));
    for (size, &source) in (1..).zip(sources) {
        write(Event::Allocation(Allocation {
            time: Nanos(size),
            thread: ThreadId(0),
            stack: NodeId::ROOT,
            size,
            block: 16,
            points: 1,
            type_id: TypeId::UNKNOWN,
            labels: LabelSetId::NONE,
            source: SourceId(source),
            survival: Survival::Unsaid,
        }));
    }
    let end = End {
        time: Nanos(100),
        allocated: Some(1000),
    };
    let profile = Profile::read(&writer.finish(end).unwrap()[..]).unwrap();
    assert_eq!(profile.damage, []);
    profile
}

/// The sizes of the samples.
fn sizes(profile: &Profile) -> Vec<u64> {
    let samples = profile.samples.iter();
    samples.map(|sample| sample.shape.size).collect()
}

/// The number of allocated bytes: the profile's, and its process's.
fn counts(profile: &Profile) -> [Option<u64>; 2] {
    [profile.allocated, profile.processes[0].allocated]
}

#[test]
fn a_domain_has_its_samples() {
    let mixed = profile(&[0, 1, 2, 0]);
    let domains: Vec<Domain> = mixed.samples.ids().map(|id| mixed.domain(id)).collect();
    assert_eq!(
        domains,
        [
            Domain::Python,
            Domain::Native,
            Domain::Native,
            Domain::Python
        ]
    );
    for (domain, kept, count) in [
        (None, vec![1, 2, 3, 4], None),
        (Some(Domain::Python), vec![1, 4], Some(1000)),
        (Some(Domain::Native), vec![2, 3], None),
    ] {
        let mut profile = profile(&[0, 1, 2, 0]);
        profile.keep_domain(domain);
        assert_eq!(sizes(&profile), kept, "{domain:?}");
        assert_eq!(counts(&profile), [count; 2], "{domain:?}");
    }
}

/// The agent counts only what the interpreter's heap allocates.
#[test]
fn without_native_samples_the_count_of_bytes_stays() {
    let mut python = profile(&[0, 0]);
    python.keep_domain(None);
    assert_eq!(
        (sizes(&python), counts(&python)),
        (vec![1, 2], [Some(1000); 2])
    );
    let mut none = profile(&[0, 0]);
    none.keep_domain(Some(Domain::Native));
    assert_eq!((sizes(&none), counts(&none)), (vec![], [None; 2]));
}

#[test]
fn samples_that_are_left_out_are_not_counted() {
    let mut all = profile(&[0, 0, 0]);
    all.retain_samples(|_| true);
    assert_eq!(
        (sizes(&all), counts(&all)),
        (vec![1, 2, 3], [Some(1000); 2])
    );
    all.retain_samples(|sample| sample.shape.size != 2);
    assert_eq!((sizes(&all), counts(&all)), (vec![1, 3], [None; 2]));
}

#[test]
fn samples_move_to_other_stacks_of_the_tree() {
    let mut profile = profile(&[0, 0]);
    assert_eq!(profile.stacks.len(), 2);
    profile.move_allocations(&[NodeId(1), NodeId(0)]);
    let stacks: Vec<NodeId> = profile.samples.iter().map(|sample| sample.stack).collect();
    assert_eq!(stacks, [NodeId(1); 2]);
}

#[test]
fn samples_that_are_left_keep_their_arenas() {
    // The arena of each sample, by its size, which stays.
    let arenas = |profile: &Profile| {
        let of_run = |run: &ArenaRun| {
            let samples = run.first.0..run.first.0 + run.count;
            let arena = run.arena;
            samples
                .map(move |number| (SampleId(number), arena))
                .collect::<Vec<_>>()
        };
        let all = profile.arenas.iter().flat_map(of_run);
        all.map(|(id, arena)| (profile.samples.get(id).shape.size, arena))
            .collect::<Vec<_>>()
    };
    let mut profile = profile(&[0, 1, 1, 0, 0, 1, 0]);
    let run = |first, count, arena| ArenaRun {
        first: SampleId(first),
        count,
        arena,
    };
    profile.arenas = vec![run(0, 2, 7), run(2, 1, 8), run(3, 3, 9), run(6, 1, 7)];
    let before = arenas(&profile);
    assert_eq!(before.len(), 7);
    let python = [1, 4, 5, 7];
    let mut narrowed = profile.clone();
    narrowed.keep_domain(Some(Domain::Python));
    let of_python = |(size, _): &(u64, u32)| python.contains(size);
    assert_eq!(
        arenas(&narrowed),
        before.iter().copied().filter(of_python).collect::<Vec<_>>()
    );
    narrowed.retain_samples(|sample| sample.shape.size != 5);
    assert_eq!(arenas(&narrowed), [(1, 7), (4, 9), (7, 7)]);
    // A file that is written has them too.
    let mut bytes = Vec::new();
    narrowed.write(&mut bytes, |_| ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("narrowed.nthb");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(arenas(&Profile::load(&path).unwrap()), arenas(&narrowed));
}
