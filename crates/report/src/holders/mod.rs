//! Who holds live objects: the amounts of a snapshot ([`nthbyte_profile::holders`]), with intervals and names.
//!
//! ```text
//! choice   which snapshot a report is about
//! amounts  what each node holds, by the tree of dominators
//! path     how one gets to a node, as a person would write it
//! groups   the tree of dominators with nodes that are alike as one
//! rows     the objects that are worth a row
//! labels   what was allocated under a label, by holder
//! icicle   the same tree for the page, with who allocated what it holds
//! of_samples  who holds some of the recording's samples
//! samples  a snapshot as samples of a profile, for exports and differences
//! render   the table and the tree
//! ```

mod amounts;
mod choice;
mod groups;
mod icicle;
mod labels;
mod of_samples;
mod path;
mod render;
mod rows;
mod samples;

use nthbyte_profile::Profile;
use nthbyte_profile::holders::{Reason, SnapshotOutcome};
use serde::Serialize;

use crate::estimate::Estimate;
use crate::selection::{At, LabelQuery};
use amounts::Amounts;
pub use choice::HoldersError;
pub use icicle::Icicle;
pub(crate) use of_samples::{Call, Keepers};
pub use of_samples::{HeldBy, Since};
pub use samples::{Naming, add_track, as_profile, first};

/// The version of the JSON; docs/holders.md describes it.
const VERSION: u32 = 1;
/// Rows of a table.
const MOST_ROWS: usize = 20;
/// Below this part of all that is alive, nothing has a row.
const SMALLEST: f64 = 0.02;

/// Who holds what. The field names are the JSON's.
#[derive(Clone, Debug, Serialize)]
pub struct Holders {
    version: u32,
    /// The process.
    pub pid: u32,
    /// The program, as its command line begins.
    #[serde(skip)]
    program: String,
    #[serde(skip)]
    is_pypy: bool,
    /// The moment, in nanoseconds since the start of the recording.
    pub at_nanos: u64,
    /// Why the snapshot was taken: `end`, `peak`, `call`, `signal`, `interval`.
    pub reason: &'static str,
    /// Objects that were looked at.
    pub objects: u64,
    /// CPU time of the process that looked at them, in nanoseconds.
    pub cpu_nanos: u64,
    /// How long the program stood still, in nanoseconds.
    pub pause_nanos: u64,
    /// Blocks that the amounts are estimated from.
    pub samples: u64,
    /// All that was alive.
    pub alive: Estimate,
    /// Who holds it, the most first.
    pub holders: Vec<HolderRow>,
    /// What it is, the most first.
    pub types: Vec<OfType>,
    /// The tree of dominators, with nodes that are alike as one.
    pub tree: Vec<Branch>,
    /// What no object is known to hold.
    pub besides: Besides,
    /// By label: what was allocated under each of its values, and who holds it. Missing if that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_label: Option<ByLabel>,
    /// The labels that all of it is limited to, as they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// What the report lacks, in sentences.
    pub notes: Vec<String>,
}

/// What was allocated under the values of a label.
#[derive(Clone, Debug, Serialize)]
pub struct ByLabel {
    /// The key of the label.
    pub key: String,
    /// Its values, the one with most first. Only the first ones.
    pub rows: Vec<OfLabel>,
}

/// What was allocated under a label.
#[derive(Clone, Debug, Serialize)]
pub struct OfLabel {
    /// The value.
    pub value: String,
    /// How much of it was alive.
    pub bytes: Estimate,
    /// The part of all that is alive.
    pub share: f64,
    /// Who holds it, the most first: what would be freed without each, of this value.
    pub holders: Vec<HolderRow>,
}

/// What holders are asked for.
#[derive(Clone, Debug, Default)]
pub struct HoldersAsked<'a> {
    /// A moment; without one, the last snapshot's.
    pub at: Option<At>,
    /// Only what was allocated under these labels.
    pub labels: &'a [LabelQuery],
    /// The key of a label, by whose values there are rows.
    pub by: Option<&'a str>,
}

/// An object, and what it holds.
#[derive(Clone, Debug, Serialize)]
pub struct HolderRow {
    /// What would be freed without it.
    pub bytes: Estimate,
    /// The part of all that is alive.
    pub share: f64,
    /// How one gets to it: `registry._entries`.
    pub holder: String,
    /// What it is: `dict of 4,000 Session`.
    pub what: String,
    /// Who else refers to it, or to an object on the way, by a path of its own: freed only when all let go.
    pub also: Vec<String>,
    /// The types of what it holds, with their parts, the most first.
    pub types: Vec<(String, f64)>,
    /// The function that allocated most of it, as far as the recording has samples, and their number.
    pub allocated_by: Option<(String, u64)>,
}

