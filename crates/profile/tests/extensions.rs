//! Events with bytes of their own: what ended a process, what memory was made of, and what no reader knows. And the
//! limits of blocks and texts that the writer keeps to.

use nthbyte_profile::composition::{ARENAS, ArenaRun, COMPOSITION, Occupancy, encode_arenas};
use nthbyte_profile::event::{
    Allocation, Code, CodeId, Event, Extension, FrameKind, LabelSetId, Lines, LostKind, Nanos,
    Node, NodeId, SampleId, SourceId, Survival, Thread, ThreadId, TypeId,
};
use nthbyte_profile::holders::{
    self, HOLDERS, Held, Holder, Interner, Kind, Link, Reason, Snapshot,
};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Composition, Part, Profile, Reader, Writer};

/// The longest content of an extension.
const LONGEST: usize = 1 << 20;

fn writer() -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), &Synthetic::default().meta()).expect("memory")
}

fn read(mut writer: Writer<Vec<u8>>) -> Profile {
    writer.flush().expect("memory");
    let profile = Profile::read(&writer.get_ref()[..]).expect("a profile");
    assert_eq!(profile.damage, []);
    profile
}

fn extension(kind: u8, bytes: &[u8]) -> Event<'_> {
    Event::Extension(Extension { kind, bytes })
}

fn allocation(type_id: u32) -> Event<'static> {
    Event::Allocation(Allocation {
        time: Nanos(0),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        size: 64,
        block: 64,
        points: 1,
        type_id: TypeId(type_id),
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
        survival: Survival::Unsaid,
    })
}

const THREAD: Event<'static> = Event::Thread(Thread {
    os_id: 7,
    name: "main",
});

#[test]
fn what_ended_a_process_is_read_and_cut() {
    for length in [7, 1 << 10, (1 << 10) + 1] {
        let mut writer = writer();
        writer.ended_by(&"x".repeat(length)).expect("memory");
        let reason = read(writer).processes[0].ended_by.clone();
        assert_eq!(reason.map(|text| text.len()), Some(length.min(1 << 10)));
    }
}

#[test]
fn a_note_is_added_to_those_of_the_header_once() {
    let mut writer = writer();
    let before = Synthetic::default().meta().notes;
    let long = "x".repeat((1 << 10) + 1);
    for text in ["dear", &long, "dear"] {
        let note = extension(nthbyte_profile::extension::NOTE, text.as_bytes());
        writer.write(&note).expect("memory");
    }
    let notes = read(writer).processes[0].meta.notes.clone();
    let expected = ["dear".to_owned(), "x".repeat(1 << 10)];
    assert_eq!(notes, [&before[..], &expected].concat());
}

#[test]
fn not_more_notes_are_read_than_a_report_can_show() {
    let mut writer = writer();
    for number in 0..1000 {
        let text = number.to_string();
        let note = extension(nthbyte_profile::extension::NOTE, text.as_bytes());
        writer.write(&note).expect("memory");
    }
    assert_eq!(read(writer).processes[0].meta.notes.len(), 32);
}

/// What a heap counted holds if nothing came after it, and stays as long as all samples do.
#[test]
fn a_count_of_blocks_is_that_of_a_whole_session() {
    use nthbyte_profile::Domain;
    use nthbyte_profile::event::End;

    let begun = || {
        let mut writer = writer();
        writer.write(&THREAD).expect("memory");
        writer.write(&allocation(0)).expect("memory");
        let counted = nthbyte_profile::extension::counted(u64::MAX - 1);
        let counted = extension(nthbyte_profile::extension::COUNTED, &counted);
        writer.write(&counted).expect("memory");
        writer
    };
    assert_eq!(read(begun()).counted, None);
    let end = End {
        time: Nanos(9),
        allocated: Some(5),
    };
    let file = begun().finish(end).expect("memory");
    let whole = Profile::read(&file[..]).expect("a profile");
    let counts = |profile: &Profile| (profile.counted, profile.processes[0].counted);
    let counted = Some(u64::MAX - 1);
    assert_eq!(counts(&whole), (counted, counted));
    let mut again = Vec::new();
    whole.write(&mut again, |_| ()).expect("memory");
    assert_eq!(
        Profile::read(&again[..]).expect("a profile").counted,
        counted
    );
    for (domain, kept) in [
        (None, counted),
        (Some(Domain::Python), counted),
        (Some(Domain::Native), None),
    ] {
        let mut part = whole.clone();
        part.keep_domain(domain);
        assert_eq!(counts(&part), (kept, kept), "{domain:?}");
    }
    let mut part = whole.clone();
    part.retain_samples(|_| false);
    assert_eq!(counts(&part), (None, None));
}

