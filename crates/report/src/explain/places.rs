//! Samples grouped by the places in the source that answers name.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, NodeId, SampleId};

use crate::estimate::{Estimate, Totals};
use crate::fold::stands_for;
use crate::inclusive::{ByStack, Sum};
use crate::leaks::{Frames, LeakPlace};
use crate::summary::{NO_STACK, NO_TYPE};

/// The places of stacks.
pub(super) struct Places<'a> {
    profile: &'a Profile,
    frames: Frames,
    /// By shape: what a sample stands for.
    totals: Vec<Totals>,
    /// By function: the one that is counted in its place. The machinery of imports counts as one, and so does the launcher.
    stand_ins: Vec<u32>,
}

/// What stands for a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The innermost function.
    Function,
    /// The innermost line.
    Line,
    /// The innermost line of the program's own code: not the standard library, not an installed package. In a stack
    /// without own code, the innermost line.
    OwnLine,
}

/// A place: an index into `Profile::functions`, and a line; `None` without a Python frame.
pub(super) type PlaceKey = Option<(u32, u32)>;

/// What a place is called. PyPy's profiler does not say which line ran: the place is a function then.
pub(super) fn noun(key: PlaceKey) -> &'static str {
    match key {
        Some((_, 0)) => "function",
        _ => "line",
    }
}

impl Sum for Totals {
    fn add(&mut self, other: &Self) {
        Self::add(self, other);
    }
}

impl<'a> Places<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        Self {
            profile,
            frames: Frames::of(profile),
            totals: Totals::of_shapes(profile),
            stand_ins: stand_ins(profile),
        }
    }

    /// The place that stands for a stack.
    pub(super) fn key(&self, stack: NodeId, by: By) -> PlaceKey {
        let frame = match by {
            _ if stack == NodeId::ROOT => return None,
            By::OwnLine => self.frames.own[stack.index()].frame,
            By::Function | By::Line => {
                let frames = self.profile.stack(stack);
                // A note names what allocates inside of a function.
                let mut frames = frames.skip_while(|frame| frame.kind == FrameKind::Note);
                let frame = frames.next()?;
                let line = if by == By::Line { frame.line } else { 0 };
                return Some(self.stand_in(frame.function, line));
            }
        };
        let frame = self.profile.frames.get(frame as usize)?;
        Some(self.stand_in(frame.function, frame.line))
    }

    /// By [site](nthbyte_profile::model::Site) of the profile: whether this place stands for its stack.
    pub(super) fn at(&self, key: PlaceKey, by: By) -> Vec<bool> {
        let sites = self.profile.samples.sites().iter();
        sites.map(|site| self.key(site.stack, by) == key).collect()
    }

    fn stand_in(&self, function: u32, line: u32) -> (u32, u32) {
        match self.profile.functions.get(function as usize) {
            Some(of) if stands_for(&of.file).is_some() => (self.stand_ins[function as usize], 0),
            _ => (function, line),
        }
    }

    /// The sums over the stacks of each place, without those that are 0.
    pub(super) fn group<T: Sum + PartialEq>(
        &self,
        stacks: &ByStack<T>,
        by: By,
    ) -> Vec<(PlaceKey, T)> {
        self.group_each(stacks.iter().map(|(node, &sum)| (node, sum)), by)
    }

    /// The same of parts of the stacks' sums.
    pub(super) fn group_each<T: Sum + PartialEq>(
        &self,
        stacks: impl Iterator<Item = (u32, T)>,
        by: By,
    ) -> Vec<(PlaceKey, T)> {
        let nothing = T::default();
        let with_samples = stacks.filter(|(_, sum)| *sum != nothing);
        group(with_samples.map(|(node, sum)| (self.key(NodeId(node), by), sum)))
    }

    /// What a sample stands for.
    pub(super) fn totals(&self, id: SampleId) -> &Totals {
        &self.totals[self.profile.samples.shape_id(id).0 as usize]
    }

    /// The sums of each stack over some samples. `counts`: what a sample stands for, if it is one of them.
    pub(super) fn sums<'t>(
        &self,
        counts: impl Fn(SampleId) -> Option<&'t Totals>,
    ) -> ByStack<Totals> {
        let samples = &self.profile.samples;
        let mut stacks = ByStack::<Totals>::new(self.profile.stacks.len());
        for id in samples.ids() {
            if let Some(totals) = counts(id) {
                stacks.of_mut(samples.stack(id).index()).add(totals);
            }
        }
        stacks
    }

    /// The types of some samples by their share of the bytes, largest first. `counts` as in [`Places::sums`].
    pub(super) fn types<'t>(
        &self,
        counts: impl Fn(SampleId) -> Option<&'t Totals>,
    ) -> Vec<(String, f64)> {
        let samples = &self.profile.samples;
        // Types of one name are one.
        let mut names: BTreeMap<&str, u32> = BTreeMap::new();
        for names_of in &self.profile.types {
            let next = names.len() as u32;
            names.entry(shown(&names_of.name)).or_insert(next);
        }
        let types = self.profile.types.iter();
        let numbers: Vec<u32> = types.map(|of| names[shown(&of.name)]).collect();
        let mut sums: Vec<Option<f64>> = vec![None; names.len()];
        for id in samples.ids() {
            if let Some(totals) = counts(id) {
                let number = numbers[samples.type_id(id).index()];
                *sums[number as usize].get_or_insert(0.0) += totals.bytes.estimate;
            }
        }
        let named = names.into_iter();
        let named = named.filter_map(|(name, number)| Some((name, sums[number as usize]?)));
        let mut types: Vec<(&str, f64)> = named.collect();
        types.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        let whole: f64 = types.iter().map(|(_, bytes)| bytes).sum();
        let share = |(name, bytes): (&str, f64)| (name.to_owned(), bytes / whole.max(1.0));
        types.into_iter().map(share).collect()
    }

    pub(super) fn place(&self, key: PlaceKey) -> LeakPlace {
        let Some((function, line)) = key else {
            return LeakPlace {
                function: NO_STACK.to_owned(),
                file: String::new(),
                line: 0,
            };
        };
        let function = &self.profile.functions[function as usize];
        LeakPlace {
            function: function.name.clone(),
            file: function.file.clone(),
            line: if line == 0 { function.first_line } else { line },
        }
    }
}

