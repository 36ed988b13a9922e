//! Who holds live objects: snapshots of the references between all objects.
//!
//! ```text
//! mod        when a snapshot is taken, and what it may cost
//! pending    has the interpreter take one
//! check      compares the layout with what public functions say
//! functions  CPython's functions, and where a walk begins      ─┐
//! blocks     the sample: blocks that are drawn from the heap    │
//! walk       all objects and references                         │ in the child
//! types      what it needs to know of each type                 │
//! links      by which name an object refers to others           │
//! text       texts of objects                                   │
//! result     the snapshot                                      ─┘
//! ```
//!
//! The walk runs in a child process that is a copy of this one ([`nthbyte_session::snapshots`]): the program stands still for
//! the copy only. It is made while the GIL is held and Python code may run, so objects are whole. A function of an extension
//! that crashes, or a corrupted heap, ends the child.
//!
//! docs/internals/holders.md describes the mechanism.

mod blocks;
mod check;
mod functions;
mod links;
mod result;
mod text;
mod types;
mod walk;

use std::time::Duration;

use nthbyte_heap::Heap;
use nthbyte_holders::{Subgraph, WorkLimit, dominators};
use nthbyte_host::{clock, memory};
use nthbyte_profile::event::{Nanos, SampleId};
use nthbyte_profile::holders::{Interner, Reason, Snapshot, SnapshotOutcome};
use nthbyte_session::config::SnapshotMode;
use nthbyte_session::native;
use nthbyte_session::snapshots::{self, Limits, cost, due, room};

use self::blocks::{Blocks, MOST_NATIVE};
use self::functions::WalkFunctions;
use self::result::Naming;
use self::walk::Walk;
use crate::api::Gil;
use crate::layout::Layout;

/// What a snapshot takes, as a rule: for each block that is alive, and besides. Measured on objects in lists and
/// dictionaries, CPython 3.11 to 3.15, rounded up.
const NANOS_A_BLOCK: u64 = 130;
const NANOS_BESIDES: u64 = 6_000_000;
/// The longest a child works, and what it takes of this for its names and its result.
const LONGEST: Duration = Duration::from_secs(30);
/// Bytes that the child needs for each block that is alive, and besides.
const BYTES_A_BLOCK: u64 = 24;
const BYTES_BESIDES: u64 = 16 << 20;
/// The part of the memory in use that the program may write to, and so copy, while the child lives.
const COPIED: u64 = 4;

/// The first version where a new object counts for the collector when it is freed again.
const FIRST_COUNTING: u32 = 0x030e_0000;

/// What a snapshot is asked of, as the agent knows it.
pub struct Asked<'a> {
    pub layout: Layout,
    pub heap: *const Heap,
    /// The numbers of samples, by the heap's tokens.
    pub samples: &'a dyn Fn(u32) -> Option<SampleId>,
    pub settings: SnapshotMode,
    pub with_keys: bool,
    pub time: Nanos,
    pub reason: Reason,
}

/// Takes a snapshot, if that is possible and costs no more than it may. If not, the profile says why.
///
/// # Safety
/// The heap is the one in use, and the layout was verified.
///
/// # Errors
/// Why there is none, in one clause.
pub unsafe fn take(gil: &Gil, asked: &Asked<'_>) -> Result<(), String> {
    // SAFETY: by the caller.
    let taken = unsafe { try_to_take(gil, asked) };
    if let Err(why) = &taken
        && due::is_worth_a_remark(asked.time, asked.reason)
    {
        snapshots::not_taken(asked.time, asked.reason, why);
    }
    taken
}

