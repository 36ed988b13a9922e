//! Labels of a host: keys and values, and the sets of them that samples and ticks refer to.
//!
//! Nothing here is Python's. Keys are kept forever, and so are the first [`MOST_NUMBERED`] sets: a tick stores a number, which another thread
//! without the GIL looks up later. Sets beyond live as long as an object that refers to them, and ticks do not know them.
//! What a profile takes is limited once more, when a set is recorded (`recording/interner/labels.rs`).

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use crate::recording::Recording;
use nthbyte_profile::event::LabelSetId;

/// Sets that have numbers.
const MOST_NUMBERED: usize = 1 << 14;
/// The number of all others.
const UNNUMBERED: u32 = MOST_NUMBERED as u32;
/// Distinct keys; a label with another one is ignored.
const MOST_KEYS: usize = 64;
/// Bytes of a key and of a value; longer ones are cut.
const LONGEST_KEY: usize = 64;
const LONGEST_VALUE: usize = 256;

/// A set that Python's objects share.
pub type SharedSet = Arc<Set>;

/// A key with its value.
pub type Name = (&'static str, Arc<str>);

/// The sets with numbers, from 1 on.
static NUMBERED: [AtomicPtr<Set>; MOST_NUMBERED] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_NUMBERED];

/// The set with a number. In any thread.
pub fn of_number(number: u32) -> Option<&'static Set> {
    let set = NUMBERED.get(number as usize)?.load(Acquire);
    // SAFETY: a set with a number is never freed.
    unsafe { set.as_ref() }
}

/// The labels of the whole process; null if there are none. They are never freed.
static OF_PROCESS: AtomicPtr<Set> = AtomicPtr::new(std::ptr::null_mut());

/// All labels that the process had, by their text.
static ALL_OF_PROCESS: Mutex<Option<HashMap<String, &'static Set>>> = Mutex::new(None);

/// Labels the whole process: samples of all threads have these labels, outside of the thread's own. `text` has keys and
/// values, with `\x1f` between them; an empty one ends them. Each text takes some hundred bytes forever.
pub fn label_process(text: &str) {
    if text.is_empty() {
        OF_PROCESS.store(std::ptr::null_mut(), Release);
        return;
    }
    let mut all = ALL_OF_PROCESS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    let set: &'static Set = match all.get(text) {
        Some(set) => set,
        None => {
            let labels = Names::default().parse(text);
            let set = Box::leak(Box::new(Set {
                labels: labels.into_boxed_slice(),
                number: UNNUMBERED,
                known: AtomicU64::new(0),
            }));
            all.insert(text.to_owned(), set);
            set
        }
    };
    OF_PROCESS.store(std::ptr::from_ref(set).cast_mut(), Release);
}

/// The number, in the profile, of the labels of a thread that has none of its own. `None` if there is no room to record them.
#[inline]
#[unsafe(link_section = "nthbyte_hot")]
pub fn of_process(recording: &mut Recording<'_>) -> Option<LabelSetId> {
    // SAFETY: the labels of a process are never freed.
    match unsafe { OF_PROCESS.load(Acquire).as_ref() } {
        Some(set) => set.recorded_alone(recording),
        None => Some(LabelSetId::NONE),
    }
}

/// Tells apart what labels the process had at two moments.
#[inline]
pub fn address_of_process() -> usize {
    OF_PROCESS.load(Relaxed) as usize
}

/// Labels, each key once. Outer ones come first.
pub struct Set {
    labels: Box<[Name]>,
    /// See [`of_number`].
    pub number: u32,
    /// In the profile of an epoch (the upper half): its number there (the lower half). Only the thread with a recording writes it.
    known: AtomicU64,
}

impl Set {
    /// Its number in the profile, with the labels of the process. `None` if there is no room to record it.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn recorded(&self, recording: &mut Recording<'_>) -> Option<LabelSetId> {
        if OF_PROCESS.load(Relaxed).is_null() {
            return self.recorded_alone(recording);
        }
        self.recorded_inside(recording)
    }

    #[cold]
    #[inline(never)]
    fn recorded_inside(&self, recording: &mut Recording<'_>) -> Option<LabelSetId> {
        let outer = of_process(recording)?;
        self.below(outer, recording)
    }

    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    fn recorded_alone(&self, recording: &mut Recording<'_>) -> Option<LabelSetId> {
        let known = self.known.load(Relaxed);
        if (known >> 32) as u32 == recording.epoch().number() {
            return Some(LabelSetId(known as u32));
        }
        self.record(recording)
    }

    #[cold]
    #[inline(never)]
    fn record(&self, recording: &mut Recording<'_>) -> Option<LabelSetId> {
        let id = self.below(LabelSetId::NONE, recording)?;
        let epoch = u64::from(recording.epoch().number());
        self.known.store(epoch << 32 | u64::from(id.0), Relaxed);
        Some(id)
    }

    /// Whether it has a value of a key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.labels.iter().any(|(other, _)| *other == key)
    }

    /// Whether no other set has its number.
    #[must_use]
    pub const fn has_number(&self) -> bool {
        self.number != UNNUMBERED
    }

    /// The set with these labels and the labels of another set. `None` if there is no room to record it.
    pub fn below(&self, parent: LabelSetId, recording: &mut Recording<'_>) -> Option<LabelSetId> {
        let mut id = parent;
        for (key, value) in &self.labels {
            id = recording.label(id, key, value)?;
        }
        Some(id)
    }
}

