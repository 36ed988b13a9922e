//! Who holds some of the recording's samples: what joins *allocated by* with *held by*.
//!
//! Of the snapshots of a process, the one that knows most of the samples says who holds them: the deepest single object that
//! has most of their bytes, by the tree of dominators. Where no single object has them, because several refer to each, it is
//! the one on most of their shortest paths. An earlier snapshot says whether that object has grown since.

use std::cell::OnceCell;
use std::collections::HashSet;

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::SampleId;
use nthbyte_profile::holders::{Holder, Kind, Snapshot, SnapshotOutcome};
use serde::Serialize;

use super::amounts::Amounts;
use super::groups;
use super::path::Names;
use super::rows;
use crate::estimate::{Estimate, Totals};
use crate::text;

/// The fewest samples of which a snapshot says something.
const FEWEST: usize = 3;
/// An object holds some samples if it has this part of their bytes.
const MOST: f64 = 0.5;
/// The earlier snapshot lies between these parts of the time of the one that names the holder: start-up is over, and something
/// can have grown since.
const EARLIER: (f64, f64) = (0.1, 0.9);
/// Nodes from a root to the deepest one.
const DEEPEST: usize = 200;

/// Who holds some samples, at the moment of a snapshot.
#[derive(Clone, Debug, Serialize)]
pub struct HeldBy {
    /// How one gets to it: `registry._entries`.
    pub holder: String,
    /// What it is: `dict of 4,000 Session`.
    pub what: String,
    /// The part of their bytes that it holds, of those that the snapshot knows.
    pub share: f64,
    /// How many samples the snapshot knows.
    pub samples: u64,
    /// The moment of the snapshot, in nanoseconds since the start of the recording.
    pub at_nanos: u64,
    /// Who else refers to it, or to what it holds: freed only when all let go.
    pub also: Vec<String>,
    /// The number of its elements; `None` if it is no container.
    #[serde(skip)]
    pub(crate) elements: Option<u32>,
    /// How it has changed since an earlier snapshot; `None` if there is none that has it.
    pub since: Option<Since>,
    /// The running calls whose variables alone hold it, with their threads' numbers in the operating system; `None` if anything
    /// else does, or if that is not sure.
    #[serde(skip)]
    pub(crate) calls: Option<Vec<Call>>,
}

/// A holder at an earlier moment, and now.
#[derive(Clone, Debug, Serialize)]
pub struct Since {
    /// The earlier moment, in nanoseconds since the start of the recording.
    pub at_nanos: u64,
    /// The number of its elements, then and now; `None` if it is no container.
    pub elements: Option<(u32, u32)>,
    /// What it held then.
    pub from: Estimate,
    /// What it holds now.
    pub to: Estimate,
    /// Whether it has grown: it has more elements, or what it holds is more by more than chance.
    pub grows: bool,
}

/// A running call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The qualified name of its function.
    pub(crate) function: String,
    /// The thread's number in the operating system.
    pub(crate) thread: u64,
    /// How many elements its outermost loop has taken from something that has an end.
    pub(crate) taken: Option<u32>,
}

impl HeldBy {
    /// `registry._entries, dict of 4,000 Session, growing: 1,200 of them at 30.0s`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut said = format!("{}, {}", self.holder, self.what);
        if let Some(since) = self.since.as_ref().filter(|since| since.grows) {
            said.push_str(", growing");
            let at = text::duration(since.at_nanos);
            match since.elements {
                Some((from, to)) if from < to => {
                    said = format!("{said}: it had {} at {at}", text::grouped(from.into()));
                }
                _ => {
                    let from = text::bytes(since.from.estimate);
                    said = format!("{said}: it held {from} at {at}");
                }
            }
        }
        said
    }

    /// `held by …`, with the part that it holds, and who else does.
    #[must_use]
    pub fn line(&self) -> String {
        let mut said = match self.share > 0.95 {
            true => format!("held by {}", self.sentence()),
            false => format!("{} held by {}", text::percent(self.share), self.sentence()),
        };
        if !self.also.is_empty() {
            said = format!("{said}; also by {}", self.also.join(" and "));
        }
        said
    }
}

/// The snapshots of a profile of one process.
pub(crate) struct Keepers<'a> {
    profile: &'a Profile,
    taken: Vec<OfSnapshot<'a>>,
}

struct OfSnapshot<'a> {
    snapshot: &'a Snapshot,
    amounts: OnceCell<Amounts>,
}

