//! The profile's data in the page: a JSON header, then columns.

use std::collections::BTreeMap;
use std::io::{self, Write};

use nthbyte_profile::event::LostKind;
use nthbyte_profile::model::Lifetime;
use nthbyte_profile::{Distances, Groups, Meta, Profile};
use serde::Serialize;

use crate::MemoryReport;
use crate::holders::Icicle;
use crate::periods;
use crate::selection::{At, Moment, lifetimes_are_known};

use super::Page;
use super::alive::{self, Change, Changes};
use super::distributions;
use super::pack::{Column, Columns};
use super::prune::{Pruned, Stacks};
use super::records::{Record, Records, fit};
use super::table::{Table, Written};
use super::timeline::Timeline;

/// The version of the data's layout. `web/src/data.ts` expects the same.
const VERSION: u32 = 2;

/// Bytes that are compressed between two reports of progress.
const PART: usize = 1 << 18;

/// What the names of the old side's columns begin with.
const BASE: &str = "base.";

/// The first part of the data.
#[derive(Serialize)]
struct Header<'a> {
    version: u32,
    meta: Described<'a>,
    /// Seconds.
    duration: f64,
    complete: bool,
    /// Bytes allocated in total, if the agent counted them.
    allocated: Option<u64>,
    /// Number of allocation samples.
    samples: usize,
    /// Events that the agent dropped.
    lost: Vec<Lost>,
    /// The parts of the file that could not be read.
    damage: Vec<&'a str>,
    /// Number of equal parts of time.
    buckets: u32,
    /// The sizes that are merged, in words.
    coarse: Option<&'static str>,
    /// Names of lifetimes (`fates` for the page), in the order of their numbers.
    fates: [&'static str; 4],
    files: Vec<&'a str>,
    /// The names of distributions by the names of their folders, where they are different.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    distributions: BTreeMap<String, String>,
    functions: Functions<'a>,
    types: Vec<&'a str>,
    timeline: Timeline,
    /// What was alive. Missing where the times of frees are not known, and on a page of a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<DescribedAlive>,
    /// What the page shows first: `peak`, `time` or `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    opens: Option<&'static str>,
    /// The groups that stacks begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<DescribedGroups<'a>>,
    /// The key of them that the graph is arranged by at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    /// What the resident set was made of, in the order of time.
    #[serde(skip_serializing_if = "<[MemoryReport]>::is_empty")]
    memory: &'a [MemoryReport],
    /// Who holds what was alive, where a snapshot says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<Icicle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pruned: Option<Pruned>,
    /// On a page of a difference: the number of runs that the figures are the mean of.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<u32>,
    /// What the profile is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<DescribedBase<'a>>,
    columns: &'a [Column],
}

/// What a profile is compared with on a page of a difference.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// The old side. It shares the tables of functions, frames, stacks and types with the new side.
    pub old: &'a Profile,
    /// The number of runs in it, of which the mean is shown.
    pub old_runs: u32,
    /// The number of runs in the new side.
    pub new_runs: u32,
}

/// The old side, as the page's header has it.
#[derive(Serialize)]
struct DescribedBase<'a> {
    command: &'a [String],
    interpreter: &'a str,
    /// Seconds.
    duration: f64,
    /// Allocation samples of all runs.
    samples: usize,
    runs: u32,
    /// Time samples a second, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_hz: Option<f64>,
}

impl<'a> DescribedBase<'a> {
    fn of(base: &Base<'a>) -> Self {
        Self {
            command: &base.old.meta.command,
            interpreter: &base.old.meta.interpreter,
            duration: base.old.end.0 as f64 / 1e9,
            samples: base.old.samples.len(),
            runs: base.old_runs,
            cpu_hz: base.old.time_hz(),
        }
    }
}

/// The session, and the properties of its sources that the page shows.
#[derive(Serialize)]
struct Described<'a> {
    #[serde(flatten)]
    meta: &'a Meta,
    /// Mean distance between allocation samples, in bytes. With several, the one that most easily misses objects.
    period: u64,
    /// The shortest one, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    shortest_period: Option<u64>,
    distances: &'static str,
    /// Time samples a second, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_hz: Option<f64>,
}

