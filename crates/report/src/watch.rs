//! The present state of a program whose profile still grows: what `nthbyte live` shows.
//!
//! Everything is computed anew each time, in one pass over the samples. It needs those that are alive or of the last two minutes
//! ([`NEEDED`]): a [`Follower`](nthbyte_profile::follow::Follower) keeps no others.

use std::collections::HashMap;

use nthbyte_profile::event::{Nanos, NodeId};
use nthbyte_profile::model::{Sample, process_label};
use nthbyte_profile::{LabelValues, Lifetimes, NO_LABEL, Profile};

use crate::estimate::{Estimate, Estimator, Totals};
use crate::memory::MemoryReport;
use crate::periods;
use crate::selection::{At, LabelQuery, selected_labels};
use crate::statistics::difference::{Side, compare};
use crate::summary::LabelKey;
use crate::text::{self, Cut};

/// The time that a rate is of.
const RATE: Nanos = Nanos(10_000_000_000);
/// The time over which growth is shown, unless it was reset.
const GROWTH: Nanos = Nanos(60_000_000_000);
/// The time that curves are of, and their points.
const CURVE: Nanos = Nanos(120_000_000_000);
const POINTS: usize = 40;
/// Samples that ended longer ago have no part in the view.
pub const NEEDED: Nanos = CURVE;

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowsOf {
    /// The function that allocated.
    #[default]
    Function,
    /// The type of the object.
    Type,
    /// The thread that allocated.
    Thread,
    /// Its process.
    Process,
    /// The labels that were in force, all together.
    Labels,
    /// The value of one label.
    Label(LabelKey),
}

/// The column that rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// Bytes a second.
    #[default]
    Rate,
    /// Bytes alive now.
    Alive,
    /// How much more is alive than before.
    Growth,
}

/// The question to the profile.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// What a row stands for.
    pub rows: RowsOf,
    /// The order of rows, the largest first.
    pub sort: Column,
    /// Only rows whose name or place contains this.
    pub filter: String,
    /// Only what was allocated under these labels, as [`Selection::labels`](crate::Selection::labels). One that no sample has yet selects nothing.
    pub labels: Vec<LabelQuery>,
    /// Growth and rates begin no earlier than this.
    pub since: Nanos,
}

/// A row.
#[derive(Clone, Debug)]
pub struct WatchRow {
    /// Its name.
    pub name: String,
    /// The file and the line of a function; empty for others.
    pub place: String,
    /// Bytes a second.
    pub rate: Estimate,
    /// Bytes alive now; `None` where lifetimes are not known.
    pub alive: Option<Estimate>,
    /// How much more is alive than before; `None` likewise.
    pub growth: Option<Estimate>,
}

/// The state of a program.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The program and its arguments.
    pub command: String,
    /// The interpreter.
    pub interpreter: String,
    /// The number of processes.
    pub processes: usize,
    /// The number of threads that have allocated.
    pub threads: usize,
    /// The length of the recording up to now.
    pub end: Nanos,
    /// Whether the recording has ended.
    pub has_ended: bool,
    /// The resident set, and its peak.
    pub rss: Option<(u64, u64)>,
    /// Bytes in use in the interpreter's heap.
    pub heap: Option<u64>,
    /// The resident set over the last minutes; `None` before the first reading.
    pub rss_curve: Vec<Option<u64>>,
    /// Bytes allocated in each part of these minutes; `None` for parts that have not come yet.
    pub rate_curve: Vec<Option<f64>>,
    /// The time that a curve is of.
    pub curve: Nanos,
    /// Bytes a second of all rows.
    pub rate: Estimate,
    /// The time that rates are of.
    pub rate_over: Nanos,
    /// The time that growth is of.
    pub growth_over: Nanos,
    /// Collections a second, and the share of the time that they take.
    pub collections: (f64, f64),
    /// The parts of the resident set at its last reading, with their bytes, the largest first.
    pub parts: Vec<(&'static str, f64)>,
    /// The rows.
    pub rows: Vec<WatchRow>,
    /// When the last snapshot of who holds what was taken, and its objects.
    pub snapshot: Option<(Nanos, u64)>,
}

/// Sums of the samples of a row.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Allocated in the time of the rate.
    allocated: Totals,
    /// Alive now.
    alive: Totals,
    /// Allocated in the time of growth, and alive now.
    come: Totals,
    /// Alive before it, and freed in it.
    gone: Totals,
}

