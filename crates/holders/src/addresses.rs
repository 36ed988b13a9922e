//! From an address to the number of its node.
//!
//! A hash table of 32-bit numbers with open addressing, at most 60 % full. The addresses themselves are in the table of nodes,
//! so an entry takes 4 bytes. The objects of one OS page have neighbouring entries: a reference usually leads to an object
//! that was made at about the same time, and lies near. With a hash that scatters them, a walk takes twice as long.

use crate::node::GraphNode;

/// The number of entries at first, at least; a power of two.
const AT_FIRST: usize = 1 << 16;

pub struct Addresses {
    /// Numbers of nodes; 0 in a free entry.
    entries: Vec<u32>,
    used: usize,
}

fn home(address: usize) -> usize {
    let page = (address as u64 >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (page as usize).wrapping_add(address >> 4 & 255)
}

impl Addresses {
    /// A table that a quarter of so many nodes would fill: most blocks of a heap are text and memory of objects.
    pub fn with_room(nodes: usize) -> Self {
        let len = (nodes / 4 * 10 / 6).next_power_of_two().max(AT_FIRST);
        Self {
            entries: vec![0; len],
            used: 0,
        }
    }

    /// The number of the node at an address; 0 if there is none.
    #[inline]
    pub fn find(&self, nodes: &[GraphNode], address: usize) -> u32 {
        let mask = self.entries.len() - 1;
        let mut at = home(address) & mask;
        loop {
            let number = self.entries[at];
            if number == 0 || nodes[number as usize].address == address {
                return number;
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds the last node, whose address is not in the table.
    pub fn add_last(&mut self, nodes: &[GraphNode]) {
        self.used += 1;
        if self.used * 10 <= self.entries.len() * 6 {
            self.put(nodes, nodes.len() - 1);
            return;
        }
        let len = self.entries.len() * 2;
        // Not both at a time.
        self.entries = Vec::new();
        self.entries = vec![0; len];
        for number in 1..nodes.len() {
            self.put(nodes, number);
        }
    }

    fn put(&mut self, nodes: &[GraphNode], number: usize) {
        let mask = self.entries.len() - 1;
        let mut at = home(nodes[number].address) & mask;
        while self.entries[at] != 0 {
            at = (at + 1) & mask;
        }
        self.entries[at] = number as u32;
    }
}
