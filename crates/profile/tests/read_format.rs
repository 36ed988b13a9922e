//! docs/format.md is enough to write a reader: one written from it, in Python, sees the same events.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use nthbyte_profile::compilation::{self, COMPILATION, Compilation};
use nthbyte_profile::event::{
    Allocation, Code, CollectionKind, CpuSample, Event, Extension, Label, LabelSetId, Lines, Nanos,
    NodeId, SourceDefinition, SourceId, Survival, Thread, ThreadId, TypeId,
};
use nthbyte_profile::holders::{HOLDERS, Holder, Snapshot, SnapshotOutcome};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Firsts, Reader, Writer};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn optional(values: &[Option<u64>]) -> String {
    let show = |value: &Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    values.iter().map(show).collect::<Vec<_>>().join(" ")
}

/// A snapshot in one line.
fn snapshot(process: u32, of: &Snapshot) -> String {
    let text = |number| hex(of.texts.get(number).as_bytes());
    let outcome = match of.outcome {
        SnapshotOutcome::Complete => "complete",
        SnapshotOutcome::PathsOnly(_) => "paths",
        SnapshotOutcome::NotTaken(_) => "none",
    };
    let why = hex(of.outcome.reason().unwrap_or_default().as_bytes());
    let mut line = format!(
        "snapshot {process} {} {} {} {outcome} {why} {} {} {}",
        of.time.0, of.reason as u8, of.pause.0, of.objects, of.cpu.0, of.period
    );
    for node in &of.nodes {
        let (kind, link) = (node.kind as u8, node.link as u8);
        let (c, len) = (
            u8::from(node.held_by_c),
            optional(&[node.len.map(u64::from)]),
        );
        let (name, by, chain) = (text(node.name), text(node.reference), node.chain);
        let (parent, dominator) = (node.parent, node.dominator);
        let _ = write!(
            line,
            " node {kind} {c} {parent} {dominator} {name} {link} {by} {len} {chain}"
        );
    }
    for (node, other) in &of.others {
        let _ = write!(line, " other {node} {other}");
    }
    for sample in &of.samples {
        let by = match sample.by {
            Holder::Node(node) => node.to_string(),
            Holder::Garbage => "garbage".to_owned(),
            Holder::NotFound => "nobody".to_owned(),
        };
        let (drawn, counts) = (u8::from(sample.is_drawn), u8::from(sample.counts));
        let recorded = optional(&[sample.recorded.map(|sample| sample.0.into())]);
        let (what, size) = (text(sample.what), sample.size);
        let _ = write!(
            line,
            " sample {by} {what} {size} {drawn} {counts} {recorded}"
        );
    }
    line
}

