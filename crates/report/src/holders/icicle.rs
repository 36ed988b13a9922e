//! The merged tree of dominators for the page, joined with who allocated what it holds.
//!
//! Boxes are in depth-first order. A *join* says how much of a box's own part, which no box below it has, was allocated by one
//! stack, as far as the recording has samples of it.
//!
//! The last boxes are of native memory without a holder, by its type: one for all of it, and those in it.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, NodeId};
use nthbyte_profile::holders::{Held, Holder, Snapshot};
use serde::Serialize;

use super::amounts::{Amounts, native_type};
use super::choice;
use super::groups;
use super::path::Names;
use super::{Besides, reason};
use crate::estimate::{Estimate, Totals};
use crate::selection::At;

/// Boxes below this part of all that is alive are left out.
const SMALLEST: f64 = 0.001;
/// Boxes, levels, joins, and stacks of joins.
const MOST_BOXES: usize = 4000;
const DEEPEST: usize = 60;
const MOST_JOINS: usize = 4000;
const MOST_FUNCTIONS: usize = 200;
/// The box of what has none.
const NONE: u32 = u32::MAX;
/// The box of all native memory without a holder.
const NATIVE: &str = "native memory without a holder";

/// The tree of a snapshot. The field names are the page's.
#[derive(Debug, Serialize)]
pub struct Icicle {
    /// Seconds since the start of the recording.
    time: f64,
    reason: &'static str,
    samples: u64,
    alive: Estimate,
    besides: Besides,
    boxes: Vec<Tile>,
    /// Functions of joins: names and files.
    functions: Vec<(String, String)>,
    /// The functions of each stack, the innermost first; each function once.
    stacks: Vec<Vec<u32>>,
    /// A box, a stack, and bytes.
    joins: Vec<(u32, u32, f64)>,
}

/// Objects that are alike, and what would be freed without them.
#[derive(Debug, Serialize)]
struct Tile {
    /// The box that they are in; of those at the top, none.
    parent: Option<u32>,
    reference: String,
    what: String,
    objects: u64,
    bytes: Estimate,
    /// The type of most of the bytes in it.
    mostly: Option<String>,
    /// One of the objects; 0 of native memory.
    #[serde(skip)]
    node: u32,
}

impl Icicle {
    /// The tree of the snapshot that `nthbyte holders` is about; `None` if there is none.
    #[must_use]
    pub fn of(profile: &Profile, at: Option<At>) -> Option<Self> {
        let chosen = choice::of(profile, at).ok()?;
        let snapshot = chosen.snapshot;
        let amounts = Amounts::of(profile, snapshot);
        let start = profile.processes[chosen.process].start;
        let making = Tiles::of(profile, snapshot, &amounts);
        let types = making.types();
        let of_samples: Vec<u32> = making.of_samples().collect();
        let mut icicle = Self {
            time: snapshot.time.0.saturating_sub(start.0) as f64 / 1e9,
            reason: reason(snapshot.reason),
            samples: amounts.samples,
            alive: amounts.estimate(&amounts.all),
            besides: amounts.besides(),
            functions: Vec::new(),
            stacks: Vec::new(),
            joins: Vec::new(),
            boxes: making.boxes,
        };
        for (one, of) in icicle.boxes.iter_mut().zip(types) {
            one.mostly = one.mostly.take().or(of);
        }
        icicle.join(profile, snapshot, &of_samples);
        Some(icicle)
    }

    fn join(&mut self, profile: &Profile, snapshot: &Snapshot, of_samples: &[u32]) {
        let mut sums: HashMap<(u32, NodeId), f64, RandomState> = HashMap::default();
        for (held, &own) in snapshot.samples.iter().zip(of_samples) {
            if let (Some(sample), true) = (held.recorded, own != NONE) {
                let shape = profile.samples.shape(profile.samples.shape_id(sample));
                let bytes = Totals::of_sample(profile, shape).bytes.estimate;
                *sums
                    .entry((own, profile.samples.stack(sample)))
                    .or_default() += bytes;
            }
        }
        let mut sums: Vec<((u32, NodeId), f64)> = sums.into_iter().collect();
        sums.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        sums.truncate(MOST_JOINS);
        let mut functions: HashMap<u32, u32, RandomState> = HashMap::default();
        let mut stacks: HashMap<NodeId, u32, RandomState> = HashMap::default();
        for ((own, stack), bytes) in sums {
            let stack = *stacks.entry(stack).or_insert_with(|| {
                let mut of_stack: Vec<u32> = Vec::new();
                let frames = profile.stack(stack);
                for frame in frames.filter(|frame| frame.kind == FrameKind::Interpreted) {
                    let number = *functions.entry(frame.function).or_insert_with(|| {
                        let of = &profile.functions[frame.function as usize];
                        self.functions.push((of.name.clone(), of.file.clone()));
                        self.functions.len() as u32 - 1
                    });
                    if of_stack.len() < MOST_FUNCTIONS && !of_stack.contains(&number) {
                        of_stack.push(number);
                    }
                }
                self.stacks.push(of_stack);
                self.stacks.len() as u32 - 1
            });
            self.joins.push((own, stack, bytes));
        }
    }
}

