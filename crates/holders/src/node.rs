//! A node of a graph, as it lies in memory.

/// A node. What a reference to it changes lies together: each is a miss of the processor's caches.
#[derive(Clone, Copy)]
pub(crate) struct GraphNode {
    pub(crate) address: usize,
    /// The last reference to it: its number plus 1; 0 if there is none.
    pub(crate) last: u32,
    /// Bits of the caller, and above them the number of references.
    pub(crate) counted: u32,
}

/// Bits of the caller.
pub(crate) const FLAGS: u32 = 0xff;
pub(crate) const ONE: u32 = FLAGS + 1;
/// More references are not counted.
pub(crate) const MOST: u32 = u32::MAX / ONE;

impl GraphNode {
    pub(crate) fn at(address: usize) -> Self {
        Self {
            address,
            last: 0,
            counted: 0,
        }
    }

    #[inline]
    pub(crate) fn count(&mut self) {
        // The highest number stays.
        if self.counted < MOST * ONE {
            self.counted += ONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_has_no_room_stays() {
        let mut node = GraphNode {
            address: 0x1000,
            last: 0,
            counted: ((MOST - 1) * ONE) | FLAGS,
        };
        for _ in 0..2 {
            node.count();
            assert_eq!(node.counted, u32::MAX);
        }
    }
}
