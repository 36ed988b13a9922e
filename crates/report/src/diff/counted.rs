//! The total of bytes where the heaps of all runs counted their blocks.
//!
//! A heap counts bytes of blocks, whose sizes are rounded up. What was asked for of them is known from samples only: it would
//! make an estimate of an exact figure. So blocks are compared with blocks. Native memory is not counted: what its samples
//! stand for is added, with its interval.

use super::Compared;
use super::runs::{Cell, Measure, Run};
use super::sides::{Pair, Sides, side};
use crate::estimate::Moments;
use crate::statistics::difference::Side;
use crate::statistics::spread::Spread;

/// The standard deviation between runs of the same program that is assumed at least, as a part of the total: docs/diff.md says
/// how much runs of programs without a change differ.
const DEVIATION: f64 = 1e-3;

/// Native memory of a run, of which there are samples only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Native {
    pub(super) bytes: Moments,
    /// The longest period, in bytes.
    pub(super) longest_period: f64,
}

/// The change of the total; `None` if a run has no count, or if every allocation was recorded in all of them.
pub(super) fn total(sides: &Sides) -> Option<Compared> {
    if sides.all().all(|run| run.exact) {
        return None;
    }
    let cells = |runs: &[Run]| runs.iter().map(cell).collect::<Option<Vec<Cell>>>();
    let pair = Pair::of_totals(cells(&sides.old)?, cells(&sides.new)?);
    let (old, new) = (of(&sides.old, &pair.old), of(&sides.new, &pair.new));
    let size = f64::midpoint(old.mean.estimate, new.mean.estimate);
    let least = (DEVIATION * size).powi(2);
    let spread = match sides.spread(&pair, Measure::Bytes) {
        None => Spread {
            between: least,
            degrees: f64::INFINITY,
        },
        Some(found) => Spread {
            between: found.between.max(least),
            ..found
        },
    };
    Some(Compared::of(old, new, Some(spread)))
}

fn cell(run: &Run) -> Option<Cell> {
    let counted = run.counted? as f64;
    let mut bytes = Moments {
        estimate: counted,
        seen: counted,
        ..Moments::default()
    };
    if let Some(native) = &run.native {
        bytes.add(&native.bytes);
    }
    let mut cell = Cell::default();
    cell.0[Measure::Bytes as usize] = bytes;
    Some(cell)
}

fn of(runs: &[Run], cells: &[Cell]) -> Side {
    let found = side(runs, cells.iter(), Measure::Bytes);
    let longest = |run: &Run| run.native.map_or(0.0, |native| native.longest_period);
    let number = runs.len() as f64;
    let typical = runs.iter().map(longest).sum::<f64>() / (number * number);
    Side {
        exact: typical == 0.0,
        typical,
        unit: if typical > 0.0 { typical } else { found.unit },
        ..found
    }
}