/// The boxes of a snapshot.
pub(super) struct Tiles<'a> {
    names: Names<'a>,
    amounts: &'a Amounts,
    least: f64,
    boxes: Vec<Tile>,
    /// The box of each node.
    of_nodes: Vec<u32>,
    /// The first box of native memory.
    native: usize,
}

impl<'a> Tiles<'a> {
    pub(super) fn of(profile: &'a Profile, snapshot: &'a Snapshot, amounts: &'a Amounts) -> Self {
        let mut tiles = Self {
            names: Names { profile, snapshot },
            amounts,
            least: SMALLEST * amounts.all.estimate,
            boxes: Vec::new(),
            of_nodes: vec![NONE; snapshot.nodes.len() + 1],
            native: 0,
        };
        tiles.below(&[0], None, 0);
        tiles.spread();
        tiles.add_native();
        tiles
    }

    fn add_native(&mut self) {
        self.native = self.boxes.len();
        let rows = self.amounts.native();
        if rows.is_empty() {
            return;
        }
        let all = self.amounts.estimate(&self.amounts.all_native());
        let tile = |parent: Option<u32>, name: &str, bytes: Estimate| Tile {
            parent,
            reference: name.to_owned(),
            what: name.to_owned(),
            objects: 1,
            bytes,
            mostly: parent.map(|_| name.to_owned()),
            node: 0,
        };
        self.boxes.push(tile(None, NATIVE, all));
        for row in rows {
            let parent = Some(self.native as u32);
            self.boxes.push(tile(parent, &row.name, row.bytes));
        }
    }

    /// The box that each sample is in; [`NONE`] of those that have none.
    pub(super) fn of_samples(&self) -> impl Iterator<Item = u32> {
        let samples = &self.names.snapshot.samples;
        samples.iter().map(|held| match held.by {
            Holder::Node(node) => self.of_nodes[node as usize],
            Holder::NotFound => self.of_native(held).unwrap_or(NONE),
            Holder::Garbage => NONE,
        })
    }

    fn of_native(&self, held: &Held) -> Option<u32> {
        let name = native_type(self.names.profile, held)?;
        let boxes = self.boxes.get(self.native + 1..)?;
        // The last row has all that are too small for one of their own.
        let last = boxes.len().checked_sub(1)?;
        let at = boxes.iter().position(|one| one.reference == name);
        Some((self.native + 1 + at.unwrap_or(last)) as u32)
    }

    /// The box that each box is in.
    pub(super) fn parents(&self) -> Vec<Option<u32>> {
        self.boxes.iter().map(|tile| tile.parent).collect()
    }

    /// What each box is called: by its reference and its type, or by the whole path to it.
    pub(super) fn names(&self, whole: bool) -> Vec<String> {
        let name = |tile: &Tile| {
            let path = match whole && tile.node != 0 {
                true => self.names.group_path(tile.node, 0),
                false => tile.reference.clone(),
            };
            match tile.what.ends_with(&path) {
                true => tile.what.clone(),
                false => format!("{path} {}", tile.what),
            }
        };
        self.boxes.iter().map(name).collect()
    }

    /// Adds the boxes of what some nodes dominate.
    fn below(&mut self, nodes: &[u32], parent: Option<u32>, depth: usize) {
        if depth == DEEPEST {
            return;
        }
        for group in groups::below(&self.names, self.amounts, nodes, self.least) {
            if self.boxes.len() == MOST_BOXES {
                return;
            }
            let number = self.boxes.len() as u32;
            for &node in &group.nodes {
                self.of_nodes[node as usize] = number;
            }
            self.boxes.push(Tile {
                parent,
                objects: group.nodes.len() as u64,
                bytes: self.amounts.estimate(&group.moments),
                mostly: None,
                node: group.nodes[0],
                reference: group.reference,
                what: group.what,
            });
            self.below(&group.nodes, Some(number), depth + 1);
        }
    }

    /// Gives each node the box of the nearest node that dominates it.
    fn spread(&mut self) {
        for number in 1..self.of_nodes.len() {
            if self.of_nodes[number] == NONE {
                let dominator = self.names.snapshot.node(number as u32).dominator;
                self.of_nodes[number] = self.of_nodes[dominator as usize];
            }
        }
    }

    /// The type of most of the bytes in each box.
    fn types(&self) -> Vec<Option<String>> {
        let snapshot = self.names.snapshot;
        let mut sums: Vec<HashMap<u32, f64, RandomState>> =
            self.boxes.iter().map(|_| HashMap::default()).collect();
        for (held, moments) in snapshot.samples.iter().zip(&self.amounts.of_samples) {
            let Holder::Node(node) = held.by else {
                continue;
            };
            let mut own = self.of_nodes[node as usize];
            while own != NONE {
                *sums[own as usize].entry(held.what).or_default() += moments.estimate;
                own = self.boxes[own as usize].parent.unwrap_or(NONE);
            }
        }
        let most = |of: HashMap<u32, f64, RandomState>| {
            let most = of
                .into_iter()
                .max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)));
            most.map(|(what, _)| snapshot.texts.get(what).to_owned())
        };
        sums.into_iter().map(most).collect()
    }
}
