//! Who holds the free blocks of used pages.
//!
//! A page with one live block cannot be used for other sizes, nor be given back. Each live block holds its part of the free
//! blocks of its neighbourhood: the free blocks of its size in its arena, divided by the live blocks there. The sampled
//! blocks stand for the others, as always; a sampled block itself lies elsewhere, so the arena in which it would lie is
//! recorded with it.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use nthbyte_profile::composition::Occupancy;
use nthbyte_profile::event::{NodeId, SampleId};
use nthbyte_profile::model::ProcessId;
use nthbyte_profile::{Composition, Part, Profile};
use serde::Serialize;

use super::distance;
use super::moment::{Observed, OfProcess};
use crate::estimate::{Estimate, Estimator, Moments, Totals};
use crate::holders::{HeldBy, Keepers};
use crate::leaks::{Frames, LeakPlace};
use crate::selection::{self, Lives};
use crate::summary::NO_STACK;

/// Who holds free memory.
#[derive(Clone, Debug, Serialize)]
pub struct FreeMemoryHolders {
    /// When the pages were looked at, in nanoseconds since the start.
    pub at_nanos: u64,
    /// Free blocks in used pages then, in bytes: a count.
    pub free: u64,
    /// Pages of which at most a quarter is in use, in bytes, and the free blocks in them.
    pub sparse_pages: u64,
    /// The free blocks in those.
    pub sparse_free: u64,
    /// The lines whose survivors hold most of the free blocks, largest first.
    pub holders: Vec<FreeMemoryHolder>,
}

/// A line whose survivors hold free blocks.
#[derive(Clone, Debug, Serialize)]
pub struct FreeMemoryHolder {
    /// The innermost line of the program's own code.
    pub place: LeakPlace,
    /// Free blocks that its survivors hold, in bytes.
    pub free: Estimate,
    /// The survivors themselves, in bytes.
    pub live: Estimate,
    /// Number of samples.
    pub samples: u64,
    /// Which object holds the survivors, where a snapshot says it.
    pub held_by: Option<HeldBy>,
}

/// The survivors of a stack among the blocks of one size.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// Free blocks that they hold, before these are made to add up.
    held: Moments,
    live: Totals,
}

/// By stack and by the size of the blocks.
type Sums = BTreeMap<(NodeId, u32), Sum>;

/// The survivors of each stack.
type Survivors = HashMap<NodeId, Vec<SampleId>, RandomState>;

pub(super) fn of(
    profile: &Profile,
    moment: &Observed<'_>,
    most: usize,
) -> Option<FreeMemoryHolders> {
    let mut holders: Option<FreeMemoryHolders> = None;
    let mut sums = Sums::default();
    let mut survivors = Survivors::default();
    let mut free: BTreeMap<u32, f64> = BTreeMap::new();
    for one in &moment.processes {
        let Some(surveyed) = surveyed(profile, one) else {
            continue;
        };
        let all = holders.get_or_insert_with(|| FreeMemoryHolders {
            at_nanos: surveyed.time.0,
            free: 0,
            sparse_pages: 0,
            sparse_free: 0,
            holders: Vec::new(),
        });
        let part = |part: Part| surveyed.get(part).unwrap_or(0);
        all.free += part(Part::HeapFreeBlocks);
        all.sparse_pages += part(Part::HeapSparsePages);
        all.sparse_free += part(Part::HeapSparseFree);
        let sizes = surveyed.occupancy.iter();
        let free_of = |of: &Occupancy| f64::from(of.free) * f64::from(of.block);
        let seen: f64 = sizes.clone().map(free_of).sum();
        // Of a large heap, a part of the arenas was looked at.
        let factor = part(Part::HeapFreeBlocks) as f64 / seen.max(1.0);
        for of in sizes {
            *free.entry(of.block).or_default() += factor * free_of(of);
        }
        add(profile, one.process, surveyed, &mut sums, &mut survivors);
    }
    let mut holders = holders?;
    holders.holders = ranked(profile, &sums, &free, most, &survivors);
    Some(holders)
}

/// The nearest composition with the use of the pages.
fn surveyed<'a>(profile: &'a Profile, of: &OfProcess<'_>) -> Option<&'a Composition> {
    let process = profile.processes.get(of.process.index())?;
    let surveyed = process.compositions.iter();
    surveyed
        .filter(|other| !other.occupancy.is_empty())
        .min_by_key(|other| distance(other.time, of.composition.time))
}

