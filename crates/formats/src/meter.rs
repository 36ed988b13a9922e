//! Counts the steps of a conversion, for a progress bar.

use std::cell::{Cell, RefCell};

use crate::Progress;

/// Steps between two reports: often enough for a bar, and so rarely that they cost nothing measurable.
const STRIDE: u64 = 1 << 16;

/// Counts steps through a shared reference, so that iterators can hold it.
pub(crate) struct Meter<'a> {
    done: Cell<u64>,
    total: u64,
    report: RefCell<Progress<'a>>,
}

impl<'a> Meter<'a> {
    /// `total` is how many [`step`](Self::step)s there will be.
    pub fn new(total: u64, report: Progress<'a>) -> Self {
        report(0, total);
        Self {
            done: Cell::new(0),
            total,
            report: RefCell::new(report),
        }
    }

    /// One step is done. Costs a nanosecond.
    pub fn step(&self) {
        let done = self.done.get() + 1;
        self.done.set(done);
        if done.is_multiple_of(STRIDE) {
            // The total is worked out beforehand; should it be too low, the bar waits at its end.
            (self.report.borrow_mut())(done.min(self.total), self.total);
        }
    }

    /// Everything is done.
    pub fn finish(&self) {
        (self.report.borrow_mut())(self.total, self.total);
    }
}