fn line(event: &Event<'_>, next: &mut Firsts) -> String {
    let number = |number: &mut u32| {
        *number += 1;
        *number - 1
    };
    let text = |text: &str| hex(text.as_bytes());
    match event {
        Event::Code(code) => {
            let own = number(&mut next.code);
            let (name, file) = (text(code.name), text(code.file));
            let table = match code.lines {
                Lines::Direct => "-".to_owned(),
                Lines::LocationTable(table) => hex(table),
                Lines::Image(build_id) => format!("image {}", text(build_id)),
            };
            format!("code {own} {name} {file} {} {table}", code.first_line)
        }
        Event::Node(node) => {
            let own = number(&mut next.node);
            let (parent, code, position) = (node.parent.0, node.code.0, node.position);
            format!("node {own} {parent} {code} {position} {}", node.kind as u8)
        }
        Event::Type(names) => {
            let own = number(&mut next.type_id);
            format!("type {own} {} {}", text(names.name), text(names.native))
        }
        Event::Thread(thread) => {
            let own = number(&mut next.thread);
            format!("thread {own} {} {}", thread.os_id, text(thread.name))
        }
        Event::ThreadName(thread, name) => format!("name {} {}", thread.0, text(name)),
        Event::Allocation(a) => {
            let own = number(&mut next.sample);
            let site = format!("{} {} {}", a.thread.0, a.stack.0, a.type_id.0);
            let site = format!("{} {} {site}", a.source.0, a.labels.0);
            let shape = format!("{} {} {}", a.size, a.block, a.points);
            format!(
                "allocation {own} {} {site} {shape} {}",
                a.time.0, a.survival as u8
            )
        }
        Event::Freed(sample, time) => format!("freed {} {}", sample.0, time.0),
        Event::Cpu(cpu) => {
            let context = format!("{} {} {}", cpu.source.0, cpu.labels.0, cpu.thread.0);
            format!("cpu {} {context} {}", cpu.time.0, cpu.stack.0)
        }
        Event::Label(label) => {
            let own = number(&mut next.label_set);
            let (key, value) = (text(label.key), text(label.value));
            format!("label {own} {} {key} {value}", label.parent.0)
        }
        Event::Source(id, d) => {
            let names = [d.kind, d.unit, d.method, d.distances].map(text);
            format!("source {} {} {}", id.0, names.join(" "), d.period)
        }
        Event::Period(id, period) => format!("period {} {period}", id.0),
        Event::Extension(extension) if extension.kind == HOLDERS => {
            let read = Snapshot::parse(extension.bytes);
            read.map_or("no snapshot".to_owned(), |(process, of)| {
                snapshot(process, &of)
            })
        }
        Event::Extension(extension) if extension.kind == COMPILATION => {
            let read = Compilation::parse(extension.bytes);
            read.map_or("no compilation".to_owned(), |(process, of)| {
                let (start, duration) = (of.start.0, of.duration.0);
                let parts = format!("{} {}", of.optimizing.0, of.assembling.0);
                let (thread, outcome) = (of.thread.0, of.outcome.name());
                format!("compilation {process} {thread} {start} {duration} {parts} {outcome}")
            })
        }
        Event::Extension(extension) => {
            format!("extension {} {}", extension.kind, hex(extension.bytes))
        }
        Event::Collection(c) => {
            let (what, detail) = match c.kind {
                CollectionKind::Generation(generation) => (0, generation),
                CollectionKind::Minor => (1, 0),
                CollectionKind::MajorStep(phase) => (2, phase as u8),
                CollectionKind::Major => (3, 0),
            };
            let totals = optional(&[c.freed_objects, c.bytes_before, c.bytes_after]);
            let (thread, start, duration) = (c.thread.0, c.start.0, c.duration.0);
            format!("collection {what} {detail} {thread} {start} {duration} {totals}")
        }
        Event::Memory(m) => {
            let totals = optional(&[m.heap_used, m.heap_reserved, m.rss, m.allocated, m.peak_rss]);
            format!("memory {} {totals}", m.time.0)
        }
        Event::Lost(kind, count) => format!("lost {} {count}", *kind as u8),
        Event::End(end) => format!("end {} {}", end.time.0, optional(&[end.allocated])),
    }
}

fn read_here(path: &Path) -> Vec<String> {
    let mut reader = Reader::open(path).expect("a profile");
    let meta = reader.meta();
    // A word may have line ends.
    let command = meta.command.join(" ").replace(['\n', '\r'], "?");
    let mut lines = vec![format!("session {} {command}", meta.interpreter)];
    for source in &meta.sources {
        let names = [
            &source.kind,
            &source.unit,
            &source.method,
            &source.distances,
        ];
        let names = names.map(String::as_str).join(" ");
        lines.push(format!("from {names} {}", source.period));
    }
    while let Some(mut block) = reader.next_block().expect("a file") {
        let mut next = block.firsts();
        while let Some(event) = block.next_event() {
            lines.push(line(&event, &mut next));
        }
    }
    lines
}

fn read_there(path: &Path) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_format.py");
    let output = Command::new("python3").arg(script).arg(path).output();
    let output = output.expect("python3 is needed for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the Python reader failed:\n{said}");
    let read = String::from_utf8(output.stdout).expect("UTF-8");
    read.lines().map(str::to_owned).collect()
}

/// Compares what both read, and returns how much that is.
fn compare(bytes: &[u8], name: &str) -> usize {
    let path = std::env::temp_dir().join(format!("nthbyte-{}-{name}.nthb", std::process::id()));
    std::fs::write(&path, bytes).expect("a file");
    let (here, there) = (read_here(&path), read_there(&path));
    std::fs::remove_file(&path).expect("the file");
    for (one, other) in here.iter().zip(&there) {
        assert_eq!(one, other);
    }
    assert_eq!(here.len(), there.len());
    here.len()
}

