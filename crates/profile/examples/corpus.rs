//! Writes the corpus of the fuzz targets: `corpus fuzz/corpus`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use nthbyte_profile::composition::{self, ArenaRun, Occupancy, encode_arenas};
use nthbyte_profile::event::{
    Allocation, Code, Event, Extension, Label, LabelSetId, Lines, Nanos, NodeId, SampleId,
    SourceDefinition, SourceId, Survival, ThreadId, TypeId,
};
use nthbyte_profile::holders::{
    HOLDERS, Held, Holder, Interner, Kind, Link, Reason, Snapshot, SnapshotNode,
};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Composition, Distances, Part, Profile, Reader, Writer};

/// Bytes of a block's header.
const HEADER: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: corpus FOLDER")?);
    let (files, blocks) = (folder.join("file"), folder.join("block"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&blocks)?;
    let setup = Synthetic {
        samples: 300,
        hostile: true,
        ..Synthetic::default()
    };
    let empty = Writer::new(Vec::new(), &setup.meta())?.get_ref().clone();
    fs::write(files.join("empty"), &empty)?;
    for (name, distances) in [
        ("exponential", Distances::Exponential),
        ("fixed", Distances::Fixed),
        ("every", Distances::Every),
    ] {
        let bytes = Synthetic { distances, ..setup }.bytes();
        fs::write(files.join(name), &bytes)?;
        fs::write(files.join(format!("{name}-cut")), &bytes[..bytes.len() / 2])?;
    }
    // Many small blocks, one of them missing.
    let mut writer = Writer::new(Vec::new(), &setup.meta())?;
    let mut count = 0;
    let end = setup.events(|event| {
        writer.write(event).expect("writing to memory");
        count += 1;
        if count % 150 == 0 {
            writer.flush().expect("writing to memory");
        }
    });
    let bytes = writer.finish(end)?;
    let mut reader = Reader::from_reader(&bytes[..])?;
    let mut starts = Vec::new();
    while let Some(mut block) = reader.next_block()? {
        starts.push(block.offset() as usize);
        while block.next_event().is_some() {}
    }
    let mut gap = bytes.clone();
    gap.drain(starts[1]..starts[2]);
    assert!(!Profile::read(&gap[..])?.damage.is_empty());
    fs::write(files.join("gap"), &gap)?;
    starts.push(bytes.len());
    for (number, block) in starts.windows(2).enumerate() {
        // A few are enough: the definitions, the first samples, the end.
        if number < 3 || number + 2 == starts.len() {
            let body = &bytes[block[0] + HEADER..block[1]];
            fs::write(blocks.join(format!("block-{number}")), body)?;
        }
    }
    let bytes = with_everything()?;
    fs::write(files.join("everything"), &bytes)?;
    let header = Writer::new(Vec::new(), &Synthetic::default().meta())?;
    let block = header.get_ref().len() + HEADER;
    fs::write(blocks.join("everything"), &bytes[block..])?;
    fs::write(files.join("headers"), headers(&empty))?;
    Ok(())
}

