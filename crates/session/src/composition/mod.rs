//! What the resident set is made of, recorded by the writer thread.
//!
//! ```text
//! mappings      the kernel's list of mappings with their resident sizes
//! page_tables   the resident pages of a mapping
//! resident      the resident pages of any range
//! classify      which part each of them belongs to
//! library_heap  the C library's count of its blocks
//! activity      how busy the process is        resident_set  its size
//! looks         when mappings are looked at
//! stopwatch     limits of the time for all this
//! ```
//!
//! A composition is recorded when the resident set has changed noticeably, after some seconds at the latest, and at the
//! end; as long as all of them together take at most a 1000th of the session's time. At a new peak, which may be over before
//! there is time again, they may take more ([`SHARE_OF_PEAKS`]). Nothing here runs in a thread of the
//! program, and no lock of the interpreter is taken.

mod activity;
mod classify;
mod library_heap;
mod looks;
mod mappings;
pub(crate) mod page_tables;
pub(crate) mod resident;
mod resident_set;
mod stopwatch;

use std::ops::Range;
use std::time::Duration;

use nthbyte_host::memory;
use nthbyte_profile::event::Nanos;
use nthbyte_profile::{Composition, Part};

use crate::keeper::Keeper;
use classify::{KnownAddresses, classify};
use library_heap::{Asker, LibraryHeap};
use looks::Looks;
use stopwatch::{Budget, Stopwatch};

pub(crate) use activity::ActivityMeter;
pub use page_tables::problem as page_tables_problem;
pub(crate) use resident_set::ResidentSet;

/// A change of the resident set by more than this part (a 10th) is noticeable. While less than half of the budget is left,
/// only a new peak is.
const NOTICEABLE: u64 = 10;
/// The resident set is at a new peak if it is larger by a 50th than at any composition before; while less than half of the
/// budget is left, by a 20th.
const LARGER: [u64; 2] = [50, 20];
/// A process that has not changed for so long does not grow any more: longer than between two readings.
const PAUSE: Nanos = Nanos(120_000_000);
/// After this time, any change of the resident set that is recorded is enough.
const AT_LATEST: Duration = Duration::from_secs(5);
/// The shortest session that has compositions before its end. Before that, a program imports its modules: each of them
/// would be a new peak.
const AT_FIRST: Duration = Duration::from_millis(200);
/// The share of the session's time: one part of so many.
const SHARE: u32 = 1000;
/// Time to begin with: a composition of a small process takes about 0.7 ms.
const TO_BEGIN_WITH: Duration = Duration::from_micros(1500);
/// The share that new peaks are made in, and the time to begin with: one takes 3 ms for 400 MB. While the process grows, only
/// one that is larger by half is made; when it pauses, one that is larger by a 20th.
const SHARE_OF_PEAKS: u32 = 300;
const OF_PEAKS_TO_BEGIN_WITH: Duration = Duration::from_millis(10);
/// Reading the list of mappings is given up after this time.
const LONGEST: Duration = Duration::from_millis(if cfg!(test) { 600_000 } else { 200 });
/// At the end of the session, a program waits for the composition. So one that is expected to take longer is left out.
const LONGEST_AT_END: Duration = Duration::from_millis(50);
/// The use of the heap's pages by arena is recorded at the end, and when the time has grown by this part (a 4th).
const THOROUGH: u64 = 4;

/// Decides when a composition is due, and makes it. Mappings are looked at together with it, and in between.
#[derive(Debug)]
pub(crate) struct Composer {
    /// Memory from before the session; `None` until it was looked for.
    earlier: Option<Vec<Range<usize>>>,
    /// The counts of the session's start, until they are recorded.
    first: Option<Composition>,
    /// The same, once they are.
    begun: Option<Composition>,
    asker: Asker,
    budget: Budget,
    /// The same, for new peaks.
    of_peaks: Budget,
    /// What the last one took.
    last: Duration,
    /// When the last one was made, and the resident set then.
    made: Option<(Nanos, u64)>,
    /// When the use of the heap's pages was last recorded.
    thorough: Option<Nanos>,
    /// The largest resident set of those made.
    largest: u64,
    /// When the resident set was last seen to have changed by a 50th, and what it was then.
    changed: (Nanos, u64),
    looks: Looks,
}

