//! Containers that grow: one block that is reallocated, larger each time.
//!
//! A list, a `bytearray` or an array of C keeps its elements in one block. When that is full, it is reallocated with more room:
//! the old block is freed, and a larger one is born, at the same place in the same thread. Dictionaries and sets make the new
//! one first, and copy. Either way only the last block is alive at the end, and was born a short time ago, as if in a burst.
//! So the blocks of one container are put together as a [`Chain`], and its size is followed over time: when a block is
//! replaced, it is full, so its size is what the container holds then.
//!
//! A large block of native memory counts as it is touched: it has a sample for each piece, and the pieces are put together first.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::model::{Samples, Site};
use nthbyte_profile::{Profile, Source};

use super::clock::{Clock, Clocks, Instant};
use super::sites::Frames;
use super::verdict::SMALLEST;

/// The time between the free of a block and the birth of the one that replaces it, if the old one is freed first, in
/// nanoseconds.
const FREED_FIRST: u64 = 300_000;

/// The same if the new one is made first, for each byte of it: elements are copied in between, at 50 MB/s at least; and
/// another millisecond.
const COPIED: (u64, u64) = (20, 1_000_000);

/// The most that a block grows by at once: sets of up to 50,000 elements become four times as large.
const MOST: u64 = 5;

/// A piece of a block has at least a page.
const PIECE: u64 = 4096;

/// Freed blocks near a birth that are looked at.
const NEAR: usize = 256;

/// A block that was not sampled may lie between two that were. The time between them is then this many times as long as
/// steady growth says, at most.
const LONGEST_GAP: f64 = 2.0;

/// The largest blocks that are alive are looked at, not more than these.
const MOST_CHAINS: usize = 4096;

/// Growth in fewer steps is no trend. A dictionary doubles: from a tenth of the run to its end it has three.
const FEWEST: usize = 3;

/// The last block is overdue if it has lasted for so many times as long as the growth before says.
const OVERDUE: f64 = 1.5;

/// The growth of the later steps against the growth of the earlier ones, below which it is slowing.
const SLOWING: f64 = 0.4;

/// A block that replaced a smaller one.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Instant,
    /// The old block's size, which is what the container held.
    full: f64,
    /// The new block's size.
    room: f64,
}

/// A container that is alive at the end, and has grown.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// Its blocks, the one that is alive first.
    pub(crate) blocks: Vec<SampleId>,
    /// In the order of time.
    steps: Vec<Step>,
}

/// The growth of a container over a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// How often it was reallocated in the window.
    pub(crate) steps: usize,
    /// Bytes of its block at the start of the window, and at the end.
    pub(crate) from: f64,
    /// See `from`.
    pub(crate) to: f64,
    /// The least, the middle and the most that its content may have grown by.
    pub(crate) grown: [f64; 3],
}

