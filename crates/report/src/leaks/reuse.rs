//! Blocks that change hands without being freed.
//!
//! CPython does not free the blocks of some types: it keeps a stock of them for the next objects of the type (a *free list*),
//! and takes one from there without asking the allocator. A line that makes dictionaries and drops them fills the stock; a
//! line that keeps its own empties it. Then the first line's block holds the second line's object, and for the allocator it
//! is a block of the first line that is never freed. So the first line seems to grow, and the second one's growth is too
//! small, by as much; the sum of both is right.
//!
//! Such a line is told by what else it allocates: nearly all of that dies, where the other line's objects stay, or are put into a
//! container that grows. Its growth is added to the growth of the other line, and the interval of the sum reaches from the growth
//! of that line alone to the growth of both.

use super::findings::{Finding, LeakShare};
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

/// Where a growth is not shown to be more than chance, it is likely enough from this probability on to have taken over another one.
const LIKELY: f64 = 0.1;

/// All kept bytes, but for a rare sample of something else.
const ALL: f64 = 0.95;

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

/// Takes stocks and other lines' objects out of the findings and of the undecided ones. What a finding has taken over is
/// noted there.
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
            None => match undecided.iter().position(|one| one.inherits(&finding)) {
                Some(heir) => {
                    let mut heir = undecided.remove(heir);
                    heir.take_over_leak(&finding);
                    out.push(finding);
                    findings.push(heir);
                }
                None => findings.push(finding),
            },
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

    /// Whether the growth of a line that drops its objects may be the growth of this one, which keeps its own.
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

    /// Whether a leak that is all blocks of objects that die may be one of this line, although this line alone is undecided: all that
    /// it makes comes from the stock, and only what belongs to it, such as a text in each dictionary, is seen to grow.
    fn inherits(&self, other: &Self) -> bool {
        let is_all_reused = other.reused_types() >= ALL && other.kept <= KEEPS_NOTHING;
        let keeps = self.kept >= MORE * other.kept && self.p <= LIKELY;
        is_all_reused
            && keeps
            && !self.drops()
            && self.place.of_function() != other.place.of_function()
            && TAKES * self.grown.estimate >= other.grown.estimate
    }

    /// Takes over a leak: its verdict, and its growth, which is at least as certain as it was.
    fn take_over_leak(&mut self, other: &Self) {
        self.take_over(other);
        self.verdict = other.verdict;
        (self.p, self.adjusted_p) = (other.p, other.adjusted_p);
        self.more_minutes = None;
        self.grown.low = self.grown.low.max(other.grown.low);
        if let (Some(own), Some(other)) = (&mut self.per_minute, &other.per_minute) {
            own.low = own.low.max(other.low);
        }
    }

    /// Whether the lines that are named may only have made the blocks of what accumulates, for objects that die.
    pub(crate) fn may_be_of_others(&self) -> bool {
        self.drops() && self.taken_over.is_empty()
    }

    /// Whether this line may keep the objects that are now in another line's blocks: its own objects stay, other than that
    /// line's.
    pub(crate) fn may_keep_blocks_of(&self, other: &Self) -> bool {
        !self.drops()
            && self.kept >= MORE * other.kept
            && self.place.of_function() != other.place.of_function()
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

    /// The growth of these types, and of their parts.
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
        self.held = both(&self.held, &other.held);
        self.per_mib += other.per_mib;
        self.per_minute = self
            .per_minute
            .zip(other.per_minute)
            .map(|(own, other)| both(&own, &other));
        self.taken_over.push(LeakShare {
            place: other.place.clone(),
            held: other.held,
            grown: other.grown,
            per_minute: other.per_minute,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaks::findings::{LeakPlace, Share};
    use crate::leaks::verdict::Verdict;

    /// A finding of `function` that grows by `grown` bytes of these types, and keeps a share of what it allocates.
    fn finding(function: &str, grown: f64, kept: f64, types: &[(&str, f64)]) -> Finding {
        let place = LeakPlace {
            function: function.into(),
            file: "app.py".into(),
            line: 1,
        };
        let estimate = |estimate: f64| Estimate {
            estimate,
            low: estimate / 2.0,
            high: estimate * 2.0,
        };
        let types = types.iter().map(|&(what, share)| Share {
            what: what.to_owned(),
            share,
        });
        Finding {
            verdict: Verdict::Leak,
            place,
            lines: Vec::new(),
            types: types.collect(),
            labels: Vec::new(),
            callers: Vec::new(),
            inner: None,
            held: estimate(grown),
            samples: 50,
            grown: estimate(grown),
            grown_nanos: 60_000_000_000,
            per_minute: Some(estimate(grown)),
            per_mib: 1.0,
            kept,
            kept_of_reused: Some(kept),
            freed_at_end: false,
            mean_position: 0.5,
            p: 0.002,
            adjusted_p: 0.004,
            more_minutes: None,
            curve: Vec::new(),
            survival: Vec::new(),
            parts: Vec::new(),
            taken_over: Vec::new(),
            container: None,
            held_by: None,
            lives: Vec::new(),
        }
    }

    fn undecided(function: &str, kept: f64, types: &[(&str, f64)]) -> Finding {
        let mut one = finding(function, 6e6, kept, types);
        (one.verdict, one.p, one.adjusted_p) = (Verdict::NotEnoughData, 0.06, 1.0);
        one.grown.low = -6e6;
        one
    }

    /// Each request makes and drops dictionaries; another line keeps some, and gets them all from the stock.
    #[test]
    fn a_leak_of_dictionaries_that_die_is_the_line_that_keeps_what_belongs_to_them() {
        let dies = || finding("encode", 16e6, 0.008, &[("dict keys", 0.8), ("dict", 0.2)]);
        let texts = [("str", 0.8), ("list items", 0.2)];
        let (mut leaks, mut open) = (vec![dies()], vec![undecided("item", 0.04, &texts)]);
        let out = separate(&mut leaks, &mut open);
        assert_eq!((leaks.len(), open.len(), out.len()), (1, 0, 1));
        let leak = &leaks[0];
        assert_eq!(
            (&*leak.place.function, leak.verdict),
            ("item", Verdict::Leak)
        );
        assert_eq!((leak.grown.estimate, leak.grown.low), (22e6, 8e6));
        assert_eq!(
            (leak.adjusted_p, &*leak.taken_over[0].place.function),
            (0.004, "encode")
        );
        assert!(!leak.may_be_of_others());

        // Nobody who may have taken them over: it keeps no more than the line itself, or its growth is likely to be chance, or what
        // the line keeps is not only such blocks.
        let mut chance = undecided("item", 0.04, &texts);
        chance.p = 0.2;
        for (leak, other) in [
            (dies(), undecided("item", 0.01, &texts)),
            (dies(), chance),
            (
                finding("encode", 16e6, 0.008, &[("dict", 0.9), ("str", 0.1)]),
                undecided("item", 0.04, &texts),
            ),
        ] {
            let (mut leaks, mut open) = (vec![leak], vec![other]);
            assert!(separate(&mut leaks, &mut open).is_empty());
            assert_eq!(leaks[0].place.function, "encode");
            assert!(leaks[0].may_be_of_others());
        }
    }
}
