//! The summary: allocated bytes and time by function, line, file or type.

mod dropped;
mod processes;
mod render;
mod rows;
mod tables;
mod time;

pub use dropped::Dropped;
pub use nthbyte_profile::NO_LABEL;
pub use processes::ProcessSummary;
pub use rows::{RowBytes, Sort, SummaryRow};
pub use time::{RowTime, TimeSummary, Unit};

use std::cell::RefCell;

use nthbyte_profile::Profile;
use nthbyte_profile::event::LostKind;
use nthbyte_profile::meta::Distances;
use nthbyte_profile::model::Lifetime;
use serde::{Serialize, Serializer};

use crate::aggregate::{Aggregate, ByLifetime};
use crate::estimate::{Estimate, Estimator, Totals};
use crate::fold;
use crate::inclusive::Sum;
use crate::periods;
use crate::selection::{Alive, Moment, Reading, Selected, lifetimes_are_known, peak_of_rss};
use crate::youth;
use rows::Ordered;

/// The kind of the rows of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A function.
    #[default]
    Function,
    /// A line of a function.
    Line,
    /// A source file.
    File,
    /// The type of the allocated objects.
    Type,
    /// A process.
    Process,
    /// The value of a label.
    Label(LabelKey),
}

/// The key of a label. It is kept until the program ends, so that [`By`] can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelKey(&'static str);

impl LabelKey {
    /// Keeps a key.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(Box::leak(key.into()))
    }

    /// The key.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl By {
    /// Whether its rows are lines of code or what consists of them, which call each other.
    pub(crate) const fn is_of_code(self) -> bool {
        matches!(self, Self::Function | Self::Line | Self::File)
    }
}

/// As on the command line.
impl std::fmt::Display for By {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Function => to.write_str("function"),
            Self::Line => to.write_str("line"),
            Self::File => to.write_str("file"),
            Self::Type => to.write_str("type"),
            Self::Process => to.write_str("process"),
            Self::Label(key) => write!(to, "label:{}", key.as_str()),
        }
    }
}