/// All that is kept of keys, values and sets.
#[derive(Default)]
pub struct Names {
    keys: Vec<&'static str>,
    sets: HashMap<Vec<Name>, Arc<Set>>,
}

impl Names {
    /// A key that is kept. `None` if there are too many.
    pub fn key(&mut self, key: &str) -> Option<&'static str> {
        let key = cut(key, LONGEST_KEY);
        if let Some(known) = self.keys.iter().find(|known| **known == key) {
            return Some(known);
        }
        if self.keys.len() == MOST_KEYS {
            return None;
        }
        let key: &'static str = Box::leak(key.into());
        self.keys.push(key);
        Some(key)
    }

    /// Keys with values, of a text that has `\x1f` between them. Those beyond the number of keys are missing.
    pub fn parse(&mut self, text: &str) -> Vec<Name> {
        let mut parts = text.split('\x1f');
        let mut all = Vec::new();
        while let (Some(key), Some(text)) = (parts.next(), parts.next()) {
            if let Some(key) = self.key(key) {
                all.push((key, value(text)));
            }
        }
        all
    }

    /// A set with more labels. A value that it has for a key already is replaced.
    pub fn with(&mut self, outer: Option<&Set>, labels: &[Name]) -> Arc<Set> {
        let mut all = outer.map_or_else(Vec::new, |outer| outer.labels.to_vec());
        for label in labels {
            match all.iter_mut().find(|(key, _)| *key == label.0) {
                Some(outer) => outer.1 = label.1.clone(),
                None => all.push(label.clone()),
            }
        }
        if let Some(known) = self.sets.get(&all) {
            return known.clone();
        }
        let number = self.sets.len() + 1;
        let has_number = number < MOST_NUMBERED;
        let set = Arc::new(Set {
            labels: all.clone().into_boxed_slice(),
            number: if has_number {
                number as u32
            } else {
                UNNUMBERED
            },
            known: AtomicU64::new(0),
        });
        if has_number {
            self.sets.insert(all, set.clone());
            NUMBERED[number].store(Arc::as_ptr(&set).cast_mut(), Release);
        }
        set
    }
}

/// A value that is kept.
pub fn value(value: &str) -> Arc<str> {
    cut(value, LONGEST_VALUE).into()
}

fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(set: &Set) -> Vec<(&str, &str)> {
        let labels = set.labels.iter();
        labels.map(|(key, value)| (*key, &**value)).collect()
    }

    #[test]
    fn inner_labels_replace_outer_ones_in_their_place() {
        let mut names = Names::default();
        let [endpoint, tenant] = ["endpoint", "tenant"].map(|key| names.key(key).unwrap());
        let both = [(endpoint, value("/a")), (tenant, value("x"))];
        let outer = names.with(None, &both);
        let inner = names.with(Some(&outer), &[(endpoint, value("/b"))]);
        assert_eq!(shown(&inner), [("endpoint", "/b"), ("tenant", "x")]);
        let back = names.with(Some(&inner), &[(endpoint, value("/a"))]);
        assert!(Arc::ptr_eq(&outer, &back));
        let found = of_number(inner.number).map(std::ptr::from_ref);
        assert_eq!(found, Some(Arc::as_ptr(&inner)));
        // In the same test, because both number sets.
        limits();
    }

    fn limits() {
        let mut names = Names::default();
        for at in 0..MOST_KEYS {
            assert!(names.key(&at.to_string()).is_some());
        }
        assert_eq!(names.key("one more"), None);
        assert_eq!(names.key("7"), Some("7"));
        assert_eq!(value(&"ä".repeat(200)).len(), LONGEST_VALUE);
        let set = |names: &mut Names, at: usize| {
            let label = ("7", value(&at.to_string()));
            names.with(None, &[label])
        };
        for at in 0..MOST_NUMBERED {
            set(&mut names, at);
        }
        let other = set(&mut names, MOST_NUMBERED);
        assert_eq!(other.number, UNNUMBERED);
        assert!(of_number(UNNUMBERED).is_none());
        assert_eq!(names.sets.len(), MOST_NUMBERED - 1);
    }
}