/// The key of a row: a number in the table of what rows stand for. Samples without a frame, or without the label, have none.
type Key = Option<u32>;

/// What rows stand for, and the table of it, if it is made for them.
struct Rows<'a> {
    of: RowsOf,
    values: LabelValues<'a>,
}

impl Watch {
    /// The state at the end of what the profile has.
    #[must_use]
    pub fn of(profile: &Profile, asked: &WatchOptions) -> Self {
        let end = profile.end;
        let before = |length: Nanos| {
            Nanos(end.0.saturating_sub(length.0))
                .max(asked.since)
                .min(end)
        };
        let (rate_from, growth_from) = (before(RATE), before(GROWTH));
        let over = |from: Nanos| Nanos(end.0 - from.0);
        let shapes = profile.samples.shapes().iter();
        let shapes: Vec<Totals> = shapes
            .map(|&shape| Totals::of_sample(profile, shape))
            .collect();
        let rows = Rows::new(profile, asked.rows);
        let (labels, _) = selected_labels(profile, &asked.labels);
        let mut sums: HashMap<Key, Sums> = HashMap::new();
        let mut all = Totals::default();
        let mut allocated = Totals::default();
        let curve_from = end.0.saturating_sub(CURVE.0);
        let mut rate_curve = vec![0.0; POINTS];
        for id in profile.samples.ids() {
            let sample = profile.samples.get(id);
            if !labels[sample.labels.index()] {
                continue;
            }
            let totals = &shapes[profile.samples.shape_id(id).0 as usize];
            all.add(totals);
            if sample.time.0 >= curve_from {
                let at =
                    (sample.time.0 - curve_from) as u128 * POINTS as u128 / u128::from(CURVE.0);
                rate_curve[(at as usize).min(POINTS - 1)] += totals.bytes.estimate;
            }
            let row = sums.entry(rows.key(profile, &sample)).or_default();
            if sample.time >= rate_from {
                row.allocated.add(totals);
                allocated.add(totals);
            }
            match sample.freed {
                None => {
                    row.alive.add(totals);
                    if sample.time >= growth_from {
                        row.come.add(totals);
                    }
                }
                Some(freed) if sample.time < growth_from && freed >= growth_from => {
                    row.gone.add(totals);
                }
                Some(_) => {}
            }
        }
        let figures = Figures {
            estimator: Estimator::new(profile, &all),
            heaviest: periods::longest(profile),
            is_exact: profile.is_exact(),
            has_ends: profile.lifetimes() == Lifetimes::All,
            seconds: seconds(over(rate_from)),
        };
        let mut shown: Vec<WatchRow> = sums
            .iter()
            .map(|(&key, sums)| figures.row(profile, &rows, key, sums))
            .filter(|row| row.name.contains(&asked.filter) || row.place.contains(&asked.filter))
            .collect();
        let value = |row: &WatchRow| match asked.sort {
            Column::Rate => row.rate.estimate,
            Column::Alive => row.alive.map_or(row.rate.estimate, |of| of.estimate),
            Column::Growth => row.growth.map_or(row.rate.estimate, |of| of.estimate),
        };
        shown.sort_by(|one, other| {
            let by_value = value(other).total_cmp(&value(one));
            by_value.then_with(|| (&one.name, &one.place).cmp(&(&other.name, &other.place)))
        });
        let mut rss = profile.memory.iter().filter_map(|memory| memory.rss);
        let peaks = profile.memory.iter().filter_map(|memory| memory.peak_rss);
        let peak = rss.clone().chain(peaks).max();
        let snapshots = profile.processes.iter().flat_map(|of| &of.snapshots);
        Self {
            command: text::clean(&profile.meta.command.join(" ")),
            interpreter: text::clean(&profile.meta.interpreter),
            processes: profile.processes.len(),
            threads: profile.threads.len(),
            end,
            has_ended: profile.complete,
            rss: rss.next_back().zip(peak),
            heap: profile
                .memory
                .iter()
                .rev()
                .find_map(|memory| memory.heap_used),
            rss_curve: rss_curve(profile, curve_from),
            rate_curve: (0..)
                .zip(rate_curve)
                .map(|(at, bytes)| {
                    let from = curve_from + CURVE.0 * at / POINTS as u64;
                    (from <= end.0).then_some(bytes)
                })
                .collect(),
            curve: CURVE,
            rate: figures.rate(&allocated),
            rate_over: over(rate_from),
            growth_over: over(growth_from),
            collections: collections(profile, rate_from, figures.seconds),
            parts: parts(profile),
            rows: shown,
            snapshot: snapshots.map(|of| (of.time, of.objects)).max(),
        }
    }
}