impl Serialize for By {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The name of the row for allocations without a Python frame.
pub const NO_STACK: &str = "[no Python frame]";

/// The name of the row for functions without a file.
pub const NO_FILE: &str = "[no file]";

/// The name of the row for objects of unknown type.
pub const NO_TYPE: &str = "[unknown type]";

/// A summary. docs/summary-json.md describes its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The kind of the rows.
    pub by: By,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Interpreter and version.
    pub interpreter: String,
    /// The labels of the process, each as `service=web`; of several, those that all of them have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Number of the process; of the first, if there are several.
    pub pid: u32,
    /// The processes, in the order in which they started.
    pub processes: Vec<ProcessSummary>,
    /// Start of the session: nanoseconds since 1970 UTC.
    pub started_unix_nanos: u64,
    /// Length of the session, in nanoseconds.
    pub duration_nanos: u64,
    /// Mean distance between samples, in bytes; the shortest, if there were several.
    pub period: u64,
    /// All mean distances of the session, the shortest first.
    pub periods: Vec<u64>,
    /// The same in words.
    #[serde(skip)]
    pub periods_text: String,
    /// How the distances were drawn.
    pub distances: Distances,
    /// How samples were taken.
    pub method: String,
    /// Number of allocation samples.
    pub samples: u64,
    /// Number of allocation samples that the agent had to drop.
    pub lost: u64,
    /// Number of all other events that the agent had to drop, time samples among them.
    pub lost_other: u64,
    /// Bytes allocated in total: by the agent's count if it is complete (see [`Profile::allocated`]), else the estimate.
    pub bytes_allocated: u64,
    /// Whether `bytes_allocated` comes from the agent's count.
    pub bytes_counted: bool,
    /// Bytes of the blocks that the interpreter's heap handed out, as it counted them.
    pub bytes_in_blocks: Option<u64>,
    /// The selected part of the profile, and the moment of live memory.
    pub selection: Selected,
    /// Bytes of all samples, in total and by lifetime.
    pub all: Everything,
    /// The largest resident set, in bytes: the kernel's own figure. Of several processes, the largest sum at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss: Option<u64>,
    /// What was alive then, in bytes asked for: less than that was resident where memory was never written. Only of a
    /// whole profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive_at_peak_rss: Option<Estimate>,
    /// Work of the garbage collector.
    pub collections: Collections,
    /// Whether the session ended normally.
    pub complete: bool,
    /// Why a process was killed, in sentences, if that was probably for memory ([`Killed`](crate::Killed)). Who asks for a
    /// summary fills it in: it is found in the whole profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub killed: Vec<String>,
    /// What was allocated in parts of the recording whose samples were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
    /// The agent's remarks.
    pub notes: Vec<String>,
    /// The parts of the file that could not be read.
    pub damage: Vec<DamageNote>,
    /// The estimate for one function (file, type) without any sample.
    pub unlisted: Estimate,
    /// The same, in allocations.
    pub unlisted_allocations: Estimate,
    /// The rows, largest own bytes first. Without any, JSON has no such field: see [`Summary::with_rows`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<SummaryRow<RowBytes>>,
    /// Number of rows that [`Summary::truncate`] removed.
    pub rows_left_out: usize,
    /// Own bytes of these rows together.
    pub bytes_left_out: Estimate,
    /// Bytes of them that were alive at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive_left_out: Option<Estimate>,
    /// Figures from the time samples.
    pub time: TimeSummary,
    /// The sums over the rows that were removed.
    #[serde(skip)]
    left_out: ByLifetime,
    #[serde(skip)]
    estimator: Estimator,
    /// The same for what was alive at the moment.
    #[serde(skip)]
    of_alive: Estimator,
    /// The order of the rows.
    #[serde(skip)]
    sorted_by: Sort,
    /// The names of frames that stand for removed ones.
    #[serde(skip)]
    folded: Vec<&'static str>,
}

/// A summary whose rows are made as they are written. It can be written once.
#[derive(Serialize)]
pub struct Json<'a> {
    #[serde(flatten)]
    summary: Summary,
    rows: OneByOne<'a>,
}

struct OneByOne<'a>(RefCell<&'a mut dyn Iterator<Item = SummaryRow<RowBytes>>>);

impl Serialize for OneByOne<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&mut **self.0.borrow_mut())
    }
}

impl Json<'_> {
    /// The summary, without its rows.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The same, to fill in what others know.
    pub fn summary_mut(&mut self) -> &mut Summary {
        &mut self.summary
    }
}

/// Figures of all samples together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Everything {
    /// Bytes allocated, estimated from the samples.
    pub bytes: Estimate,
    /// Allocations.
    pub allocations: Estimate,
    /// Bytes of objects that died young.
    pub died_young: Estimate,
    /// … that survived the first collection and were freed later.
    pub freed: Estimate,
    /// … that survived it and whose end is not recorded (PyPy).
    pub survived: Estimate,
    /// … that were alive at the end.
    pub still_live: Estimate,
    /// Bytes of all that did not die young.
    pub survivors: Estimate,
    /// Bytes of objects that were alive at the moment; `None` if that is not known (PyPy).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<Estimate>,
}

/// Work of the garbage collector.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Collections {
    /// Number of collections. Each step of a major collection counts as one.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub duration_nanos: u64,
}

/// Part of the file that could not be read.
#[derive(Clone, Debug, Serialize)]
pub struct DamageNote {
    /// Byte offset in the file.
    pub offset: u64,
    /// The fault.
    pub what: String,
}

impl Summary {
    /// Computes a summary of a whole profile with all its rows.
    #[must_use]
    pub fn of(profile: &Profile, by: By) -> Self {
        Self::of_selected(profile, by, Selected::everything())
    }

