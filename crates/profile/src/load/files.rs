//! Handles the start and the end of a file, and its data about processes.

use super::Loader;
use super::lost::Losses;
use super::numbers::Numbers;
use crate::activity::{self, Activity};
use crate::compilation::{COMPILATION, Compilation};
use crate::composition::{self, ArenaRun, Composition, parse_arenas};
use crate::event::{End, Extension, LabelSetId, Memory, Nanos, SampleId};
use crate::holders::{HOLDERS, Snapshot};
use crate::meta::Meta;
use crate::missing::{MISSING, Missing};
use crate::model::{Damage, Profile};
use crate::pressure::{PRESSURE, Pressure};
use crate::processes::{self, Process, ProcessId, extension};
use crate::segment::{CARRIED, SUMS};
use crate::varint::take;

/// The longest text that says what ended a process, in bytes.
const LONGEST_REASON: usize = 1 << 10;
/// With so many notes, no more are read.
const MOST_NOTES: usize = 32;

/// The total size in bytes of the events [`composition::COMPOSITION`] of one file that are kept. It limits the memory of a
/// reader.
const MAX_COMPOSITIONS: usize = 32 << 20;
/// The same for events [`HOLDERS`].
const MAX_SNAPSHOTS: usize = 16 << 20;

/// So many readings of the limits of a process are kept, the last ones.
const MOST_PRESSURE: usize = 1 << 10;
/// At most so many pieces of a compiler's work are kept of a process.
const MOST_COMPILATIONS: usize = 1 << 20;

/// Data about a file's session that is complete only at the file's end.
#[derive(Clone, Default)]
pub(super) struct Session {
    pub(super) end: Option<End>,
    pub(super) memory: Vec<Memory>,
    /// Whether the file was merged from several files: then it contains its processes itself.
    pub(super) is_merged: bool,
    /// Total size in bytes of the data about processes.
    process_bytes: usize,
    /// About the total size in bytes of the events whose compositions are kept.
    pub(super) composition_bytes: usize,
    /// The same of snapshots.
    pub(super) snapshot_bytes: usize,
}

impl Loader {
    pub(crate) fn begin(&mut self, meta: &Meta, start: Nanos) {
        let here = self.profile.samples.len() as u32;
        self.start = start;
        self.files += 1;
        let continued = self.begin_part(meta);
        if !continued {
            self.first_process = self.profile.processes.len();
            self.process = ProcessId(self.first_process as u32);
            self.profile
                .processes
                .push(Process::new(meta.clone(), start));
        }
        self.sources.begin(&mut self.profile, &meta.sources);
        self.codes.clear();
        self.code_numbers = Numbers::starting_at(0);
        self.node_numbers = Numbers::starting_at(1);
        self.type_numbers = Numbers::starting_at(1);
        self.thread_numbers = Numbers::starting_at(0);
        self.label_set_numbers = Numbers::starting_at(1);
        if !continued {
            self.tags = LabelSetId::NONE;
            for (key, value) in meta.tags() {
                self.tags = self.profile.push_label(self.tags, key, value);
            }
            self.unknown_thread = None;
        }
        self.sample_runs = vec![(0, here)];
        self.next_sample = 0;
        self.losses = Losses::starting_at(here);
        // Without a collector, no block is young.
        self.youth = if meta.has_collector() { here } else { u32::MAX };
        if continued {
            self.continue_session();
        } else {
            self.last_time = start;
            self.session = Session::default();
        }
    }

    pub(super) fn extension(&mut self, extension: &Extension<'_>) {
        let known = match extension.kind {
            extension::PROCESS => self.process(extension.bytes),
            extension::PROCESS_MEMORY => self.process_memory(extension.bytes),
            extension::ENDED_BY => self.ended_by(extension.bytes),
            extension::NOTE => self.note(extension.bytes),
            extension::COUNTED => self.counted(extension.bytes),
            extension::PROVISIONAL => Some(()),
            composition::COMPOSITION => self.composition(extension.bytes),
            composition::ARENAS => self.arenas(extension.bytes),
            MISSING => self.missing(extension.bytes),
            activity::ACTIVITY => self.activity(extension.bytes),
            PRESSURE => self.pressure(extension.bytes),
            COMPILATION => self.compilation(extension.bytes),
            HOLDERS => self.snapshot(extension.bytes),
            CARRIED => self.carried(extension.bytes),
            SUMS => self.sums(extension.bytes),
            extension::LOST => self.lost_from_here(extension.bytes),
            _ => None,
        };
        if known.is_none() {
            self.sources.skip_event(extension.kind);
        }
    }

