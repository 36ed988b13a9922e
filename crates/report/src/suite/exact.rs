//! One test, recorded by itself with every allocation: the figures that its limits are about, to the byte.
//!
//! The order of allocations and frees within a tick of the file's clock matters here: blocks that follow each other are not
//! alive together. A profile in memory does not know it, so the events are read once more, in their order.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

use foldhash::fast::RandomState;
use nthbyte_profile::event::{Event, Nanos, NodeId, SampleId};
use nthbyte_profile::model::{Function, Site};
use nthbyte_profile::{Profile, Reader, SourceKind};
use serde::{Deserialize, Serialize};

use crate::holders::Keepers;
use crate::leaks::Frames;

/// What counts.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Only what this thread allocated: the system's number.
    pub thread: Option<u64>,
    /// Small objects count as the interpreter takes memory for them: in whole arenas of a mebibyte.
    pub by_arenas: bool,
    /// The times at which the test's function was called again, in order; empty if it ran once.
    pub repetitions: Vec<Nanos>,
    /// Whether the stacks of all that it allocated are wanted.
    pub with_allocated: bool,
    /// The test's function, if it has one that is on the stack as long as it runs.
    pub test: Option<TestFunction>,
}

/// A test's function. What its thread allocates outside of it is the plugin's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestFunction {
    /// The system's number of the thread that calls it.
    pub thread: u64,
    /// Its file.
    pub file: String,
    /// The line of its definition.
    pub first_line: u32,
}

impl TestFunction {
    fn is(&self, function: &Function) -> bool {
        self.first_line == function.first_line && self.file == function.file
    }
}

/// Bytes that were allocated with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OfStack {
    /// Bytes of it.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Function, file and line of each frame, the innermost first, up to the test.
    pub stack: Vec<(String, String, u32)>,
    /// Who holds what a repetition leaves, where a snapshot says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
}

/// The figures of a test, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exact {
    /// All that it allocated.
    pub allocated: u64,
    /// The number of its allocations.
    pub allocations: u64,
    /// The most that was alive at one time, as the conditions count it.
    pub peak: u64,
    /// The most that was alive at one time, with each small object.
    pub peak_whole: u64,
    /// What was alive when it ended.
    pub left: u64,
    /// Allocations that the profile lacks: every figure may be too low.
    pub lost: u64,
    /// What was alive at the peak, the largest first.
    pub at_peak: Vec<OfStack>,
    /// What was alive when it ended, the largest first.
    pub left_by: Vec<OfStack>,
    /// The line of the program's own code that allocated most of that.
    pub left_origin: Option<Origin>,
    /// All that it allocated, the largest first, if that is wanted.
    pub allocated_by: Vec<OfStack>,
    /// Of a test that ran again: what each repetition left of a stack, at least.
    pub leaks: Vec<OfStack>,
}

/// The size of an arena, in bytes: CPython's of 3.10 and later.
const ARENA: u64 = 1 << 20;
/// The largest small object, in bytes: what CPython's own allocator takes from arenas.
const SMALL: u64 = 512;

/// Of so many stacks that leak most, the holders are looked for.
const MOST_HELD: usize = 20;

type Samples = HashSet<SampleId, RandomState>;

/// An allocation or a free, in the order of the events.
struct Step {
    time: Nanos,
    sample: SampleId,
    is_free: bool,
}

