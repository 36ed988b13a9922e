//! The objects that are worth a row: of each branch of the tree of dominators the deepest single object that still has most
//! of it.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, SampleId};
use nthbyte_profile::holders::{Held, Holder, Kind, Snapshot};

use super::amounts::Amounts;
use super::groups::{self, Group};
use super::path::Names;
use super::{HolderRow, MOST_ROWS, OfType, SMALLEST};
use crate::estimate::Moments;
use crate::text;

/// A single element of a large container has a row of its own with this part of what the container holds. Attributes,
/// variables and the elements of small containers need no more than any row.
const PART: f64 = 0.1;
/// A container with more elements is large.
const LARGE: u32 = 20;
/// A node has a row beside those below it if this part of it is left.
const LEFT: f64 = 0.3;
/// Types of a row, and of the table of types.
const MOST_TYPES: usize = 4;
const MOST_OF_TYPES: usize = 20;
/// Nodes from a root to the deepest one.
const DEEPEST: usize = 200;
/// Other paths that are named.
pub const MOST_OTHERS: usize = 2;
/// Samples that name a function.
const LEAST_SAMPLES: u64 = 3;

/// A row, and its node.
pub struct OfNode {
    pub shown: HolderRow,
    node: u32,
}

/// The rows, the most first.
pub fn of(profile: &Profile, snapshot: &Snapshot, amounts: &Amounts) -> Vec<OfNode> {
    let names = Names { profile, snapshot };
    let least = SMALLEST * amounts.all.estimate;
    let mut chosen: Vec<(u32, Vec<Group>)> = Vec::new();
    let mut shared = Vec::new();
    for group in groups::below(&names, amounts, &[0], least) {
        for &node in &group.nodes {
            choose(&names, amounts, node, least, 0, &mut chosen);
        }
        // Each is small, and no single object holds them.
        let first = group.nodes[0];
        if group.nodes.len() > 1
            && snapshot.node(first).parent != 0
            && !chosen.iter().any(|(node, _)| group.nodes.contains(node))
        {
            shared.push(group);
        }
    }
    let places = nearest(snapshot, chosen.iter().map(|&(node, _)| node));
    let mut inside: Vec<Inside> = chosen.iter().map(|_| Inside::default()).collect();
    for (of, moments) in snapshot.samples.iter().zip(&amounts.of_samples) {
        if let Some(at) = place(&places, of) {
            inside[at].add(of.what, moments, of.recorded);
        }
    }
    let mut rows: Vec<OfNode> = chosen
        .into_iter()
        .zip(inside)
        .map(|((node, groups), inside)| OfNode {
            shown: row(&names, amounts, node, &groups, &inside),
            node,
        })
        .collect();
    rows.extend(shared.into_iter().map(|group| OfNode {
        shown: of_shared(&names, amounts, &group),
        node: 0,
    }));
    rows.sort_by(|one, other| {
        let (one, other) = (&one.shown, &other.shown);
        let order = other.bytes.estimate.total_cmp(&one.bytes.estimate);
        order.then_with(|| one.holder.cmp(&other.holder))
    });
    rows.truncate(MOST_ROWS);
    rows
}

/// Chooses nodes at or below one.
fn choose(
    names: &Names<'_>,
    amounts: &Amounts,
    node: u32,
    least: f64,
    depth: usize,
    chosen: &mut Vec<(u32, Vec<Group>)>,
) {
    let all = amounts.below[node as usize].estimate;
    if all < least || depth > DEEPEST {
        return;
    }
    let groups = groups::below(names, amounts, &[node], 0.0);
    let of = names.snapshot.node(node);
    let is_large = of.kind == Kind::Object && of.len.is_some_and(|len| len > LARGE);
    let needed = if is_large {
        least.max(PART * all)
    } else {
        least
    };
    let amount = |node: u32| amounts.below[node as usize].estimate;
    let singles: Vec<(u32, f64)> = groups
        .iter()
        .flat_map(|group| &group.nodes)
        .map(|&node| (node, amount(node)))
        .filter(|&(_, amount)| amount >= needed)
        .collect();
    let left = all - singles.iter().map(|(_, amount)| amount).sum::<f64>();
    for &(single, _) in &singles {
        choose(names, amounts, single, least, depth + 1, chosen);
    }
    if singles.is_empty() || left >= least.max(LEFT * all) {
        chosen.push((node, groups));
    }
}

/// For each node, the place of the nearest of some nodes that dominate it, or that it is.
fn nearest(snapshot: &Snapshot, nodes: impl Iterator<Item = u32>) -> Vec<Option<usize>> {
    let mut places = vec![None; snapshot.nodes.len() + 1];
    for (at, node) in nodes.enumerate().filter(|&(_, node)| node != 0) {
        places[node as usize] = Some(at);
    }
    // Dominators have smaller numbers.
    for number in 1..places.len() {
        if places[number].is_none() {
            places[number] = places[snapshot.nodes[number - 1].dominator as usize];
        }
    }
    places
}

/// The place of a sample's holder.
fn place(places: &[Option<usize>], of: &Held) -> Option<usize> {
    match of.by {
        Holder::Node(node) => places[node as usize],
        Holder::Garbage | Holder::NotFound => None,
    }
}

/// What the samples below a row say.
#[derive(Default)]
struct Inside {
    types: HashMap<u32, f64, RandomState>,
    recorded: Vec<SampleId>,
}

impl Inside {
    fn add(&mut self, what: u32, moments: &Moments, recorded: Option<SampleId>) {
        *self.types.entry(what).or_default() += moments.estimate;
        self.recorded.extend(recorded);
    }
}

