//! What ran when: the file beside the profiles of a run of tests, which the plugin for pytest writes.

use nthbyte_profile::event::Nanos;
use serde::{Deserialize, Serialize};

use super::exact::Origin;

/// The version of the file that is read and written.
pub const VERSION: u32 = 1;

/// A run of tests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Marks {
    /// [`VERSION`].
    pub nthbyte_tests: u32,
    /// Whatever has a row of its own.
    pub owners: Vec<Owner>,
    /// The profiles, in the order in which they began.
    pub recordings: Vec<RecordedProfile>,
    /// Tests that were recorded by themselves, with every allocation.
    #[serde(default)]
    pub measured: Vec<Measured>,
}

/// The figures of a test that was recorded by itself, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Measured {
    /// Its number among the owners.
    pub owner: u32,
    /// How long it ran, in nanoseconds.
    pub duration_nanos: u64,
    /// As in [`super::Exact`].
    pub allocated: u64,
    /// As there.
    pub allocations: u64,
    /// As there, with each small object; missing if it is not known.
    pub peak: Option<u64>,
    /// As there.
    pub left: Option<u64>,
    /// As there; not in files of older versions.
    #[serde(default)]
    pub left_by: Option<Origin>,
}

/// A test, or a fixture that several tests share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// A test's node id; a fixture's name.
    pub name: String,
    /// Of a fixture: how long it lives (`class`, `module`, `package`, `session`). Missing for a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// One profile of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RecordedProfile {
    /// The profile's file, in the folder of this file.
    pub profile: String,
    /// The reading of `CLOCK_MONOTONIC` in nanoseconds at which the times of the profile begin.
    pub clock: u64,
    /// From when on which owner is at work, by the same clock, in order; -1 for none.
    pub switches: Vec<(u64, i64)>,
    /// The owners that had not ended yet when the recording did: fixtures that were torn down later.
    #[serde(default)]
    pub unfinished: Vec<u32>,
}

/// Who is at work at which time.
pub(super) struct Turns {
    /// The times of a profile from which on the owner is at work, in order.
    turns: Vec<(Nanos, Option<usize>)>,
}

impl Turns {
    /// A recording's turns. An owner that is not among so many `owners` is none.
    pub(super) fn of(recording: &RecordedProfile, owners: usize) -> Self {
        let turns = recording.switches.iter().map(|&(time, owner)| {
            let owner = usize::try_from(owner).ok().filter(|&at| at < owners);
            (Nanos(time.saturating_sub(recording.clock)), owner)
        });
        let mut turns: Vec<_> = turns.collect();
        // The file may have been changed. The sort is stable.
        turns.sort_by_key(|&(time, _)| time);
        Self { turns }
    }

    /// Who is at work at a time.
    pub(super) fn at(&self, time: Nanos) -> Option<usize> {
        let next = self.turns.partition_point(|&(from, _)| from <= time);
        next.checked_sub(1).and_then(|at| self.turns[at].1)
    }

    /// Each turn: its owner, its start and its end; the last one ends with the profile.
    pub(super) fn each(
        &self,
        end: Nanos,
    ) -> impl Iterator<Item = (Option<usize>, Nanos, Nanos)> + '_ {
        let ends = self.turns.iter().skip(1).map(|&(time, _)| time);
        let ends = ends.chain([end]);
        self.turns
            .iter()
            .zip(ends)
            .map(|(&(from, owner), to)| (owner, from, to.max(from)))
    }
}