/// What turns sums into figures.
struct Figures {
    estimator: Estimator,
    heaviest: f64,
    is_exact: bool,
    has_ends: bool,
    seconds: f64,
}

impl Figures {
    fn row(&self, profile: &Profile, rows: &Rows<'_>, key: Key, sums: &Sums) -> WatchRow {
        let (name, place) = rows.names(profile, key);
        let known = self.has_ends.then_some(());
        WatchRow {
            name,
            place,
            rate: self.rate(&sums.allocated),
            alive: known.map(|()| self.estimator.bytes(&sums.alive)),
            growth: known.map(|()| self.growth(sums)),
        }
    }

    fn rate(&self, allocated: &Totals) -> Estimate {
        let bytes = self.estimator.bytes(allocated);
        Estimate {
            estimate: bytes.estimate / self.seconds,
            low: bytes.low / self.seconds,
            high: bytes.high / self.seconds,
        }
    }

    /// What has come less what has gone: both are sums over samples of their own.
    fn growth(&self, sums: &Sums) -> Estimate {
        let side = |totals: &Totals| Side {
            mean: totals.bytes,
            runs: 1,
            unit: self.heaviest,
            typical: self.heaviest,
            exact: self.is_exact,
        };
        if sums.come.samples == 0 && sums.gone.samples == 0 {
            return Estimate::default();
        }
        if self.is_exact {
            return Estimate::exact(sums.come.bytes.estimate - sums.gone.bytes.estimate);
        }
        compare(&side(&sums.gone), &side(&sums.come), None).difference
    }
}

/// At least a tenth of a second: the rate of less says nothing.
fn seconds(time: Nanos) -> f64 {
    (time.0 as f64 / 1e9).max(0.1)
}

impl<'a> Rows<'a> {
    fn new(profile: &'a Profile, of: RowsOf) -> Self {
        let values = match of {
            RowsOf::Label(key) => profile.label_values(key.as_str()),
            _ => LabelValues::default(),
        };
        Self { of, values }
    }

    fn key(&self, profile: &Profile, sample: &Sample) -> Key {
        match self.of {
            RowsOf::Function if sample.stack == NodeId::ROOT => None,
            RowsOf::Function => {
                let frame = profile.stacks[sample.stack.index()].frame;
                Some(profile.frames[frame as usize].function)
            }
            RowsOf::Type => Some(sample.type_id.0),
            RowsOf::Thread => Some(sample.thread.0),
            RowsOf::Process => Some(profile.process_of(sample.thread).0),
            RowsOf::Labels => Some(sample.labels.0),
            RowsOf::Label(_) => self.values.of(sample.labels).map(|value| value as u32),
        }
    }

    fn names(&self, profile: &Profile, key: Key) -> (String, String) {
        let Some(key) = key else {
            let none = match self.of {
                RowsOf::Label(_) => NO_LABEL,
                _ => "[no Python frame]",
            };
            return (none.to_owned(), String::new());
        };
        let at = key as usize;
        let (name, place) = match self.of {
            RowsOf::Function => {
                let function = &profile.functions[at];
                let place = match (function.file.as_str(), function.first_line) {
                    (file, 0) => file.to_owned(),
                    (file, line) => format!("{file}:{line}"),
                };
                (function.name.clone(), place)
            }
            RowsOf::Type => match profile.types.get(at).map(|names| &names.name) {
                Some(name) if at > 0 && !name.is_empty() => (name.clone(), String::new()),
                _ => ("[unknown type]".to_owned(), String::new()),
            },
            RowsOf::Thread => {
                let names = profile.threads.get(at).cloned().unwrap_or_default();
                let pid = profile.process_of(nthbyte_profile::event::ThreadId(key));
                let pid = profile
                    .processes
                    .get(pid.index())
                    .map_or(0, |of| of.meta.pid);
                let of = format!("thread {} of process {pid}", names.os_id);
                match names.name.is_empty() {
                    true => (of, String::new()),
                    false => (names.name, of),
                }
            }
            RowsOf::Process => {
                let meta = profile.processes.get(at).map(|of| &of.meta);
                let label = meta.map(|meta| process_label(meta.pid, meta.parent_pid));
                let command = meta.map(|meta| meta.command.join(" "));
                (label.unwrap_or_default(), command.unwrap_or_default())
            }
            RowsOf::Labels => {
                let labels = profile.labels(nthbyte_profile::event::LabelSetId(key));
                let labels: Vec<String> = labels
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                match labels.is_empty() {
                    true => (NO_LABEL.to_owned(), String::new()),
                    false => (labels.join(" "), String::new()),
                }
            }
            RowsOf::Label(_) => (self.values.values[at].to_owned(), String::new()),
        };
        (text::clean(&name), text::clean(&place))
    }
}