impl Default for Composer {
    fn default() -> Self {
        Self {
            earlier: None,
            first: None,
            begun: None,
            asker: Asker::default(),
            budget: Budget::new(TO_BEGIN_WITH, SHARE),
            of_peaks: Budget::new(OF_PEAKS_TO_BEGIN_WITH, SHARE_OF_PEAKS),
            last: Duration::ZERO,
            made: None,
            thorough: None,
            largest: 0,
            changed: (Nanos(0), 0),
            looks: Looks::default(),
        }
    }
}

impl Composer {
    /// Looks for memory from before the session, and asks the C library for its counts. Called before the program goes on; in
    /// the child of a fork, by the writer thread (`is_writer`), since a child begins within an allocation. Takes some 0.2 ms.
    pub(crate) fn begin(&mut self, now: Nanos, is_writer: bool) {
        if self.earlier.is_some() {
            return;
        }
        self.earlier = Some(earlier());
        let mut first = Composition::at(now);
        if let Some(counts) = self.asker.ask_at_first(is_writer) {
            add_library(&mut first, counts);
        }
        self.first = Some(first);
    }

    /// What was counted when the session began, once in each file.
    pub(crate) fn take_first(&mut self) -> Option<Composition> {
        self.first
            .take()
            .inspect(|first| self.begun = Some(first.clone()))
    }

    /// A new file has begun, which has no composition yet: the next one is soon, and whole.
    pub(crate) fn begin_file(&mut self) {
        self.first = self.first.take().or_else(|| self.begun.clone());
        self.made = None;
        self.thorough = None;
        self.largest = 0;
    }

    /// The composition to record now, if one is due. `resident` is the resident set size, and `is_new` whether it has just
    /// changed. One that had to wait, because the session was too young or the budget was spent, is made without that.
    pub(crate) fn due(
        &mut self,
        keeper: &dyn Keeper,
        now: Nanos,
        resident: Option<u64>,
        is_new: bool,
    ) -> Option<Composition> {
        let (session, resident) = (Duration::from_nanos(now.0), resident?);
        let (_, before) = self.changed;
        if before.abs_diff(resident) > before / LARGER[0] {
            self.changed = (now, resident);
        }
        let is_due = session >= AT_FIRST && self.is_due(now, session, resident, is_new);
        let due = is_due
            .then(|| self.compose(keeper, now, resident, false))
            .flatten();
        // At the same moment, so that samples and composition agree.
        self.looks.look(keeper, now, due.is_some());
        due
    }

    /// The last composition of a session. `None` if it would take too long.
    pub(crate) fn last(&mut self, keeper: &dyn Keeper, now: Nanos) -> Option<Composition> {
        if self.last > LONGEST_AT_END {
            return None;
        }
        self.compose(keeper, now, 0, true)
    }

    fn is_due(&self, now: Nanos, session: Duration, resident: u64, is_new: bool) -> bool {
        // The next one takes longer if the process has grown.
        if !self.budget.allows(session, self.last) {
            let pauses = now.0.saturating_sub(self.changed.0.0) >= PAUSE.0;
            // While it grows, there must be room for two more.
            let (larger, ahead) = if pauses { (LARGER[1], 1) } else { (2, 3) };
            return resident > self.largest + self.largest / larger
                && self.of_peaks.allows(session, ahead * self.last);
        }
        let Some((made, before)) = self.made else {
            return true;
        };
        let is_short = !self.budget.allows(session, TO_BEGIN_WITH / 2);
        let larger = LARGER[usize::from(is_short)];
        (!is_short && before.abs_diff(resident) > before / NOTICEABLE)
            || resident > self.largest + self.largest / larger
            || (is_new && Duration::from_nanos(now.0.saturating_sub(made.0)) >= AT_LATEST)
    }

