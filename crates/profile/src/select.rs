//! Changes a profile in memory: leaves samples out, or gives samples other stacks.

use crate::event::NodeId;
use crate::model::{Profile, Sample, StackNode};

impl Profile {
    /// Keeps only the allocation samples for which `keep` returns true. What the agent counted is
    /// then no longer the sum of the samples, so it is removed if a sample is.
    pub fn retain_samples(&mut self, keep: impl FnMut(&Sample) -> bool) {
        let before = self.samples.len();
        self.samples.retain(keep);
        if self.samples.len() < before {
            self.allocated = None;
            for process in &mut self.processes {
                process.allocated = None;
            }
        }
    }

    /// Gives allocation samples other stacks of the same tree. `new[old]` is that in place of each node.
    ///
    /// # Panics
    /// If `new` is shorter than the tree.
    pub fn move_allocations(&mut self, new: &[NodeId]) {
        for id in self.samples.ids() {
            let stack = new[self.samples.stack(id).index()];
            self.samples.set_stack(id, stack);
        }
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
