//! The nodes of the stack tree that the recorder has defined.
//!
//! A sample looks up a node for each new frame, in memory that the program has pushed out of the processor's caches. So
//! one slot of the hash table holds the whole node with its number: 16 bytes, four slots to a cache line. The search
//! starts at the line that the parent's number selects, then continues at the line of the hash. Frames first seen
//! together have consecutive numbers, and so lie on neighbouring lines.

use nthbyte_profile::event::{Node, NodeId};

/// The limit of nodes. A program that needs more loses samples, so that the table's memory stays bounded.
const MAX_NODES: u32 = 1 << 26;
/// The position of the frame's kind in the word of its code.
const KIND_SHIFT: u32 = 29;
/// The limit of code object numbers.
pub(crate) const MAX_CODES: u32 = 1 << KIND_SHIFT;
/// The smallest number of lines of a table.
const LEAST: usize = 64;
/// The number of slots in a line.
const LINE: usize = 4;

/// Parent, code and kind, position.
type Packed = [u32; 3];

/// A node and its number. The number is 0 in a free slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    node: Packed,
    number: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([Slot; LINE]);

/// The defined nodes; the first has number 1.
#[derive(Default)]
pub(crate) struct Nodes {
    /// The number of lines is zero or a power of two. At least a quarter of the slots is free.
    lines: Vec<Line>,
    nodes: u32,
    /// The number of the last node that was forgotten.
    forgotten: u32,
}

impl Nodes {
    /// The number of a node, if it is defined.
    #[inline]
    pub(crate) fn find(&self, node: &Node) -> Option<NodeId> {
        if self.lines.is_empty() {
            return None;
        }
        let (line, at) = slot_of(&self.lines, pack(node));
        let number = self.lines[line].0[at].number;
        (number != 0).then_some(NodeId(number))
    }

    /// Reserves space for one more node. `None` if there is none.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        if self.nodes + 1 >= MAX_NODES || self.forgotten >= u32::MAX - MAX_NODES {
            return None;
        }
        if self.nodes as usize + 1 > self.lines.len() * LINE / 4 * 3 {
            self.grow()?;
        }
        Some(())
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        let size = (self.lines.len() * 2).max(LEAST);
        let mut lines = Vec::new();
        lines.try_reserve_exact(size).ok()?;
        lines.resize(size, Line::default());
        let slots = self.lines.iter().flat_map(|line| &line.0);
        for known in slots.filter(|known| known.number != 0) {
            let (line, at) = slot_of(&lines, known.node);
            lines[line].0[at] = *known;
        }
        self.lines = lines;
        Some(())
    }

    /// Defines a node. The caller has reserved space for it.
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn define(&mut self, node: &Node) -> NodeId {
        let node = pack(node);
        let (line, at) = slot_of(&self.lines, node);
        self.nodes += 1;
        let number = self.forgotten + self.nodes;
        self.lines[line].0[at] = Slot { node, number };
        NodeId(number)
    }

    /// How many were defined since [`Self::begin_anew`].
    pub(crate) const fn defined(&self) -> u32 {
        self.nodes
    }

    /// Forgets all, and their memory. Numbers go on.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self {
            lines: Vec::new(),
            nodes: 0,
            forgotten: self.forgotten + self.nodes,
        };
    }
}

fn pack(node: &Node) -> Packed {
    [
        node.parent.0,
        node.code.0 | (node.kind as u32) << KIND_SHIFT,
        node.position,
    ]
}

/// The position of a node, or of the free slot for it: the line, and the slot in it. Some slot is always free.
#[inline]
fn slot_of(lines: &[Line], node: Packed) -> (usize, usize) {
    let mask = lines.len() - 1;
    let mut line = (node[0] / 2) as usize & mask;
    let mut next = hash(node);
    loop {
        for (at, slot) in lines[line].0.iter().enumerate() {
            if slot.number == 0 || slot.node == node {
                return (line, at);
            }
        }
        line = next & mask;
        next = next.wrapping_add(1);
    }
}

/// Both halves of the product depend on all bits of both factors.
#[inline]
fn hash([parent, code, position]: Packed) -> usize {
    const FRACTION: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03];
    let one = (u64::from(parent) << 32 | u64::from(position)) ^ FRACTION[0];
    let other = u64::from(code) ^ FRACTION[1];
    let product = u128::from(one) * u128::from(other);
    (product as u64 ^ (product >> 64) as u64) as usize
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::event::{CodeId, FrameKind};

    use super::*;

    #[test]
    fn each_node_has_one_number() {
        let mut tree = Nodes::default();
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
        assert_eq!(
            distinct.iter().map(|number| number.0).max(),
            Some(numbers.len() as u32)
        );
        assert!(
            nodes
                .into_iter()
                .all(|node| tree.find(&node) == Some(numbers[&node]))
        );
    }
}
