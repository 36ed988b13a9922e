//! Changes a profile in memory: leaves samples out, or gives samples other stacks.

use crate::event::{NodeId, SampleId};
use crate::model::{Profile, Sample, StackNode};

impl Profile {
    /// Keeps only the allocation samples for which `keep` returns true. What the agent counted is
    /// then no longer the sum of the samples, so it is removed if a sample is.
    pub fn retain_samples(&mut self, mut keep: impl FnMut(&Sample) -> bool) {
        self.retain_changed_samples(|sample| keep(sample));
    }

    /// The same; `keep` may give a sample another shape.
    pub(crate) fn retain_changed_samples(&mut self, mut keep: impl FnMut(&mut Sample) -> bool) {
        let before = self.samples.len();
        let mut kept = Vec::with_capacity(before);
        self.samples.retain(|sample| {
            let is_kept = keep(sample);
            kept.push(is_kept);
            is_kept
        });
        self.keep_numbers(&kept);
        if self.samples.len() < before {
            self.forget_counted();
            self.allocated = None;
            for process in &mut self.processes {
                process.allocated = None;
            }
        }
    }

    /// Some counted blocks have no samples any more.
    pub(crate) fn forget_counted(&mut self) {
        self.counted = None;
        for process in &mut self.processes {
            process.counted = None;
        }
    }

    /// Gives the samples that are left their arenas and their places in snapshots, after others were removed. `kept` says
    /// which samples are left.
    pub(crate) fn keep_numbers(&mut self, kept: &[bool]) {
        self.keep_numbers_from(0, kept, 0);
    }

    /// The same where `kept` says it of the samples from `first` on, and all before are left. Only processes from this one on
    /// know any of them.
    pub(crate) fn keep_numbers_from(&mut self, first: u32, kept: &[bool], process: usize) {
        let has_snapshots = self.processes[process..]
            .iter()
            .any(|of| !of.snapshots.is_empty());
        if self.arenas.is_empty() && !has_snapshots {
            return;
        }
        let mut count = first;
        // The samples that are left before each one.
        let mut before = vec![count];
        before.extend(kept.iter().map(|&is_kept| {
            count += u32::from(is_kept);
            count
        }));
        let left_before = |sample: usize| match sample.checked_sub(first as usize) {
            Some(after) => before[after.min(kept.len())],
            None => sample as u32,
        };
        // They are in the order of their samples.
        let known = self
            .arenas
            .partition_point(|run| run.first.index() + run.count as usize <= first as usize);
        let mut runs = self.arenas.split_off(known);
        for run in &mut runs {
            let first = run.first.index();
            let end = left_before(first.saturating_add(run.count as usize));
            run.first = SampleId(left_before(first));
            run.count = end - run.first.0;
        }
        runs.retain(|run| run.count > 0);
        self.arenas.append(&mut runs);
        let left = |sample: SampleId| {
            let after = sample.index().checked_sub(first as usize);
            let is_kept = after.is_none_or(|after| kept.get(after).copied().unwrap_or(false));
            is_kept.then(|| SampleId(left_before(sample.index())))
        };
        for process in &mut self.processes[process..] {
            for snapshot in &mut process.snapshots {
                snapshot.renumber(left);
            }
        }
    }

    /// Gives allocation samples other stacks of the same tree. `new[old]` is that in place of each node.
    ///
    /// # Panics
    /// If `new` is shorter than the tree.
    pub fn move_allocations(&mut self, new: &[NodeId]) {
        self.samples.move_stacks(|site| new[site.stack.index()]);
    }

    /// Replaces the stack tree. `new[old]` is the new number of each old node.
    ///
    /// # Panics
    /// If `new` is shorter than the old tree.
    pub fn replace_stacks(&mut self, stacks: Vec<StackNode>, new: &[NodeId]) {
        self.move_allocations(new);
        for sample in &mut self.cpu {
            sample.stack = new[sample.stack.index()];
        }
        self.stacks = stacks;
    }
}
