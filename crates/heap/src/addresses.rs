//! The set of sampled blocks that came from a fallback.
//!
//! A hash table with open addressing and linear probing, at most half full, in its own mapping. Most lookups are
//! for blocks that are not in it, and usually read one entry. Removal moves later entries back, so there are no
//! tombstones.

use crate::os;
use crate::page::Tag;
use core::ptr::{NonNull, null_mut};

/// A sampled block.
#[derive(Clone, Copy)]
pub struct Sampled {
    pub tag: Tag,
    /// The bytes that the sample stands for.
    pub stands_for: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The block; 0 in an empty slot.
    address: usize,
    sampled: Sampled,
}

/// A set of addresses of sampled blocks.
pub struct Addresses {
    entries: *mut Entry,
    /// A power of two, or 0.
    capacity: usize,
    len: usize,
}

const FIRST_CAPACITY: usize = 128;

impl Addresses {
    pub const fn new() -> Self {
        Self {
            entries: null_mut(),
            capacity: 0,
            len: 0,
        }
    }

    /// Makes room for one more address. Returns false if there is no memory.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn reserve(&mut self) -> bool {
        if (self.len + 1) * 2 <= self.capacity {
            return true;
        }
        let capacity = (self.capacity * 2).max(FIRST_CAPACITY);
        let Some(memory) = os::map(capacity * size_of::<Entry>()) else {
            return false;
        };
        let old = core::mem::replace(
            self,
            Self {
                entries: memory.cast().as_ptr(),
                capacity,
                len: 0,
            },
        );
        for index in 0..old.capacity {
            let entry = old.entry(index);
            if entry.address != 0 {
                self.insert(entry.address, entry.sampled);
            }
        }
        if let Some(memory) = NonNull::new(old.entries) {
            // SAFETY: mapped by this function, and replaced.
            unsafe { os::unmap(memory.cast().as_ptr(), old.capacity * size_of::<Entry>()) };
        }
        true
    }

    /// Inserts an address that is not 0 and not in the set. The caller has called `reserve` before.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn insert(&mut self, address: usize, sampled: Sampled) {
        debug_assert!((self.len + 1) * 2 <= self.capacity);
        let mut index = self.home(address);
        while self.entry(index).address != 0 {
            index = self.after(index);
        }
        self.set(index, Entry { address, sampled });
        self.len += 1;
    }

    /// Calls `visit` with each address, and its block.
    pub fn for_each(&self, mut visit: impl FnMut(usize, Sampled)) {
        for index in 0..self.capacity {
            let entry = self.entry(index);
            if entry.address != 0 {
                visit(entry.address, entry.sampled);
            }
        }
    }

    /// The block at an address, if it is in the set.
    #[inline]
    pub fn get(&self, address: usize) -> Option<Sampled> {
        if self.len == 0 {
            return None;
        }
        self.find(address).map(|index| self.entry(index).sampled)
    }

    /// Removes an address and returns what was kept of it, if it is in the set.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn remove(&mut self, address: usize) -> Option<Sampled> {
        if self.len == 0 {
            return None;
        }
        let mut hole = self.find(address)?;
        let sampled = self.entry(hole).sampled;
        let mut index = self.after(hole);
        loop {
            let entry = self.entry(index);
            if entry.address == 0 {
                break;
            }
            // An entry may move into the hole unless its home is after the hole.
            let mask = self.capacity - 1;
            let from_home = index.wrapping_sub(self.home(entry.address)) & mask;
            let from_hole = index.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.set(hole, entry);
                hole = index;
            }
            index = self.after(index);
        }
        self.set(
            hole,
            Entry {
                address: 0,
                sampled,
            },
        );
        self.len -= 1;
        Some(sampled)
    }

    fn find(&self, address: usize) -> Option<usize> {
        let mut index = self.home(address);
        loop {
            match self.entry(index).address {
                0 => return None,
                found if found == address => return Some(index),
                _ => index = self.after(index),
            }
        }
    }

    /// Fibonacci hashing (Knuth, volume 3, section 6.4).
    fn home(&self, address: usize) -> usize {
        let product = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product >> 32) as usize & (self.capacity - 1)
    }

    fn after(&self, index: usize) -> usize {
        (index + 1) & (self.capacity - 1)
    }

    fn entry(&self, index: usize) -> Entry {
        debug_assert!(index < self.capacity);
        // SAFETY: `index` is below the capacity in all callers, by the mask.
        unsafe { *self.entries.add(index) }
    }

    fn set(&mut self, index: usize, entry: Entry) {
        debug_assert!(index < self.capacity);
        // SAFETY: as in `entry`.
        unsafe { *self.entries.add(index) = entry };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Few distinct addresses, so that collisions, and removals among them, are common.
        #[test]
        fn behaves_as_a_map(operations in prop::collection::vec((0u8..3, 1usize..600), 1..3000)) {
            let mut ours = Addresses::new();
            let mut model = HashMap::new();
            for (number, (operation, key)) in operations.into_iter().enumerate() {
                let address = key << 12;
                let token = u32::try_from(number).unwrap();
                match operation {
                    0 if !model.contains_key(&address) => {
                        prop_assert!(ours.reserve());
                        let tag = Tag { token, session: 1 };
                        ours.insert(address, Sampled { tag, stands_for: 1 });
                        model.insert(address, token);
                    }
                    1 => {
                        let removed = ours.remove(address).map(|sampled| sampled.tag.token);
                        prop_assert_eq!(removed, model.remove(&address));
                    }
                    _ => {
                        let found = ours.get(address).map(|sampled| sampled.tag.token);
                        prop_assert_eq!(found, model.get(&address).copied());
                    }
                }
                prop_assert_eq!(ours.len, model.len());
            }
        }
    }

    fn sampled() -> Sampled {
        let tag = Tag {
            token: 1,
            session: 1,
        };
        Sampled { tag, stands_for: 1 }
    }

    /// Large blocks lie one after the other, at multiples of the size of a page. Most of them are found where they
    /// belong, or in the next slot.
    #[test]
    fn neighbours_are_spread_out() {
        let mut ours = Addresses::new();
        let blocks = (1..=10_000).map(|number| 0x7f00_0000_0000 + number * 4096);
        for address in blocks.clone() {
            assert!(ours.reserve());
            ours.insert(address, sampled());
        }
        let away = |address| {
            let found = ours.find(address).expect("it was inserted");
            found.wrapping_sub(ours.home(address)) & (ours.capacity - 1)
        };
        assert!(blocks.map(away).sum::<usize>() < 10_000);
    }

    /// Its last page, of which a wrong size would leave a mapping. Other tests may map something there at once, but not
    /// in place of each table.
    #[test]
    fn a_table_that_was_replaced_is_unmapped() {
        let mut ours = Addresses::new();
        let mut are_gone = Vec::new();
        for address in 1..100_000 {
            let (old, size) = (ours.entries, ours.capacity * size_of::<Entry>());
            assert!(ours.reserve());
            if old != ours.entries && size > 4096 {
                let last = old.cast::<u8>().wrapping_add((size - 1) / 4096 * 4096);
                let mut is_resident = 0;
                // SAFETY: mincore checks the address, and writes one byte for a page.
                let status = unsafe { libc::mincore(last.cast(), 4096, &raw mut is_resident) };
                are_gone.push(status != 0);
            }
            ours.insert(address, sampled());
        }
        assert!(are_gone.len() > 5 && are_gone.contains(&true));
    }
}
