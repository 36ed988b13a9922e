//! Blocks that this crate's writer does not make: of writers that do not follow the format.

use super::*;
use crate::varint::{put, zigzag};
use proptest::prelude::*;

/// Numbers of the definitions before a block.
const BEFORE: Firsts = Firsts {
    code: 10,
    node: 20,
    type_id: 30,
    thread: 40,
    sample: 50,
    label_set: 60,
};

/// A column of these numbers.
fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut column = Vec::new();
    numbers.iter().for_each(|&number| put(&mut column, number));
    column
}

/// Decodes one event, with its columns apart from its kind.
fn decode(kind: u8, columns: &[(Column, &[u8])]) -> Result<String> {
    let mut all: [&[u8]; COLUMNS] = [&[]; COLUMNS];
    let kinds = [kind];
    all[Column::Kinds as usize] = &kinds;
    for (column, bytes) in columns {
        all[*column as usize] = bytes;
    }
    let mut decoder = Decoder::new(1000, BEFORE, all);
    let event = format!("{:?}", decoder.event()?.unwrap());
    assert_eq!(decoder.event(), Ok(None));
    let rest: usize = decoder.columns.iter().map(|column| column.len()).sum();
    assert_eq!(rest, 0, "all of {event} was read");
    Ok(event)
}

/// Its text, without the kind of event.
fn shown(event: &impl std::fmt::Debug) -> String {
    format!("{event:?}")
}

#[test]
fn lines_of_a_code_object() {
    let code = |kind: u64| {
        let sizes = match kind {
            1 | 2 => numbers(&[1, 1, 7, kind, 2]),
            _ => numbers(&[1, 1, 7, kind]),
        };
        let texts: &[u8] = if sizes.len() == 5 { b"nfxy" } else { b"nf" };
        let columns = [(Column::Numbers, &sizes[..]), (Column::Texts, texts)];
        decode(kind::CODE, &columns)
    };
    let expected = |lines| {
        Ok(shown(&Event::Code(Code {
            name: "n",
            file: "f",
            first_line: 7,
            lines,
        })))
    };
    let unknown = Err(Malformed("an unknown kind of line table"));
    assert_eq!(code(0), expected(Lines::Direct));
    assert_eq!(code(1), expected(Lines::LocationTable(b"xy")));
    assert_eq!(code(2), expected(Lines::Image("xy")));
    assert_eq!(code(3), unknown);
}

#[test]
fn kinds_of_frames() {
    let node = |kind| {
        let node = numbers(&[3, 4, 5, kind]);
        decode(kind::NODE, &[(Column::Nodes, &node)])
    };
    let known = [
        FrameKind::Interpreted,
        FrameKind::Jit,
        FrameKind::Native,
        FrameKind::Gc,
        FrameKind::Note,
    ];
    let expected = |kind| {
        Ok(shown(&Event::Node(Node {
            parent: NodeId(BEFORE.node - 3),
            code: CodeId(4),
            position: 5,
            kind,
        })))
    };
    for (number, kind) in (0..).zip(known) {
        assert_eq!(node(number), expected(kind));
    }
    // Later writers may have more.
    assert_eq!(node(5), expected(FrameKind::Note));
}

#[test]
fn kinds_of_lost_events() {
    let lost = |kind| {
        let column = numbers(&[kind, 9]);
        decode(kind::LOST, &[(Column::Numbers, &column)])
    };
    let known = [LostKind::Allocations, LostKind::CpuSamples, LostKind::Other];
    for (number, kind) in (0..).zip(known) {
        assert_eq!(lost(number), Ok(shown(&Event::Lost(kind, 9))));
    }
    assert_eq!(lost(3), Err(Malformed("an unknown kind of lost events")));
}

