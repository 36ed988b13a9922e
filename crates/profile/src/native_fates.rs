//! Which blocks of native memory died young.
//!
//! Objects die young if they go before the next collection of the youngest generation. No collector looks at native
//! memory: between two collections an array may live for minutes. So a block died young if it was freed before its
//! process had allocated [`YOUNG`] bytes more, or twice its own size: a large temporary of NumPy goes when the result
//! of the next operation, which is as large, is there.
//!
//! How much was allocated is told by the samples, to about a period. A program without a collector has no young blocks.

use crate::event::{Nanos, SampleId};
use crate::model::{Lifetime, Profile};

/// Bytes that a process allocates while a small block is young: as many as `--temporary` takes.
const YOUNG: f64 = 1_048_576.0;

/// A block that was freed.
struct Freed {
    time: Nanos,
    sample: SampleId,
    /// What its process had allocated when it was allocated, its own bytes included.
    allocated: f64,
}

/// The blocks of one process.
#[derive(Default)]
struct Blocks {
    /// Ordered by the times of the frees.
    freed: Vec<Freed>,
    /// The place in `freed` of each block, in the order of the samples.
    places: Vec<u32>,
    /// Blocks whose allocation was passed.
    allocated_blocks: usize,
    /// Blocks whose free was passed.
    freed_blocks: usize,
    /// Bytes allocated until here.
    sum: f64,
}

impl Profile {
    /// Sets the lifetimes of the native memory that was freed.
    pub(crate) fn set_native_fates(&mut self) {
        if !self.sources.iter().any(crate::Source::is_native) {
            return;
        }
        let weights = self.shape_weights();
        let is_native = self.native_shapes();
        let process = |id: SampleId| self.process_of(self.samples.thread(id)).index();
        let mut processes: Vec<Blocks> = Vec::new();
        processes.resize_with(self.processes.len().max(1), Blocks::default);
        let has_collector: Vec<bool> = (self.processes.iter())
            .map(|process| process.meta.has_collector())
            .collect();
        let is_freed_block = |id: SampleId| {
            let is_native = is_native[self.samples.shape_id(id).0 as usize];
            let is_told = has_collector.get(process(id)).is_some_and(|has| *has);
            self.samples.freed(id).filter(|_| is_native && is_told)
        };
        for sample in self.samples.ids() {
            if let Some(time) = is_freed_block(sample) {
                processes[process(sample)].freed.push(Freed {
                    time,
                    sample,
                    allocated: 0.0,
                });
            }
        }
        for blocks in &mut processes {
            blocks.sort();
        }
        let mut fates: Vec<(SampleId, Lifetime)> = Vec::new();
        for sample in self.samples.ids() {
            let blocks = &mut processes[process(sample)];
            blocks.pass(self, self.samples.time(sample), &mut fates);
            blocks.sum += weights[self.samples.shape_id(sample).0 as usize].bytes;
            if is_freed_block(sample).is_some() {
                blocks.allocate();
            }
        }
        for blocks in &mut processes {
            blocks.pass(self, Nanos(u64::MAX), &mut fates);
        }
        for (sample, lifetime) in fates {
            let freed = self.samples.freed(sample);
            self.samples.set_lifetime(sample, lifetime, freed);
        }
    }

    /// By shape: whether its samples are native memory.
    fn native_shapes(&self) -> Vec<bool> {
        let shapes = self.samples.shapes().iter();
        let is_native = shapes.map(|shape| {
            let sampling = self.samplings.get(shape.sampling.index());
            let source = sampling.and_then(|sampling| self.sources.get(sampling.source.index()));
            source.is_some_and(crate::Source::is_native)
        });
        is_native.collect()
    }
}

impl Blocks {
    fn sort(&mut self) {
        // The blocks are in the order of the samples.
        let mut order: Vec<u32> = (0..self.freed.len() as u32).collect();
        order.sort_by_key(|&at| self.freed[at as usize].time);
        self.places = vec![0; order.len()];
        for (place, &block) in order.iter().enumerate() {
            self.places[block as usize] = place as u32;
        }
        self.freed.sort_by_key(|freed| freed.time);
    }

    /// The next block is allocated.
    fn allocate(&mut self) {
        let place = self.places[self.allocated_blocks];
        self.allocated_blocks += 1;
        self.freed[place as usize].allocated = self.sum;
    }

    /// All blocks that were freed before this time.
    fn pass(&mut self, profile: &Profile, time: Nanos, fates: &mut Vec<(SampleId, Lifetime)>) {
        while let Some(block) = self
            .freed
            .get(self.freed_blocks)
            .filter(|block| block.time < time)
        {
            self.freed_blocks += 1;
            // Samples are only nearly in the order of time: zero if the block's own sample follows.
            let since = match block.allocated {
                0.0 => 0.0,
                allocated => self.sum - allocated,
            };
            let size = profile.samples.size(block.sample) as f64;
            let lifetime = if since <= YOUNG.max(2.0 * size) {
                Lifetime::DiedYoung
            } else {
                Lifetime::Freed
            };
            fates.push((block.sample, lifetime));
        }
    }
}
