//! The ends of the objects that are alive, the first one first.
//!
//! Time only goes on: no end is asked for or put in that is before the last one that was taken out. So this is a radix heap (Ahuja,
//! Mehlhorn, Orlin and Tarjan, *Faster algorithms for the shortest path problem*, 1990): an end lies in the list of the highest
//! bit in which its time differs from the last one that was taken out, and moves to a lower list as that time comes. Each
//! end moves a few times, to the end of a list. A binary heap of a million ends, which a program between two collections has, touches
//! twenty places far from each other for each.

use nthbyte_profile::event::{Nanos, SampleId};

/// The end of a sampled object, and a number that goes with it.
pub(super) type End = (Nanos, SampleId, u32);

/// See the module.
#[derive(Debug)]
pub(super) struct Ends {
    /// By the highest bit that differs, counted from 1; 0: the ends at the time `last`.
    lists: [Vec<End>; 65],
    /// Bit by bit: the lists from 1 on that are not empty.
    filled: u64,
    /// The time of the last one that was taken out.
    last: Nanos,
    /// The first time of all; `None` without ends.
    first: Option<Nanos>,
    /// Whether list 0 is in order, the first one at the end.
    is_sorted: bool,
}

impl Ends {
    pub(super) fn new() -> Self {
        Self {
            lists: std::array::from_fn(|_| Vec::new()),
            filled: 0,
            last: Nanos(0),
            first: None,
            is_sorted: true,
        }
    }

    /// Adds an end. One before the last that was taken out counts as one of that time.
    #[inline]
    pub(super) fn push(&mut self, (time, id, number): End) {
        let time = time.max(self.last);
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.put((time, id, number));
    }

    #[inline]
    fn put(&mut self, end: End) {
        let list = (u64::BITS - (end.0.0 ^ self.last.0).leading_zeros()) as usize;
        self.lists[list].push(end);
        if list == 0 {
            self.is_sorted = false;
        } else {
            self.filled |= 1 << (list - 1);
        }
    }

    /// The time of the first end.
    #[inline]
    pub(super) fn first(&self) -> Option<Nanos> {
        self.first
    }

    /// Takes out the first end, if it is not after a time.
    #[inline]
    pub(super) fn pop_until(&mut self, time: Nanos) -> Option<End> {
        if self.first? > time {
            return None;
        }
        if self.lists[0].is_empty() {
            self.advance();
        }
        if !self.is_sorted {
            self.lists[0].sort_unstable_by(|one, other| other.cmp(one));
            self.is_sorted = true;
        }
        let end = self.lists[0].pop();
        if self.lists[0].is_empty() {
            let lowest = self.filled.trailing_zeros() as usize + 1;
            let lowest = self.lists.get(lowest).map_or(&[][..], Vec::as_slice);
            self.first = lowest.iter().map(|&(time, ..)| time).min();
        }
        end
    }

    /// Moves the ends of the first time to list 0, and those that were in one list with them to lower lists.
    fn advance(&mut self) {
        let list = self.filled.trailing_zeros() as usize + 1;
        self.filled &= self.filled - 1;
        self.last = self.first.unwrap_or(self.last);
        let mut ends = std::mem::take(&mut self.lists[list]);
        ends.drain(..).for_each(|end| self.put(end));
        // With its room.
        self.lists[list] = ends;
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Some are added at some time after the last one, then some are taken out.
        #[test]
        fn ends_come_out_as_of_a_heap(
            rounds in prop::collection::vec((prop::collection::vec(0_u64..3000, 0..9), 0_usize..9), 1..40),
            far in any::<u32>(),
        ) {
            let (mut ends, mut model) = (Ends::new(), BinaryHeap::new());
            let (mut last, mut number) = (0, 0);
            for (after, taken) in rounds {
                for after in after {
                    let time = last + after * u64::from(if number % 7 == 0 { far } else { 1 });
                    let end = (Nanos(time), SampleId(number), number ^ 1);
                    ends.push(end);
                    model.push(Reverse(end));
                    number += 1;
                }
                for _ in 0..taken {
                    let expected = model.pop().map(|Reverse(end)| end);
                    prop_assert_eq!(ends.first(), expected.map(|(time, ..)| time));
                    let until = expected.map_or(0, |(time, ..)| time.0);
                    if let Some(before) = until.checked_sub(1) {
                        prop_assert_eq!(ends.pop_until(Nanos(before)), None);
                    }
                    prop_assert_eq!(ends.pop_until(Nanos(until)), expected);
                    last = last.max(until);
                }
            }
        }
    }
}
