//! A small table of recent steps in the stack tree, from a node to the next one. With it, a stack that has changed in a
//! few places costs few cache lines.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use nthbyte_profile::event::NodeId;

use super::links::Step;
use nthbyte_rpython::binary::prefetch;

/// A power of two.
const SETS: usize = 256;

/// The place of a step's entry. It follows from the step, the next outer step and their depth. So all entries for
/// a stack can be fetched together, before the node of any step is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSlot(u32);

impl NodeSlot {
    /// The slot of the step at a depth, counted from the outermost step.
    #[must_use]
    pub fn of(step: Step, outside: Option<Step>, depth: usize) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write_u64(outside.map_or(0, Step::number));
        hasher.write_u64(step.number());
        hasher.write_usize(depth);
        Self(hasher.finish() as u32 % SETS as u32)
    }
}

/// A table that keeps the last four entries of each slot.
#[derive(Debug)]
pub struct Nodes(Box<[Set; SETS]>);

/// One cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set([Option<Entry>; 4]);

const _: () = assert!(size_of::<Set>() == 64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    step: Step,
    parent: NodeId,
    node: NodeId,
}

impl Nodes {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new([Set::default(); SETS]))
    }

    /// Empties the table.
    pub fn clear(&mut self) {
        self.0.fill(Set::default());
    }

    /// Fetches the entries of a slot into the cache.
    pub fn prefetch(&self, slot: NodeSlot) {
        prefetch(&raw const self.0[slot.0 as usize]);
    }

    /// The node that a step leads to from `parent`, if the table has it.
    #[must_use]
    pub fn get(&self, slot: NodeSlot, parent: NodeId, step: Step) -> Option<NodeId> {
        let mut entries = self.0[slot.0 as usize].0.iter().flatten();
        entries
            .find(|entry| entry.parent == parent && entry.step == step)
            .map(|entry| entry.node)
    }

    /// Adds the node that a step leads to from `parent`. It replaces the oldest entry of the slot.
    pub fn put(&mut self, slot: NodeSlot, parent: NodeId, step: Step, node: NodeId) {
        let set = &mut self.0[slot.0 as usize].0;
        set.copy_within(..3, 1);
        set[0] = Some(Entry { step, parent, node });
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::RawFrame;
    use super::*;

    #[test]
    fn a_slot_keeps_the_last_four() {
        let mut nodes = Nodes::new();
        let slot = NodeSlot(7);
        for number in 0..5 {
            nodes.put(
                slot,
                NodeId(1),
                Step::place(number as usize),
                NodeId(number),
            );
        }
        let found = [0, 1, 2, 3, 4].map(|number| nodes.get(slot, NodeId(1), Step::place(number)));
        assert_eq!(
            found,
            [None, Some(1), Some(2), Some(3), Some(4)].map(|node| node.map(NodeId))
        );
    }

    #[test]
    fn what_is_known_is_right() {
        let mut nodes = Nodes::new();
        let step = |number: u32| match number % 3 {
            0 => Step::place(number as usize),
            kind => Step::frame(RawFrame {
                compiled: kind == 1,
                unique_id: u64::from(number / 3),
            }),
        };
        // Seven nodes, each with one step to a node below it.
        let way = |number: u32| {
            let (parent, last) = (number % 7, step(number / 7));
            (
                NodeSlot::of(last, Some(step(parent)), 1),
                NodeId(parent),
                last,
            )
        };
        let mut known = 0;
        for number in 0..3000 {
            let (slot, parent, last) = way(number);
            nodes.put(slot, parent, last, NodeId(number));
            known += u32::from(nodes.get(slot, parent, last).is_some());
            for other in 0..number {
                let (slot, parent, last) = way(other);
                let found = nodes.get(slot, parent, last);
                assert!(found.is_none_or(|node| node == NodeId(other)));
            }
        }
        assert_eq!(known, 3000);
        nodes.clear();
        assert!((0..3000).all(|number| {
            let (slot, parent, last) = way(number);
            nodes.get(slot, parent, last).is_none()
        }));
    }
}
