//! Who holds what grows, where a snapshot of the references says it ([`crate::holders`]).
//!
//! Memory that only the variables of running calls hold is work in progress: it is freed when they return. That is no leak
//! where one of these holds:
//!
//! - The calls are *younger than the growth*: the thread was elsewhere after a good part of what grew was allocated. So what
//!   earlier calls have kept was freed, and these will let go, too.
//! - One of the calls *allocates it itself*, and is not seen to return, as a job that collects its result in a variable.
//! - One of the calls *gathers it in one pass*: its outermost loop is over a list, a tuple or a dictionary, which has an end, and
//!   has taken about as many elements as the holder has. The loop of a service has no end; where it gets its work in batches,
//!   a loop over one batch has taken few, and the cache has many.
//!
//! Any other call that is as old as the growth, and keeps what others allocate, may be the loop of a service with its cache:
//! it is judged as without a snapshot.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use nthbyte_profile::event::{FrameKind, Nanos, NodeId, SampleId, ThreadId};

use super::analysis::Analysis;
use super::findings::Finding;
use super::growth::START_UP;
use super::verdict::Verdict;
use crate::holders::{Call, Keepers};

/// The part of what grew that is older than the calls that hold it.
const OLDER: f64 = 0.1;
/// The least part of it that they hold.
const NEARLY_ALL: f64 = 0.8;
/// A pass has taken one element for so many that the holder has, at least.
const FOR_EACH: f64 = 2.0;

impl Analysis<'_> {
    /// Says who holds each finding.
    pub(super) fn hold<'f>(&self, findings: impl IntoIterator<Item = &'f mut Finding>) {
        let keepers = Keepers::of(self.profile);
        if keepers.is_empty() {
            return;
        }
        for finding in findings {
            let lives = self.lives(&finding.lives);
            let samples: HashSet<SampleId, RandomState> = lives.map(|life| life.sample).collect();
            finding.held_by = keepers.holder(&samples);
        }
    }

    /// Takes out of the findings what only running calls hold, and will let go.
    pub(super) fn in_progress(&self, findings: &mut Vec<Finding>) -> Vec<Finding> {
        let found = findings.extract_if(.., |finding| self.is_in_progress(finding));
        let progress = |finding| Finding {
            verdict: Verdict::InProgress,
            more_minutes: None,
            ..finding
        };
        found.map(progress).collect()
    }

    fn is_in_progress(&self, finding: &Finding) -> bool {
        let held = finding.held_by.as_ref();
        let Some(held) = held.filter(|held| held.share >= NEARLY_ALL) else {
            return false;
        };
        let Some(calls) = held.calls.as_ref().filter(|calls| !calls.is_empty()) else {
            return false;
        };
        let own = &self.finding_function(finding);
        let allocates = calls
            .iter()
            .any(|call| Some(&call.function) == own.as_ref());
        let gathers = |call: &Call| {
            let counts = call.taken.zip(held.elements);
            counts.is_some_and(|(taken, all)| FOR_EACH * f64::from(taken) >= f64::from(all))
        };
        allocates && self.is_in_one_call(finding)
            || calls.iter().any(gathers)
            || calls
                .iter()
                .all(|call| self.is_younger(call, finding, Nanos(held.at_nanos)))
    }

    /// The qualified name of the function of own code that allocates.
    fn finding_function(&self, finding: &Finding) -> Option<String> {
        let life = self.lives(&finding.lives).next()?;
        let own = self.sites.frames.own[self.stack(life).index()];
        let frame = self.profile.frames.get(own.frame as usize)?;
        let name = &self.profile.functions[frame.function as usize].name;
        Some(super::sites::folded(name).to_owned())
    }

    /// Whether a call that runs at a moment began after a part of what grew was allocated: its thread has a sample elsewhere.
    fn is_younger(&self, call: &Call, finding: &Finding, at: Nanos) -> bool {
        let profile = self.profile;
        let threads = profile.threads.iter();
        let mut threads = (0..).zip(threads).filter(|(_, of)| of.os_id == call.thread);
        let Some((thread, _)) = threads.next() else {
            return false;
        };
        let function = |frame: u32| {
            let frame = &profile.frames[frame as usize];
            let is_call = frame.kind == FrameKind::Interpreted;
            is_call && profile.functions[frame.function as usize].name == call.function
        };
        // Parents come before their children.
        let mut calls = vec![false; profile.stacks.len()];
        for (number, node) in profile.stacks.iter().enumerate().skip(1) {
            calls[number] = calls[node.parent.index()] || function(node.frame);
        }
        let samples = &profile.samples;
        let elsewhere = samples.ids().filter(|&id| {
            let stack = samples.stack(id);
            samples.time(id) < at
                && samples.thread(id) == ThreadId(thread)
                && stack != NodeId::ROOT
                && !calls[stack.index()]
        });
        let Some(last) = elsewhere.map(|id| samples.time(id)).max() else {
            return false;
        };
        let grown = || {
            let lives = self.lives(&finding.lives);
            lives.filter(|life| f64::from(life.birth[1]) > START_UP)
        };
        let older = grown().filter(|life| samples.time(life.sample) < last);
        older.count() as f64 > OLDER * grown().count() as f64
    }
}
