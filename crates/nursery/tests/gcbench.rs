//! The example: a program that profiles itself.

#[path = "../examples/gcbench/profiler.rs"]
mod profiler;
#[path = "../examples/gcbench/trees.rs"]
mod trees;

use std::collections::HashMap;

use nthbyte_nursery::{HeapSizes, MovingHeap};
use nthbyte_profile::Profile;
use nthbyte_sampling::{Distances, Period, Sampler};
use profiler::Profiler;
use trees::size;

fn profile(depth: u32, period: u64, distances: Distances, settings: HeapSizes) -> (Profile, u64) {
    let profiler = Profiler::new(Vec::new(), "trees.rs", &trees::types(), period, distances);
    let observer = profiler.expect("memory is written to");
    let mut heap = MovingHeap::new(settings, trees::types(), observer);
    let period = Period::new(period).expect("a period");
    heap.start_sampling(Sampler::new(period, distances, 1));
    assert_eq!(
        trees::run(&mut heap, depth),
        Some(1_000_000),
        "1000 squared"
    );
    heap.collect_minor();
    let allocated = heap.statistics().allocated;
    let file = heap.into_observer().finish(allocated);
    let file = file.expect("memory is written to");
    (
        Profile::read(file.as_slice()).expect("a profile"),
        allocated,
    )
}

/// Every allocation is recorded: what the profile has is what the heap counted, by function, type and fate.
#[test]
fn a_profile_of_every_allocation_is_exact() {
    let settings = HeapSizes {
        nursery: 64 << 10,
        ..HeapSizes::default()
    };
    let (profile, allocated) = profile(6, 1, Distances::Every, settings);
    assert_eq!(
        profile
            .samples
            .iter()
            .map(|sample| sample.shape.size)
            .sum::<u64>(),
        allocated
    );
    let mut nodes = HashMap::new();
    for sample in profile.samples.iter() {
        let innermost = profile.stack(sample.stack).next().expect("a stack");
        let name = profile.functions[innermost.function as usize].name.as_str();
        *nodes.entry(name).or_insert(0) += u64::from(sample.shape.size == 32);
    }
    // For each even depth d up to 6, 254 / (2^(d+1) - 1) trees of each kind; and the long-lived tree.
    let rounds = |depth| 2 * size(6) / size(depth);
    let bottom_up: u64 = [4, 6]
        .iter()
        .map(|&depth| rounds(depth) * size(depth))
        .sum();
    assert_eq!(nodes["bottom_up"], bottom_up);
    let all: u64 = nodes.values().sum();
    assert_eq!(all, 2 * bottom_up + size(6));
}

/// Fixed distances: as many sample points as periods fit into what was allocated.
#[test]
fn fixed_distances_count_the_bytes() {
    let settings = HeapSizes {
        nursery: 32 << 10,
        ..HeapSizes::default()
    };
    for period in [1 << 10, 1 << 17] {
        let (profile, allocated) = profile(8, period, Distances::Fixed, settings);
        let points: u64 = profile
            .samples
            .iter()
            .map(|sample| u64::from(sample.shape.points))
            .sum();
        assert_eq!(points, allocated / period);
    }
}