impl Exact {
    /// The exact figures of a profile. `again` reads the same file.
    ///
    /// # Errors
    /// If `again` fails.
    pub fn of(
        profile: &Profile,
        again: Reader<impl Read>,
        conditions: &Conditions,
    ) -> io::Result<Self> {
        let steps = steps(profile, again)?;
        let sites = profile.samples.sites().iter();
        let counts: Vec<bool> = sites
            .map(|site| counts(profile, site, conditions))
            .collect();
        let is_small = |id: SampleId| {
            let shape = profile.samples.shape(profile.samples.shape_id(id));
            let source = profile.sampling(shape.sampling).source;
            let kind = profile
                .sources
                .get(source.index())
                .and_then(|source| source.kind());
            kind == Some(SourceKind::ObjectHeap) && shape.block <= SMALL
        };
        let mut exact = Self {
            lost: profile.lost.iter().map(|&(_, lost)| lost).sum(),
            ..Self::default()
        };
        let steps: Vec<(Step, bool)> = steps
            .into_iter()
            .filter(|step| counts[profile.samples.site_id(step.sample).index()])
            .map(|step| {
                let is_small = is_small(step.sample);
                (step, is_small)
            })
            .collect();
        let (mut small, mut large, mut peak_at, mut small_at_peak) = (0, 0, 0, 0);
        for (number, (step, is_small)) in steps.iter().enumerate() {
            let size = profile.samples.size(step.sample);
            let sum: &mut u64 = if *is_small { &mut small } else { &mut large };
            if step.is_free {
                *sum = sum.saturating_sub(size);
                continue;
            }
            *sum += size;
            exact.allocated += size;
            exact.allocations += 1;
            exact.peak_whole = exact.peak_whole.max(large + small);
            let alive = large + conditions.of_small(small);
            if alive > exact.peak {
                exact.peak = alive;
                (peak_at, small_at_peak) = (number + 1, small);
            }
        }
        let has_small = conditions.of_small(small_at_peak) > 0;
        let at_peak = alive_after(&steps[..peak_at]);
        let at_peak = at_peak.filter(|&(_, is_small)| has_small || !is_small);
        exact.at_peak = by_stack(profile, at_peak.map(|(id, _)| id), conditions);
        let left = sums_by_stack(profile, alive_after(&steps).map(|(id, _)| id));
        exact.left_origin = main_origin(profile, &left);
        exact.left_by = described(profile, left, conditions);
        if conditions.with_allocated {
            let all = steps.iter().filter(|(step, _)| !step.is_free);
            exact.allocated_by = by_stack(profile, all.map(|(step, _)| step.sample), conditions);
        }
        exact.leaks = leaks(profile, &steps, conditions);
        exact.left = exact.left_by.iter().map(|of| of.bytes).sum();
        Ok(exact)
    }
}

impl Conditions {
    fn of_small(&self, bytes: u64) -> u64 {
        match self.by_arenas {
            true => bytes / ARENA * ARENA,
            false => bytes,
        }
    }
}

/// The allocations and frees in their order: by time, and at one time as the events are.
fn steps(profile: &Profile, mut again: Reader<impl Read>) -> io::Result<Vec<Step>> {
    let mut steps = Vec::new();
    while let Some(mut block) = again.next_block()? {
        let mut next = block.firsts().sample;
        while let Some(event) = block.next_event() {
            match event {
                Event::Allocation(allocation) => {
                    steps.push(Step {
                        time: allocation.time,
                        sample: SampleId(next),
                        is_free: false,
                    });
                    next += 1;
                }
                Event::Freed(sample, time) => steps.push(Step {
                    time,
                    sample,
                    is_free: true,
                }),
                _ => {}
            }
        }
    }
    // Of a damaged file, numbers may be missing.
    steps.retain(|step| step.sample.index() < profile.samples.len());
    // The sort is stable.
    steps.sort_by_key(|step| step.time);
    Ok(steps)
}

/// Whether the samples of a site count.
fn counts(profile: &Profile, site: &Site, conditions: &Conditions) -> bool {
    let thread = profile.threads.get(site.thread.index());
    let os_id = thread.map(|thread| thread.os_id);
    if conditions.thread.is_some() && conditions.thread != os_id {
        return false;
    }
    let Some(test) = conditions
        .test
        .as_ref()
        .filter(|test| Some(test.thread) == os_id)
    else {
        return true;
    };
    let mut functions = profile.stack(site.stack).map(|frame| frame.function);
    functions.any(|function| test.is(&profile.functions[function as usize]))
}

/// The samples that are alive after these steps.
fn alive_after(steps: &[(Step, bool)]) -> impl Iterator<Item = (SampleId, bool)> + '_ {
    let freed = steps.iter().filter(|(step, _)| step.is_free);
    let freed: Samples = freed.map(|(step, _)| step.sample).collect();
    let born = steps.iter().filter(|(step, _)| !step.is_free);
    born.map(|(step, is_small)| (step.sample, *is_small))
        .filter(move |(id, _)| !freed.contains(id))
}