impl<'a> Described<'a> {
    fn of(profile: &'a Profile) -> Self {
        let samplings = profile.allocation_samplings();
        let sampled = samplings
            .iter()
            .filter(|of| of.distances != Distances::Every);
        let widest = sampled.max_by_key(|of| of.period).or(samplings.first());
        let period = periods::longest(profile) as u64;
        Self {
            meta: &profile.meta,
            period,
            shortest_period: Some(profile.periods()[0]).filter(|&shortest| shortest < period),
            distances: widest
                .map_or(Distances::Exponential, |of| of.distances)
                .name(),
            cpu_hz: profile.time_hz(),
        }
    }
}

/// Who holds what was alive, at the moment that the page is about. A difference has none.
fn held(profile: &Profile, page: &Page<'_>) -> Option<Icicle> {
    let at = match (page.asked, page.opens) {
        (Some(time), _) => Some(At::Time(time)),
        (None, Some("peak")) => Some(At::Peak),
        _ => None,
    };
    page.base.is_none().then(|| Icicle::of(profile, at))?
}

/// What the page knows of what was alive.
#[derive(Serialize)]
struct DescribedAlive {
    /// Parts of time at whose ends it is known what was alive.
    parts: u32,
    #[serde(flatten)]
    merged: Coarse,
    /// When most was alive; missing if nothing was allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<DescribedSnapshot>,
    /// The moment that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<DescribedSnapshot>,
}

/// How figures of what was alive are coarser than the samples.
#[derive(Serialize)]
struct Coarse {
    /// Sizes of objects of one stack, type and fate count as their mean.
    means: bool,
    /// Small calls count as their callers'.
    carried: bool,
}

impl Coarse {
    const fn of(changes: &Changes) -> Self {
        Self {
            means: changes.merged,
            carried: changes.carried,
        }
    }
}

/// A moment of which it is known exactly what was alive.
#[derive(Serialize)]
struct DescribedSnapshot {
    /// Seconds.
    time: f64,
    /// Half of the samples say what was alive, each for twice as much: the others found the moment.
    half: bool,
    #[serde(flatten)]
    merged: Coarse,
}

impl DescribedSnapshot {
    fn of(moment: Moment, changes: &Changes, is_exact: bool) -> Option<Self> {
        Some(Self {
            time: moment.time()?.0 as f64 / 1e9,
            half: moment.is_found() && !is_exact,
            merged: Coarse::of(changes),
        })
    }
}

/// What samples can be shown apart by.
#[derive(Serialize)]
struct DescribedGroups<'a> {
    keys: Vec<DescribedKey<'a>>,
    /// By group: the function at the outer end of its stacks, if any is on the page.
    functions: Vec<Option<u32>>,
    /// By group: the index of its value of each key, if it has one.
    values: &'a [Vec<Option<u32>>],
    /// Whether there were too many, so that some are together.
    merged: bool,
}

#[derive(Serialize)]
struct DescribedKey<'a> {
    name: &'a str,
    /// Whether it is the thread, and no label.
    thread: bool,
    values: &'a [String],
}

/// What was alive, as changes.
struct Alive {
    over_time: Changes,
    /// With the names of their columns.
    snapshots: Vec<(&'static str, Moment, Changes)>,
}

impl Alive {
    /// The least that each kind of changes may weigh, and the part of the weight of the records that it may weigh.
    const LEAST_WEIGHT: usize = 40_000;
    const PART: usize = 12;

    fn of(
        profile: &Profile,
        stacks: &Stacks<'_>,
        records: &Records,
        page: &Page<'_>,
        table: &mut Table,
    ) -> Option<Self> {
        if page.base.is_some() || !lifetimes_are_known(profile) || profile.samples.is_empty() {
            return None;
        }
        let limit = (records.weight() / Self::PART).max(Self::LEAST_WEIGHT);
        let moments = [
            ("peak.", page.peak.map(Moment::Found)),
            ("asked.", page.asked.map(Moment::Time)),
        ];
        let snapshots = moments.into_iter().filter_map(|(name, moment)| {
            let moment = moment?;
            let changes = alive::snapshot(profile, stacks, moment, limit, table);
            Some((name, moment, changes))
        });
        Some(Self {
            snapshots: snapshots.collect(),
            over_time: alive::changes(
                profile,
                stacks,
                records.classes.merged.is_none(),
                records.buckets,
                limit,
                table,
            ),
        })
    }