/// The resident set at each point of the curve: the last reading before the point's end.
fn rss_curve(profile: &Profile, from: u64) -> Vec<Option<u64>> {
    let mut readings = profile.memory.iter().peekable();
    let mut last = None;
    let point = |number: usize| {
        let until = from + CURVE.0 * (number as u64 + 1) / POINTS as u64;
        while let Some(memory) = readings.next_if(|memory| memory.time.0 <= until) {
            last = memory.rss.or(last);
        }
        // The profile is shorter than the curve.
        last.filter(|_| until <= profile.end.0 + CURVE.0 / POINTS as u64)
    };
    (0..POINTS).map(point).collect()
}

fn collections(profile: &Profile, from: Nanos, seconds: f64) -> (f64, f64) {
    let recent = profile.collections.iter().filter(|one| one.start >= from);
    let (mut count, mut nanos) = (0_u64, 0_u64);
    for one in recent {
        count += 1;
        nanos += one.duration.0;
    }
    (count as f64 / seconds, nanos as f64 / 1e9 / seconds)
}

fn parts(profile: &Profile) -> Vec<(&'static str, f64)> {
    let Ok(memory) = MemoryReport::of(profile, At::End) else {
        return Vec::new();
    };
    let mut groups = memory.groups();
    groups.retain(|&(_, bytes)| bytes > 0.0);
    groups.sort_by(|one, other| other.1.total_cmp(&one.1));
    groups
}

/// A figure with its interval: `12.5 MiB ±14%`, `0–422 KiB`.
#[must_use]
pub fn figure(of: &Estimate) -> String {
    if of.estimate <= 0.0 {
        "0 B".to_owned()
    } else if of.low == of.high {
        text::bytes(of.estimate)
    } else {
        of.with_error()
    }
}

/// A difference with its interval: `+12.5 MiB`, with its ends if it may be the other way round.
#[must_use]
pub fn difference(of: &Estimate) -> String {
    if of.low < 0.0 && of.high > 0.0 {
        text::signed_range(of.low, of.high)
    } else if of.estimate == 0.0 {
        "0 B".to_owned()
    } else {
        text::signed_bytes(of.estimate)
    }
}

/// A curve as blocks of one column each, scaled to its largest value; spaces where nothing is known.
#[must_use]
pub fn curve(points: &[Option<f64>]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = points.iter().flatten().copied().fold(0.0, f64::max);
    let block = |point: &Option<f64>| match point {
        None => ' ',
        Some(value) if largest > 0.0 => {
            BLOCKS[((value / largest * 8.0).ceil() as usize).clamp(1, 8) - 1]
        }
        Some(_) => BLOCKS[0],
    };
    points.iter().map(block).collect()
}

