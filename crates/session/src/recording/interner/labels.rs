//! Label sets, identified by their parent and their own label.
//!
//! Their number is limited, and with it what they take of the file: a program may label its work by anything, such as a
//! number of each request.

use super::keyed::KeyMap;
use nthbyte_profile::event::LabelSetId;

/// The values of a key that have names. All others are [`OTHER`].
pub(crate) const MOST_VALUES: usize = 1_000;
/// The label sets with more than that many before them have [`OTHER`] in place of new values.
pub(crate) const MOST_SETS: u32 = 1 << 16;
/// The value in place of those without a name.
pub(crate) const OTHER: &str = "(other)";

/// The label sets of one epoch.
pub(crate) struct Labels {
    by_text: KeyMap<(LabelSetId, &'static str, String), LabelSetId>,
    values: KeyMap<&'static str, Values>,
    next: u32,
}

/// The values of a key.
#[derive(Default)]
struct Values {
    named: KeyMap<String, ()>,
    are_too_many: bool,
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It has its name.
    Named,
    /// It is one of the others.
    Other,
    /// The same, and it is the first one of its key.
    FirstOther,
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            by_text: KeyMap::default(),
            values: KeyMap::default(),
            next: LabelSetId::NONE.0 + 1,
        }
    }
}

impl Labels {
    pub(crate) fn get(&self, label: &(LabelSetId, &'static str, String)) -> Option<LabelSetId> {
        self.by_text.get(label).copied()
    }

    /// Whether a new set may name this value. `None` if there is no memory.
    pub(crate) fn keep(&mut self, key: &'static str, value: &str) -> Option<Kept> {
        self.values.try_reserve(1).ok()?;
        let has_room = self.next <= MOST_SETS;
        let values = self.values.entry(key).or_default();
        if has_room && values.named.contains_key(value) {
            return Some(Kept::Named);
        }
        if has_room && values.named.len() < MOST_VALUES {
            values.named.try_reserve(1).ok()?;
            values.named.insert(crate::ring::text(value)?, ());
            return Some(Kept::Named);
        }
        let is_first = !std::mem::replace(&mut values.are_too_many, true);
        Some(if is_first {
            Kept::FirstOther
        } else {
            Kept::Other
        })
    }

    /// Reserves space for one more set. `None` if there is no memory.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.by_text.try_reserve(1).ok()
    }

    /// Adds a set, and returns its number. The caller has reserved space for it.
    pub(crate) fn define(&mut self, label: (LabelSetId, &'static str, String)) -> LabelSetId {
        let id = LabelSetId(self.next);
        self.next += 1;
        self.by_text.insert(label, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_values_and_no_more() {
        let mut labels = Labels::default();
        for at in 0..MOST_VALUES {
            assert_eq!(labels.keep("user", &at.to_string()), Some(Kept::Named));
        }
        assert_eq!(labels.keep("user", "one more"), Some(Kept::FirstOther));
        assert_eq!(labels.keep("user", "another"), Some(Kept::Other));
        assert_eq!(labels.keep("user", "17"), Some(Kept::Named));
        assert_eq!(labels.keep("endpoint", "/"), Some(Kept::Named));
    }

    #[test]
    fn there_are_so_many_sets_with_names() {
        let mut labels = Labels::default();
        for at in 0..MOST_SETS {
            labels.define((LabelSetId(at), "depth", String::new()));
        }
        assert_eq!(labels.keep("user", "1"), Some(Kept::FirstOther));
    }
}