    fn all(&self) -> impl Iterator<Item = &Change> {
        let snapshots = self.snapshots.iter().map(|(_, _, changes)| changes);
        let all = snapshots.chain([&self.over_time]);
        all.flat_map(|changes| &changes.all)
    }

    fn is_carried(&self) -> bool {
        let snapshots = self.snapshots.iter().map(|(_, _, changes)| changes);
        snapshots
            .chain([&self.over_time])
            .any(|changes| changes.carried)
    }

    fn described(&self, is_exact: bool) -> DescribedAlive {
        let snapshot = |wanted: &str| {
            let mut all = self.snapshots.iter();
            let (_, moment, changes) = all.find(|(name, ..)| *name == wanted)?;
            DescribedSnapshot::of(*moment, changes, is_exact)
        };
        DescribedAlive {
            parts: self.over_time.parts,
            merged: Coarse::of(&self.over_time),
            peak: snapshot("peak."),
            asked: snapshot("asked."),
        }
    }
}

#[derive(Serialize)]
struct Lost {
    what: &'static str,
    events: u64,
}

/// The functions that occur, by column.
#[derive(Default, Serialize)]
struct Functions<'a> {
    name: Vec<&'a str>,
    /// Indices into `files`.
    file: Vec<u32>,
    line: Vec<u32>,
}

/// Writes the data, within a [weight](super::records): the header's length as four bytes, little-endian; the header; the columns.
///
/// Counting the samples takes about as long as writing the columns, so each is half of the steps.
///
/// # Errors
/// Whatever `out` reports.
pub fn write(
    profile: &Profile,
    page: &Page<'_>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    let base = page.base;
    let sides: Vec<&Profile> = [Some(profile), base.map(|base| base.old)]
        .into_iter()
        .flatten()
        .collect();
    let grouped = page.groups.is_some();
    let mut counted = |done, total| progress(done, 2 * total);
    let fitted = fit(&sides, page.peak, grouped, page.weight, &mut counted);
    let (stacks, mut counted) = (fitted.stacks, fitted.sides.into_iter());
    let records = counted.next().expect("there is a new side");
    let old = counted.next();
    let mut table = Table::new(base.map_or(1, |base| base.new_runs));
    let classes = classes(&records, &mut table);
    let alive = Alive::of(profile, &stacks, &records, page, &mut table);
    let mut used = Used::of(
        &stacks,
        [Some(&records), old.as_ref()].into_iter().flatten(),
        alive.iter().flat_map(Alive::all),
    );
    let mut columns = Columns::default();
    let functions = used.tables(&stacks, &mut columns);
    let written = table.write("", &mut columns);
    used.records(&records, "", &classes, &written, &mut columns);
    if let (Some(base), Some(mut old)) = (base, old) {
        old.divide(records.buckets);
        let mut table = Table::new(base.old_runs);
        let classes = self::classes(&old, &mut table);
        let written = table.write(BASE, &mut columns);
        used.records(&old, BASE, &classes, &written, &mut columns);
    }
    if let Some(alive) = &alive {
        for (name, _, changes) in &alive.snapshots {
            used.changes(changes, name, &written, &mut columns);
        }
        used.changes(&alive.over_time, "change.", &written, &mut columns);
    }
    let smaller = alive
        .as_ref()
        .filter(|alive| alive.is_carried())
        .map(|_| alive::SMALLER);

    let header = Header {
        version: VERSION,
        meta: Described::of(profile),
        duration: profile.end.0 as f64 / 1e9,
        complete: profile.complete,
        allocated: profile.allocated,
        samples: profile.samples.len(),
        lost: lost(profile),
        damage: profile.damage.iter().map(|d| d.what.as_str()).collect(),
        buckets: records.buckets,
        coarse: records.classes.merged,
        pruned: stacks.pruned,
        fates: Lifetime::ALL.map(lifetime_name),
        distributions: distributions::names(used.files.names.iter().copied()),
        files: std::mem::take(&mut used.files.names),
        functions,
        types: profile
            .types
            .iter()
            .map(|t| t.name.as_str())
            .chain(smaller)
            .collect(),
        timeline: Timeline::of(profile),
        alive: alive.map(|alive| alive.described(profile.is_exact())),
        opens: page.opens,
        groups: page.groups.map(|groups| used.groups(groups)),
        by: page.by,
        memory: page.memory,
        held: held(profile, page),
        runs: base.map(|base| base.new_runs),
        base: base.map(DescribedBase::of),
        columns: &columns.index,
    };
    let header = serde_json::to_vec(&header)?;
    let length = u32::try_from(header.len()).map_err(|_| {
        io::Error::other(
            "the names in the profile take more than 4 GiB, which is too much for a page",
        )
    })?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&header)?;
    let total = columns.bytes.len() as u64;
    let mut done = 0;
    for part in columns.bytes.chunks(PART) {
        out.write_all(part)?;
        done += part.len() as u64;
        progress(total + done, 2 * total);
    }
    Ok(())
}

