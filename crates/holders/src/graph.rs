//! Nodes by address, and the references between them, kept backwards.

use crate::addresses::Addresses;

/// A graph that grows. Node 0 is above all roots, and has no address.
pub struct Graph {
    addresses: Vec<usize>,
    /// Bits of the caller.
    flags: Vec<u8>,
    /// The number of references to each node.
    references: Vec<u32>,
    /// The last reference to each node: its number plus 1; 0 if there is none.
    last: Vec<u32>,
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
        Self {
            addresses: vec![0],
            flags: vec![0],
            references: vec![0],
            last: vec![0],
            edges: Vec::new(),
            numbers: Addresses::new(),
        }
    }

    /// The number of nodes and one: numbers are below it.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        self.addresses.len() as u32
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
        self.numbers.find(&self.addresses, address)
    }

    /// Adds a node at an address that has none and is not 0, and returns its number.
    #[inline]
    pub fn add(&mut self, address: usize, flags: u8) -> u32 {
        self.addresses.push(address);
        self.flags.push(flags);
        self.references.push(0);
        self.last.push(0);
        self.numbers.add_last(&self.addresses);
        self.len() - 1
    }

    /// The address of a node.
    #[must_use]
    #[inline]
    pub fn address(&self, node: u32) -> usize {
        self.addresses[node as usize]
    }

    /// The caller's bits of a node.
    #[must_use]
    #[inline]
    pub fn flags(&self, node: u32) -> u8 {
        self.flags[node as usize]
    }

    /// Sets bits of a node.
    #[inline]
    pub fn set(&mut self, node: u32, flags: u8) {
        self.flags[node as usize] |= flags;
    }

    /// How many references to a node were counted.
    #[must_use]
    #[inline]
    pub fn references(&self, node: u32) -> u32 {
        self.references[node as usize]
    }

    /// Counts a reference to a node that is not kept: who refers to a root does not matter.
    #[inline]
    pub fn count(&mut self, to: u32) {
        let references = &mut self.references[to as usize];
        *references = references.saturating_add(1);
    }

    /// Counts and keeps a reference.
    #[inline]
    pub fn connect(&mut self, from: u32, to: u32) {
        self.count(to);
        self.edges.push([from, self.last[to as usize]]);
        self.last[to as usize] = self.edges.len() as u32;
    }

    /// The nodes that refer to a node, once for each reference.
    #[inline]
    pub fn predecessors(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.last[node as usize];
        std::iter::from_fn(move || {
            let [from, before] = *self.edges.get((next as usize).checked_sub(1)?)?;
            next = before;
            Some(from)
        })
    }

    /// The bytes that the graph takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.addresses.capacity() * (8 + 1 + 4 + 4) + self.edges.capacity() * 8
    }
}