    /// Computes a summary of what [`Selection::narrow`](crate::Selection::narrow) has left of a profile.
    #[must_use]
    pub fn of_selected(profile: &Profile, by: By, selection: Selected) -> Self {
        Self::first_rows(profile, by, selection, Sort::Own, usize::MAX)
    }

    /// The same in another order, and with at most so many rows: others are not made at all.
    #[must_use]
    pub fn first_rows(
        profile: &Profile,
        by: By,
        selection: Selected,
        sort: Sort,
        most: usize,
    ) -> Self {
        Self::with_rows(profile, by, selection, (sort, most), |mut summary, rows| {
            summary.rows = rows.collect();
            summary
        })
    }

    /// Passes a summary without rows to `use_it`, and its rows in this order, at most so many, of which each is made when it is
    /// taken: all at once may take much more memory than the profile.
    pub fn with_rows<R>(
        profile: &Profile,
        by: By,
        selection: Selected,
        (sort, most): (Sort, usize),
        use_it: impl FnOnce(Self, &mut dyn Iterator<Item = SummaryRow<RowBytes>>) -> R,
    ) -> R {
        let mut aggregate = Aggregate::of(profile, selection.moment());
        let estimator = &aggregate.estimator.clone();
        let processes = processes::of(profile, &aggregate);
        let alive_is_known = lifetimes_are_known(profile);
        let lifetime = |lifetime: Lifetime| estimator.of_bytes(aggregate.all.of(lifetime));
        let peak_rss = processes::peak_rss(&profile.memory);
        let covered = (alive_is_known && selection.is_everything())
            .then(|| time_of_peak_rss(profile, peak_rss))
            .flatten();
        let all = Everything {
            bytes: estimator.bytes(&aggregate.all.all),
            allocations: estimator.allocations(&aggregate.all.all),
            died_young: lifetime(Lifetime::DiedYoung),
            freed: lifetime(Lifetime::Freed),
            survived: lifetime(Lifetime::Survived),
            still_live: lifetime(Lifetime::StillLive),
            survivors: estimator.of_bytes(&aggregate.all.survivors()),
            alive: alive_is_known.then(|| aggregate.of_alive.of_bytes(&aggregate.all.alive)),
        };
        let lost = |of_samples: bool| {
            let kinds = profile.lost.iter();
            let kinds = kinds.filter(|(kind, _)| (*kind == LostKind::Allocations) == of_samples);
            kinds.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count))
        };
        let ordered = Ordered::of(profile, &mut aggregate, by, (sort, most));
        let few = youth::few_collections(profile);
        let meta = &profile.meta;
        let counted = profile.allocated;
        let mut summary = Self {
            by,
            command: meta.command.clone(),
            interpreter: meta.interpreter.clone(),
            tags: profile.common_tags(),
            pid: meta.pid,
            processes,
            started_unix_nanos: meta.started_unix_nanos,
            duration_nanos: profile.end.0,
            period: profile.periods()[0],
            periods: profile.periods(),
            periods_text: periods::described(profile),
            distances: distances(profile),
            method: meta.method().to_owned(),
            samples: aggregate.all.all.samples,
            lost: lost(true),
            lost_other: lost(false),
            bytes_allocated: counted.unwrap_or(all.bytes.estimate as u64),
            bytes_counted: counted.is_some(),
            bytes_in_blocks: profile.counted,
            all,
            peak_rss,
            alive_at_peak_rss: covered.map(|moment| {
                let alive = Alive::at(profile, moment);
                alive.estimator(estimator).bytes(&alive.sum())
            }),
            collections: collections(profile),
            complete: profile.complete,
            killed: Vec::new(),
            dropped: Dropped::of(profile),
            notes: profile
                .before()
                .into_iter()
                .chain(profile.missing())
                .chain(few.map(youth::note))
                .chain(meta.notes.iter().cloned())
                .collect(),
            damage: damage(profile),
            unlisted: estimator.bytes(&Totals::default()),
            unlisted_allocations: estimator.allocations(&Totals::default()),
            rows: Vec::new(),
            rows_left_out: ordered.left_out,
            bytes_left_out: Estimate::exact(0.0),
            alive_left_out: alive_is_known.then(|| Estimate::exact(0.0)),
            time: TimeSummary::of(profile, by),
            left_out: ordered.sum_left_out,
            estimator: *estimator,
            of_alive: aggregate.of_alive,
            sorted_by: sort,
            folded: fold::folded(profile),
            selection,
        };
        summary.count_left_out();
        summary.time.truncate(most);
        use_it(summary, &mut ordered.rows(&aggregate, alive_is_known))
    }

    /// Passes to `write` what JSON has of the same, of which the rows are made as they are written.
    pub fn with_json<R>(
        profile: &Profile,
        by: By,
        selection: Selected,
        order: (Sort, usize),
        write: impl FnOnce(&mut Json<'_>) -> R,
    ) -> R {
        Self::with_rows(profile, by, selection, order, |summary, rows| {
            let rows = OneByOne(RefCell::new(rows));
            write(&mut Json { summary, rows })
        })
    }

    /// Computes what the rows that are left out are together.
    fn count_left_out(&mut self) {
        if self.rows_left_out > 0 {
            self.bytes_left_out = self.estimator.bytes(&self.left_out.all);
            let alive = || self.of_alive.of_bytes(&self.left_out.alive);
            self.alive_left_out = self.all.alive.is_some().then(alive);
        }
    }

    /// Removes all rows except the first ones.
    pub fn truncate(&mut self, rows: usize) {
        if self.rows.len() > rows {
            for row in self.rows.drain(rows..) {
                self.rows_left_out += 1;
                self.left_out.add(&row.figures.own);
            }
            self.count_left_out();
        }
        self.time.truncate(rows);
    }

    /// Puts the rows into another order.
    pub fn sort(&mut self, sort: Sort) {
        rows::sort(&mut self.rows, sort);
        self.sorted_by = sort;
    }

    /// Whether it is known what was alive; on PyPy it is not.
    #[must_use]
    pub fn knows_what_is_alive(&self) -> bool {
        self.all.alive.is_some()
    }

    /// Whether there are only time samples, as in a file imported from VMProf.
    #[must_use]
    pub fn is_of_time_only(&self) -> bool {
        self.samples == 0 && self.time.samples > 0
    }
}