    /// Reads a process of a merged file; the threads after it belong to it.
    fn process(&mut self, json: &[u8]) -> Option<()> {
        self.session.process_bytes += json.len();
        if self.session.process_bytes > processes::MAX_BYTES {
            return None;
        }
        let mut process = Process::parse(json)?;
        process.start = self.at(process.start);
        process.end = self.at(process.end);
        if !self.session.is_merged {
            // This event has more data than the header, which described the process until now.
            self.session.is_merged = true;
            // Its label sets have the label sets of each process.
            self.tags = LabelSetId::NONE;
            self.profile.processes.truncate(self.first_process);
        }
        self.process = ProcessId(self.profile.processes.len() as u32);
        self.profile.processes.push(process);
        Some(())
    }

    /// Reads what ended the process. A long text is cut: a file may contain anything.
    fn ended_by(&mut self, text: &[u8]) -> Option<()> {
        let text = &text[..text.len().min(LONGEST_REASON)];
        let process = self.profile.processes.get_mut(self.process.index())?;
        process.ended_by = Some(String::from_utf8_lossy(text).into_owned());
        Some(())
    }

    /// Reads a note. Each text is kept once, and only the first few: a file may contain anything.
    fn note(&mut self, text: &[u8]) -> Option<()> {
        let text = String::from_utf8_lossy(&text[..text.len().min(LONGEST_REASON)]);
        let process = self.profile.processes.get_mut(self.process.index())?;
        let notes = &mut process.meta.notes;
        if notes.len() < MOST_NOTES && notes.iter().all(|known| *known != text) {
            notes.push(text.into_owned());
        }
        Some(())
    }

    /// Reads the counts of missing events until now.
    fn missing(&mut self, bytes: &[u8]) -> Option<()> {
        let missing = Missing::parse(bytes)?;
        let process = self.profile.processes.get_mut(self.process.index())?;
        process.missing = missing;
        Some(())
    }

    /// Reads what the heap has counted.
    fn counted(&mut self, mut bytes: &[u8]) -> Option<()> {
        let process = self.profile.processes.get_mut(self.process.index())?;
        process.counted = Some(take(&mut bytes)?);
        Some(())
    }

    fn composition(&mut self, bytes: &[u8]) -> Option<()> {
        let (process, mut composition) = Composition::parse(bytes)?;
        composition.time = self.saw(composition.time);
        while self.session.composition_bytes + bytes.len() > MAX_COMPOSITIONS {
            let bytes = self.session.composition_bytes;
            self.session.composition_bytes = self.thin(bytes, |of| &mut of.compositions)?;
        }
        self.session.composition_bytes += bytes.len();
        self.process_of_file(process)?
            .compositions
            .push(composition);
        Some(())
    }

    fn activity(&mut self, bytes: &[u8]) -> Option<()> {
        let (process, mut activity) = Activity::parse(bytes)?;
        activity.time = self.saw(activity.time);
        self.process_of_file(process)?.activity.push(activity);
        Some(())
    }

    /// Reads how near the process was to a limit of its memory. The last readings are kept: they say what ended it.
    fn pressure(&mut self, bytes: &[u8]) -> Option<()> {
        let (process, mut pressure) = Pressure::parse(bytes)?;
        pressure.time = self.saw(pressure.time);
        let kept = &mut self.process_of_file(process)?.pressure;
        if kept.len() >= MOST_PRESSURE {
            kept.drain(..MOST_PRESSURE / 2);
        }
        kept.push(pressure);
        Some(())
    }

    /// Reads a piece of a JIT compiler's work. Only the first ones are kept: a file may contain anything.
    fn compilation(&mut self, bytes: &[u8]) -> Option<()> {
        let (process, mut compilation) = Compilation::parse(bytes)?;
        compilation.thread = self.thread(compilation.thread);
        let end = self.saw(compilation.end());
        compilation.start = Nanos(end.0.saturating_sub(compilation.duration.0));
        let compilations = &mut self.process_of_file(process)?.compilations;
        (compilations.len() < MOST_COMPILATIONS).then(|| compilations.push(compilation))
    }

    /// A process of the file that is being read, by its number there.
    fn process_of_file(&mut self, number: u32) -> Option<&mut Process> {
        let of_file = self.profile.processes.get_mut(self.first_process..)?;
        of_file.get_mut(number as usize)
    }

