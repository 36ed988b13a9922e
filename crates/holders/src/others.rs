//! Who else refers to a node.

use crate::part::NONE;
use crate::{Dominators, Subgraph};

/// Sources of a node that are looked at: a type has millions of instances that refer to it.
const LOOKED_AT: usize = 64;
/// Steps from a source to its root.
const LONGEST: usize = 4096;

/// Up to `most` other nodes that refer to a node whose dominator is not its parent: each has a shortest path that avoids the node
/// and its parent, and no two have the same way in: the same parent, unless that `is_apart`, as a thread with its calls.
#[must_use]
pub fn others(
    part: &Subgraph,
    dominators: &Dominators,
    node: u32,
    most: usize,
    is_apart: impl Fn(u32) -> bool,
) -> Vec<u32> {
    let parent = part.parent(node);
    let mut found: Vec<u32> = Vec::new();
    if parent == 0 || parent == NONE || dominators.of(node) == parent {
        return found;
    }
    for &source in part.sources(node).iter().take(LOOKED_AT) {
        if found.len() == most {
            break;
        }
        let is_new = source != parent && source != node && !found.contains(&source);
        let has_same_way = |&other: &u32| {
            let way = part.parent(source);
            way != 0 && part.parent(other) == way && !is_apart(way)
        };
        if is_new
            && !part.is_garbage(source)
            && !dominators.dominates(parent, source)
            && !dominators.dominates(node, source)
            && avoids(part, source, [node, parent])
            && !found.iter().any(has_same_way)
        {
            found.push(source);
        }
    }
    found
}

/// Whether the shortest path to a node leads through neither of two others.
fn avoids(part: &Subgraph, from: u32, nodes: [u32; 2]) -> bool {
    let mut at = from;
    for _ in 0..LONGEST {
        if at == 0 {
            return true;
        }
        if nodes.contains(&at) {
            return false;
        }
        at = part.parent(at);
    }
    false
}