/// When the resident set was largest, if it was read about then: the kernel knows the size of its peak, but not the time.
fn time_of_peak_rss(profile: &Profile, peak: Option<u64>) -> Option<Moment> {
    let readings = Reading::all(&profile.memory);
    let largest = readings.iter().map(|reading| reading.rss).max()?;
    if largest < peak? / 10 * 9 {
        return None;
    }
    peak_of_rss(profile, &readings)
}

fn collections(profile: &Profile) -> Collections {
    let mut sum = Collections::default();
    for collection in &profile.collections {
        // Each step of a major collection counts as one.
        if collection.kind != nthbyte_profile::event::CollectionKind::Major {
            sum.count += 1;
            sum.duration_nanos = sum.duration_nanos.saturating_add(collection.duration.0);
        }
    }
    sum
}

/// How the distances of allocation samples were drawn. With several ways, one that needs
/// an estimate comes first.
fn distances(profile: &Profile) -> Distances {
    let samplings = profile.allocation_samplings();
    let mut distances = samplings.iter().map(|sampling| sampling.distances);
    let first = distances.next().unwrap_or(profile.meta.distances());
    if first == Distances::Every {
        return distances.find(|&of| of != first).unwrap_or(first);
    }
    first
}

fn damage(profile: &Profile) -> Vec<DamageNote> {
    let note = |damage: &nthbyte_profile::model::Damage| DamageNote {
        offset: damage.offset,
        what: damage.what.clone(),
    };
    profile.damage.iter().map(note).collect()
}
