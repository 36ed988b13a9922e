//! Blocks that change hands without being freed.
//!
//! CPython does not free the blocks of some types: it keeps a stock of them for the next objects of the type (a *free list*),
//! and takes one from there without asking the allocator. A line that makes dictionaries and drops them fills the stock; a
//! line that keeps its own empties it. Then the first line's block holds the second line's object, and for the allocator it
//! is a block of the first line that is never freed. So the first line seems to grow, and the second one's growth is too
//! small, by as much; the sum of both is right.
//!
//! Such a line is told by what else it allocates: nearly all of that dies, where the other line's objects stay, or are put into a
//! container that grows. Its growth is added to that of the other line, and the interval of the sum reaches from the growth
//! of that line alone to that of both.

use super::findings::{Finding, Part};
use crate::estimate::Estimate;

/// The growth of a line may be another one's if at most this share of such objects that it allocates in the first half of the run
/// is alive at the end, …
const DROPS: f64 = 0.5;

/// … or if at most this share of all that it allocates outlives half of the run: the objects that die may go to the stock and
/// come back, so that their blocks seem to live.
const DROPS_IN_ALL: f64 = 0.25;

/// It may be a mere stock if it is this share.
const KEEPS_NOTHING: f64 = 0.05;

/// A line keeps its objects if at least this share of them is alive, …
const KEEPS: f64 = 0.8;

/// … or if so much of all that it allocates outlives half of the run, …
const KEEPS_IN_ALL: f64 = 0.25;

/// … and so many times as much as at the line that drops them.
const MORE: f64 = 1.75;

/// Of such types is at least this share of what it keeps.
const SOME: f64 = 0.2;

/// A line takes over no more than so many times its own growth: of its objects, some parts are always allocated. A container has
/// eight bytes for an object of hundreds.
const TAKES: f64 = 8.0;
const CONTAINER_TAKES: f64 = 100.0;

/// Types whose blocks CPython keeps for reuse (`Include/internal/pycore_freelist_state.h` and, before
/// 3.13, the source of each type).
const FREE_LISTS: [&str; 9] = [
    "tuple",
    "list",
    "dict",
    "dict keys",
    "dict values",
    "float",
    "slice",
    "method",
    "coroutine",
];

/// The largest size of such a free list in practice, in bytes: 2000 tuples of each of a few sizes.
const STOCK: f64 = 1_048_576.0;

/// Whether CPython keeps blocks of a type for reuse.
pub(super) fn is_reused(kind: &str) -> bool {
    FREE_LISTS.contains(&kind)
}

/// Takes what is a stock, or another line's objects, out of the findings and of what is undecided. What a finding has taken over
/// is noted there.
pub(super) fn separate(findings: &mut Vec<Finding>, undecided: &mut Vec<Finding>) -> Vec<Finding> {
    let mut out = Vec::new();
    let (reused, kept): (Vec<Finding>, Vec<Finding>) = std::mem::take(findings)
        .into_iter()
        .partition(Finding::drops);
    *findings = kept;
    for finding in reused {
        match findings
            .iter_mut()
            .filter(|one| one.takes(&finding))
            .max_by(|one, other| one.likelier(other, &finding))
        {
            Some(owner) => {
                owner.take_over(&finding);
                out.push(finding);
            }
            None if finding.may_be_stock() => out.push(finding),
            None => findings.push(finding),
        }
    }
    for finding in std::mem::take(undecided) {
        let drops = finding.drops() && finding.grown.estimate > 0.0;
        let owners = findings
            .iter_mut()
            .filter(|one| drops && one.takes(&finding));
        match owners.max_by(|one, other| one.likelier(other, &finding)) {
            Some(owner) => {
                owner.take_over(&finding);
                out.push(finding);
            }
            None => undecided.push(finding),
        }
    }
    findings.sort_by(|one, other| other.grown.estimate.total_cmp(&one.grown.estimate));
    out
}

/// What a type's blocks are part of: the list of list items, the dictionary of keys.
fn part_of(kind: &str) -> &str {
    match kind {
        "list items" => "list",
        "dict keys" | "dict values" => "dict",
        other => other,
    }
}

impl Finding {
    /// The share of types whose blocks are used again.
    fn reused_types(&self) -> f64 {
        let listed = self.types.iter().filter(|kind| is_reused(&kind.what));
        listed.map(|kind| kind.share).sum()
    }

    /// Whether most of it is of types whose blocks are used again.
    pub(crate) fn is_of_reused_types(&self) -> bool {
        self.reused_types() > 0.5
    }

    /// Whether objects of such types die here, so that the blocks that seem to stay may be another line's.
    fn drops(&self) -> bool {
        let few =
            self.kept_of_reused.is_some_and(|kept| kept <= DROPS) || self.kept <= DROPS_IN_ALL;
        self.is_of_reused_types() && few
    }

    /// Whether it may be the stock of such blocks.
    fn may_be_stock(&self) -> bool {
        self.kept_of_reused
            .is_some_and(|kept| kept <= KEEPS_NOTHING)
            && self.held.estimate < STOCK
    }

    /// Whether the growth of a line that drops its objects may be that of this one, which keeps its own.
    fn takes(&self, other: &Self) -> bool {
        let keeps = self
            .kept_of_reused
            .is_some_and(|kept| kept >= KEEPS && self.kept > other.kept)
            || self.kept >= KEEPS_IN_ALL && self.kept >= MORE * other.kept;
        let most = match self.container {
            Some(_) => CONTAINER_TAKES,
            // What it takes over is not among its own types.
            None if self.reused_types() >= SOME => TAKES,
            None => 0.0,
        };
        keeps && most * self.grown.estimate >= other.grown.estimate
    }

    /// Which of two lines that may have taken over the blocks of a third is likelier to have: the one that keeps more of the same
    /// types, such as the items of lists whose own blocks are used again; or else the one that keeps more of types whose blocks are used
    /// again.
    fn likelier(&self, than: &Self, of: &Self) -> std::cmp::Ordering {
        let has = |kind: &str| of.types.iter().any(|one| part_of(&one.what) == kind);
        let same = |one: &Self| one.grown_of(|kind| is_reused(kind) && has(kind));
        let reused = |one: &Self| one.grown_of(is_reused);
        same(self)
            .total_cmp(&same(than))
            .then(reused(self).total_cmp(&reused(than)))
    }

    /// The growth of these types, and of what is part of them.
    fn grown_of(&self, is_of: impl Fn(&str) -> bool) -> f64 {
        let types = self.types.iter().filter(|one| is_of(part_of(&one.what)));
        self.grown.estimate * types.map(|one| one.share).sum::<f64>()
    }

    /// Adds what another line has allocated for this one's objects.
    fn take_over(&mut self, other: &Self) {
        let both = |own: &Estimate, other: &Estimate| Estimate {
            estimate: own.estimate + other.estimate,
            low: own.low,
            high: own.estimate
                + other.estimate
                + (own.high - own.estimate).hypot(other.high - other.estimate),
        };
        self.grown = both(&self.grown, &other.grown);
        self.per_minute = self
            .per_minute
            .zip(other.per_minute)
            .map(|(own, other)| both(&own, &other));
        self.taken_over.push(Part {
            place: other.place.clone(),
            held: other.held,
            grown: other.grown,
            per_minute: other.per_minute,
        });
    }
}