fn stand_ins(profile: &Profile) -> Vec<u32> {
    let mut first: HashMap<&str, u32, RandomState> = HashMap::default();
    let functions = (0..).zip(&profile.functions);
    functions
        .map(|(number, function)| match stands_for(&function.file) {
            Some(name) => *first.entry(name).or_insert(number),
            None => number,
        })
        .collect()
}

/// The name of a type, as answers have it.
fn shown(name: &str) -> &str {
    if name.is_empty() { NO_TYPE } else { name }
}

fn group<K: Hash + Eq + Copy + Ord, T: Sum>(parts: impl Iterator<Item = (K, T)>) -> Vec<(K, T)> {
    let mut sums: HashMap<K, T, RandomState> = HashMap::default();
    for (key, part) in parts {
        sums.entry(key).or_default().add(&part);
    }
    let mut sums: Vec<(K, T)> = sums.into_iter().collect();
    // The order must not depend on the table.
    sums.sort_unstable_by_key(|one| one.0);
    sums
}

/// A place and its figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    pub(super) key: PlaceKey,
    pub(super) figure: Estimate,
}

/// Places by their figures, largest first.
pub(super) fn ranked(of: impl Iterator<Item = (PlaceKey, Estimate)>) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = of.map(|(key, figure)| Ranked { key, figure }).collect();
    ranked.sort_by(|one, other| {
        let figures = (other.figure.estimate).total_cmp(&one.figure.estimate);
        figures.then(one.key.cmp(&other.key))
    });
    ranked
}

/// Whether the first of them certainly has the largest figure: its interval lies above all others.
pub(super) fn is_clear(ranked: &[Ranked]) -> bool {
    let Some((first, others)) = ranked.split_first() else {
        return false;
    };
    others
        .iter()
        .all(|other| other.figure.high < first.figure.low)
}

/// The types of something in words, at most three: `str 76 %, dict 20 %`.
pub(super) fn types_text(types: &[(String, f64)]) -> String {
    let shown = types.iter().filter(|(_, share)| *share >= 0.05).take(3);
    let shown: Vec<String> = shown
        .map(|(name, share)| {
            let name = crate::text::fit(name, 40, crate::text::Cut::End);
            format!("{name} {}", crate::text::percent(*share))
        })
        .collect();
    shown.join(", ")
}