/// What no host writes yet: sources that come and change, labels, images, extensions. In one block.
fn with_everything() -> Result<Vec<u8>, Box<dyn Error>> {
    let meta = Synthetic::default().meta();
    let mut writer = Writer::new(Vec::new(), &meta)?;
    let mut sample = Allocation {
        time: Nanos(1000),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        size: 100,
        block: 112,
        points: 1,
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
        survival: Survival::Unsaid,
    };
    let label = |parent, key, value| {
        Event::Label(Label {
            parent: LabelSetId(parent),
            key,
            value,
        })
    };
    writer.write(&Event::Code(Code {
        name: "malloc",
        file: "libc.so.6",
        first_line: 0,
        lines: Lines::Image("c0ffee"),
    }))?;
    writer.write(&label(0, "request", "/a"))?;
    writer.write(&label(1, "task", "t"))?;
    for number in 0..60 {
        let source = SourceId(number % 4);
        if number % 20 == 3 {
            let kind = ["native", "gpu", "object-heap"][usize::from(number) / 20];
            let definition = meta.sources[0].definition();
            let definition = SourceDefinition { kind, ..definition };
            writer.write(&Event::Source(source, definition))?;
        }
        if number % 7 == 0 {
            writer.write(&Event::Period(source, 1 << (number % 30)))?;
        }
        (sample.source, sample.labels) = (source, LabelSetId(u32::from(number) % 3));
        writer.write(&Event::Allocation(sample))?;
        writer.write(&Event::Extension(Extension {
            kind: 64 + number as u8,
            bytes: &[7; 9][..usize::from(number) % 9],
        }))?;
    }
    let mut composition = Composition::at(Nanos(2000));
    for &part in Part::ALL {
        composition.set(part, 1 << part as u64);
    }
    composition.occupancy = (1..9)
        .map(|arena| Occupancy {
            arena,
            block: 16 * arena,
            used: 9,
            free: 1000,
        })
        .collect();
    let not_taken = Snapshot::not_taken(Nanos(7), Reason::Peak, "there is no room");
    let runs: Vec<ArenaRun> = (0..9)
        .map(|run| ArenaRun {
            first: SampleId(7 * run),
            count: 3,
            arena: 1 + run % 2,
        })
        .collect();
    for (kind, bytes) in [
        (HOLDERS, snapshot().encode(0)),
        (HOLDERS, not_taken.encode(0)),
        (composition::COMPOSITION, composition.encode(0)),
        (composition::ARENAS, encode_arenas(&runs)),
    ] {
        for bytes in [&bytes[..], &bytes[..bytes.len() / 2]] {
            writer.write(&Event::Extension(Extension { kind, bytes }))?;
        }
    }
    writer.flush()?;
    Ok(writer.get_ref().clone())
}

/// A list in a module, a chain that two objects hold, what C code holds, and samples of each kind.
fn snapshot() -> Snapshot {
    let mut names = Interner::default();
    let [app, list, index, text] = ["app", "list", "7", "str"].map(|name| names.intern(name));
    let node = |dominator, parent, kind, name, link, reference| SnapshotNode {
        dominator,
        parent,
        kind,
        held_by_c: kind == Kind::Thread,
        name,
        link,
        reference,
        len: (kind == Kind::Object).then_some(1000),
        chain: 1 + dominator,
    };
    let held = |by, bits: u32| Held {
        by,
        what: text,
        size: 64 << bits,
        is_drawn: bits & 1 != 0,
        counts: bits & 2 != 0,
        recorded: (bits & 4 != 0).then_some(SampleId(5 * bits)),
    };
    let holders = [
        Holder::Garbage,
        Holder::NotFound,
        Holder::Node(2),
        Holder::Node(4),
    ];
    Snapshot {
        objects: 1 << 20,
        cpu: Nanos(33_000_000),
        pause: Nanos(600_000),
        period: 8 << 10,
        nodes: vec![
            node(0, 0, Kind::Module, app, Link::Unknown, 0),
            node(1, 1, Kind::Object, list, Link::Attribute, list),
            node(0, 0, Kind::Thread, index, Link::Unknown, 0),
            node(0, 2, Kind::Object, list, Link::Element, index),
        ],
        others: vec![(4, 3)],
        samples: (0..32)
            .map(|bits| held(holders[bits as usize % 4], bits / 4))
            .collect(),
        texts: names.finish(),
        ..Snapshot::empty(Nanos(9), Reason::End)
    }
}

/// Headers that each claim the rest of the file as their body.
fn headers(empty: &[u8]) -> Vec<u8> {
    let mut bytes = empty.to_vec();
    for left in (0..100_u32).rev() {
        let mut header = b"\xf5nbk".to_vec();
        header.extend((left * HEADER as u32).to_le_bytes());
        header.extend([0; 4]);
        header.extend(crc32fast::hash(&header).to_le_bytes());
        bytes.extend(header);
    }
    bytes
}
