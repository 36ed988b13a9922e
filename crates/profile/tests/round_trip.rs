//! Whatever events are written come back.

use std::collections::BTreeMap;

use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, CpuSample, End, Event, Extension,
    FrameKind, Label, LabelSetId, Lines, LostKind, MajorPhase, Memory, Nanos, Node, NodeId,
    SampleId, SourceDefinition, SourceId, Survival, Thread, ThreadId, TypeId, TypeName,
};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{LineTable, Reader, Source, Writer};
use proptest::prelude::*;

/// From which any event can be made.
#[derive(Clone, Debug)]
struct Seed {
    kind: u8,
    detail: u8,
    numbers: [u64; 4],
    small: [u32; 3],
    text: String,
    bytes: Vec<u8>,
    flush: bool,
}

fn seed() -> impl Strategy<Value = Seed> {
    // Numbers of all magnitudes.
    let number = (any::<u64>(), 0_u32..64).prop_map(|(number, shift)| number >> shift);
    let small = (any::<u32>(), 0_u32..32).prop_map(|(number, shift)| number >> shift);
    let text = prop_oneof!["[a-z]{0,8}", "\\PC{0,20}", "(?s).{0,10}"];
    (
        (0_u8..28, any::<u8>()),
        prop::array::uniform4(number),
        prop::array::uniform3(small),
        text,
        prop::collection::vec(any::<u8>(), 0..40),
        prop::bool::weighted(0.05),
    )
        .prop_map(
            |((kind, detail), numbers, small, text, bytes, flush)| Seed {
                kind,
                detail,
                numbers,
                small,
                text,
                bytes,
                flush,
            },
        )
}

/// A multiple of the file's unit of time that stays one when it is read.
fn time(number: u64) -> Nanos {
    Nanos(number / 1000 * 1000)
}

fn optional(seed: &Seed, at: usize) -> Option<u64> {
    (seed.detail >> at & 1 == 1).then_some(seed.numbers[at])
}

/// The event that a seed stands for, after so many nodes and samples.
fn event<'a>(seed: &'a Seed, nodes: u32, samples: u32, label_sets: u32) -> Event<'a> {
    let [one, two, three] = seed.small;
    let text = seed.text.as_str();
    match seed.kind {
        0 => Event::Code(Code {
            name: text,
            file: "file.py",
            first_line: one,
            lines: match seed.detail % 3 {
                0 => Lines::Direct,
                1 => Lines::LocationTable(&seed.bytes),
                _ => Lines::Image("c0ffee"),
            },
        }),
        1..4 => Event::Node(Node {
            parent: NodeId(one % (nodes + 1)),
            // Some that are defined, some that are not.
            code: CodeId(two % 8),
            position: three % 100,
            kind: [
                FrameKind::Interpreted,
                FrameKind::Jit,
                FrameKind::Native,
                FrameKind::Gc,
                FrameKind::Note,
            ][seed.detail as usize % 5],
        }),
        4 => Event::Type(TypeName {
            name: text,
            native: "native",
        }),
        5 => Event::Thread(Thread {
            os_id: seed.numbers[0],
            name: text,
        }),
        6 => Event::ThreadName(ThreadId(one), text),
        7 if samples > 0 => Event::Freed(SampleId(one % samples), time(seed.numbers[0])),
        8..11 if samples > 0 => {
            // Mostly recent ones, in order.
            let back = (one % 10).min(samples - 1);
            Event::Freed(
                SampleId(samples - 1 - back),
                time(seed.numbers[0] % 1_000_000),
            )
        }
        11 => Event::Cpu(CpuSample {
            time: time(seed.numbers[0]),
            thread: ThreadId(one),
            stack: NodeId(two),
            labels: LabelSetId(two % (label_sets + 1)),
            source: SourceId(seed.detail.into()),
        }),
        12 => Event::Collection(Collection {
            start: time(seed.numbers[3]),
            duration: Nanos(u64::from(one)),
            thread: ThreadId(two),
            kind: [
                CollectionKind::Generation(seed.detail),
                CollectionKind::Minor,
                CollectionKind::MajorStep(MajorPhase::Marking),
                CollectionKind::Major,
            ][three as usize % 4],
            freed_objects: optional(seed, 0),
            bytes_before: optional(seed, 1),
            bytes_after: optional(seed, 2),
        }),
        13 => Event::Memory(Memory {
            time: time(u64::from(one)),
            heap_used: optional(seed, 0),
            heap_reserved: optional(seed, 1),
            rss: optional(seed, 2),
            allocated: optional(seed, 3),
            peak_rss: optional(seed, 0),
        }),
        14 => Event::Lost(LostKind::CpuSamples, seed.numbers[0]),
        15 => Event::Label(Label {
            parent: LabelSetId(one % (label_sets + 1)),
            key: "task",
            value: text,
        }),
        16 => Event::Source(
            SourceId(seed.detail.into()),
            SourceDefinition {
                kind: text,
                unit: "bytes",
                method: "magic",
                distances: "exponential",
                period: seed.numbers[0],
            },
        ),
        17 => Event::Period(SourceId(seed.detail.into()), seed.numbers[0]),
        18 => Event::Extension(Extension {
            kind: seed.detail | 64,
            bytes: &seed.bytes,
        }),
        _ => Event::Allocation(Allocation {
            time: time(seed.numbers[0]),
            thread: ThreadId(one % 3),
            stack: NodeId(two % (nodes + 1)),
            size: seed.numbers[1],
            block: if seed.detail < 200 {
                seed.numbers[1].saturating_add(15) & !15
            } else {
                seed.numbers[2]
            },
            points: if seed.detail.is_multiple_of(2) {
                1
            } else {
                three
            },
            type_id: TypeId(two % 5),
            labels: LabelSetId(if seed.detail > 200 {
                three % (label_sets + 1)
            } else {
                0
            }),
            source: SourceId(u16::from(seed.detail > 250)),
            survival: [Survival::Unsaid, Survival::DiedYoung, Survival::Survived]
                [seed.detail as usize % 3],
        }),
    }
}

