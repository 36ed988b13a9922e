//! Times in five bytes each, as long as they are whole microseconds within twelve days, which the times of a recording are.

use crate::event::Nanos;

/// What a tick is: the precision of recorded times.
const TICK_NANOS: u64 = 1_000;

/// Ticks from here on need more than five bytes. The last value of five bytes stands for the last time of all.
const LAST: u64 = (1 << 40) - 1;

/// A column of times.
#[derive(Clone, Debug)]
pub(crate) enum Times {
    /// Ticks: their lower four bytes, and the fifth one.
    Ticks(Vec<u32>, Vec<u8>),
    /// Any times.
    Any(Vec<Nanos>),
}

impl Default for Times {
    fn default() -> Self {
        Self::Ticks(Vec::new(), Vec::new())
    }
}

/// `None` if a time needs more than five bytes.
#[inline]
fn ticks(time: Nanos) -> Option<u64> {
    if time.0 == u64::MAX {
        return Some(LAST);
    }
    let ticks = time.0 / TICK_NANOS;
    (ticks < LAST && ticks * TICK_NANOS == time.0).then_some(ticks)
}

#[inline]
fn time(low: u32, high: u8) -> Nanos {
    match u64::from(high) << 32 | u64::from(low) {
        LAST => Nanos(u64::MAX),
        ticks => Nanos(ticks * TICK_NANOS),
    }
}

impl Times {
    /// # Panics
    /// If there is no such time.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Nanos {
        match self {
            Self::Ticks(low, high) => time(low[at], high[at]),
            Self::Any(times) => times[at],
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, new: Nanos) {
        match (&mut *self, ticks(new)) {
            (Self::Ticks(low, high), Some(ticks)) => {
                low.push(ticks as u32);
                high.push((ticks >> 32) as u8);
            }
            _ => self.widen().push(new),
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, at: usize, new: Nanos) {
        match (&mut *self, ticks(new)) {
            (Self::Ticks(low, high), Some(ticks)) => {
                low[at] = ticks as u32;
                high[at] = (ticks >> 32) as u8;
            }
            _ => self.widen()[at] = new,
        }
    }

    /// Copies a time to another place.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        match self {
            Self::Ticks(low, high) => (low[to], high[to]) = (low[from], high[from]),
            Self::Any(times) => times[to] = times[from],
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::Ticks(low, high) => {
                low.truncate(len);
                high.truncate(len);
            }
            Self::Any(times) => times.truncate(len),
        }
    }

    #[cold]
    fn widen(&mut self) -> &mut Vec<Nanos> {
        if let Self::Ticks(low, high) = self {
            let all = low.iter().zip(&*high);
            *self = Self::Any(all.map(|(&low, &high)| time(low, high)).collect());
        }
        match self {
            Self::Any(times) => times,
            Self::Ticks(..) => unreachable!("they were widened"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_time() -> impl Strategy<Value = u64> {
        prop_oneof![
            4 => (0_u64..1 << 22).prop_map(|ticks| ticks * TICK_NANOS),
            4 => ((LAST - 9)..(LAST + 9)).prop_map(|ticks| ticks * TICK_NANOS),
            4 => Just(u64::MAX),
            1 => any::<u64>(),
        ]
    }

    proptest! {
        #[test]
        fn a_column_has_what_was_put_in(times in prop::collection::vec(some_time(), 1..40), later in prop::collection::vec((some_time(), 0_usize..40), 0..9)) {
            let mut column = Times::default();
            let mut model = Vec::new();
            for &time in &times {
                column.push(Nanos(time));
                model.push(Nanos(time));
            }
            for (time, at) in later {
                let at = at % model.len();
                column.set(at, Nanos(time));
                model[at] = Nanos(time);
                column.copy(at, 0);
                model[0] = model[at];
            }
            let read: Vec<Nanos> = (0..model.len()).map(|at| column.get(at)).collect();
            prop_assert_eq!(read, model);
        }
    }

    #[test]
    fn recorded_times_take_five_bytes() {
        let mut column = Times::default();
        for time in [0, 1_000, 3_600_000_000_000, u64::MAX] {
            column.push(Nanos(time));
        }
        assert!(matches!(column, Times::Ticks(..)));
        column.push(Nanos(1));
        assert!(matches!(column, Times::Any(_)));
    }
}
