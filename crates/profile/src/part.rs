//! A part of a profile's time, as a profile of its own.

use crate::event::{Memory, Nanos};
use crate::merge::whole_ticks;
use crate::model::{Lifetime, Profile};
use crate::samples::Samples;

impl Profile {
    /// Keeps what was recorded from `since` on and before `until`, of a profile of one process. The part's own time begins at
    /// `since`, and nothing is known in it of what came later: what was freed after `until` is alive at the end.
    ///
    /// The bytes that were allocated in it are counted if the profile has memory totals of both moments; a
    /// session's mark records them.
    ///
    /// # Panics
    /// If the profile has several processes.
    pub fn keep_part(&mut self, since: Nanos, until: Nanos) {
        assert!(self.processes.len() == 1, "a part is of one process");
        let since = whole_ticks(since);
        let until = whole_ticks(until).min(self.end).max(since);
        let is_inside = |time: Nanos| since <= time && time < until;
        let shifted = |time: Nanos| Nanos(time.0.saturating_sub(since.0));
        self.keep_samples(is_inside, shifted, until);
        self.cpu.retain(|sample| is_inside(sample.time));
        self.cpu
            .iter_mut()
            .for_each(|sample| sample.time = shifted(sample.time));
        self.collections.retain(|one| is_inside(one.start));
        self.collections
            .iter_mut()
            .for_each(|one| one.start = shifted(one.start));
        self.count_allocated(since, until);
        // The totals of both ends belong to it.
        let is_seen = |time: Nanos| since <= time && time <= until;
        self.memory.retain(|memory| is_seen(memory.time));
        for memory in &mut self.memory {
            memory.time = shifted(memory.time);
        }
        let process = &mut self.processes[0];
        process.compositions.retain(|one| is_seen(one.time));
        process.activity.retain(|one| is_seen(one.time));
        process.pressure.retain(|one| is_seen(one.time));
        process
            .compilations
            .retain(|one| since <= one.start && one.end() <= until);
        process.snapshots.retain(|one| is_seen(one.time));
        for one in &mut process.compositions {
            one.time = shifted(one.time);
        }
        for one in &mut process.activity {
            one.time = shifted(one.time);
        }
        for one in &mut process.pressure {
            one.time = shifted(one.time);
        }
        for one in &mut process.compilations {
            one.start = shifted(one.start);
        }
        for one in &mut process.snapshots {
            one.time = shifted(one.time);
        }
        self.end = shifted(until);
        self.complete = true;
        self.counted = None;
        self.meta.started_unix_nanos += since.0;
        process.meta.started_unix_nanos += since.0;
        process.end = self.end;
        process.complete = true;
        process.counted = None;
        process.ended_by = None;
        process.allocated = self.allocated;
    }

    fn keep_samples(
        &mut self,
        is_inside: impl Fn(Nanos) -> bool,
        shifted: impl Fn(Nanos) -> Nanos,
        until: Nanos,
    ) {
        let old = std::mem::take(&mut self.samples);
        let mut samples = Samples::default();
        let mut kept = Vec::with_capacity(old.len());
        for id in old.ids() {
            let mut sample = old.get(id);
            let is_kept = is_inside(sample.time);
            kept.push(is_kept);
            if !is_kept {
                continue;
            }
            sample.time = shifted(sample.time);
            match sample.freed {
                Some(freed) if freed >= until => {
                    sample.freed = None;
                    sample.lifetime = Lifetime::StillLive;
                }
                freed => sample.freed = freed.map(&shifted),
            }
            let _ = samples.push(sample);
        }
        self.samples = samples;
        self.keep_numbers(&kept);
    }

    /// Counts what was allocated between two moments, by the memory totals of each.
    fn count_allocated(&mut self, since: Nanos, until: Nanos) {
        let at = |time: Nanos| {
            let seen = |memory: &&Memory| whole_ticks(memory.time) == time;
            self.memory.iter().rfind(seen).and_then(|of| of.allocated)
        };
        let first = if since == Nanos(0) {
            Some(0)
        } else {
            at(since)
        };
        let counted = at(until).zip(first);
        self.allocated = counted.map(|(last, first)| last.saturating_sub(first));
        let before = first.unwrap_or(0);
        for memory in &mut self.memory {
            memory.allocated = memory.allocated.map(|all| all.saturating_sub(before));
        }
    }
}