    fn snapshot(&mut self, bytes: &[u8]) -> Option<()> {
        let (process, mut snapshot) = Snapshot::parse(bytes)?;
        snapshot.time = self.saw(snapshot.time);
        snapshot.renumber(|sample| self.sample(sample));
        while self.session.snapshot_bytes + bytes.len() > MAX_SNAPSHOTS {
            let bytes = self.session.snapshot_bytes;
            self.session.snapshot_bytes = self.thin(bytes, |of| &mut of.snapshots)?;
        }
        self.session.snapshot_bytes += bytes.len();
        self.process_of_file(process)?.snapshots.push(snapshot);
        Some(())
    }

    /// Leaves out every second entry of a process, but not the first and the last one. `None` if there is none to leave out;
    /// else the bytes that are left of so many. The sessions that need it are of weeks.
    fn thin<T>(&mut self, bytes: usize, of: impl Fn(&mut Process) -> &mut Vec<T>) -> Option<usize> {
        let (mut before, mut after) = (0, 0);
        for process in &mut self.profile.processes[self.first_process..] {
            let kept = of(process);
            let count = kept.len();
            let mut number = 0;
            kept.retain(|_| {
                number += 1;
                number % 2 == 1 || number == count
            });
            before += count;
            after += kept.len();
        }
        (after < before).then_some(bytes * after / before.max(1))
    }

    /// Reads the arenas of samples, in the order of these: so there are no more runs than samples. Samples that were lost are
    /// left out.
    fn arenas(&mut self, bytes: &[u8]) -> Option<()> {
        for run in parse_arenas(bytes)? {
            let ends = |run: &ArenaRun| run.first.0 + run.count;
            let known = self.profile.arenas.last().map_or(0, ends);
            let Some(last) = run.count.checked_sub(1) else {
                continue;
            };
            // Runs lie within a part without a gap, unless blocks were lost: then the whole run is left out.
            let last = SampleId(run.first.0.checked_add(last)?);
            if let (Some(first), Some(last)) = (self.sample(run.first), self.sample(last))
                && last.0.checked_sub(first.0) == Some(run.count - 1)
                && first.0 >= known
            {
                self.profile.arenas.push(ArenaRun { first, ..run });
            }
        }
        Some(())
    }

    fn process_memory(&mut self, bytes: &[u8]) -> Option<()> {
        let (process, memory) = processes::parse_memory(bytes)?;
        let time = self.saw(memory.time);
        let of_file = self.profile.processes.get_mut(self.first_process..)?;
        let process = of_file.get_mut(process.index())?;
        process.memory.push(Memory { time, ..memory });
        Some(())
    }

    /// Notes lost events. A merged file says itself how many of them are of which process.
    pub(super) fn lost_of_process(&mut self, count: u64) {
        if !self.session.is_merged
            && let Some(process) = self.profile.processes.get_mut(self.process.index())
        {
            process.lost = process.lost.saturating_add(count);
        }
    }

    /// Called at the end of a file.
    pub(crate) fn end(&mut self, mut damage: Vec<Damage>) {
        self.end_part();
        let session = std::mem::take(&mut self.session);
        let process = &mut self.profile.processes[self.first_process];
        process.meta.notes.extend(self.sources.notes());
        if !session.is_merged {
            // The writer thread reads memory once more after the end was noted.
            let end = session.end.map_or(Nanos(0), |end| end.time);
            process.end = end.max(self.last_time);
            process.complete = session.end.is_some();
            process.allocated = session.end.and_then(|end| end.allocated);
            // Without an end, blocks came after the count.
            process.counted = process.counted.filter(|_| process.complete);
            process.memory = session.memory;
            if let (true, Some(reason)) = (process.complete, &process.ended_by) {
                let note = format!("process {} was ended by {reason}", process.meta.pid);
                process.meta.notes.push(note);
            }
        } else if session.end.is_none() {
            // The rest of the file is not known.
            process.complete = false;
        }
        damage.append(&mut self.damage);
        damage.sort_by_key(|damage| damage.offset);
        let number = ProcessId(self.first_process as u32);
        let damage = damage.into_iter().map(|damage| (number, damage));
        self.all_damage.extend(damage);
    }

    /// The profile of all files that were read; at least one was read.
    pub(crate) fn finish(mut self) -> Profile {
        for process in &mut self.profile.processes {
            // Whoever writes it into one file has all that is left.
            process.meta.segment = None;
        }
        self.profile.sum_processes();
        self.profile.set_native_fates();
        self.profile.meta.notes.extend(self.thinning_note());
        for (process, mut damage) in self.all_damage {
            if self.files > 1 {
                let pid = self.profile.processes[process.index()].meta.pid;
                damage.what = format!("process {pid}: {}", damage.what);
            }
            self.profile.damage.push(damage);
        }
        self.profile
    }
}