#[test]
fn kinds_of_collections() {
    let collection = |what, detail| {
        let column = numbers(&[what, detail, 3, 0]);
        let times = numbers(&[zigzag(5), 6]);
        let columns = [
            (Column::Collections, &column[..]),
            (Column::CollectionTimes, &times[..]),
        ];
        decode(kind::COLLECTION, &columns)
    };
    let expected = |kind| {
        Ok(shown(&Event::Collection(Collection {
            start: Nanos(5000),
            duration: Nanos(6),
            thread: ThreadId(3),
            kind,
            freed_objects: None,
            bytes_before: None,
            bytes_after: None,
        })))
    };
    let known = [
        (0, 0, CollectionKind::Generation(0)),
        (0, 255, CollectionKind::Generation(255)),
        (1, 0, CollectionKind::Minor),
        (2, 0, CollectionKind::MajorStep(MajorPhase::Scanning)),
        (2, 1, CollectionKind::MajorStep(MajorPhase::Marking)),
        (2, 2, CollectionKind::MajorStep(MajorPhase::Sweeping)),
        (2, 3, CollectionKind::MajorStep(MajorPhase::Finalizing)),
        (3, 0, CollectionKind::Major),
    ];
    for (what, detail, kind) in known {
        assert_eq!(collection(what, detail), expected(kind));
    }
    for (what, detail) in [(0, 256), (1, 1), (2, 4), (3, 1), (4, 0)] {
        assert!(collection(what, detail).is_err(), "{what} {detail}");
    }
}

/// A reference to a definition or sample that can only come later, and a number longer than its column.
#[test]
fn impossible_references_and_lengths_are_refused() {
    let is_refused = |kind, column, bytes: &[u8]| {
        let found = decode(kind, &[(column, bytes)]);
        assert!(found.is_err(), "{found:?}");
    };
    for back in [0, u64::from(BEFORE.node) + 1, u64::MAX] {
        is_refused(kind::NODE, Column::Nodes, &numbers(&[back, 4, 5, 0]));
    }
    for ago in [0, u64::from(BEFORE.sample) + 1] {
        let samples = numbers(&[ago]);
        let times = numbers(&[1]);
        let columns = [
            (Column::FreedSamples, &samples[..]),
            (Column::FreedTimes, &times[..]),
        ];
        assert!(decode(kind::FREED, &columns).is_err());
    }
    for back in [0, u64::from(BEFORE.label_set) + 1] {
        is_refused(kind::LABEL, Column::Numbers, &numbers(&[back, 0, 0]));
    }
    let text = |length: usize, present: usize| {
        let sizes = numbers(&[1, length as u64]);
        let texts = vec![b'x'; present];
        let columns = [(Column::Numbers, &sizes[..]), (Column::Texts, &texts[..])];
        decode(kind::THREAD_NAME, &columns)
    };
    assert!(text(MAX_TEXT, MAX_TEXT).is_ok());
    assert!(text(MAX_TEXT + 1, MAX_TEXT + 1).is_err());
    assert!(text(3, 2).is_err());
    let extension = |length: usize, present: usize| {
        let mut column = numbers(&[length as u64]);
        column.resize(column.len() + present, 0);
        decode(kind::EXTENSIONS, &[(Column::Extensions, &column)])
    };
    assert!(extension(MAX_EXTENSION, MAX_EXTENSION).is_ok());
    assert!(extension(MAX_EXTENSION + 1, MAX_EXTENSION + 1).is_err());
    assert!(extension(3, 2).is_err());
}

#[test]
fn new_and_missing_contexts() {
    let cpu = |column: &[u64], contexts: &[u64]| {
        let (cpu, contexts) = (numbers(column), numbers(contexts));
        let columns = [(Column::Cpu, &cpu[..]), (Column::Contexts, &contexts[..])];
        decode(kind::CPU, &columns)
    };
    let sample = |source, labels| {
        Ok(shown(&Event::Cpu(CpuSample {
            time: Nanos(7000),
            thread: ThreadId(3),
            stack: NodeId(4),
            labels,
            source,
        })))
    };
    let time = zigzag(7);
    assert_eq!(
        cpu(&[time, 0, 4], &[3, 9, zigzag(2)]),
        sample(SourceId(9), LabelSetId(BEFORE.label_set - 2))
    );
    // There is no context yet.
    assert!(cpu(&[time, 1, 4], &[]).is_err());
}

proptest! {
    /// A checksum is no promise: any columns are events, or an error.
    #[test]
    fn any_columns_are_events_or_an_error(
        kinds in prop::collection::vec(0_u8..70, 1..40),
        columns in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), COLUMNS),
    ) {
        let mut all: [&[u8]; COLUMNS] = [&[]; COLUMNS];
        for (column, bytes) in all.iter_mut().zip(&columns) {
            *column = bytes;
        }
        all[Column::Kinds as usize] = &kinds;
        let mut decoder = Decoder::new(1000, BEFORE, all);
        let mut events = 0;
        while let Ok(Some(_)) = decoder.event() {
            events += 1;
        }
        prop_assert!(events <= kinds.len());
    }
}
