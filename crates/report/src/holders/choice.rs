//! Which snapshot a report is about.

use nthbyte_profile::Profile;
use nthbyte_profile::holders::{Reason, Snapshot, SnapshotOutcome};

use super::amounts::Amounts;
use crate::selection::{At, SelectionError, peak_of_all};
use crate::text;

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldersError {
    /// The profile has no snapshot, and does not say why.
    #[error(
        "the profile does not say who holds what: record it with nthbyte run --holders, or call nthbyte.snapshot() in the program"
    )]
    NotRecorded,
    /// None was taken.
    #[error(
        "it was not recorded who holds what: {0}; nthbyte run --holders does it whatever it costs"
    )]
    NotTaken(String),
    /// A label that no sample has.
    #[error(transparent)]
    Label(#[from] SelectionError),
    /// The snapshot has too few of the recording's samples, which alone have labels.
    #[error("the snapshot does not say under which labels was allocated what is held: {0}")]
    NoSamples(&'static str),
}

/// A snapshot within this part of the run from a moment is the moment's.
const NEAR: f64 = 0.02;

/// What was alive, as a snapshot has it.
fn alive(profile: &Profile, snapshot: &Snapshot) -> f64 {
    Amounts::of(profile, snapshot).all.estimate
}

/// A snapshot that was taken.
pub struct Chosen<'a> {
    /// The number of its process.
    pub process: usize,
    pub snapshot: &'a Snapshot,
    pub notes: Vec<String>,
}

/// Whether it says only why it was not taken.
pub fn is_not_taken(one: &Snapshot) -> bool {
    matches!(one.outcome, SnapshotOutcome::NotTaken(_))
}

/// The last snapshot, or the one that is nearest to a moment.
pub fn of(profile: &Profile, at: Option<At>) -> Result<Chosen<'_>, HoldersError> {
    let all = profile.processes.iter().enumerate();
    let all: Vec<(usize, &Snapshot)> = all
        .flat_map(|(process, of)| of.snapshots.iter().map(move |one| (process, one)))
        .collect();
    let was_taken = |one: &Snapshot| !is_not_taken(one);
    let taken: Vec<_> = all
        .iter()
        .copied()
        .filter(|(_, one)| was_taken(one))
        .collect();
    if taken.is_empty() {
        let why = all.last().and_then(|(_, one)| one.outcome.reason());
        return Err(match why {
            Some(why) => HoldersError::NotTaken(text::clean(why)),
            None => HoldersError::NotRecorded,
        });
    }
    let distance = |one: &Snapshot, time: u64| one.time.0.abs_diff(time);
    let chosen = match at {
        // Of several processes, the one that has most.
        None => taken
            .iter()
            .max_by_key(|(_, one)| (one.reason == Reason::End, one.objects)),
        Some(At::End) => taken.iter().max_by_key(|(_, one)| one.time),
        Some(At::Peak) => taken
            .iter()
            .max_by(|(_, one), (_, other)| alive(profile, one).total_cmp(&alive(profile, other))),
        Some(At::Time(time)) => taken.iter().min_by_key(|(_, one)| distance(one, time.0)),
    };
    let &(process, snapshot) = chosen.ok_or(HoldersError::NotRecorded)?;
    let mut notes = Vec::new();
    if at == Some(At::Peak)
        && let Some(peak) = peak_of_all(profile)
        && distance(snapshot, peak.0) as f64 > NEAR * profile.end.0 as f64
    {
        notes.push(format!(
            "most was alive at {}; of the snapshots, this one has most",
            text::duration(peak.0)
        ));
    }
    let mut processes: Vec<usize> = taken.iter().map(|&(process, _)| process).collect();
    processes.dedup();
    if processes.len() > 1 {
        notes.push(format!(
            "{} processes have snapshots: name another one's profile to see its",
            processes.len()
        ));
    }
    let not_taken = all.len() - taken.len();
    if let Some((_, one)) = all.iter().rev().find(|(_, one)| !was_taken(one)) {
        let why = text::clean(one.outcome.reason().unwrap_or_default());
        let these = text::counted(not_taken as u64, "snapshot");
        notes.push(format!("not taken: {these}, the last one because {why}"));
    }
    Ok(Chosen {
        process,
        snapshot,
        notes,
    })
}
