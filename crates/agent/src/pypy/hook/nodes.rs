//! Which node of the stack tree a step leads to from another: the last such steps, so that a stack that has changed
//! in a few places touches few cache lines.

use nthbyte_profile::event::NodeId;

use super::list::Step;
use super::vmprof::RawFrame;

/// A power of two.
const ENTRIES: usize = 512;

/// A table with one place for each step; the last one that came there is in it.
#[derive(Debug)]
pub struct Nodes(Box<[Option<Entry>; ENTRIES]>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    step: Step,
    parent: NodeId,
    node: NodeId,
}

impl Nodes {
    /// Knows nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new([None; ENTRIES]))
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.fill(None);
    }

    /// Where this step leads to, if it is known.
    #[must_use]
    pub fn get(&self, parent: NodeId, step: Step) -> Option<NodeId> {
        self.0[index(parent, step)]
            .filter(|entry| entry.parent == parent && entry.step == step)
            .map(|entry| entry.node)
    }

    /// Keeps where it leads to.
    pub fn put(&mut self, parent: NodeId, step: Step, node: NodeId) {
        self.0[index(parent, step)] = Some(Entry { step, parent, node });
    }
}

/// Fibonacci hashing: the top bits of a product.
const fn index(parent: NodeId, step: Step) -> usize {
    let step = match step {
        Step::Frame(RawFrame { unique_id, .. }) => unique_id,
        Step::Place(place) => place as u64,
    };
    let key = step ^ (parent.0 as u64) << 32;
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - ENTRIES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_right() {
        let mut nodes = Nodes::new();
        let step = |number: u32| match number % 3 {
            0 => Step::Place(number as usize),
            kind => Step::Frame(RawFrame {
                compiled: kind == 1,
                unique_id: u64::from(number / 3),
            }),
        };
        let mut known = 0;
        for number in 0..3000 {
            nodes.put(NodeId(number % 7), step(number / 7), NodeId(number));
            known += u32::from(nodes.get(NodeId(number % 7), step(number / 7)).is_some());
            for other in 0..number {
                let found = nodes.get(NodeId(other % 7), step(other / 7));
                assert!(found.is_none_or(|node| node == NodeId(other)));
            }
        }
        assert_eq!(known, 3000);
        nodes.clear();
        assert_eq!(nodes.get(NodeId(0), step(0)), None);
    }
}