#[test]
fn what_ended_a_file_replaces_its_end() {
    let mut writer = writer();
    for blocks in 0..3 {
        let (block, places) = writer.last_words("the disk is full");
        let length = writer.get_ref().len();
        assert_eq!(places[0], Some(length as u64));
        assert_eq!(places[1].is_some(), blocks > 0);
        // At the second place, the sample of the last block is missing.
        let missing = ["what came before is missing, 1 sample among it"];
        let expected = [(blocks, &missing[..0]), (blocks - 1, &missing[..])];
        for (place, (samples, damage)) in places.into_iter().flatten().zip(expected) {
            let start = usize::try_from(place).expect("a short file");
            let file = [&writer.get_ref()[..start], &block].concat();
            let profile = Profile::read(&file[..]).expect("a profile");
            let found: Vec<_> = profile.damage.iter().map(|one| &one.what).collect();
            assert_eq!(found, damage);
            assert_eq!(i32::try_from(profile.samples.len()), Ok(samples));
            let reason = profile.processes[0].ended_by.as_deref();
            assert_eq!(reason, Some("the disk is full"));
        }
        writer.write(&THREAD).expect("memory");
        writer.write(&allocation(0)).expect("memory");
        writer.flush().expect("memory");
    }
}

#[test]
fn compositions_are_those_of_the_process() {
    let mut composition = Composition::at(Nanos(5000));
    composition.set(Part::ALL[0], 12);
    composition.occupancy.push(Occupancy {
        arena: 3,
        block: 48,
        used: 2,
        free: 1,
    });
    let mut writer = writer();
    for process in [0, 1] {
        let bytes = composition.encode(process);
        writer
            .write(&extension(COMPOSITION, &bytes))
            .expect("memory");
    }
    // The file has one process: nothing is known of another one.
    assert_eq!(read(writer).processes[0].compositions, [composition]);
}

/// A snapshot with a node, and samples of it that the recording has, too.
fn snapshot(time: u64, recorded: &[Option<u32>]) -> Snapshot {
    let mut names = Interner::default();
    let name = names.intern("app");
    let node = holders::SnapshotNode {
        dominator: 0,
        parent: 0,
        kind: Kind::Module,
        held_by_c: false,
        name,
        link: Link::Unknown,
        reference: 0,
        len: None,
        chain: 1,
    };
    let held = |recorded: &Option<u32>| Held {
        by: Holder::Node(1),
        what: name,
        size: 64,
        is_drawn: recorded.is_none(),
        counts: true,
        recorded: recorded.map(SampleId),
    };
    Snapshot {
        nodes: vec![node],
        samples: recorded.iter().map(held).collect(),
        texts: names.finish(),
        ..Snapshot::empty(Nanos(time), Reason::Call)
    }
}

#[test]
fn a_snapshot_has_the_numbers_of_the_samples_that_are_left() {
    let mut writer = writer();
    writer.write(&THREAD).expect("memory");
    for _ in 0..3 {
        writer.write(&allocation(0)).expect("memory");
    }
    let given = [Some(0), Some(2), None, Some(3)];
    let bytes = snapshot(9000, &given).encode(0);
    writer.write(&extension(HOLDERS, &bytes)).expect("memory");
    let mut profile = read(writer);
    let recorded = |profile: &Profile| -> Vec<(Option<u32>, bool)> {
        let of = &profile.processes[0].snapshots[0].samples;
        let of = of.iter();
        of.map(|of| (of.recorded.map(|sample| sample.0), of.counts))
            .collect()
    };
    // Nobody has sample 3, so nobody knows what it stands for.
    let mut expected = [
        (Some(0), true),
        (Some(2), true),
        (None, true),
        (None, false),
    ];
    assert_eq!(recorded(&profile), expected);
    let mut again = Vec::new();
    profile.write(&mut again, |_| ()).expect("memory");
    let again = Profile::read(&again[..]).expect("a profile");
    assert_eq!(again.processes[0].snapshots, profile.processes[0].snapshots);
    let mut number = 0;
    profile.retain_samples(|_| {
        number += 1;
        number != 1
    });
    expected[..2].copy_from_slice(&[(None, false), (Some(1), true)]);
    assert_eq!(recorded(&profile), expected);
}

#[test]
fn of_more_than_16_mebibytes_of_snapshots_every_second_one_is_kept() {
    let mut writer = writer();
    for time in 0..40 {
        let mut bytes = snapshot(time, &[]).encode(0);
        bytes.resize(LONGEST, 0);
        writer.write(&extension(HOLDERS, &bytes)).expect("memory");
    }
    let kept = read(writer).processes[0].snapshots.clone();
    let times: Vec<u64> = kept.iter().map(|of| of.time.0).collect();
    assert_eq!((times[0], times[times.len() - 1]), (0, 39));
    assert!((8..=16).contains(&times.len()), "{times:?}");
}

/// The times of the compositions that a reader keeps of so many, each of a mebibyte.
fn kept(number: u64) -> Vec<u64> {
    let mut writer = writer();
    for time in 0..number {
        let mut bytes = Composition::at(Nanos(time)).encode(0);
        bytes.resize(LONGEST, 0);
        writer
            .write(&extension(COMPOSITION, &bytes))
            .expect("memory");
    }
    let profile = read(writer);
    let notes = &profile.meta.notes;
    assert!(
        notes.iter().all(|note| !note.contains("left out")),
        "{notes:?}"
    );
    let compositions = profile.processes[0].compositions.iter();
    compositions.map(|one| one.time.0).collect()
}

