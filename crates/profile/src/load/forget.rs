//! Leaves out what a view of the present does not need, while a file is still read.

use super::Loader;
use crate::event::{Memory, Nanos, SampleId};
use crate::model::Lifetime;
use crate::samples::Samples;

impl Loader {
    /// Keeps samples that are alive, began or ended in the last `kept` of the file's time; of memory, compositions and
    /// snapshots also the last ones before. Definitions stay. So the loader does not grow with time, if the program does
    /// not.
    ///
    /// A merged file is left as it is: it does not grow.
    pub(crate) fn forget(&mut self, kept: Nanos) {
        if self.session.is_merged {
            return;
        }
        let from = Nanos(self.last_time.0.saturating_sub(kept.0));
        self.forget_readings(from);
        self.forget_samples(from);
    }

    /// The samples before this number are not read: what refers to them is left out. `time`: of the last event before.
    pub(crate) fn skip_samples(&mut self, next: u32, time: Nanos) {
        self.last_time = time;
        self.next_sample = next;
        self.sample_runs = vec![(next, self.profile.samples.len() as u32)];
    }

    /// The latest time of an event until now.
    pub(crate) fn last_time(&self) -> Nanos {
        self.last_time
    }

    fn forget_readings(&mut self, from: Nanos) {
        self.profile.cpu.retain(|sample| sample.time >= from);
        self.profile.collections.retain(|one| one.start >= from);
        forget_memory(&mut self.session.memory, from);
        for process in &mut self.profile.processes[self.first_process..] {
            process.activity.retain(|one| one.time >= from);
            process.compilations.retain(|one| one.end() >= from);
            let last = process.snapshots.len().saturating_sub(1);
            process.snapshots.drain(..last);
            self.session.snapshot_bytes = 0;
            // The first one says what was there before; not every later one is whole.
            let count = process.compositions.len();
            let mut at = 0;
            process.compositions.retain(|one| {
                at += 1;
                at == 1 || at + LAST_COMPOSITIONS > count || one.time >= from
            });
            self.session.composition_bytes = 0;
        }
    }

    fn forget_samples(&mut self, from: Nanos) {
        let processes = &self.profile.processes[self.first_process..];
        // What the last snapshot may refer to.
        let looked = processes.iter().flat_map(|of| &of.snapshots).last();
        let looked = looked.map(|snapshot| snapshot.time);
        let samples = &self.profile.samples;
        let is_kept = |id: SampleId| {
            let (time, freed) = (samples.time(id), samples.freed(id));
            let is_held = |at: Nanos| time <= at && freed.is_none_or(|freed| freed >= at);
            time >= from
                || freed.is_some_and(|freed| freed >= from)
                || samples.lifetime(id) == Lifetime::StillLive
                || looked.is_some_and(is_held)
        };
        let kept: Vec<bool> = samples.ids().map(is_kept).collect();
        if !kept.contains(&false) {
            return;
        }
        let mut count = 0;
        let mut left_before = vec![0];
        left_before.extend(kept.iter().map(|&is_kept| {
            count += u32::from(is_kept);
            count
        }));
        let mut left = Samples::default();
        for id in samples.ids().filter(|id| kept[id.index()]) {
            // Fewer than before.
            let _ = left.push(samples.get(id));
        }
        self.profile.samples = left;
        self.profile.keep_numbers(&kept);
        self.sample_runs = runs(&self.sample_runs, &kept);
        self.sample_runs.push((self.next_sample, count));
        let new = |sample: u32| left_before[(sample as usize).min(kept.len())];
        self.losses.renumber(new);
        if self.youth != u32::MAX {
            self.youth = new(self.youth);
        }
    }
}

/// So many of the last compositions stay, however old they are: one of them is whole.
const LAST_COMPOSITIONS: usize = 8;

/// Keeps the memory totals from a time on, the last ones before it, and the first one that says what a child of a fork has inherited.
/// The largest resident set of all is said by the first one that is left.
fn forget_memory(memory: &mut Vec<Memory>, from: Nanos) {
    let is_old = |of: &Memory| of.time < from;
    let first = memory
        .iter()
        .position(|of| of.heap_used.is_some() && of.allocated.is_some());
    let last_rss = memory.iter().rposition(|of| is_old(of) && of.rss.is_some());
    let last_heap = memory
        .iter()
        .rposition(|of| is_old(of) && of.heap_used.is_some());
    let sizes = memory.iter().flat_map(|of| [of.rss, of.peak_rss]);
    let peak = sizes.flatten().max();
    let mut at = 0;
    memory.retain(|of| {
        let here = Some(at);
        at += 1;
        !is_old(of) || [first, last_rss, last_heap].contains(&here)
    });
    let is_shorter = at > memory.len();
    if let Some(first) = memory.first_mut().filter(|_| is_shorter) {
        first.peak_rss = peak;
    }
}

/// The runs of the samples that are kept: a sample of the file that is not has a place beyond the end of the run before it.
fn runs(old: &[(u32, u32)], kept: &[bool]) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    let mut here = 0;
    for (at, &(first, from)) in old.iter().enumerate() {
        let to = old.get(at + 1).map_or(kept.len(), |run| run.1 as usize);
        let mut is_open = false;
        for (number, &is_kept) in (first..).zip(&kept[from as usize..to]) {
            if is_kept && !is_open {
                runs.push((number, here));
            }
            is_open = is_kept;
            here += u32::from(is_kept);
        }
        if at + 1 < old.len() {
            // The numbers between two runs belong to lost samples.
            runs.push((first + (to as u32 - from), here));
        }
    }
    runs
}
