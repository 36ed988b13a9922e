//! Counts the steps of a conversion, for a progress bar.

use std::cell::{Cell, RefCell};

use crate::Progress;

/// Steps between two reports: often enough for a progress bar, at no measurable cost.
const STRIDE: u64 = 1 << 16;

/// Counts steps through a shared reference, so that iterators can hold it.
pub(crate) struct Meter<'a> {
    done: Cell<u64>,
    total: u64,
    report: RefCell<Progress<'a>>,
}

impl<'a> Meter<'a> {
    /// `total` is the expected number of [`step`](Self::step)s.
    pub fn new(total: u64, report: Progress<'a>) -> Self {
        report(0, total);
        Self {
            done: Cell::new(0),
            total,
            report: RefCell::new(report),
        }
    }

    /// Counts one step. Takes about 1 ns.
    pub fn step(&self) {
        let done = self.done.get() + 1;
        self.done.set(done);
        if done.is_multiple_of(STRIDE) {
            // The total is computed in advance. If it is too low, the bar stops at its end.
            (self.report.borrow_mut())(done.min(self.total), self.total);
        }
    }

    /// Reports that all steps are done.
    pub fn finish(&self) {
        (self.report.borrow_mut())(self.total, self.total);
    }
}
