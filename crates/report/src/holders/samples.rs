//! A snapshot as samples of a profile, with holders in place of callers: so whatever shows samples shows who holds what, and two
//! snapshots can be compared as two profiles are.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, NodeId, SourceId, ThreadId, TypeId};
use nthbyte_profile::holders::{Held, Holder, Snapshot};
use nthbyte_profile::meta::{Distances, Unit};
use nthbyte_profile::model::{
    Frame, Function, Lifetime, Sample, Samples, Sampling, SamplingId, Shape, StackNode,
    ThreadNames, TypeNames,
};

use super::amounts::Amounts;
use super::choice::{self, HoldersError};
use super::icicle::Tiles;
use crate::selection::At;

/// What a box of a holder is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By its reference and its type: `.entries dict`. Its callers say the rest.
    Short,
    /// By the whole path to it, so that it is the same in another snapshot.
    Path,
}

/// Adds a thread to a profile, whose samples are the blocks of a snapshot and whose calls are their holders. Without a moment, it is
/// the snapshot that `nthbyte holders` shows.
///
/// # Errors
/// If there is no such snapshot.
pub fn add_track(
    profile: &mut Profile,
    at: Option<At>,
    naming: Naming,
) -> Result<(), HoldersError> {
    let chosen = choice::of(profile, at)?;
    let (process, snapshot) = (chosen.process, chosen.snapshot.clone());
    let amounts = Amounts::of(profile, &snapshot);
    let (names, parents, of_samples) = {
        let tiles = Tiles::of(profile, &snapshot, &amounts);
        let names = tiles.names(naming == Naming::Path);
        let of_samples: Vec<u32> = tiles.of_samples().collect();
        (names, tiles.parents(), of_samples)
    };
    let thread = ThreadId(profile.threads.len() as u32);
    profile.threads.push(ThreadNames {
        name: "Held by".to_owned(),
        ..ThreadNames::default()
    });
    profile.thread_processes.resize(
        profile.threads.len() - 1,
        nthbyte_profile::model::ProcessId(0),
    );
    let number = nthbyte_profile::model::ProcessId(process as u32);
    profile.thread_processes.push(number);
    let stacks: Vec<NodeId> = {
        let mut stacks: Vec<NodeId> = Vec::new();
        for (name, parent) in names.into_iter().zip(parents) {
            let above = parent.map_or(NodeId::ROOT, |parent| stacks[parent as usize]);
            stacks.push(call(profile, name, above));
        }
        stacks
    };
    let garbage = call(
        profile,
        "garbage not yet collected".to_owned(),
        NodeId::ROOT,
    );
    let not_found = call(profile, "no holder found".to_owned(), NodeId::ROOT);
    let elsewhere = call(profile, "small holders".to_owned(), NodeId::ROOT);
    let sampling = SamplingId(profile.samplings.len() as u32);
    profile.samplings.push(Sampling {
        source: SourceId::ALLOCATIONS,
        unit: Unit::Bytes,
        distances: Distances::Exponential,
        period: snapshot.period,
        lost: 0,
    });
    let first_type = profile.types.len() as u32;
    profile
        .types
        .extend(snapshot.texts.iter().map(|name| TypeNames {
            name: name.to_owned(),
            native: String::new(),
        }));
    for (held, tile) in snapshot.samples.iter().zip(of_samples) {
        if !held.counts {
            continue;
        }
        let stack = match (stacks.get(tile as usize), held.by) {
            (Some(&stack), _) => stack,
            (None, Holder::Node(_)) => elsewhere,
            (None, Holder::Garbage) => garbage,
            (None, Holder::NotFound) => not_found,
        };
        let Some(shape) = shape(profile, held, sampling) else {
            continue;
        };
        let before = held.recorded.map(|sample| profile.samples.get(sample));
        profile.samples.push(Sample {
            time: snapshot.time,
            thread,
            stack,
            shape,
            // Text 0 is empty, and not among those that are listed.
            type_id: held
                .what
                .checked_sub(1)
                .map_or(TypeId::UNKNOWN, |what| TypeId(first_type + what)),
            labels: before.map_or(nthbyte_profile::event::LabelSetId::NONE, |one| one.labels),
            lifetime: Lifetime::StillLive,
            freed: None,
        });
    }
    Ok(())
}

/// A profile of one snapshot, which has nothing else.
///
/// # Errors
/// If there is no such snapshot.
pub fn as_profile(
    profile: &Profile,
    at: Option<At>,
    naming: Naming,
) -> Result<Profile, HoldersError> {
    let mut all = profile.clone();
    add_track(&mut all, at, naming)?;
    let added = ThreadId(all.threads.len() as u32 - 1);
    let mut samples = Samples::default();
    // Those that no sample has would widen the intervals.
    let mut samplings: Vec<SamplingId> = Vec::new();
    for mut sample in all.samples.iter().filter(|sample| sample.thread == added) {
        let of = &mut sample.shape.sampling;
        let known = samplings.iter().position(|known| known == of);
        let number = known.unwrap_or_else(|| {
            samplings.push(*of);
            samplings.len() - 1
        });
        *of = SamplingId(number as u32);
        samples.push(sample);
    }
    let kept = samplings.iter().map(|of| all.samplings[of.0 as usize]);
    all.samplings = kept.collect();
    all.samples = samples;
    all.arenas.clear();
    all.cpu.clear();
    all.collections.clear();
    all.memory.clear();
    all.lost.clear();
    (all.allocated, all.counted) = (None, None);
    for process in &mut all.processes {
        process.snapshots.clear();
        process.allocated = None;
    }
    Ok(all)
}

/// Adds a call.
fn call(profile: &mut Profile, name: String, above: NodeId) -> NodeId {
    profile.functions.push(Function {
        name,
        file: String::new(),
        first_line: 0,
    });
    profile.frames.push(Frame {
        function: profile.functions.len() as u32 - 1,
        line: 0,
        kind: FrameKind::Interpreted,
    });
    profile.stacks.push(StackNode {
        parent: above,
        frame: profile.frames.len() as u32 - 1,
    });
    NodeId(profile.stacks.len() as u32 - 1)
}

/// What a block stands for: by the snapshot's period, or by the recording's if the snapshot could not draw it.
fn shape(profile: &Profile, held: &Held, sampling: SamplingId) -> Option<Shape> {
    if held.is_drawn {
        return Some(Shape {
            size: held.size,
            block: held.size,
            points: 1,
            sampling,
        });
    }
    let sample = held.recorded?;
    Some(profile.samples.shape(profile.samples.shape_id(sample)))
}

/// When the first snapshot of a profile was taken; `None` if there is none.
#[must_use]
pub fn first(profile: &Profile) -> Option<At> {
    let all = profile.processes.iter().flat_map(|of| &of.snapshots);
    let taken = all.filter(|one: &&Snapshot| !choice::is_not_taken(one));
    taken.map(|one| one.time).min().map(At::Time)
}