impl OfSnapshot<'_> {
    fn amounts(&self, profile: &Profile) -> &Amounts {
        self.amounts
            .get_or_init(|| Amounts::of(profile, self.snapshot))
    }
}

impl<'a> Keepers<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let all = profile.processes.iter().flat_map(|of| &of.snapshots);
        let mut taken: Vec<OfSnapshot<'_>> = all
            .filter(|one| !matches!(one.outcome, SnapshotOutcome::NotTaken(_)))
            .map(|snapshot| OfSnapshot {
                snapshot,
                amounts: OnceCell::new(),
            })
            .collect();
        taken.sort_by_key(|one| one.snapshot.time);
        Self { profile, taken }
    }

    /// Whether there is nothing to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Who holds most of these samples; `None` if no snapshot says it.
    pub(crate) fn holder(&self, of: &HashSet<SampleId, RandomState>) -> Option<HeldBy> {
        let known = |one: &OfSnapshot<'_>| {
            let recorded = one.snapshot.samples.iter().filter_map(|held| held.recorded);
            recorded.filter(|sample| of.contains(sample)).count()
        };
        // Of equal ones, the last.
        let (count, taken) = self
            .taken
            .iter()
            .map(|one| (known(one), one))
            .max_by_key(|&(count, _)| count)
            .filter(|&(count, _)| count >= FEWEST)?;
        let snapshot = taken.snapshot;
        let names = Names {
            profile: self.profile,
            snapshot,
        };
        let own = Own::of(self.profile, snapshot, of);
        let (node, share, is_shared) = own.holder(snapshot)?;
        let amounts = taken.amounts(self.profile);
        let groups = groups::below(&names, amounts, &[node], 0.0);
        let holder = names.path(node, 0);
        let mut also = rows::also(&names, node);
        if is_shared {
            also.extend(own.others(&names, node));
        }
        also.retain(|path| *path != holder);
        also.sort();
        also.dedup();
        also.truncate(rows::MOST_OTHERS);
        Some(HeldBy {
            since: self.since(taken, node, &holder),
            what: rows::what(&names, node, &groups),
            share,
            samples: count as u64,
            at_nanos: snapshot.time.0,
            elements: snapshot.node(node).len,
            calls: (!is_shared).then(|| calls(snapshot, node)).flatten(),
            holder,
            also,
        })
    }

    /// The same object in the earliest snapshot that can say something of its growth.
    fn since(&self, now: &OfSnapshot<'_>, node: u32, path: &str) -> Option<Since> {
        let time = now.snapshot.time.0 as f64;
        let (from, until) = (EARLIER.0 * time, EARLIER.1 * time);
        let earlier = self.taken.iter().filter(|one| {
            let time = one.snapshot.time.0 as f64;
            (from..=until).contains(&time)
        });
        let (of, texts) = (now.snapshot.node(node), &now.snapshot.texts);
        for one in earlier {
            let names = Names {
                profile: self.profile,
                snapshot: one.snapshot,
            };
            let texts_then = &one.snapshot.texts;
            let is_same = |&number: &u32| {
                let then = one.snapshot.node(number);
                then.kind == of.kind
                    && then.link == of.link
                    && texts_then.get(then.reference) == texts.get(of.reference)
                    && texts_then.get(then.name) == texts.get(of.name)
                    && names.path(number, 0) == path
            };
            let Some(then) = (1..=one.snapshot.nodes.len() as u32).find(is_same) else {
                continue;
            };
            let at = |one: &OfSnapshot<'_>, node: u32| {
                let amounts = one.amounts(self.profile);
                amounts.estimate(&amounts.below[node as usize])
            };
            let (from, to) = (at(one, then), at(now, node));
            let elements = one.snapshot.node(then).len.zip(of.len);
            let grows = from.high < to.low || elements.is_some_and(|(from, to)| from < to);
            return Some(Since {
                at_nanos: one.snapshot.time.0,
                elements,
                from,
                to,
                grows,
            });
        }
        None
    }
}

/// What a snapshot has of some samples, by node.
struct Own {
    direct: Vec<f64>,
    all: f64,
}

impl Own {
    fn of(profile: &Profile, snapshot: &Snapshot, of: &HashSet<SampleId, RandomState>) -> Self {
        let mut own = Self {
            direct: vec![0.0; snapshot.nodes.len() + 1],
            all: 0.0,
        };
        for held in &snapshot.samples {
            let Some(sample) = held.recorded.filter(|sample| of.contains(sample)) else {
                continue;
            };
            let shape = profile.samples.shape(profile.samples.shape_id(sample));
            let bytes = Totals::of_sample(profile, shape).bytes.estimate;
            own.all += bytes;
            if let Holder::Node(node) = held.by {
                own.direct[node as usize] += bytes;
            }
        }
        own
    }