unsafe fn try_to_take(gil: &Gil, asked: &Asked<'_>) -> Result<(), String> {
    // SAFETY: the GIL is held.
    let (blocks, in_use) = unsafe {
        (
            Heap::blocks(asked.heap) as u64,
            Heap::statistics(asked.heap).in_use as u64,
        )
    };
    if asked.settings != SnapshotMode::Always {
        let nanos = blocks * NANOS_A_BLOCK + NANOS_BESIDES;
        cost::affords(Duration::from_nanos(nanos), asked.reason, asked.time)?;
    }
    let needed = blocks * BYTES_A_BLOCK + BYTES_BESIDES + in_use / COPIED;
    room::has(needed)?;
    let mut functions =
        WalkFunctions::find(gil).ok_or("this interpreter lacks a function for it")?;
    // The lists of the collector are found from an object in one of them: a new one, which is the last. From 3.14 on, one that is
    // freed again would count for the next collection.
    let tracked = match gil.api().version() < FIRST_COUNTING {
        true => Some(
            gil.interpreter_function()
                .ok_or("there is no memory for an object")?,
        ),
        false => None,
    };
    functions.collected = tracked
        .as_ref()
        .map_or(functions.modules, |object| object.address());
    check::check(gil, &asked.layout, &functions)?;
    let limits = Limits {
        cpu: LONGEST,
        // At its end, the program waits.
        yields: asked.reason != Reason::End,
    };
    let native = native::live(MOST_NATIVE, asked.reason == Reason::End);
    let work = || {
        // SAFETY: this is the child: a copy of a process that holds the GIL.
        unsafe { look(asked, &functions, (blocks, in_use), &native) }
    };
    snapshots::take(asked.time, asked.reason, limits, work)
}

/// Ends a walk that takes too much time or memory, or that nobody waits for.
struct Deadline {
    parent: libc::pid_t,
    until: u64,
}

impl WorkLimit for Deadline {
    fn is_over(&mut self) -> bool {
        let used = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
        // SAFETY: no arguments.
        used >= self.until || unsafe { libc::getppid() } != self.parent
    }
}

/// What the child does: the content of the event, after its head. It gets the number of blocks in use, and their bytes.
unsafe fn look(
    asked: &Asked<'_>,
    functions: &WalkFunctions,
    (count, in_use): (u64, u64),
    native: &[(usize, SampleId)],
) -> Vec<u8> {
    memory::prefer_huge_pages();
    // SAFETY: by the caller; so below. The parent's number is asked again: it may have ended.
    let parent = unsafe { libc::getppid() };
    let began = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
    let mut limit = Deadline {
        parent,
        until: began + LONGEST.as_nanos() as u64,
    };
    let not = |why: &str| Snapshot::not_taken(Nanos(0), asked.reason, why).body();
    let seed = asked.time.0;
    // SAFETY: by the caller.
    unsafe {
        let blocks = Blocks::draw(asked.heap, in_use, seed, asked.samples, native);
        let resident = snapshots::resident();
        let mut walk = Walk::new(functions, &asked.layout, blocks, count as usize, resident);
        if let Err(why) = walk.run(&mut limit) {
            return not(why);
        }
        walk.blocks.share_owners();
        let samples: Vec<u32> = walk
            .blocks
            .all
            .iter()
            .map(|block| match block.object {
                0 => block.owner,
                object => object,
            })
            .filter(|&node| node != 0)
            .collect();
        let part = Subgraph::new(
            &walk.graph,
            samples.into_iter(),
            |node| walk.root_kind(node),
            &mut limit,
        );
        let Some(part) = part else {
            return not("the references are too many for its processor time");
        };
        // The worst graphs take ten times as long as the walk.
        let tree = dominators(&part, &mut limit);
        let outcome = match &tree {
            Some(_) => SnapshotOutcome::Complete,
            None => SnapshotOutcome::PathsOnly("the references are too many".to_owned()),
        };
        let naming = Naming {
            walk: &mut walk,
            part: &part,
            dominators: tree.as_ref(),
            with_keys: asked.with_keys,
            names: Interner::default(),
        };
        let mut snapshot = naming.snapshot(outcome);
        let now = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
        snapshot.cpu = Nanos(now.saturating_sub(began));
        let body = snapshot.body();
        match body.len() <= snapshots::LONGEST_BODY {
            true => body,
            false => not("what it has found is too much for the file"),
        }
    }
}