/// A name and its place in so many columns: the place gives way first, from its beginning.
#[must_use]
pub fn named(row: &WatchRow, columns: usize) -> String {
    let name = text::width(&row.name);
    if row.place.is_empty() || columns < name + 8 {
        return text::fit(&row.name, columns, Cut::Middle);
    }
    let place = text::fit(&row.place, columns - name - 1, Cut::Start);
    format!("{} {place}", row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nthbyte_profile::event::LabelSetId;
    use nthbyte_profile::model::LabelSet;
    use nthbyte_profile::synthetic::Synthetic;

    fn profile() -> Profile {
        let bytes = Synthetic {
            samples: 20_000,
            ..Synthetic::default()
        }
        .bytes();
        Profile::read(&bytes[..]).unwrap()
    }

    /// A third of the samples has no label, a third `endpoint=/a`, and a third `tenant=x` besides.
    fn labelled() -> Profile {
        let mut profile = profile();
        let set = |parent: u32, key: &str, value: &str| LabelSet {
            parent: LabelSetId(parent),
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let sets = [set(0, "endpoint", "/a"), set(1, "tenant", "x")];
        profile.label_sets.extend(sets);
        let all = std::mem::take(&mut profile.samples);
        for (at, sample) in (0_u32..).zip(all.iter()) {
            let labels = LabelSetId(at % 3);
            let sample = Sample { labels, ..sample };
            profile.samples.push(sample).unwrap();
        }
        profile
    }

    fn names(watch: &Watch) -> Vec<&str> {
        let mut names: Vec<&str> = watch.rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_row_of_labels_has_all_that_were_in_force() {
        let asked = WatchOptions {
            rows: RowsOf::Labels,
            ..WatchOptions::default()
        };
        let watch = Watch::of(&labelled(), &asked);
        assert_eq!(
            names(&watch),
            [NO_LABEL, "endpoint=/a", "endpoint=/a tenant=x"]
        );
    }

    #[test]
    fn rows_are_the_values_of_one_label_and_a_label_selects() {
        let profile = labelled();
        let of = |key: &str, labels: &[&str]| {
            let asked = WatchOptions {
                rows: RowsOf::Label(LabelKey::new(key)),
                labels: labels
                    .iter()
                    .filter_map(|text| LabelQuery::parse(text))
                    .collect(),
                ..WatchOptions::default()
            };
            Watch::of(&profile, &asked)
        };
        let alive = |watch: &Watch, name: &str| {
            let mut rows = watch.rows.iter().filter(|row| row.name == name);
            rows.next().and_then(|row| row.alive).unwrap().estimate
        };
        let (endpoints, tenants) = (of("endpoint", &[]), of("tenant", &[]));
        assert_eq!(names(&endpoints), ["/a", NO_LABEL]);
        assert_eq!(names(&tenants), [NO_LABEL, "x"]);
        let of_a = of("tenant", &["endpoint=/a"]);
        assert_eq!(names(&of_a), [NO_LABEL, "x"]);
        let sum: f64 = of_a
            .rows
            .iter()
            .filter_map(|row| row.alive)
            .map(|of| of.estimate)
            .sum();
        assert!((sum / alive(&endpoints, "/a") - 1.0).abs() < 1e-9);
        assert!((alive(&of_a, "x") / alive(&tenants, "x") - 1.0).abs() < 1e-9);
        assert!(of_a.rate.estimate < endpoints.rate.estimate);
        let points = |watch: &Watch| watch.rate_curve.iter().flatten().sum::<f64>();
        assert!(points(&of_a) < points(&endpoints));
        // What has not come yet does not hide the other value of its key.
        assert_eq!(names(&of("endpoint", &["endpoint=/later"])), [""; 0]);
        assert_eq!(
            names(&of("endpoint", &["endpoint=/later", "endpoint=/a"])),
            ["/a"]
        );
        assert_eq!(names(&of("none", &[])), [NO_LABEL]);
    }

    #[test]
    fn rows_of_each_kind_add_up_to_the_whole() {
        let profile = profile();
        let mut rates = Vec::new();
        for rows in [
            RowsOf::Function,
            RowsOf::Type,
            RowsOf::Thread,
            RowsOf::Process,
            RowsOf::Labels,
        ] {
            let asked = WatchOptions {
                rows,
                ..WatchOptions::default()
            };
            let watch = Watch::of(&profile, &asked);
            let sum: f64 = watch.rows.iter().map(|row| row.rate.estimate).sum();
            assert!((sum / watch.rate.estimate - 1.0).abs() < 1e-9, "{rows:?}");
            let alive = watch.rows.iter().filter_map(|row| row.alive);
            rates.push(alive.map(|of| of.estimate).sum::<f64>());
            let ordered = watch
                .rows
                .is_sorted_by(|one, other| one.rate.estimate >= other.rate.estimate);
            assert!(ordered, "{rows:?}");
        }
        assert!(rates[0] > 0.0);
        assert!(rates.iter().all(|sum| (sum / rates[0] - 1.0).abs() < 1e-9));
    }

    #[test]
    fn growth_is_what_is_alive_less_what_was() {
        let profile = profile();
        let since = Nanos(profile.end.0 / 2);
        let asked = |sort| WatchOptions {
            sort,
            since,
            ..WatchOptions::default()
        };
        let watch = Watch::of(&profile, &asked(Column::Growth));
        let alive_at = |time: Nanos| -> f64 {
            let ids = profile
                .samples
                .ids()
                .map(|id| (id, profile.samples.get(id)));
            ids.filter(|(_, of)| of.time < time && of.freed.is_none_or(|freed| freed >= time))
                .map(|(id, _)| profile.weight(id).bytes)
                .sum()
        };
        let grown: f64 = watch
            .rows
            .iter()
            .filter_map(|row| row.growth)
            .map(|of| of.estimate)
            .sum();
        let expected = alive_at(Nanos(u64::MAX)) - alive_at(since);
        assert!(
            (grown - expected).abs() < 1e-6 * expected.abs().max(1.0),
            "{grown} {expected}"
        );
        for row in &watch.rows {
            let growth = row.growth.unwrap();
            assert!(growth.low <= growth.estimate && growth.estimate <= growth.high);
        }
        assert_eq!(watch.growth_over.0, profile.end.0 - since.0);
        // A filter keeps the rows that it names.
        let name = watch.rows[0].name.clone();
        let asked = WatchOptions {
            filter: name.clone(),
            ..asked(Column::Alive)
        };
        let rows = Watch::of(&profile, &asked).rows;
        assert!(!rows.is_empty() && rows.iter().all(|row| row.name.contains(&name)));
    }

    /// What a view shows does not depend on what was forgotten.
    #[test]
    fn a_follower_keeps_what_is_shown() {
        let bytes = Synthetic {
            samples: 20_000,
            period: 16 << 20,
            ..Synthetic::default()
        }
        .bytes();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.nthb");
        let mut follower = nthbyte_profile::follow::Follower::new(&path, NEEDED);
        let mut fewer = false;
        for parts in 1..=6 {
            std::fs::write(&path, &bytes[..bytes.len() * parts / 6]).unwrap();
            let (kept, whole) = (
                follower.look().unwrap().unwrap(),
                Profile::load(&path).unwrap(),
            );
            fewer |= kept.samples.len() * 2 < whole.samples.len();
            for rows in [RowsOf::Function, RowsOf::Type, RowsOf::Thread] {
                let asked = WatchOptions {
                    rows,
                    ..WatchOptions::default()
                };
                let of = |profile: &Profile| Watch::of(profile, &asked);
                let (kept, whole) = (of(&kept), of(&whole));
                let shown = |watch: &Watch| {
                    let rows = watch.rows.iter();
                    let figures = rows.map(|row| {
                        let figures = [Some(row.rate), row.alive, row.growth];
                        let figures =
                            figures.map(|of| of.map(|of| (of.estimate as f32).to_string()));
                        (row.name.clone(), row.place.clone(), figures)
                    });
                    // Nothing of it is alive, and it has not allocated lately.
                    let zero = Some("0".to_owned());
                    let is_shown = |row: &(_, _, [Option<String>; 3])| {
                        row.2.iter().any(|figure| *figure != zero)
                    };
                    let figures = figures.filter(is_shown);
                    (
                        figures.collect::<Vec<_>>(),
                        watch.end,
                        watch.rss,
                        watch.heap,
                    )
                };
                assert_eq!(shown(&kept), shown(&whole));
                assert_eq!(kept.rss_curve, whole.rss_curve);
                assert_eq!(kept.rate_curve, whole.rate_curve);
                assert_eq!(kept.collections, whole.collections);
            }
        }
        assert!(fewer, "nothing was forgotten");
    }

    #[test]
    fn curves_and_figures_are_text() {
        assert_eq!(curve(&[None, Some(0.0), Some(1.0), Some(8.0)]), " ▁▁█");
        let of = |low: f64, estimate: f64, high: f64| Estimate {
            estimate,
            low,
            high,
        };
        assert_eq!(figure(&of(0.0, 0.0, 4096.0)), "0 B");
        assert_eq!(
            figure(&of(9.0 * 1024.0, 10.0 * 1024.0, 11.0 * 1024.0)),
            "10.0 KiB ±10%"
        );
        assert_eq!(difference(&of(1024.0, 2048.0, 4096.0)), "+2.00 KiB");
        assert_eq!(
            difference(&of(-1024.0, 2048.0, 4096.0)),
            "−1.00 … +4.00 KiB"
        );
    }
}