    /// The deepest node that has most, the part that it has, and whether no single node has.
    fn holder(&self, snapshot: &Snapshot) -> Option<(u32, f64, bool)> {
        let by_dominator = |node: u32| snapshot.node(node).dominator;
        let by_parent = |node: u32| snapshot.node(node).parent;
        let found = self.deepest(by_dominator);
        // What only leads to a root, a module or a thread, says nothing of who holds it.
        let found = found.filter(|&(node, _)| is_object(snapshot, node));
        if let Some((node, share)) = found {
            return Some((node, share, false));
        }
        let (node, share) = self.deepest(by_parent)?;
        Some((node, share, true))
    }

    fn deepest(&self, above: impl Fn(u32) -> u32) -> Option<(u32, f64)> {
        let mut below = self.direct.clone();
        let count = below.len();
        let mut largest = vec![(0_u32, 0.0_f64); count];
        // Those above have smaller numbers, so each is complete when it is added.
        for number in (1..count).rev() {
            let above = above(number as u32) as usize;
            below[above] += below[number];
            if below[number] > largest[above].1 {
                largest[above] = (number as u32, below[number]);
            }
        }
        let mut at = 0;
        for _ in 0..DEEPEST {
            let (next, bytes) = largest[at as usize];
            if next == 0 || bytes < MOST * self.all {
                break;
            }
            at = next;
        }
        (at != 0).then(|| (at, below[at as usize] / self.all.max(1.0)))
    }

    /// Paths to what a node holds that do not go through it.
    fn others(&self, names: &Names<'_>, node: u32) -> Vec<String> {
        let snapshot = names.snapshot;
        let mut found: Vec<String> = Vec::new();
        for &(of, other) in &snapshot.others {
            if found.len() == rows::MOST_OTHERS {
                break;
            }
            if other != node && is_below(snapshot, of, node) && !is_below(snapshot, other, node) {
                let path = names.path(other, 0);
                if !found.contains(&path) {
                    found.push(path);
                }
            }
        }
        found
    }
}

/// Whether a shortest path leads through another node, or ends there.
fn is_below(snapshot: &Snapshot, node: u32, above: u32) -> bool {
    let mut at = node;
    while at > above {
        at = snapshot.node(at).parent;
    }
    at == above
}

fn is_object(snapshot: &Snapshot, node: u32) -> bool {
    !matches!(snapshot.node(node).kind, Kind::Module | Kind::Thread)
}

/// The running calls whose variables alone hold a node; `None` if anything else does.
fn calls(snapshot: &Snapshot, node: u32) -> Option<Vec<Call>> {
    // Without dominators it is not known what else holds it.
    if snapshot.outcome != SnapshotOutcome::Complete {
        return None;
    }
    let mut at = node;
    // What several calls of a thread refer to is the thread's.
    let mut entry = node;
    let top = loop {
        let of = snapshot.node(at);
        if matches!(of.kind, Kind::Frame | Kind::Thread) {
            break at;
        }
        entry = at;
        match of.dominator {
            0 => return None,
            dominator => at = dominator,
        }
    };
    let frames: Vec<u32> = match snapshot.node(top).kind {
        Kind::Frame => vec![top],
        _ => {
            let others: Vec<u32> = snapshot.others_of(entry).collect();
            // There may be more than are kept.
            if others.is_empty() || others.len() >= rows::MOST_OTHERS {
                return None;
            }
            let ways = [snapshot.node(entry).parent].into_iter().chain(others);
            ways.map(|way| frame_above(snapshot, way))
                .collect::<Option<_>>()?
        }
    };
    frames
        .into_iter()
        .map(|frame| call(snapshot, frame))
        .collect()
}

fn frame_above(snapshot: &Snapshot, node: u32) -> Option<u32> {
    let mut at = node;
    while at != 0 {
        if snapshot.node(at).kind == Kind::Frame {
            return Some(at);
        }
        at = snapshot.node(at).parent;
    }
    None
}

fn call(snapshot: &Snapshot, frame: u32) -> Option<Call> {
    let of = snapshot.node(frame);
    let above = of.parent;
    if above == 0 || snapshot.node(above).kind != Kind::Thread {
        return None;
    }
    Some(Call {
        function: snapshot.texts.get(of.name).to_owned(),
        taken: of.len,
        thread: snapshot.texts.get(snapshot.node(above).name).parse().ok()?,
    })
}