/// The events of all seeds, as they are written.
fn events(seeds: &[Seed]) -> Vec<Event<'_>> {
    let (mut nodes, mut samples, mut label_sets) = (0, 0, 0);
    let mut events = Vec::new();
    for seed in seeds {
        let event = event(seed, nodes, samples, label_sets);
        label_sets += u32::from(matches!(event, Event::Label(_)));
        nodes += u32::from(matches!(event, Event::Node(_)));
        samples += u32::from(matches!(event, Event::Allocation(_)));
        events.push(event);
    }
    events
}

/// The event as it is read: with lines where there were positions.
fn resolved<'a>(event: &Event<'a>, tables: &mut Vec<Option<LineTable>>) -> Event<'a> {
    match *event {
        Event::Code(code) => {
            tables.push(match code.lines {
                Lines::Direct | Lines::Image(_) => None,
                Lines::LocationTable(table) => Some(LineTable::decode(table, code.first_line)),
            });
            let lines = match code.lines {
                Lines::Image(_) => code.lines,
                _ => Lines::Direct,
            };
            Event::Code(Code { lines, ..code })
        }
        Event::Node(node) => {
            let table = tables.get(node.code.index()).and_then(Option::as_ref);
            let position = table.map_or(node.position, |table| table.line(node.position));
            Event::Node(Node { position, ..node })
        }
        other => other,
    }
}

/// What sources are by now: definition, if it is not the header's, and period.
#[derive(Clone, Debug, Default, PartialEq)]
struct InForce(BTreeMap<SourceId, (Option<Source>, u64)>);