#[test]
fn both_readers_see_the_same() {
    let setup = Synthetic {
        samples: 5_000,
        hostile: true,
        ..Synthetic::default()
    };
    assert!(compare(&setup.bytes(), "whole") > 10_000);
}

#[test]
fn both_readers_see_the_same_around_damage() {
    let setup = Synthetic {
        samples: 40_000,
        distances: Distances::Every,
        period: 1,
        ..Synthetic::default()
    };
    let mut bytes = setup.bytes();
    let whole = compare(&bytes, "undamaged");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    bytes.truncate(bytes.len() - 100);
    let left = compare(&bytes, "damaged");
    assert!(left < whole && left > whole / 4, "{left} of {whole}");
}

/// What no host writes yet.
#[test]
fn both_readers_see_the_same_of_sources_labels_images_and_extensions() {
    let mut writer = Writer::new(Vec::new(), &Synthetic::default().meta()).expect("memory");
    let sample = |number: u32| Allocation {
        time: Nanos(5000 * u64::from(number)),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        size: 40,
        block: 48,
        points: 1,
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId(number % 3),
        source: SourceId([0, 7][number as usize % 2]),
        survival: Survival::Unsaid,
    };
    let label = |parent, value| {
        Event::Label(Label {
            parent: LabelSetId(parent),
            key: "task",
            value,
        })
    };
    let definition = SourceDefinition {
        kind: "gpu",
        unit: "bytes",
        method: "magic",
        distances: "exponential",
        period: 77,
    };
    let mut write = |events: &[Event<'_>]| {
        for event in events {
            writer.write(event).expect("memory");
        }
        writer.flush().expect("memory");
    };
    write(&[
        Event::Thread(Thread { os_id: 1, name: "" }),
        Event::Code(Code {
            name: "malloc",
            file: "libc.so.6",
            first_line: 0,
            lines: Lines::Image("c0ffee"),
        }),
        Event::Extension(Extension {
            kind: 64,
            bytes: b"later",
        }),
        label(0, "one"),
        label(1, "two"),
        Event::Source(SourceId(7), definition),
        Event::Allocation(sample(0)),
        Event::Allocation(sample(1)),
    ]);
    write(&[Event::Period(SourceId(0), 1 << 20)]);
    write(&[
        Event::Extension(Extension {
            kind: 255,
            bytes: b"",
        }),
        Event::Allocation(sample(2)),
        Event::Allocation(sample(3)),
        Event::Cpu(CpuSample {
            time: Nanos(9000),
            thread: ThreadId(0),
            stack: NodeId::ROOT,
            labels: LabelSetId(2),
            source: SourceId::TIME,
        }),
    ]);
    // Three lines of the header, fourteen events; one source and then two are repeated.
    assert_eq!(compare(writer.get_ref(), "new"), 3 + 13 + 3);
}

#[test]
fn both_readers_see_the_same_of_compilers() {
    use compilation::CompilationOutcome::{Aborted, Bridge, Loop, Other};
    let meta = Synthetic::default().meta();
    let mut writer = Writer::new(Vec::new(), &meta).unwrap();
    let mut all: Vec<Vec<u8>> = [Loop, Bridge, Aborted, Other]
        .map(|outcome| {
            let work = Compilation {
                start: Nanos(1_000_000_007),
                duration: Nanos(300_001),
                optimizing: Nanos(100_000),
                assembling: Nanos(0),
                thread: ThreadId(5),
                outcome,
            };
            work.encode(outcome as u32)
        })
        .to_vec();
    // Of a later version, and damaged.
    all.extend([vec![0, 0, 1, 2, 9, 9, 77], vec![0, 0, 1]]);
    for bytes in &all {
        let kind = COMPILATION;
        writer
            .write(&Event::Extension(Extension { kind, bytes }))
            .unwrap();
    }
    writer.flush().unwrap();
    assert!(compare(writer.get_ref(), "compiler") > all.len());
}

/// The seed of the fuzz targets that has an event of each kind.
#[test]
fn both_readers_see_the_same_snapshots() {
    let bytes = include_bytes!("../../../fuzz/corpus/file/everything");
    assert!(compare(bytes, "everything") > 100);
}
