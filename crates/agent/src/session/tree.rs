//! The stack tree, so far as the recorder needs it: which nodes there are.
//!
//! A program of some size has ten thousand nodes and more, and this is the program's memory: nodes
//! stand in an array, 12 bytes each, and a hash table has their numbers, 5 bytes a place.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use nthbyte_profile::event::{Node, NodeId};
use rustc_hash::FxBuildHasher;

/// Nodes are numbered below this; a program that needs more loses samples rather than its memory.
const MAX_NODES: usize = 1 << 26;
/// Where the kind of a frame is, in the word of its code.
const KIND_SHIFT: u32 = 29;
/// Code objects are numbered below this.
pub(super) const MAX_CODES: u32 = 1 << KIND_SHIFT;

/// Parent, code and kind, position.
type Packed = [u32; 3];

/// The nodes that were defined, in order; the first has number 1.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Packed>,
    numbers: HashTable<u32>,
}

impl Tree {
    /// The number of a node that was defined before.
    #[inline]
    pub(super) fn find(&self, node: &Node) -> Option<NodeId> {
        let packed = pack(node);
        let number = self.numbers.find(hash(packed), |&number| {
            self.nodes[number as usize - 1] == packed
        });
        number.map(|&number| NodeId(number))
    }

    /// Makes room for one more node; `None` if there is none.
    pub(super) fn reserve(&mut self) -> Option<()> {
        if self.nodes.len() + 1 >= MAX_NODES {
            return None;
        }
        self.nodes.try_reserve(1).ok()?;
        let Self { nodes, numbers } = self;
        numbers
            .try_reserve(1, |&number| hash(nodes[number as usize - 1]))
            .ok()
    }

    /// Defines a node, for which there is room.
    pub(super) fn define(&mut self, node: &Node) -> NodeId {
        let packed = pack(node);
        let Self { nodes, numbers } = self;
        nodes.push(packed);
        // There are fewer than `MAX_NODES`.
        let number = nodes.len() as u32;
        numbers.insert_unique(hash(packed), number, |&number| {
            hash(nodes[number as usize - 1])
        });
        NodeId(number)
    }
}

fn pack(node: &Node) -> Packed {
    [
        node.parent.0,
        node.code.0 | (node.kind as u32) << KIND_SHIFT,
        node.position,
    ]
}

fn hash(packed: Packed) -> u64 {
    FxBuildHasher.hash_one(packed)
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::event::{CodeId, FrameKind};

    use super::*;

    #[test]
    fn each_node_has_one_number() {
        let mut tree = Tree::default();
        let nodes = (0..1000).map(|at| Node {
            parent: NodeId(at / 7),
            code: CodeId(at % 5),
            position: at % 11,
            kind: if at % 2 == 0 {
                FrameKind::Interpreted
            } else {
                FrameKind::Note
            },
        });
        let mut numbers = std::collections::HashMap::new();
        for node in nodes.clone() {
            let number = tree.find(&node).unwrap_or_else(|| {
                tree.reserve().unwrap();
                tree.define(&node)
            });
            assert_eq!(*numbers.entry(node).or_insert(number), number);
        }
        let distinct: std::collections::HashSet<_> = numbers.values().collect();
        assert_eq!(distinct.len(), numbers.len());
        assert!(
            nodes
                .into_iter()
                .all(|node| tree.find(&node) == Some(numbers[&node]))
        );
    }
}