/// What every repetition leaves, of each stack: the least of them. The first run is none of them, because it fills caches.
fn leaks(profile: &Profile, steps: &[(Step, bool)], conditions: &Conditions) -> Vec<OfStack> {
    let mut by_stack: HashMap<NodeId, Vec<(u64, u64)>, RandomState> = HashMap::default();
    let mut alive: HashMap<NodeId, Samples, RandomState> = HashMap::default();
    let repetitions = conditions.repetitions.len();
    if repetitions == 0 {
        return Vec::new();
    }
    for (id, _) in alive_after(steps) {
        let time = profile.samples.time(id);
        let begun = conditions
            .repetitions
            .partition_point(|&begin| begin <= time);
        let Some(repetition) = begun.checked_sub(1) else {
            continue;
        };
        let stack = profile.samples.stack(id);
        alive.entry(stack).or_default().insert(id);
        let sums = by_stack.entry(stack);
        let sums = sums.or_insert_with(|| vec![(0, 0); repetitions]);
        sums[repetition].0 += profile.samples.size(id);
        sums[repetition].1 += 1;
    }
    let least = by_stack
        .into_iter()
        .filter_map(|(node, sums)| Some((node, sums.into_iter().min()?)))
        .filter(|&(_, (bytes, _))| bytes > 0);
    let keepers = Keepers::of(profile);
    let of_stacks = ranked(least.collect());
    let held: Vec<Option<String>> = of_stacks
        .iter()
        .take(MOST_HELD)
        .map(|(node, _)| Some(keepers.holder(&alive[node])?.line()))
        .collect();
    let mut leaks = described(profile, of_stacks, conditions);
    for (leak, held_by) in leaks.iter_mut().zip(held) {
        leak.held_by = held_by;
    }
    leaks
}

fn by_stack(
    profile: &Profile,
    ids: impl Iterator<Item = SampleId>,
    conditions: &Conditions,
) -> Vec<OfStack> {
    described(profile, sums_by_stack(profile, ids), conditions)
}

/// Stacks with their bytes and blocks, those with most bytes first.
fn sums_by_stack(
    profile: &Profile,
    ids: impl Iterator<Item = SampleId>,
) -> Vec<(NodeId, (u64, u64))> {
    let mut sums: HashMap<NodeId, (u64, u64), RandomState> = HashMap::default();
    for id in ids {
        let (bytes, blocks) = sums.entry(profile.samples.stack(id)).or_default();
        *bytes += profile.samples.size(id);
        *blocks += 1;
    }
    ranked(sums.into_iter().collect())
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The function's qualified name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The line.
    pub line: u32,
}

/// The innermost line of the program's own code; without one, the innermost line.
pub fn origin(profile: &Profile, frames: &Frames, stack: NodeId) -> Option<Origin> {
    if stack == NodeId::ROOT {
        return None;
    }
    let own = frames.own[stack.index()].frame;
    let frame = profile.frames.get(own as usize)?;
    let function = profile.functions.get(frame.function as usize)?;
    Some(Origin {
        name: function.name.clone(),
        file: function.file.clone(),
        line: frame.line,
    })
}

/// The line of the program's own code that has allocated most of what these stacks have.
fn main_origin(profile: &Profile, stacks: &[(NodeId, (u64, u64))]) -> Option<Origin> {
    let frames = Frames::of(profile);
    let mut sums: HashMap<Option<Origin>, u64, RandomState> = HashMap::default();
    for &(stack, (bytes, _)) in stacks {
        *sums.entry(origin(profile, &frames, stack)).or_default() += bytes;
    }
    let most = sums
        .into_iter()
        .max_by(|(one, of_one), (other, of_other)| of_one.cmp(of_other).then(other.cmp(one)));
    most.and_then(|(origin, _)| origin)
}

/// The same, those with most bytes first.
fn ranked(mut sums: Vec<(NodeId, (u64, u64))>) -> Vec<(NodeId, (u64, u64))> {
    sums.sort_unstable_by_key(|&(node, (bytes, _))| (std::cmp::Reverse(bytes), node));
    sums
}

fn described(
    profile: &Profile,
    sums: Vec<(NodeId, (u64, u64))>,
    conditions: &Conditions,
) -> Vec<OfStack> {
    let of = |(node, (bytes, blocks))| OfStack {
        bytes,
        blocks,
        stack: frames(profile, node, conditions),
        held_by: None,
    };
    sums.into_iter().map(of).collect()
}

fn frames(profile: &Profile, stack: NodeId, conditions: &Conditions) -> Vec<(String, String, u32)> {
    let mut frames = Vec::new();
    for frame in profile.stack(stack) {
        let function = &profile.functions[frame.function as usize];
        frames.push((function.name.clone(), function.file.clone(), frame.line));
        if conditions
            .test
            .as_ref()
            .is_some_and(|test| test.is(function))
        {
            break;
        }
    }
    frames
}
