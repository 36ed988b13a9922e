//! What the samples say of the memory that a process had at a moment.

use nthbyte_profile::Part;
use nthbyte_profile::Profile;
use nthbyte_profile::meta::SourceKind;
use nthbyte_profile::model::{ProcessId, Sample, Shape};

use crate::estimate::{Estimate, Estimator, Moments, Totals};
use crate::selection::{Alive, Moment};

/// The largest request that the agent's heap serves, where a profile does not say.
const HEAP_LIMIT: u64 = 2032;

/// Above this size, the heap of CPython's agent leaves requests for memory that is no object to the C library, so a
/// size does not tell whose a block is.
const SHARED_FROM: u64 = 512;

/// The sizes of blocks in pages for sampled blocks of the agent's heap, and the label before each: `GROUP_BLOCK_SIZES` and
/// `LABEL_SIZE` in `nthbyte_heap::geometry`.
const SAMPLED_SIZES: [u64; 10] = [32, 64, 96, 128, 192, 256, 384, 512, 1008, 2032];
const LABEL_SIZE: u64 = 16;

/// What a sampled block of the agent's heap takes more than an ordinary one, whose block has this size.
fn room_of_sampled(block: u64) -> u64 {
    let size = SAMPLED_SIZES.into_iter().find(|&size| size >= block);
    size.unwrap_or(block) - block + LABEL_SIZE
}

/// Estimates of live memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    /// What the heap's blocks have more than was asked for.
    pub(super) slack: Estimate,
    /// What the sampled ones among these blocks take more than others. A count.
    pub(super) sampled_room: f64,
    /// Large blocks of the interpreter.
    pub(super) large: Estimate,
    /// Blocks of the C library, or of another allocator in its place.
    pub(super) native: Estimate,
    /// Mappings of the program.
    pub(super) mappings: Estimate,
    /// Whether any allocation samples are there.
    pub(super) has_samples: bool,
}

impl Live {
    /// `of_all`: for sums over all samples of the profile.
    pub(super) fn of(
        profile: &Profile,
        of_all: &Estimator,
        process: ProcessId,
        moment: Moment,
    ) -> Self {
        let alive = Alive::at(profile, moment);
        let estimator = alive.estimator(of_all);
        let limit = limit(profile, process);
        let places: Vec<_> = profile
            .samples
            .shapes()
            .iter()
            .map(|shape| {
                let source = profile.samplings.get(shape.sampling.index());
                let source = source.and_then(|of| profile.sources.get(of.source.index()));
                let kind = source.and_then(nthbyte_profile::Source::kind);
                match kind {
                    Some(SourceKind::Native) => 2,
                    Some(SourceKind::Mapping) => 3,
                    _ if shape.size > limit => 1,
                    // The heap counts blocks, and few requests have just a block's size.
                    _ if shape.size > SHARED_FROM && shape.block == shape.size => 1,
                    _ => 0,
                }
            })
            .collect();
        let mut sums = [Moments::default(); 4];
        let mut sampled_room = 0;
        for id in profile.samples.ids() {
            // Most were not alive, so this is asked first.
            if !alive.has(id) || profile.process_of(profile.samples.thread(id)) != process {
                continue;
            }
            let sample: Sample = profile.samples.get(id);
            let place = places[profile.samples.shape_id(id).0 as usize];
            if place == 0 {
                sampled_room += room_of_sampled(sample.shape.block);
            }
            if let Some(totals) = alive.totals(id) {
                sums[place].add(&match place {
                    0 => slack(&sample.shape, totals),
                    _ => totals.bytes,
                });
            }
        }
        let [slack, large, native, mappings] = sums.map(|sum| estimator.of_bytes(&sum));
        Self {
            slack,
            sampled_room: sampled_room as f64,
            large,
            native,
            mappings,
            has_samples: !profile.samples.is_empty(),
        }
    }
}

/// The moments of what blocks have more than was asked for.
fn slack(shape: &Shape, totals: &Totals) -> Moments {
    let value = shape.block.saturating_sub(shape.size) as f64;
    let factor = value / (shape.size as f64).max(1.0);
    let bytes = &totals.bytes;
    if bytes.estimate == 0.0 {
        // Blocks of 0 bytes have a size all the same.
        let each = totals.allocations;
        return Moments {
            estimate: each.estimate * value,
            seen: value,
            variance: each.variance * value * value,
            third: each.third * value * value * value,
        };
    }
    Moments {
        estimate: bytes.estimate * factor,
        seen: bytes.seen * factor,
        variance: bytes.variance * factor * factor,
        third: bytes.third * factor * factor * factor,
    }
}

/// The estimator for sums over all samples.
pub(super) fn estimator(profile: &Profile) -> Estimator {
    let shapes = Totals::of_shapes(profile);
    Estimator::new(profile, &Totals::of_all(profile, &shapes))
}

/// The largest request that a process's heap serves itself.
pub(super) fn limit(profile: &Profile, process: ProcessId) -> u64 {
    let compositions = profile
        .processes
        .get(process.index())
        .map(|of| &of.compositions[..])
        .unwrap_or_default();
    let limit = compositions.iter().find_map(|of| of.get(Part::HeapLimit));
    limit.unwrap_or(HEAP_LIMIT)
}
