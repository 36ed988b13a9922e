//! From an address to the number of its node.
//!
//! A hash table of 32-bit numbers with open addressing, at most 70 % full. The addresses themselves are in the table of nodes,
//! so an entry takes 4 bytes. The objects of one OS page have neighbouring entries: a reference usually leads to an object
//! that was made at about the same time, and lies near. With a hash that scatters them, a walk takes twice as long.
//!
//! The number of entries is no power of two, because half of a table that doubles may be more than all nodes need.

use crate::node::GraphNode;

/// The number of entries at first, at least.
const AT_FIRST: usize = 1 << 16;
/// Entries of a page.
const OF_PAGE: usize = 256;

pub struct Addresses {
    /// Numbers of nodes; 0 in a free entry.
    entries: Vec<u32>,
    used: usize,
}

/// The first entry, of so many, that is looked at for an address.
#[inline]
fn home(address: usize, len: usize) -> usize {
    let page = (address as u64 >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let at = ((page * len as u64) >> 32) as usize + (address >> 4) % OF_PAGE;
    if at < len { at } else { at - len }
}

#[inline]
fn next(at: usize, len: usize) -> usize {
    if at + 1 == len { 0 } else { at + 1 }
}

impl Addresses {
    /// A table that a quarter of so many nodes would fill: most blocks of a heap are text and memory of objects.
    pub fn with_room(nodes: usize) -> Self {
        let len = (nodes / 4 * 10 / 6).max(AT_FIRST);
        Self {
            entries: vec![0; len],
            used: 0,
        }
    }

    /// The number of the node at an address; 0 if there is none.
    #[inline]
    pub fn find(&self, nodes: &[GraphNode], address: usize) -> u32 {
        let len = self.entries.len();
        let mut at = home(address, len);
        loop {
            let number = self.entries[at];
            if number == 0 || nodes[number as usize].address == address {
                return number;
            }
            at = next(at, len);
        }
    }

    /// Adds the last node, whose address is not in the table.
    pub fn add_last(&mut self, nodes: &[GraphNode]) {
        self.used += 1;
        if self.used * 10 <= self.entries.len() * 7 {
            self.put(nodes, nodes.len() - 1);
            return;
        }
        let len = self.entries.len() / 2 * 3;
        // Not both at a time.
        self.entries = Vec::new();
        self.entries = vec![0; len];
        for number in 1..nodes.len() {
            self.put(nodes, number);
        }
    }

    fn put(&mut self, nodes: &[GraphNode], number: usize) {
        let len = self.entries.len();
        let mut at = home(nodes[number].address, len);
        while self.entries[at] != 0 {
            at = next(at, len);
        }
        self.entries[at] = number as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of few and of many nodes, so that entries of several pages meet, also at the end of the table, which grows.
    #[test]
    fn each_address_has_its_number_and_no_other_has_one() {
        let mut nodes = vec![GraphNode::at(0)];
        let mut numbers = Addresses::with_room(0);
        let address = |number: usize| 0x7f00_0000_0010 + number / 100 * 8192 + number % 100 * 32;
        for number in 0..200_000 {
            assert_eq!(numbers.find(&nodes, address(number)), 0);
            nodes.push(GraphNode::at(address(number)));
            numbers.add_last(&nodes);
        }
        for number in 0..200_000 {
            assert_eq!(numbers.find(&nodes, address(number)), number as u32 + 1);
            assert_eq!(numbers.find(&nodes, address(number) + 16), 0);
        }
        let len = numbers.entries.len();
        assert!(len * 7 >= 200_000 * 10 && len < 200_000 * 10 / 7 * 3 / 2 + 2);
    }

    #[test]
    fn the_places_of_a_page_end_at_the_tables_end() {
        let wrapped = (0..1 << 20).map(|page| home((page << 12) | 0xff0, AT_FIRST));
        let places: Vec<usize> = wrapped.collect();
        assert!(places.iter().all(|&at| at < AT_FIRST));
        assert!(places.iter().any(|&at| at < OF_PAGE - 1));
    }
}
