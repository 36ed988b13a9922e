//! A label that is asked for: a key with a value, or with any.

use nthbyte_profile::{NO_LABEL, Profile};

use crate::text;

/// A label of samples: see [`Selection::labels`](super::Selection::labels).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelQuery {
    /// The key.
    pub key: String,
    /// The value, or the beginning of values with `*` after it, or [`NO_LABEL`] for samples without the key; `None`: any.
    pub value: Option<String>,
}

impl LabelQuery {
    /// Reads `KEY=VALUE` or `KEY`. `None` without a key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (text, None),
        };
        (!key.is_empty()).then(|| Self {
            key: key.to_owned(),
            value,
        })
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.key),
            None => self.key.clone(),
        }
    }

    fn is(&self, value: &str) -> bool {
        match &self.value {
            None => true,
            Some(asked) => match asked.strip_suffix('*') {
                Some(start) => value.starts_with(start),
                None => value == asked,
            },
        }
    }
}

/// Whether each label set is selected: for each key that is asked for, it has one of its values. And the first label that no set has.
pub(crate) fn selected<'a>(
    profile: &Profile,
    asked: &'a [LabelQuery],
) -> (Vec<bool>, Option<&'a LabelQuery>) {
    let mut selected = vec![true; profile.label_sets.len()];
    let mut missing = None;
    let mut keys: Vec<&str> = asked.iter().map(|label| label.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let values = profile.label_values(key);
        // The last one stands for no value.
        let mut wanted = vec![false; values.values.len() + 1];
        for label in asked.iter().filter(|label| label.key == key) {
            let mut is_there = false;
            let all = values.values.iter().copied();
            if label.value.as_deref() == Some(NO_LABEL) {
                wanted[values.values.len()] = true;
                continue;
            }
            for (is_wanted, value) in wanted.iter_mut().zip(all) {
                let is = label.is(value);
                *is_wanted |= is;
                is_there |= is;
            }
            if !is_there {
                missing = missing.or(Some(label));
            }
        }
        for (set, is_selected) in (0..).zip(&mut selected) {
            let value = values.of(nthbyte_profile::event::LabelSetId(set));
            *is_selected &= wanted[value.unwrap_or(values.values.len())];
        }
    }
    (selected, missing)
}

/// What there is in place of a label that no sample has, for a message: the values of its key, or the keys.
pub(super) fn known(profile: &Profile, missing: &LabelQuery) -> String {
    let keys = profile.label_keys();
    if keys.is_empty() {
        return "the profile has no labels".to_owned();
    }
    if !keys.contains(&missing.key.as_str()) {
        return format!("there are the keys {}", few(keys));
    }
    let values = profile.label_values(&missing.key).values;
    format!("its values are {}", few(values))
}

/// The first ones of some names.
fn few(names: Vec<&str>) -> String {
    let more = names.len().saturating_sub(10);
    let names = names.iter().take(10);
    let names: Vec<String> = names
        .map(|name| text::fit(name, 40, text::Cut::End))
        .collect();
    let names = names.join(", ");
    match more {
        0 => names,
        more => format!("{names}, and {more} more"),
    }
}