#[test]
fn of_more_than_32_mebibytes_of_compositions_every_second_one_is_kept() {
    assert_eq!(kept(32), Vec::from_iter(0..32));
    let half = (0..32).filter(|time| time % 2 == 0 || *time == 31);
    assert_eq!(kept(33), Vec::from_iter(half.chain([32])));
    let few = kept(200);
    assert_eq!((few[0], few[few.len() - 1]), (0, 199));
    assert!((16..=32).contains(&few.len()));
}

#[test]
fn arenas_of_samples_that_are_there() {
    let run = |first, count| ArenaRun {
        first: SampleId(first),
        count,
        arena: 9,
    };
    let mut writer = writer();
    writer.write(&THREAD).expect("memory");
    for _ in 0..3 {
        writer.write(&allocation(0)).expect("memory");
    }
    let bytes = encode_arenas(&[run(0, 2), run(2, 0), run(2, 1), run(3, 1)]);
    // No sample has two arenas, whatever a file contains: otherwise readers take as long as it likes.
    for _ in 0..3 {
        writer.write(&extension(ARENAS, &bytes)).expect("memory");
    }
    assert_eq!(read(writer).arenas, [run(0, 2), run(2, 1)]);
}

#[test]
fn extensions_that_no_reader_would_take_are_not_written() {
    let longest = vec![1; LONGEST];
    let too_long = vec![1; LONGEST + 1];
    let mut writer = writer();
    for event in [
        extension(200, &longest),
        extension(200, &too_long),
        extension(63, b"the number of no extension"),
        extension(64, b"of none that is known"),
        Event::Lost(LostKind::Other, 3),
    ] {
        writer.write(&event).expect("memory");
    }
    writer.flush().expect("memory");
    let mut reader = Reader::from_reader(&writer.get_ref()[..]).expect("a header");
    let mut found = Vec::new();
    while let Some(mut block) = reader.next_block().expect("memory") {
        while let Some(event) = block.next_event() {
            found.push(match event {
                Event::Extension(extension) => (extension.kind, extension.bytes.len()),
                _ => (0, 0),
            });
        }
    }
    assert_eq!(found, [(200, LONGEST), (64, 21), (0, 0)]);
    assert_eq!(reader.damage(), []);
}

/// The number of events after which the writer ends a block. A first block makes the next one as long as may be.
fn events_of_a_block(events: impl Iterator<Item = Event<'static>>) -> usize {
    let mut writer = writer();
    // Bytes that cannot be compressed.
    let mut state = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    let bytes: Vec<u8> = bytes.take(100_000).collect();
    writer.write(&THREAD).expect("memory");
    writer.write(&extension(200, &bytes)).expect("memory");
    writer.flush().expect("memory");
    let before = writer.bytes_written();
    for (number, event) in events.enumerate() {
        writer.write(&event).expect("memory");
        if writer.bytes_written() > before {
            return number + 1;
        }
    }
    panic!("no block ended");
}

#[test]
fn a_block_ends_with_4096_sites() {
    // Each type at one place is a site of its own, and takes less than 30 bytes.
    assert_eq!(events_of_a_block((0..10_000).map(allocation)), 4096);
    // Without new sites it goes on, to 128 KiB.
    assert!(events_of_a_block((0..1_000_000).map(|_| allocation(0))) > 20_000);
}

#[test]
fn a_block_counts_its_bytes_before_compression() {
    let mut writer = writer();
    writer.write(&THREAD).expect("memory");
    let before = writer.block_len();
    // The kind, the length and the content.
    writer.write(&extension(200, &[7; 100])).expect("memory");
    assert_eq!(writer.block_len() - before, 102);
    writer.flush().expect("memory");
    assert_eq!(writer.block_len(), 0);
}

#[test]
fn lines_of_a_table_that_is_too_long_are_not_known() {
    for (length, expected) in [(2 << 20, 11), ((2 << 20) + 2, 0)] {
        // One unit on line 11, and then entries on the same line.
        let mut table = vec![0x80 | 13 << 3, 0b10];
        table.resize(length, 0);
        for entry in table[2..].chunks_exact_mut(2) {
            entry.copy_from_slice(&[0x80 | 13 << 3, 0]);
        }
        let mut writer = writer();
        let events = [
            Event::Code(Code {
                name: "f",
                file: "app.py",
                first_line: 10,
                lines: Lines::LocationTable(&table),
            }),
            Event::Node(Node {
                parent: NodeId::ROOT,
                code: CodeId(0),
                position: 4,
                kind: FrameKind::Interpreted,
            }),
        ];
        for event in &events {
            writer.write(event).expect("memory");
        }
        let profile = read(writer);
        let lines: Vec<u32> = profile.stack(NodeId(1)).map(|frame| frame.line).collect();
        assert_eq!(lines, [expected], "{length}");
    }
}
