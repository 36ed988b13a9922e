//! A value for each measure that both sides know.

use std::ops::Index;

use serde::{Serialize, Serializer};

use super::Measure;

/// A value for each of some measures, in their order; in JSON, an object by name. It takes no more memory than its values: a
/// comparison may have a row for each of a million functions.
#[derive(Clone, Debug, Default)]
pub struct PerMeasure<T>(Vec<(Measure, T)>);

impl<T> PerMeasure<T> {
    pub(super) fn with_capacity(measures: usize) -> Self {
        Self(Vec::with_capacity(measures))
    }

    /// Adds the value of a measure that comes after those before.
    pub(super) fn push(&mut self, measure: Measure, value: T) {
        debug_assert!(self.0.last().is_none_or(|(last, _)| *last < measure));
        self.0.push((measure, value));
    }

    /// The value of a measure, if it is known.
    #[must_use]
    pub fn get(&self, measure: Measure) -> Option<&T> {
        let mut all = self.0.iter();
        all.find(|(of, _)| *of == measure).map(|(_, value)| value)
    }
}

/// # Panics
/// If the measure is not known.
impl<T> Index<Measure> for PerMeasure<T> {
    type Output = T;

    fn index(&self, measure: Measure) -> &T {
        self.get(measure).expect("the measure is known")
    }
}

impl<T: Serialize> Serialize for PerMeasure<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(measure, value)| (measure, value)))
    }
}