/// All containers that have grown and are alive at a moment.
pub(crate) fn chains(
    profile: &Profile,
    frames: &Frames,
    clocks: &Clocks,
    closing: Nanos,
) -> Vec<Chain> {
    let samples = &profile.samples;
    let whole = Pieces::of(profile, closing);
    let size = |id: SampleId| whole.size(samples, id);
    let place_of = |site: &Site| {
        let frame = frames.own[site.stack.index()].frame;
        let function = profile
            .frames
            .get(frame as usize)
            .map(|frame| frame.function);
        (
            site.thread,
            function.map(|function| frames.group[function as usize]),
        )
    };
    let place = |id: SampleId| place_of(&samples.site(samples.site_id(id)));
    let lasts = |id: SampleId| {
        samples.time(id) <= closing && samples.freed(id).is_none_or(|freed| freed > closing)
    };
    // Few blocks are so large: the rest is for them alone.
    let shapes = samples.shapes().iter();
    let is_large: Vec<bool> = shapes.map(|shape| shape.size as f64 >= SMALLEST).collect();
    let large = samples.ids().filter(|&id| {
        (is_large[samples.shape_id(id).0 as usize] || size(id) as f64 >= SMALLEST)
            && !whole.later.contains(&id)
    });
    let mut tails: Vec<SampleId> = large.filter(|&id| lasts(id)).collect();
    tails.sort_unstable_by_key(|&id| std::cmp::Reverse(size(id)));
    tails.truncate(MOST_CHAINS);
    if tails.is_empty() {
        return Vec::new();
    }
    let mut freed: HashMap<_, Vec<(Nanos, SampleId)>, RandomState> = HashMap::default();
    for &id in &tails {
        freed.entry(place(id)).or_default();
    }
    let sites = samples.sites().iter();
    let is_place: Vec<bool> = sites
        .map(|site| freed.contains_key(&place_of(site)))
        .collect();
    for id in samples.ids() {
        if is_place[samples.site_id(id).index()]
            && let Some(at) = samples.freed(id)
            && let Some(freed) = freed.get_mut(&place(id))
            && !whole.later.contains(&id)
        {
            freed.push((at, id));
        }
    }
    freed.values_mut().for_each(|freed| freed.sort_unstable());
    // A block was replaced by one other.
    let before = |id: SampleId, taken: &HashSet<SampleId, RandomState>| {
        let freed = freed.get(&place(id))?;
        let (born, new) = (samples.time(id), size(id));
        let after = born
            .0
            .saturating_add(new.saturating_mul(COPIED.0))
            .saturating_add(COPIED.1);
        let from = freed.partition_point(|(at, _)| at.0 < born.0.saturating_sub(FREED_FIRST));
        let near = freed[from..]
            .iter()
            .take_while(|(at, _)| at.0 <= after)
            .take(NEAR);
        let is_smaller = |old: SampleId| {
            size(old) < new && size(old).saturating_mul(MOST) >= new && !taken.contains(&old)
        };
        let replaced = near.map(|&(_, old)| old);
        let replaced = replaced.filter(|&old| samples.time(old) < born && is_smaller(old));
        replaced.max_by_key(|&old| size(old)).or_else(|| {
            // The block between the two was not sampled. It was there for as long as the growth takes that fills it.
            let earlier = freed[..from].iter().rev().take(NEAR);
            let old = earlier.map(|&(_, old)| old).find(|&old| is_smaller(old))?;
            let freed = samples.freed(old)?.0;
            let lasted = freed.saturating_sub(samples.time(old).0) as f64;
            let factor = (new as f64 / size(old) as f64).sqrt();
            ((born.0 - freed) as f64 <= LONGEST_GAP * factor * lasted).then_some(old)
        })
    };
    let mut chains = Vec::new();
    let mut taken = HashSet::default();
    for last in tails {
        let (mut steps, mut blocks, mut block) = (Vec::new(), vec![last], last);
        while let Some(old) = before(block, &taken) {
            taken.insert(old);
            let at = clocks.moment(samples.time(block));
            steps.push(Step {
                at,
                full: size(old) as f64,
                room: size(block) as f64,
            });
            block = old;
            blocks.push(old);
        }
        for number in 0..blocks.len() {
            blocks.extend(whole.later_of(blocks[number]));
        }
        if steps.len() >= FEWEST {
            steps.reverse();
            chains.push(Chain { blocks, steps });
        }
    }
    chains
}

/// The pieces of native blocks that were touched after the first one.
struct Pieces {
    /// By the first piece of their block.
    of: HashMap<SampleId, Vec<SampleId>, RandomState>,
    later: HashSet<SampleId, RandomState>,
}

impl Pieces {
    /// Pieces have the stack and the type of their block. They are freed with it, at one time; of the objects alive at the
    /// end, those that are younger than the largest one, and not larger together, are taken as its pieces.
    fn of(profile: &Profile, closing: Nanos) -> Self {
        let samples = &profile.samples;
        let is_native = samples.shapes().iter().map(|shape| {
            let sampling = profile.samplings.get(shape.sampling.index());
            let source = sampling.and_then(|of| profile.sources.get(of.source.index()));
            source.is_some_and(Source::is_native)
        });
        let is_native: Vec<bool> = is_native.collect();
        let mut pieces = Self {
            of: HashMap::default(),
            later: HashSet::default(),
        };
        if !is_native.contains(&true) {
            return pieces;
        }
        let mut blocks: HashMap<_, Vec<SampleId>, RandomState> = HashMap::default();
        for id in samples.ids() {
            let shape = samples.shape_id(id);
            if is_native[shape.0 as usize] && samples.shape(shape).size >= PIECE {
                let freed = samples.freed(id).filter(|&freed| freed <= closing);
                let key = (samples.stack(id), samples.type_id(id), freed);
                blocks.entry(key).or_default().push(id);
            }
        }
        for ((.., freed), of_block) in blocks {
            // The first of several equal ones.
            let largest = of_block
                .iter()
                .rev()
                .copied()
                .max_by_key(|&id| samples.size(id));
            let first = match freed {
                Some(_) => of_block.first().copied(),
                None => largest,
            };
            let Some(first) = first else { continue };
            let younger = of_block.iter().copied();
            let younger: Vec<SampleId> = younger
                .filter(|&id| id != first && samples.time(id) >= samples.time(first))
                .collect();
            let sizes = younger.iter().map(|&id| samples.size(id));
            let more = sizes.fold(0, u64::saturating_add);
            if more > 0 && (freed.is_some() || more <= samples.size(first)) {
                pieces.later.extend(&younger);
                pieces.of.insert(first, younger);
            }
        }
        pieces
    }