    /// `resident` is the resident set size that was read. Later ones are compared with it, because the sum of the mappings
    /// may differ, and because there may be no composition: then the next attempt is not sooner.
    fn compose(
        &mut self,
        keeper: &dyn Keeper,
        now: Nanos,
        resident: u64,
        is_last: bool,
    ) -> Option<Composition> {
        let watch = Stopwatch::start();
        let composition = self.read(keeper, now, is_last);
        self.last = watch.worked();
        self.budget.spend(self.last);
        self.of_peaks.spend(self.last);
        self.made = Some((now, resident));
        self.largest = self.largest.max(resident);
        composition
    }

    fn read(&mut self, keeper: &dyn Keeper, now: Nanos, is_last: bool) -> Option<Composition> {
        let mut own = Ranges::default();
        let mut arenas = Ranges::default();
        keeper.own_memory(&mut |range| own.add(range));
        keeper.arenas(&mut |range| arenas.add(range));
        let mut composition = Composition::at(now);
        let mappings = mappings::read(LONGEST)?;
        // With the memory of the list.
        memory::own_memory(&mut |range| own.add(range));
        let known = KnownAddresses {
            arenas: arenas.in_order(),
            own: own.in_order(),
            earlier: self.earlier.as_deref().unwrap_or_default(),
        };
        classify(&mappings, &known, &mut composition);
        if let Some(counts) = self.asker.ask(Duration::from_nanos(now.0), is_last) {
            add_library(&mut composition, counts);
        }
        let is_thorough = is_last
            || self
                .thorough
                .is_none_or(|before| now.0 > before.0 + before.0 / THOROUGH)
            || composition.get(Part::Resident) > Some(self.largest + self.largest / LARGER[1]);
        if is_thorough {
            self.thorough = Some(now);
        }
        keeper.account(&mut composition, is_thorough);
        Some(composition)
    }
}

/// Ranges of addresses. Those that find no memory are left out.
#[derive(Default)]
struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// Adds a range, or makes the last one longer if it follows on that.
    fn add(&mut self, range: Range<usize>) {
        if let Some(last) = self.0.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
        } else if !range.is_empty() && self.0.try_reserve(1).is_ok() {
            self.0.push(range);
        }
    }

    fn in_order(mut self) -> Vec<Range<usize>> {
        self.0.sort_unstable_by_key(|range| range.start);
        self.0
    }
}

fn add_library(composition: &mut Composition, counts: LibraryHeap) {
    composition.set(Part::LibraryUsed, counts.used);
    composition.set(Part::LibraryFree, counts.free);
    composition.set(Part::LibraryMapped, counts.mapped);
}

