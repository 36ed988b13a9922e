//! Finds the places where the collector keeps its memory totals.
//!
//! ```text
//! collector ── rawmalloced_total_size            bytes of large objects
//!    └── ac ┬─ total_memory_alloced              bytes of the arenas
//!           └─ total_memory_used                 bytes of old objects in them
//! ```
//!
//! Offsets differ between versions. But PyPy reports the numbers (`gc._get_stats`), so the words are found by their
//! values. A total is the one word that had the reported value at each of several moments, between which the value
//! changed. A peak is stored beside each total; it differs from the total after memory was freed. If several words
//! are possible, the total is not recorded. The bytes of the arenas change rarely. But translation sorts fields of
//! one type by their names, so they are in the word before.
//!
//! Both structs lie in the library's own data. Other memory that the collector refers to, such as the nursery, is not
//! searched: it also contains the numbers, in the objects with which Python reports them.

use std::ops::Range;

use nthbyte_host::BoundedLock;

/// Number of words that are searched for the totals, in the collector's struct and in each struct that
/// it refers to.
const WORDS: usize = 128;

/// Addresses of the totals: 64-bit words that exist until the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of old objects in arenas.
    pub in_arenas: usize,
    /// Bytes of large objects.
    pub large: usize,
    /// Bytes of the arenas, if this total was found.
    pub arenas: Option<usize>,
}

/// PyPy's own report of its memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReportedTotals {
    /// Old objects in arenas.
    pub in_arenas: usize,
    /// Large objects.
    pub large: usize,
    /// The arenas.
    pub arenas: usize,
}

/// The words that have had the right values at each report until now.
#[derive(Debug)]
struct Candidates {
    in_arenas: Vec<usize>,
    large: Vec<usize>,
    /// The candidates for `in_arenas` for which the word before had the bytes of the arenas at each
    /// report.
    after_arenas: Vec<usize>,
    observations: u32,
}

static FOUND: BoundedLock<Option<Candidates>> = BoundedLock::new(None);

/// Notes PyPy's report of its totals. `data` is the library's writable memory. `read` returns the word at an
/// address, or `None` if no memory is there.
pub fn observe(
    gc: usize,
    data: &Range<usize>,
    reported: ReportedTotals,
    read: impl Fn(usize) -> Option<usize>,
) {
    if let Some(mut found) = FOUND.lock() {
        match found.as_mut() {
            Some(candidates) => candidates.narrow(reported, read),
            None => *found = Some(Candidates::new(gc, data, reported, read)),
        }
    }
}

/// The places of the totals, if the reports are sufficient. Does not wait.
pub fn found() -> Option<Totals> {
    FOUND.try_lock()?.as_ref()?.totals()
}

impl Candidates {
    fn new(
        gc: usize,
        data: &Range<usize>,
        reported: ReportedTotals,
        read: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let words = |start: usize| (0..WORDS).map(move |word| start + 8 * word);
        let holds = |value: usize| {
            let read = &read;
            move |&address: &usize| read(address) == Some(value)
        };
        let structs = words(gc)
            .filter_map(&read)
            .filter(|target| data.contains(target) && target.is_multiple_of(8));
        let words_of_others = structs.flat_map(words);
        let mut those: Vec<usize> = words_of_others.filter(holds(reported.in_arenas)).collect();
        those.sort_unstable();
        those.dedup();
        let mut candidates = Self {
            after_arenas: those.clone(),
            in_arenas: those,
            large: words(gc).filter(holds(reported.large)).collect(),
            observations: 0,
        };
        candidates.narrow(reported, read);
        candidates
    }

    fn narrow(&mut self, reported: ReportedTotals, read: impl Fn(usize) -> Option<usize>) {
        let holds = |address: usize, value: usize| read(address) == Some(value);
        self.in_arenas
            .retain(|&address| holds(address, reported.in_arenas));
        self.large.retain(|&address| holds(address, reported.large));
        self.after_arenas
            .retain(|&address| holds(address - 8, reported.arenas));
        self.observations += 1;
    }

    fn totals(&self) -> Option<Totals> {
        match (&self.in_arenas[..], &self.large[..]) {
            (&[in_arenas], &[large]) if self.observations > 1 => Some(Totals {
                in_arenas,
                large,
                arenas: self
                    .after_arenas
                    .contains(&in_arenas)
                    .then_some(in_arenas - 8),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A collector that has two references: one to the arenas, and one to memory elsewhere that
    /// contains a copy of the total.
    #[test]
    fn peaks_and_copies_are_not_taken_for_totals() {
        let memory = std::cell::RefCell::new(vec![0usize; 6 * WORDS]);
        let base = 0x10000;
        let read = |address: usize| {
            let word = address.checked_sub(base)? / 8;
            memory.borrow().get(word).copied()
        };
        let (arenas, copy) = (2 * WORDS, 4 * WORDS);
        let reported = |in_arenas, large| ReportedTotals {
            in_arenas,
            large,
            arenas: 8192,
        };
        let set = |values: [usize; 4]| {
            let mut memory = memory.borrow_mut();
            (memory[7], memory[9]) = (base + 8 * arenas, base + 8 * copy);
            memory[copy + 6] = values[2];
            (memory[2], memory[5]) = (values[0], values[1]);
            (memory[arenas + 3], memory[arenas + 4]) = (values[2], values[3]);
            (memory[arenas + 1], memory[arenas + 2]) = (8192, 8192);
        };
        set([900, 900, 5000, 5000]);
        let data = base..base + 8 * copy;
        let mut candidates = Candidates::new(base, &data, reported(5000, 900), read);
        assert_eq!(candidates.totals(), None);
        set([600, 900, 5200, 5000]);
        candidates.narrow(reported(5200, 600), read);
        let totals = Totals {
            in_arenas: base + 8 * (arenas + 3),
            large: base + 16,
            arenas: Some(base + 8 * (arenas + 2)),
        };
        assert_eq!(candidates.totals(), Some(totals));
        set([700, 900, 5300, 5000]);
        candidates.narrow(reported(5300, 701), read);
        assert_eq!(candidates.totals(), None);
    }
}
