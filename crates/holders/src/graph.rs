//! Nodes by address, and the references between them, kept backwards.

use crate::addresses::Addresses;
use crate::node::{FLAGS, GraphNode, MOST, ONE};

/// A graph that grows. Node 0 is above all roots, and has no address.
pub struct Graph {
    nodes: Vec<GraphNode>,
    /// For each reference, the node that refers, and the reference to the same node before it, as in `last`.
    edges: Vec<[u32; 2]>,
    numbers: Addresses,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// A graph without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self::with_room(0)
    }

    /// The same, with addresses set aside for so many nodes and as many references, if there are as many: memory that is not
    /// used takes none, and what grows need not be moved.
    #[must_use]
    pub fn with_room(nodes: usize) -> Self {
        let mut graph = Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            numbers: Addresses::with_room(nodes),
        };
        // Without them, it grows step by step.
        let _ = graph.nodes.try_reserve_exact(nodes);
        let _ = graph.edges.try_reserve_exact(nodes);
        graph.nodes.push(GraphNode::at(0));
        graph
    }

    /// The number of nodes and one: numbers are below it.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// The number of the node at an address; 0 if there is none.
    #[must_use]
    #[inline]
    pub fn find(&self, address: usize) -> u32 {
        self.numbers.find(&self.nodes, address)
    }

    /// Adds a node at an address that has none and is not 0, and returns its number.
    #[inline]
    pub fn add(&mut self, address: usize, flags: u8) -> u32 {
        self.nodes.push(GraphNode {
            address,
            last: 0,
            counted: flags.into(),
        });
        self.numbers.add_last(&self.nodes);
        self.len() - 1
    }

    /// The address of a node.
    #[must_use]
    #[inline]
    pub fn address(&self, node: u32) -> usize {
        self.nodes[node as usize].address
    }

    /// The caller's bits of a node.
    #[must_use]
    #[inline]
    pub fn flags(&self, node: u32) -> u8 {
        (self.nodes[node as usize].counted & FLAGS) as u8
    }

    /// Sets bits of a node.
    #[inline]
    pub fn set(&mut self, node: u32, flags: u8) {
        self.nodes[node as usize].counted |= u32::from(flags);
    }

    /// How many references to a node were counted. `None` if they are too many to count.
    #[must_use]
    #[inline]
    pub fn references(&self, node: u32) -> Option<u32> {
        let count = self.nodes[node as usize].counted / ONE;
        (count < MOST).then_some(count)
    }

    /// Counts a reference to a node that is not kept: who refers to a root does not matter.
    #[inline]
    pub fn count(&mut self, to: u32) {
        self.nodes[to as usize].count();
    }

    /// Counts and keeps a reference.
    #[inline]
    pub fn connect(&mut self, from: u32, to: u32) {
        let node = &mut self.nodes[to as usize];
        node.count();
        self.edges.push([from, node.last]);
        node.last = self.edges.len() as u32;
    }

    /// The nodes that refer to a node, once for each reference.
    #[inline]
    pub fn predecessors(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.nodes[node as usize].last;
        std::iter::from_fn(move || {
            let [from, before] = *self.edges.get((next as usize).checked_sub(1)?)?;
            next = before;
            Some(from)
        })
    }

    /// The bytes that the graph takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<GraphNode>() + self.edges.len() * 8
    }
}