fn row(
    names: &Names<'_>,
    amounts: &Amounts,
    node: u32,
    groups: &[Group],
    inside: &Inside,
) -> HolderRow {
    let moments = &amounts.below[node as usize];
    let snapshot = names.snapshot;
    let all: f64 = inside.types.values().sum();
    let mut types: Vec<(String, f64)> = inside
        .types
        .iter()
        .map(|(&what, &amount)| (text::clean(snapshot.texts.get(what)), amount / all.max(1.0)))
        .collect();
    types.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    types.truncate(MOST_TYPES);
    HolderRow {
        bytes: amounts.estimate(moments),
        share: amounts.share(moments),
        holder: names.path(node, 0),
        what: what(names, node, groups),
        also: also(names, node),
        types,
        allocated_by: allocated_by(names.profile, &inside.recorded),
    }
}

/// Objects that are alike, which several others refer to, and no single one holds.
fn of_shared(names: &Names<'_>, amounts: &Amounts, group: &Group) -> HolderRow {
    let others = group.nodes.iter().map(|&node| also(names, node));
    HolderRow {
        bytes: amounts.estimate(&group.moments),
        share: amounts.share(&group.moments),
        holder: group.reference.clone(),
        what: format!("{}, shared", group.what),
        also: others.max_by_key(Vec::len).unwrap_or_default(),
        types: Vec::new(),
        allocated_by: None,
    }
}

/// What a node is, and of what: `dict of 4,000 Session`.
pub fn what(names: &Names<'_>, node: u32, groups: &[Group]) -> String {
    let of = names.snapshot.node(node);
    let own = names.what(of);
    if of.chain > 1 {
        return format!("chain of {} {own}", text::grouped(of.chain.into()));
    }
    let Some(len) = of.len.filter(|_| of.kind == Kind::Object) else {
        return own;
    };
    let inside = groups
        .first()
        .filter(|group| group.nodes.len() > 1 || len == 1);
    let noun = match inside {
        Some(group) => group.what.clone(),
        None if len == 1 => "element".to_owned(),
        None => "elements".to_owned(),
    };
    format!("{own} of {} {noun}", text::grouped(len.into()))
}

/// Who else refers to a node, or to one on the way to it.
pub fn also(names: &Names<'_>, node: u32) -> Vec<String> {
    let snapshot = names.snapshot;
    let mut also = Vec::new();
    let mut at = node;
    while at != 0 && also.len() < MOST_OTHERS {
        let of = snapshot.node(at);
        if of.dominator != of.parent {
            let others = snapshot.others_of(at);
            for other in others.take(MOST_OTHERS - also.len()) {
                let path = names.path(other, 0);
                if !also.contains(&path) {
                    also.push(path);
                }
            }
        }
        at = of.dominator;
    }
    also
}

/// The function that most of these samples come from, if there are enough.
fn allocated_by(profile: &Profile, recorded: &[SampleId]) -> Option<(String, u64)> {
    let mut functions: HashMap<(u32, u32), u64, RandomState> = HashMap::default();
    for &sample in recorded {
        let stack = profile.samples.stack(sample);
        let mut frames = profile.stack(stack);
        if let Some(frame) = frames.find(|frame| frame.kind == FrameKind::Interpreted) {
            *functions.entry((frame.function, frame.line)).or_default() += 1;
        }
    }
    let most = functions
        .into_iter()
        .max_by_key(|&(place, count)| (count, place));
    let ((function, line), count) = most.filter(|&(_, count)| count >= LEAST_SAMPLES)?;
    let function = &profile.functions[function as usize];
    let file = function.file.rsplit('/').next().unwrap_or_default();
    // Of compiled code, PyPy has no line.
    let place = match line {
        0 => format!("{} {file}", function.name),
        line => format!("{} {file}:{line}", function.name),
    };
    Some((text::clean(&place), count))
}

/// The live objects by type, and which row holds most of each.
pub fn types(snapshot: &Snapshot, amounts: &Amounts, rows: &[OfNode]) -> Vec<OfType> {
    let places = nearest(snapshot, rows.iter().map(|row| row.node));
    let mut types: HashMap<u32, (Moments, HashMap<usize, f64, RandomState>), RandomState> =
        HashMap::default();
    for (of, moments) in snapshot.samples.iter().zip(&amounts.of_samples) {
        let (all, held) = types.entry(of.what).or_default();
        all.add(moments);
        if let Some(at) = place(&places, of) {
            *held.entry(at).or_default() += moments.estimate;
        }
    }
    let mut shown: Vec<OfType> = types
        .into_iter()
        .filter(|(_, (all, _))| all.estimate > 0.0)
        .map(|(what, (all, held))| {
            let most = held
                .into_iter()
                .max_by(|one, other| one.1.total_cmp(&other.1));
            let name = text::clean(snapshot.texts.get(what));
            OfType {
                name: match name.is_empty() {
                    true => "(type not known)".to_owned(),
                    false => name,
                },
                bytes: amounts.estimate(&all),
                share: amounts.share(&all),
                held_by: most
                    .map(|(at, amount)| (rows[at].shown.holder.clone(), amount / all.estimate)),
            }
        })
        .collect();
    shown.sort_by(|one, other| {
        let order = other.bytes.estimate.total_cmp(&one.bytes.estimate);
        order.then_with(|| one.name.cmp(&other.name))
    });
    shown.truncate(MOST_OF_TYPES);
    shown
}