impl InForce {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn take(&mut self, event: &Event<'_>) {
        match *event {
            Event::Source(id, definition) => {
                let source = Source {
                    period: 0,
                    ..definition.into()
                };
                self.0.insert(id, (Some(source), definition.period));
            }
            Event::Period(id, period) => self.0.entry(id).or_default().1 = period,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn all_events_come_back(seeds in prop::collection::vec(seed(), 0..400), end: Option<u32>) {
        let written = events(&seeds);
        let meta = Synthetic::default().meta();
        let mut writer = Writer::new(Vec::new(), &meta).unwrap();
        for (seed, event) in seeds.iter().zip(&written) {
            writer.write(event).unwrap();
            if seed.flush {
                writer.flush().unwrap();
            }
        }
        let end = End { time: time(7_000_000), allocated: end.map(u64::from) };
        let bytes = writer.finish(end).unwrap();
        let mut reader = Reader::from_reader(&bytes[..]).unwrap();
        prop_assert_eq!(reader.meta(), &meta);
        let last = Event::End(end);
        let mut tables = Vec::new();
        let resolve = |event| resolved(event, &mut tables);
        let read: Vec<Event<'_>> = written.iter().chain([&last]).map(resolve).collect();
        let mut expected = read.iter().peekable();
        let mut in_force = InForce::default();
        while let Some(mut block) = reader.next_block().unwrap() {
            prop_assert!(!block.gap().any);
            // A block begins with the sources that are not as the header says.
            let repeated = in_force.clone();
            for _ in 0..repeated.len() {
                in_force.take(&block.next_event().unwrap());
            }
            prop_assert_eq!(&in_force, &repeated);
            while let Some(event) = block.next_event() {
                prop_assert_eq!(Some(&event), expected.next());
                in_force.take(&event);
            }
        }
        prop_assert_eq!(expected.next(), None);
        prop_assert_eq!(reader.damage(), vec![]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Provisional blocks go on where the file ends, and the next block does not know of them.
    #[test]
    fn provisional_samples_leave_no_trace(
        seeds in prop::collection::vec(seed(), 0..200),
        waiting in prop_oneof![0_usize..40, 5_000..20_000_usize],
    ) {
        let meta = Synthetic::default().meta();
        let sample = |at: usize| Allocation {
            time: time(at as u64 * 3000),
            thread: ThreadId(0),
            // More sites than a block has.
            stack: NodeId(at as u32 % 6000),
            size: at as u64 % 777,
            block: at as u64 % 777,
            points: 1,
            type_id: TypeId::UNKNOWN,
            labels: LabelSetId::NONE,
            source: SourceId::ALLOCATIONS,
            survival: Survival::Unsaid,
        };
        let waiting: Vec<_> = (0..waiting).map(sample).collect();
        // The periods of provisional samples do not hold for the next block.
        let waiting_events = || waiting.iter().enumerate().flat_map(|(at, sample)| {
            let changes = at % 100 == 7;
            let change = Event::Period(SourceId::ALLOCATIONS, 1000 + at as u64);
            changes.then_some(change).into_iter().chain([Event::Allocation(*sample)])
        });
        let mut plain = Writer::new(Vec::new(), &meta).unwrap();
        let mut writer = Writer::new(Vec::new(), &meta).unwrap();
        let mut ends = Vec::new();
        for (seed, event) in seeds.iter().zip(events(&seeds)) {
            plain.write(&event).unwrap();
            writer.write(&event).unwrap();
            if seed.flush {
                plain.flush().unwrap();
                ends.push((plain.get_ref().len(), writer.provisional(waiting_events()).unwrap()));
            }
        }
        let end = End { time: time(7_000_000), allocated: None };
        let bytes = plain.finish(end).unwrap();
        prop_assert_eq!(&bytes, &writer.finish(end).unwrap());
        for (length, provisional) in ends {
            let whole = [&bytes[..length], &provisional[..]].concat();
            let mut reader = Reader::from_reader(&whole[..]).unwrap();
            let mut read = Vec::new();
            while let Some(mut block) = reader.next_block().unwrap() {
                prop_assert!(!block.gap().any);
                let is_provisional = block.offset() >= length as u64;
                while let Some(event) = block.next_event() {
                    match event {
                        Event::Allocation(sample) if is_provisional => read.push(sample),
                        Event::Source(..) | Event::Period(..) => {}
                        Event::Extension(mark) if is_provisional => prop_assert_eq!(mark.kind, 73),
                        _ => prop_assert!(!is_provisional),
                    }
                }
            }
            prop_assert_eq!(reader.damage(), vec![]);
            prop_assert_eq!(&read, &waiting);
        }
    }
}

#[test]
fn texts_that_are_too_long_are_cut_at_a_character() {
    let meta = Synthetic::default().meta();
    let mut writer = Writer::new(Vec::new(), &meta).unwrap();
    let name = "é".repeat(20_000);
    let file = "x".repeat(20_000);
    // Every entry has a line of its own.
    let table = [0xe8, 2].repeat(3 << 19);
    let code = Code {
        name: &name,
        file: &file,
        first_line: 1,
        lines: Lines::LocationTable(&table),
    };
    writer.write(&Event::Code(code)).unwrap();
    writer.write(&Event::Lost(LostKind::Other, 3)).unwrap();
    writer.flush().unwrap();
    let mut reader = Reader::from_reader(&writer.get_ref()[..]).unwrap();
    let mut block = reader.next_block().unwrap().unwrap();
    let Some(Event::Code(read)) = block.next_event() else {
        panic!("not a code object");
    };
    assert!(name.starts_with(read.name) && read.name.len() > 16_000);
    assert!(code.file.starts_with(read.file) && read.file.len() > 16_000);
    assert_eq!(read.lines, Lines::Direct);
    assert_eq!(block.next_event(), None);
    let mut block = reader.next_block().unwrap().unwrap();
    assert_eq!(block.next_event(), Some(Event::Lost(LostKind::Other, 3)));
}

#[test]
fn ten_bytes_a_sample() {
    // Of a program whose sizes and stacks are less predictable than real ones'.
    let setup = Synthetic {
        samples: 100_000,
        ..Synthetic::default()
    };
    let each = setup.bytes().len() as f64 / f64::from(setup.samples);
    assert!(each <= 10.0, "{each:.2} bytes a sample");
}
