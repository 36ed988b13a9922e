//! What a reader of profiles is put through: by the fuzz targets beside this file, and by
//! `crates/profile/tests/damage.rs`, which compiles it too.

use nthbyte_profile::event::{NodeId, SampleId};
use nthbyte_profile::holders::Holder;
use nthbyte_profile::{Profile, Reader};

/// Reads a whole file. Whatever it holds, nothing panics, the tables made of it are in proportion to its length, and
/// the tables hang together.
pub fn file(data: &[u8]) {
    let Ok(profile) = Profile::read(data) else {
        return;
    };
    let events = profile.samples.len()
        + profile.cpu.len()
        + profile.collections.len()
        + profile.memory.len()
        + profile.types.len()
        + profile.threads.len()
        + profile.label_sets.len();
    assert!(events <= 8 * data.len() + 3, "too many events");
    let texts: usize = profile
        .functions
        .iter()
        .map(|function| function.name.len() + function.file.len())
        .sum();
    assert!(texts <= 64 * data.len() + 64, "too much text");
    assert!(profile.damage.len() <= 2 * data.len() / 16 + 2);
    for (at, node) in profile.stacks.iter().enumerate().skip(1) {
        assert!(node.parent.index() < at, "a caller after what it calls");
        let frame = profile.frames[node.frame as usize];
        assert!((frame.function as usize) < profile.functions.len());
    }
    for sample in profile.samples.iter() {
        assert!(sample.stack.index() < profile.stacks.len());
        assert!(sample.thread.index() < profile.threads.len());
        assert!(sample.type_id.index() < profile.types.len());
        assert!(sample.labels.index() < profile.label_sets.len());
        let sampling = profile.sampling(sample.shape.sampling);
        assert!(sampling.source.index() < profile.sources.len());
    }
    for sample in &profile.cpu {
        assert!(sample.labels.index() < profile.label_sets.len());
        assert!(profile.sampling(sample.sampling).source.index() < profile.sources.len());
    }
    for (at, set) in profile.label_sets.iter().enumerate().skip(1) {
        assert!(
            set.parent.index() < at,
            "a label set that is part of itself"
        );
    }
    for snapshot in profile.processes.iter().flat_map(|of| &of.snapshots) {
        assert!(snapshot.nodes.len() + snapshot.samples.len() <= 64 * data.len());
        for (number, node) in (1..).zip(&snapshot.nodes) {
            assert!(node.parent < number && node.dominator < number);
            let _ = (
                snapshot.texts.get(node.name),
                snapshot.texts.get(node.reference),
            );
        }
        for of in &snapshot.samples {
            let _ = (snapshot.texts.get(of.what), snapshot.weight(of));
            assert!(
                of.recorded
                    .is_none_or(|sample| sample.index() < profile.samples.len())
            );
            if let Holder::Node(node) = of.by {
                let _ = (snapshot.node(node), snapshot.others_of(node).count());
            }
        }
    }
    if !profile.samples.is_empty() {
        let last = SampleId(profile.samples.len() as u32 - 1);
        assert!(profile.weight(last).probability <= 1.0);
        let stack = profile.samples.stack(last);
        assert!(profile.stack(stack).count() > 0 || stack == NodeId::ROOT);
    }
}

/// Reads a block whose checksums are right, after a header that is: gets past them, to the
/// columns.
pub fn block(body: &[u8]) {
    let mut data = HEADER.to_vec();
    data.extend(framed(body));
    // A block that is there twice, and one that is whole, after it.
    data.extend(framed(body));
    file(&data);
    let mut reader = Reader::from_reader(&data[..]).expect("the header is right");
    while let Some(mut block) = reader.next_block().expect("memory can be read") {
        while block.next_event().is_some() {}
    }
    assert_eq!(
        reader.position(),
        data.len() as u64,
        "the file was left early"
    );
}

/// A body with the header that fits it.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut block = b"\xf5nbk".to_vec();
    block.extend((body.len() as u32).to_le_bytes());
    block.extend(crc32fast::hash(body).to_le_bytes());
    block.extend(crc32fast::hash(&block).to_le_bytes());
    block.extend_from_slice(body);
    block
}

/// The header of a profile in which nothing happened.
pub const HEADER: &[u8] = include_bytes!("corpus/file/empty");