    fn later_of(&self, first: SampleId) -> impl Iterator<Item = SampleId> + '_ {
        // Most profiles have none.
        let of = (!self.of.is_empty()).then(|| self.of.get(&first)).flatten();
        of.into_iter().flatten().copied()
    }

    /// The size of a block, by its first piece.
    fn size(&self, samples: &Samples, first: SampleId) -> u64 {
        let later = self.later_of(first).map(|id| samples.size(id));
        later.fold(samples.size(first), u64::saturating_add)
    }
}

impl Chain {
    /// The growth from a moment to another, if it went on until then: without a sign that it stops, in both clocks.
    pub(crate) fn course(&self, start: Instant, end: Instant) -> Option<Course> {
        let from = self
            .steps
            .partition_point(|step| step.at[Clock::Work as usize] <= start[Clock::Work as usize]);
        let steps = &self.steps[from..];
        let goes_on =
            |clock: Clock| goes_on(steps, clock, start[clock as usize], end[clock as usize]);
        if steps.len() < FEWEST || !goes_on(Clock::Time) || !goes_on(Clock::Work) {
            return None;
        }
        let (first, last) = (steps.first()?, steps.last()?);
        // What it held at the start is between what filled the block before, and that block.
        let least = from
            .checked_sub(1)
            .map_or(0.0, |before| self.steps[before].full);
        let time = Clock::Time as usize;
        let passed = f64::from(last.at[time] - first.at[time]);
        let rate = (last.full - first.full) / passed.max(f64::MIN_POSITIVE);
        Some(Course {
            steps: steps.len(),
            from: first.full,
            to: last.room,
            grown: [
                (last.full - first.full).max(0.0),
                (rate * f64::from(end[time] - start[time]))
                    .clamp(last.full - first.full, last.room - least),
                last.room - least,
            ],
        })
    }
}

/// Whether the steps begin early, go on until the end, and do not become rarer than steady growth makes them.
fn goes_on(steps: &[Step], clock: Clock, start: f32, end: f32) -> bool {
    let at = |step: &Step| f64::from(step.at[clock as usize]);
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return false;
    };
    let (start, end) = (f64::from(start), f64::from(end));
    let middle = &steps[steps.len() / 2];
    let rate = |from: &Step, to: &Step| (to.full - from.full) / (at(to) - at(from)).max(1e-6);
    let (early, late) = (rate(first, middle), rate(middle, last));
    let is_early = at(first) <= start + (end - start) / 3.0;
    let due = (last.room - last.full) / rate(first, last).max(f64::MIN_POSITIVE);
    is_early && late >= SLOWING * early && end - at(last) <= OVERDUE * due
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container that holds `held(at)` bytes, with a block that grows by this factor.
    fn chain(factor: f64, held: impl Fn(f64) -> f64) -> Chain {
        let mut steps = Vec::new();
        let mut room = 1.0;
        for moment in 1..=1000_u16 {
            let at = f64::from(moment) / 1000.0;
            while held(at) > room {
                let full = room;
                room *= factor;
                steps.push(Step {
                    at: [at as f32; 2],
                    full,
                    room,
                });
            }
        }
        Chain {
            blocks: vec![SampleId(0)],
            steps,
        }
    }

    fn grows(factor: f64, held: impl Fn(f64) -> f64) -> bool {
        chain(factor, held).course([0.1; 2], [1.0; 2]).is_some()
    }

    #[test]
    fn steady_growth_goes_on_whatever_the_end() {
        for factor in [1.0625, 1.125, 2.0, 4.0_f64] {
            // Of fourfold steps there are two at most.
            let expected = factor < 4.0;
            for size in 10..40 {
                let size = f64::from(size) * 1e5;
                assert_eq!(grows(factor, |at| size * at), expected, "{factor} {size}");
            }
        }
    }

    #[test]
    fn what_is_full_has_stopped() {
        for factor in [1.0625, 1.125, 2.0] {
            for size in 10..40 {
                let size = f64::from(size) * 1e5;
                assert!(!grows(factor, |at| size * at.min(0.3)), "{factor} {size}");
                assert!(
                    !grows(factor, |at| size * (1.0 - (-at * 6.0).exp())),
                    "{factor} {size}"
                );
                // Filled late, at once.
                assert!(
                    !grows(factor, |at| size * (at - 0.8).max(0.0)),
                    "{factor} {size}"
                );
            }
        }
    }

    #[test]
    fn the_growth_is_within_its_limits() {
        for factor in [1.0625, 1.125, 2.0] {
            for size in 10..40 {
                let size = f64::from(size) * 1e5;
                let course = chain(factor, |at| size * at)
                    .course([0.1; 2], [1.0; 2])
                    .unwrap();
                let [low, middle, high] = course.grown;
                assert!(low <= 0.9 * size && 0.9 * size <= high, "{course:?}");
                assert!((middle / (0.9 * size) - 1.0).abs() < 0.2, "{course:?}");
            }
        }
    }
}
