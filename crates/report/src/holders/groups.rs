//! The tree of dominators with nodes that are alike as one: of a dictionary's thousand `Session`, one branch.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::holders::Snapshot;

use super::Branch;
use super::amounts::Amounts;
use super::path::Names;
use crate::estimate::Moments;

/// Levels of the tree.
const DEEPEST: usize = 12;
/// Branches of a branch.
const MOST_BRANCHES: usize = 12;

/// Nodes that are alike: those above refer to them in the same way, and they have the same type.
pub struct Group {
    pub nodes: Vec<u32>,
    pub moments: Moments,
    pub reference: String,
    pub what: String,
}

/// What some nodes dominate directly, in groups, the most first. Those below an amount are left out.
pub fn below(names: &Names<'_>, amounts: &Amounts, nodes: &[u32], least: f64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: HashMap<(String, String), usize, RandomState> = HashMap::default();
    for &node in nodes {
        for &child in &amounts.children[node as usize] {
            let reference = names.group_path(child, node);
            let what = names.what(names.snapshot.node(child));
            let place = *places
                .entry((reference, what))
                .or_insert_with_key(|(reference, what)| {
                    groups.push(Group {
                        nodes: Vec::new(),
                        moments: Moments::default(),
                        reference: reference.clone(),
                        what: what.clone(),
                    });
                    groups.len() - 1
                });
            groups[place].nodes.push(child);
            groups[place].moments.add(&amounts.below[child as usize]);
        }
    }
    for group in &mut groups {
        if let [only] = group.nodes[..] {
            group.reference = names.path(only, names.snapshot.node(only).dominator);
        }
    }
    groups.retain(|group| group.moments.estimate >= least && group.moments.estimate > 0.0);
    groups.sort_by(|one, other| {
        let amounts = (one.moments.estimate, other.moments.estimate);
        let order = amounts.1.total_cmp(&amounts.0);
        order.then_with(|| one.reference.cmp(&other.reference))
    });
    groups
}

/// The whole tree, but for branches below a part of all.
pub fn tree(profile: &Profile, snapshot: &Snapshot, amounts: &Amounts, part: f64) -> Vec<Branch> {
    let names = Names { profile, snapshot };
    branches(&names, amounts, &[0], part, 0)
}

fn branches(
    names: &Names<'_>,
    amounts: &Amounts,
    nodes: &[u32],
    part: f64,
    depth: usize,
) -> Vec<Branch> {
    if depth == DEEPEST {
        return Vec::new();
    }
    let groups = below(names, amounts, nodes, part * amounts.all.estimate);
    let branch = |group: Group| Branch {
        objects: group.nodes.len() as u64,
        bytes: amounts.estimate(&group.moments),
        share: amounts.share(&group.moments),
        children: branches(names, amounts, &group.nodes, part, depth + 1),
        reference: group.reference,
        what: group.what,
    };
    groups.into_iter().take(MOST_BRANCHES).map(branch).collect()
}