/// The anonymous mappings that the process has now.
fn earlier() -> Vec<Range<usize>> {
    let mappings = mappings::read_addresses().unwrap_or_default();
    let anonymous = mappings
        .iter()
        .filter(|of| of.backing.is_anonymous() && of.is_writable);
    anonymous.map(|of| of.start..of.end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A composer that has made one composition.
    fn after(time: Nanos, resident: u64) -> Composer {
        Composer {
            made: Some((time, resident)),
            largest: resident,
            last: Duration::from_millis(1),
            ..Composer::default()
        }
    }

    fn is_due(composer: &Composer, nanos: u64, resident: u64) -> bool {
        composer.is_due(Nanos(nanos), Duration::from_nanos(nanos), resident, true)
    }

    #[test]
    fn ranges_that_follow_each_other_are_one() {
        let mut ranges = Ranges::default();
        for range in [6..8, 8..9, 1..3, 3..3, 3..5] {
            ranges.add(range);
        }
        assert_eq!(ranges.in_order(), [1..5, 6..9]);
    }

    /// A process that sleeps for a day does not fill its profile.
    #[test]
    fn one_that_had_to_wait_is_made_without_a_change_and_no_other() {
        let is_due = |composer: &Composer, seconds, resident| {
            let nanos = seconds * SECOND;
            composer.is_due(Nanos(nanos), Duration::from_nanos(nanos), resident, false)
        };
        assert!(is_due(&Composer::default(), 1, 1000));
        let mut composer = after(Nanos(SECOND), 1000);
        assert!(!is_due(&composer, 60, 1000));
        assert!(is_due(&composer, 60, 2000));
        composer
            .budget
            .spend(TO_BEGIN_WITH + Duration::from_millis(20));
        assert!(!is_due(&composer, 10, 500));
        assert!(is_due(&composer, 60, 500));
    }

    #[test]
    fn a_change_or_some_seconds_make_one_due() {
        assert!(is_due(&Composer::default(), 0, 1));
        let composer = after(Nanos(SECOND), 1000);
        assert!(!is_due(&composer, 2 * SECOND, 1000));
        assert!(!is_due(&composer, 2 * SECOND, 901));
        assert!(is_due(&composer, 2 * SECOND, 899));
        assert!(!is_due(&composer, 2 * SECOND, 1020));
        assert!(is_due(&composer, 2 * SECOND, 1021));
        assert!(is_due(&composer, 6 * SECOND, 1000));
    }

    #[test]
    fn the_share_of_time_is_limited() {
        let mut composer = after(Nanos(SECOND), 1000);
        composer.last = Duration::from_micros(500);
        composer
            .budget
            .spend(TO_BEGIN_WITH + Duration::from_micros(1400));
        assert!(!is_due(&composer, SECOND, 500));
        assert!(is_due(&composer, 2 * SECOND, 5000));
        // Little of it is left: only new peaks count.
        assert!(!is_due(&composer, 2 * SECOND, 500));
        assert!(!is_due(&composer, 2 * SECOND, 1050));
        assert!(is_due(&composer, 2 * SECOND, 1051));
        composer.last = Duration::from_secs(1);
        assert!(!is_due(&composer, 60 * SECOND, 5000));
        assert_eq!(
            composer.last(&crate::tests::PLAIN, Nanos(60 * SECOND)),
            None
        );
    }

    /// A peak may be over before the budget of all others allows a composition.
    #[test]
    fn a_new_peak_may_take_more() {
        let mut composer = after(Nanos(SECOND), 1000);
        let spend = |composer: &mut Composer, millis| {
            composer.budget.spend(Duration::from_millis(millis));
            composer.of_peaks.spend(Duration::from_millis(millis));
        };
        spend(&mut composer, 5);
        assert!(!is_due(&composer, SECOND, 500));
        // While it grows, and when it pauses.
        composer.changed = (Nanos(SECOND - PAUSE.0 + 1), 1500);
        assert!(!is_due(&composer, SECOND, 1500));
        assert!(is_due(&composer, SECOND, 1501));
        composer.changed = (Nanos(SECOND - PAUSE.0), 1500);
        assert!(is_due(&composer, SECOND, 1500));
        assert!(!is_due(&composer, SECOND, 1050));
        spend(&mut composer, 8);
        assert!(!is_due(&composer, SECOND, 5000));
        assert!(is_due(&composer, 2 * SECOND, 5000));
    }

    #[test]
    fn the_parts_of_this_process_add_up() {
        let _lock = crate::tests::one_at_a_time();
        let mut composer = Composer::default();
        composer.begin(Nanos(0), true);
        let first = composer.take_first().unwrap();
        assert!(first.get(Part::LibraryUsed).is_some() || cfg!(not(target_env = "gnu")));
        composer.begin(Nanos(1), false);
        assert_eq!(composer.take_first(), None);
        let made = composer.last(&crate::tests::PLAIN, Nanos(SECOND)).unwrap();
        let sum: u64 = Part::MAPPED.iter().filter_map(|&part| made.get(part)).sum();
        assert_eq!(made.get(Part::Resident), Some(sum));
        assert!(made.get(Part::FileText) > Some(0) && made.get(Part::Stacks) > Some(0));
        assert!(composer.last > Duration::ZERO);
    }
}