/// The live objects of a type.
#[derive(Clone, Debug, Serialize)]
pub struct OfType {
    /// The type.
    pub name: String,
    /// How much.
    pub bytes: Estimate,
    /// The part of all that is alive.
    pub share: f64,
    /// The row that holds most of it, and the part of it that it holds.
    pub held_by: Option<(String, f64)>,
}

/// A branch of the merged tree.
#[derive(Clone, Debug, Serialize)]
pub struct Branch {
    /// How those above refer to it.
    pub reference: String,
    /// What it is.
    pub what: String,
    /// The number of objects.
    pub objects: u64,
    /// What would be freed without them.
    pub bytes: Estimate,
    /// The part of all that is alive.
    pub share: f64,
    /// What they hold, the most first.
    pub children: Vec<Branch>,
}

/// What no object is known to hold. All of it is always there.
#[derive(Clone, Debug, Serialize)]
pub struct Besides {
    /// Held by C code: counts of references that no object explains.
    pub c_code: Estimate,
    /// Garbage that was not collected yet.
    pub garbage: Estimate,
    /// No object was found that refers to it.
    pub not_found: Estimate,
    /// Native memory of which no object has the address, by function and library, the most first.
    pub native: Vec<Native>,
}

/// Native memory without a holder.
#[derive(Clone, Debug, Serialize)]
pub struct Native {
    /// The function that was called, and the library that called it; `others` for all that are small.
    pub name: String,
    /// How much.
    pub bytes: Estimate,
}

impl Holders {
    /// Who held what at a moment; without one, at the last snapshot.
    ///
    /// # Errors
    /// If there is no such snapshot.
    pub fn of(profile: &Profile, at: Option<At>) -> Result<Self, HoldersError> {
        Self::asked(
            profile,
            &HoldersAsked {
                at,
                ..HoldersAsked::default()
            },
        )
    }

    /// The same, of a part by labels.
    ///
    /// # Errors
    /// If there is no such snapshot or label, or if the snapshot has no samples of the recording.
    pub fn asked(profile: &Profile, asked: &HoldersAsked<'_>) -> Result<Self, HoldersError> {
        let choice::Chosen {
            process,
            snapshot,
            mut notes,
        } = choice::of(profile, asked.at)?;
        let of_labels = labels::Labelled::of(profile, process, snapshot, asked)?;
        let part = of_labels
            .as_ref()
            .map(|of| of.part(|set| of.is_selected(set)));
        let snapshot = part.as_ref().unwrap_or(snapshot);
        if let SnapshotOutcome::PathsOnly(why) = &snapshot.outcome {
            notes.push(format!(
                "{why}: what several objects hold counts for one of them"
            ));
        }
        let amounts = match &of_labels {
            Some(of) => of.amounts(snapshot),
            None => Amounts::of(profile, snapshot),
        };
        let rows = rows::of(profile, snapshot, &amounts);
        let types = rows::types(snapshot, &amounts, &rows);
        let of = &profile.processes[process];
        Ok(Self {
            version: VERSION,
            pid: of.meta.pid,
            is_pypy: of.meta.is_pypy(),
            program: of.meta.command.first().cloned().unwrap_or_default(),
            at_nanos: snapshot.time.0.saturating_sub(of.start.0),
            reason: reason(snapshot.reason),
            objects: snapshot.objects,
            cpu_nanos: snapshot.cpu.0,
            pause_nanos: snapshot.pause.0,
            samples: amounts.samples,
            alive: amounts.estimate(&amounts.all),
            tree: groups::tree(profile, snapshot, &amounts, SMALLEST),
            holders: rows.into_iter().map(|row| row.shown).collect(),
            types,
            besides: amounts.besides(),
            by_label: of_labels
                .zip(asked.by)
                .map(|(of, key)| of.by_value(key, snapshot, &amounts)),
            labels: asked.labels.iter().map(LabelQuery::text).collect(),
            notes,
        })
    }
}

const fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::End => "end",
        Reason::Peak => "peak",
        Reason::Call => "call",
        Reason::Signal => "signal",
        Reason::Interval => "interval",
    }
}
