//! Checksums of any parts of a file. Each costs about as much as the checksum of a short part.
//!
//! A header can claim that the 4 MiB after it are its block's body, and a hostile file has such a
//! header every few bytes. The search for the next intact block must take time proportional to the
//! file's length. So no byte is summed many times: the sums from one starting point to every
//! [`STEP`]th byte are kept. The checksum of the bytes between two such points follows from both
//! sums (`crc32_combine` of zlib), in about twenty steps for any length.

use std::collections::VecDeque;

use crc32fast::Hasher;

/// Bytes between two stored sums. Sums are stored for at most one block's length (4 MiB), so they
/// take 256 KiB.
const STEP: usize = 64;

/// Checksums of a file that is read forwards.
#[derive(Debug, Default)]
pub(crate) struct Checksums {
    /// The offset in the file of the first sum: a multiple of [`STEP`]. The other sums follow, one step
    /// apart.
    first: u64,
    /// The checksums of the bytes from one common starting point to each offset.
    sums: VecDeque<u32>,
    /// Number of summed bytes; bytes that were summed twice count twice.
    work: u64,
}

impl Checksums {
    /// The checksum of `bytes[from..]`, where `bytes` is at `offset` in the file. Offsets must not
    /// decrease from call to call.
    ///
    /// The cost is the sum of less than two steps, plus the sum of the bytes after the last stored
    /// sum.
    pub(crate) fn of(&mut self, offset: u64, bytes: &[u8], from: usize) -> u32 {
        self.forget_before(offset);
        // The first and the last edge of a step in this part, as indexes into `bytes`.
        let edge = |at: usize| {
            let start = offset + at as u64;
            at + (start.next_multiple_of(STEP as u64) - start) as usize
        };
        let first = edge(from);
        if first > bytes.len() {
            return self.sum(0, &bytes[from..]);
        }
        let last = bytes.len() - ((offset + bytes.len() as u64) % STEP as u64) as usize;
        let before = self.sum(0, &bytes[from..first]);
        self.extend(offset, bytes, edge(0));
        let sum = |at: usize| {
            let number = (offset + at as u64 - self.first) / STEP as u64;
            self.sums[number as usize]
        };
        if first == last {
            return self.sum(before, &bytes[last..]);
        }
        // Combining is linear in both sums, so the part before the first edge can be included.
        let mut between = Hasher::new_with_initial(before ^ sum(first));
        between.combine(&Hasher::new_with_initial_len(
            sum(last),
            (last - first) as u64,
        ));
        let between = between.finalize();
        self.sum(between, &bytes[last..])
    }

    /// Number of bytes that were summed until now.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    fn forget_before(&mut self, offset: u64) {
        while self.first < offset && self.sums.pop_front().is_some() {
            self.first += STEP as u64;
        }
    }

    /// Stores the sums of all edges in `bytes`; the first edge is at index `edge`.
    fn extend(&mut self, offset: u64, bytes: &[u8], edge: usize) {
        if self.sums.is_empty() {
            self.first = offset + edge as u64;
            self.sums.push_back(0);
        }
        let mut at = (self.first - offset) as usize + (self.sums.len() - 1) * STEP;
        while let Some(step) = bytes.get(at..at + STEP) {
            let sum = self.sum(self.sums[self.sums.len() - 1], step);
            self.sums.push_back(sum);
            at += STEP;
        }
    }

    fn sum(&mut self, before: u32, bytes: &[u8]) -> u32 {
        self.work += bytes.len() as u64;
        let mut hasher = Hasher::new_with_initial(before);
        hasher.update(bytes);
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_stretch_has_the_checksum_that_it_has(
            bytes in prop::collection::vec(any::<u8>(), 0..1500),
            stretches in prop::collection::vec((0_usize..1500, 0_usize..40, 0_usize..900), 1..30),
        ) {
            let mut stretches = stretches;
            stretches.sort_unstable();
            let mut sums = Checksums::default();
            for (start, from, len) in stretches {
                let start = start.min(bytes.len());
                let end = (start + from + len).min(bytes.len());
                let seen = &bytes[start..end];
                let from = from.min(seen.len());
                let found = sums.of(start as u64, seen, from);
                prop_assert_eq!(found, crc32fast::hash(&seen[from..]));
            }
        }
    }
}