const fn lifetime_name(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::DiedYoung => "died young",
        Lifetime::Freed => "freed later",
        Lifetime::Survived => "survived",
        Lifetime::StillLive => "alive at the end",
    }
}

/// What the agent dropped.
fn lost(profile: &Profile) -> Vec<Lost> {
    let lost = profile.lost.iter();
    lost.map(|&(kind, events)| Lost {
        what: match kind {
            LostKind::Allocations => "allocation samples",
            LostKind::CpuSamples => "time samples",
            LostKind::Other => "other events",
        },
        events,
    })
    .collect()
}

/// Maps old numbers to new ones. Only entries that are used are written, in the order of the old numbers.
struct Renumbering {
    new: Vec<u32>,
    old: Vec<u32>,
}

impl Renumbering {
    fn of(occurs: &[bool]) -> Self {
        let old: Vec<u32> = (0..occurs.len() as u32)
            .filter(|&at| occurs[at as usize])
            .collect();
        let mut new = vec![u32::MAX; occurs.len()];
        for (at, &was) in old.iter().enumerate() {
            new[was as usize] = at as u32;
        }
        Self { new, old }
    }
}

/// The parts of the profile's tables that records refer to.
struct Used<'a> {
    stacks: Renumbering,
    frames: Renumbering,
    functions: Renumbering,
    files: Files<'a>,
}

/// File names, each once.
#[derive(Default)]
struct Files<'a> {
    names: Vec<&'a str>,
    numbers: std::collections::HashMap<&'a str, u32>,
}

impl<'a> Files<'a> {
    fn number(&mut self, name: &'a str) -> u32 {
        *self.numbers.entry(name).or_insert_with(|| {
            self.names.push(name);
            self.names.len() as u32 - 1
        })
    }
}