fn add(
    profile: &Profile,
    process: ProcessId,
    surveyed: &Composition,
    sums: &mut Sums,
    survivors: &mut Survivors,
) {
    let mut held: HashMap<(u32, u32), f64, RandomState> = HashMap::default();
    let mut everywhere: HashMap<u32, (f64, f64), RandomState> = HashMap::default();
    for of in surveyed.occupancy.iter().filter(|of| of.used > 0) {
        let free = f64::from(of.free) * f64::from(of.block);
        held.insert((of.arena, of.block), free / f64::from(of.used));
        let sum = everywhere.entry(of.block).or_default();
        *sum = (sum.0 + free, sum.1 + f64::from(of.used));
    }
    let moment = selection::Moment::Time(surveyed.time);
    let lives = Lives::of(profile);
    for run in &profile.arenas {
        for number in run.first.0..run.first.0 + run.count {
            let id = SampleId(number);
            if !lives.has(&profile.samples, id, moment) {
                continue;
            }
            let sample = profile.samples.get(id);
            if profile.process_of(sample.thread) != process {
                continue;
            }
            let Ok(block) = u32::try_from(sample.shape.block) else {
                continue;
            };
            let nearby = held.get(&(run.arena, block)).copied();
            // Of an arena that is not listed, the mean of the others is as good as anything.
            let mean = || everywhere.get(&block).map(|(free, used)| free / used);
            let Some(each) = nearby.or_else(mean) else {
                continue;
            };
            let totals = Totals::of_sample(profile, sample.shape);
            let of = sums.entry((sample.stack, block)).or_default();
            of.live.add(&totals);
            survivors.entry(sample.stack).or_default().push(id);
            of.held.add(&Moments {
                estimate: totals.allocations.estimate * each,
                seen: each,
                variance: totals.allocations.variance * each * each,
                third: totals.allocations.third * each * each * each,
            });
        }
    }
}

/// The line of a stack; `None` without a frame.
type Line = Option<(u32, u32)>;

fn ranked(
    profile: &Profile,
    sums: &Sums,
    free: &BTreeMap<u32, f64>,
    most: usize,
    survivors: &Survivors,
) -> Vec<FreeMemoryHolder> {
    let frames = Frames::of(profile);
    let line_of = |stack: NodeId| {
        (stack != NodeId::ROOT).then(|| {
            let frame = profile.frames.get(frames.own[stack.index()].frame as usize);
            frame.map_or((0, 0), |frame| (frame.function, frame.line))
        })
    };
    // Sums are taken in one order, so that they are the same each time.
    let mut lines: BTreeMap<(u32, Line), Sum> = BTreeMap::new();
    let mut sizes: BTreeMap<u32, Moments> = BTreeMap::new();
    let mut all = Totals::default();
    for (&(stack, block), sum) in sums {
        let line = line_of(stack);
        let of = lines.entry((block, line)).or_default();
        of.held.add(&sum.held);
        of.live.add(&sum.live);
        sizes.entry(block).or_default().add(&sum.held);
        all.add(&sum.live);
    }
    let mut holders: BTreeMap<Line, Sum> = BTreeMap::new();
    for ((block, line), sum) in lines {
        let of = holders.entry(line).or_default();
        let free = free.get(&block).copied().unwrap_or(0.0);
        of.held.add(&share(&sum.held, &sizes[&block], free));
        of.live.add(&sum.live);
    }
    let estimator = Estimator::new(profile, &all);
    let most_free: f64 = free.values().sum();
    let mut holders: Vec<(Line, FreeMemoryHolder)> = holders
        .into_iter()
        .map(|(line, sum)| {
            let held = estimator.of_bytes(&sum.held);
            let holder = FreeMemoryHolder {
                place: place(profile, line),
                free: Estimate {
                    high: held.high.min(most_free),
                    ..held
                },
                live: estimator.bytes(&sum.live),
                samples: sum.live.samples,
                held_by: None,
            };
            (line, holder)
        })
        .collect();
    holders.sort_by(|(_, one), (_, other)| {
        let bytes = other.free.estimate.total_cmp(&one.free.estimate);
        let names = |of: &FreeMemoryHolder| (of.place.file.clone(), of.place.line);
        bytes.then_with(|| names(one).cmp(&names(other)))
    });
    holders.truncate(most);
    let keepers = Keepers::of(profile);
    let with_keeper = |(line, mut holder): (Line, FreeMemoryHolder)| {
        let own = survivors
            .iter()
            .filter(|&(&stack, _)| line_of(stack) == line);
        let own = own.flat_map(|(_, ids)| ids.iter().copied()).collect();
        holder.held_by = keepers.holder(&own);
        holder
    };
    holders.into_iter().map(with_keeper).collect()
}

/// The part of a known number of free bytes that is one line's, as its part of the estimate of all lines. Its variance is
/// a ratio of sums', to first order.
fn share(line: &Moments, all: &Moments, free: f64) -> Moments {
    if all.estimate <= 0.0 {
        return Moments::default();
    }
    let part = line.estimate / all.estimate;
    let factor = free / all.estimate;
    let (own, others) = ((1.0 - part) * factor, part * factor);
    Moments {
        estimate: part * free,
        seen: 0.0,
        variance: own * own * line.variance
            + others * others * (all.variance - line.variance).max(0.0),
        third: own * own * own * line.third
            + others * others * others * (all.third - line.third).max(0.0),
    }
}

fn place(profile: &Profile, line: Line) -> LeakPlace {
    let function = line.and_then(|(function, _)| profile.functions.get(function as usize));
    match (function, line) {
        (Some(function), Some((_, line))) => LeakPlace {
            function: function.name.clone(),
            file: function.file.clone(),
            line,
        },
        _ => LeakPlace {
            function: NO_STACK.to_owned(),
            file: String::new(),
            line: 0,
        },
    }
}
