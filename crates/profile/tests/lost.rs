//! Samples that were kept count for the lost ones of the same time.

use nthbyte_profile::event::{
    Allocation, End, Event, LabelSetId, LostKind, Nanos, NodeId, SourceId, Survival, Thread,
    ThreadId, TypeId,
};
use nthbyte_profile::meta::{Distances, Meta, Method, Source, SourceKind};
use nthbyte_profile::{Profile, Writer};

const PERIOD: u64 = 64 << 10;

/// A file whose blocks have so many samples each, and so many that were lost.
fn file(blocks: &[(u32, u64)]) -> Vec<u8> {
    let heap = SourceKind::ObjectHeap;
    let meta = Meta {
        sources: vec![Source::allocations(
            heap,
            Method::CutFreeLists,
            Distances::Exponential,
            PERIOD,
        )],
        ..Meta::default()
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &meta).expect("memory");
    let mut write = |event: &Event<'_>| writer.write(event).expect("memory");
    write(&Event::Thread(Thread { os_id: 1, name: "" }));
    let mut time = 0;
    for &(kept, lost) in blocks {
        for _ in 0..kept {
            time += 1;
            writer
                .write(&Event::Allocation(Allocation {
                    time: Nanos(time),
                    thread: ThreadId(0),
                    stack: NodeId::ROOT,
                    size: 48,
                    block: 48,
                    points: 1,
                    type_id: TypeId::UNKNOWN,
                    labels: LabelSetId::NONE,
                    source: SourceId(0),
                    survival: Survival::Unsaid,
                }))
                .expect("memory");
        }
        if lost > 0 {
            let event = Event::Lost(LostKind::Allocations, lost);
            writer.write(&event).expect("memory");
        }
        writer.flush().expect("memory");
    }
    let end = End {
        time: Nanos(time),
        allocated: None,
    };
    writer.write(&Event::End(end)).expect("memory");
    writer.flush().expect("memory");
    drop(writer);
    bytes
}

/// What the samples of each block stand for, in samples.
fn stood_for(profile: &Profile, blocks: &[(u32, u64)]) -> Vec<f64> {
    let one = PERIOD as f64 + 24.0;
    let mut ids = profile.samples.ids();
    let mut of = |kept: u32| -> f64 {
        let weights = ids
            .by_ref()
            .take(kept as usize)
            .map(|id| profile.weight(id));
        weights.map(|weight| weight.bytes / one).sum()
    };
    blocks.iter().map(|&(kept, _)| of(kept)).collect()
}

fn assert_near(found: &[f64], expected: &[f64]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found / expected - 1.0).abs() < 2e-3 || found == expected,
            "{found} {expected}"
        );
    }
}

#[test]
fn those_of_the_same_block_stand_for_them() {
    let blocks = [(100, 0), (200, 100), (50, 0), (10, 490)];
    let profile = Profile::read(&file(&blocks)[..]).expect("a profile");
    assert_near(&stood_for(&profile, &blocks), &[100.0, 300.0, 50.0, 500.0]);
    let probability = profile
        .weight(profile.samples.ids().last().expect("samples"))
        .probability;
    assert!(
        (probability * 50.0 * PERIOD as f64 / 48.0 - 1.0).abs() < 1e-2,
        "{probability}"
    );
}

#[test]
fn a_block_without_a_sample_counts_for_a_neighbour() {
    let blocks = [(0, 30), (100, 0), (40, 20), (0, 60), (10, 0)];
    let profile = Profile::read(&file(&blocks)[..]).expect("a profile");
    let expected = [0.0, 130.0, 120.0, 0.0, 10.0];
    assert_near(&stood_for(&profile, &blocks), &expected);
}

#[test]
fn a_file_that_was_written_again_says_the_same() {
    let blocks = [(100, 0), (200, 100), (50, 0), (10, 490)];
    let profile = Profile::read(&file(&blocks)[..]).expect("a profile");
    let mut again = Vec::new();
    profile.write(&mut again, |_| ()).expect("memory");
    let again = Profile::read(&again[..]).expect("a profile");
    assert_eq!(stood_for(&again, &blocks), stood_for(&profile, &blocks));
    assert_eq!(again.lost, profile.lost);
}

#[test]
fn only_losses_and_no_samples_are_harmless() {
    let profile = Profile::read(&file(&[(0, u64::MAX), (0, 5)])[..]).expect("a profile");
    assert!(profile.samples.is_empty());
    let profile = Profile::read(&file(&[(1, u64::MAX), (1, 5)])[..]).expect("a profile");
    let id = profile.samples.ids().next().expect("a sample");
    assert!(profile.weight(id).bytes.is_finite());
}