impl<'a> Used<'a> {
    fn of<'r>(
        tables: &Stacks<'_>,
        records: impl Iterator<Item = &'r Records>,
        changes: impl Iterator<Item = &'r Change>,
    ) -> Self {
        let mut stacks = vec![false; tables.nodes.len()];
        let mut frames = vec![false; tables.frames.len()];
        let mut functions = vec![false; tables.functions.len()];
        for record in records.flat_map(|of| of.allocations.iter().chain(&of.cpu)) {
            stacks[record.stack as usize] = true;
        }
        for change in changes {
            stacks[change.stack as usize] = true;
        }
        // Parents come before their children, so one pass from the end finds all callers.
        for at in (1..stacks.len()).rev() {
            if stacks[at] {
                let node = tables.nodes[at];
                stacks[node.parent.index()] = true;
                frames[node.frame as usize] = true;
            }
        }
        stacks[0] = true;
        for (frame, _) in tables.frames.iter().zip(&frames).filter(|(_, used)| **used) {
            functions[frame.function as usize] = true;
        }
        Self {
            stacks: Renumbering::of(&stacks),
            frames: Renumbering::of(&frames),
            functions: Renumbering::of(&functions),
            files: Files::default(),
        }
    }

    /// The tables of stacks and frames as columns; of functions, as a part of the header.
    fn tables(&mut self, tables: &'a Stacks<'_>, columns: &mut Columns) -> Functions<'a> {
        // The root is left out: stack 0 has no frame, and is its own parent.
        let stacks = || {
            self.stacks.old[1..]
                .iter()
                .map(|&s| tables.nodes[s as usize])
        };
        columns.delta(
            "stack.parent",
            stacks().map(|s| self.stacks.new[s.parent.index()]),
        );
        columns.delta(
            "stack.frame",
            stacks().map(|s| self.frames.new[s.frame as usize]),
        );
        let frames = || self.frames.old.iter().map(|&f| tables.frames[f as usize]);
        columns.delta(
            "frame.function",
            frames().map(|f| self.functions.new[f.function as usize]),
        );
        columns.delta("frame.line", frames().map(|f| f.line));
        columns.plain("frame.kind", frames().map(|f| f.kind as u32));

        let mut functions = Functions::default();
        for &at in &self.functions.old {
            let function = &tables.functions[at as usize];
            functions.name.push(&function.name);
            functions.file.push(self.files.number(&function.file));
            functions.line.push(function.first_line);
        }
        functions
    }

    /// The groups, with the numbers of functions on the page.
    fn groups<'g>(&self, groups: &'g Groups) -> DescribedGroups<'g> {
        let functions = (groups.first_function..).take(groups.values.len());
        let new = |function: u32| {
            let new = self.functions.new.get(function as usize).copied();
            new.filter(|&new| new != u32::MAX)
        };
        DescribedGroups {
            keys: groups
                .keys
                .iter()
                .map(|key| DescribedKey {
                    name: &key.name,
                    thread: key.is_thread,
                    values: &key.values,
                })
                .collect(),
            functions: functions.map(new).collect(),
            values: &groups.values,
            merged: groups.are_merged,
        }
    }

    /// Records. `classes`: by class of the records, the class of the table.
    fn records(
        &self,
        records: &Records,
        prefix: &str,
        classes: &[u32],
        written: &Written,
        columns: &mut Columns,
    ) {
        let all = &records.allocations;
        let name = |name: &str| format!("{prefix}{name}");
        columns.delta(&name("allocation.stack"), all.iter().map(|r| self.stack(r)));
        columns.plain(&name("allocation.type"), all.iter().map(|r| r.type_id));
        columns.plain(&name("allocation.fate"), all.iter().map(|r| r.lifetime));
        columns.plain(
            &name("allocation.shape"),
            all.iter()
                .map(|r| written.number(classes[r.class as usize])),
        );
        columns.delta(&name("allocation.bucket"), all.iter().map(|r| r.bucket));
        columns.plain(&name("allocation.count"), all.iter().map(|r| r.count));
        let cpu = &records.cpu;
        columns.delta(&name("cpu.stack"), cpu.iter().map(|r| self.stack(r)));
        columns.delta(&name("cpu.bucket"), cpu.iter().map(|r| r.bucket));
        columns.plain(&name("cpu.count"), cpu.iter().map(|r| r.count));
    }

    fn changes(&self, changes: &Changes, prefix: &str, written: &Written, columns: &mut Columns) {
        let all = &changes.all;
        let name = |name: &str| format!("{prefix}{name}");
        columns.delta(
            &name("stack"),
            all.iter().map(|of| self.stacks.new[of.stack as usize]),
        );
        columns.plain(&name("type"), all.iter().map(|of| of.type_id));
        columns.plain(&name("fate"), all.iter().map(|of| of.lifetime));
        let classes = all.iter().map(|of| written.number(of.class));
        columns.plain(&name("shape"), classes);
        columns.delta(&name("part"), all.iter().map(|of| of.part));
        columns.signed(&name("change"), all.iter().map(|of| of.change));
    }

    fn stack(&self, record: &Record) -> u32 {
        self.stacks.new[record.stack as usize]
    }
}

/// By class of the records, the class of the table.
fn classes(records: &Records, table: &mut Table) -> Vec<u32> {
    let classes = records.classes.totals.iter();
    classes.map(|sum| table.class(sum)).collect()
}

#[cfg(test)]
pub mod tests;
