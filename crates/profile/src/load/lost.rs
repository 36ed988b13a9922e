//! Samples that were kept count for the lost ones beside them.
//!
//! A session says how many samples it had to drop when it ends a block. The samples that it kept since the block before were
//! taken at the same time, within a second. Each of them stands for an equal part of the lost ones: they get a
//! [`Sampling`] that says so, and their weights and the intervals of all figures follow from it.
//!
//! If the block has no sample, the samples of the block before stand for the lost ones, or if there is none, the samples of the next block.

use super::Loader;
use crate::event::SampleId;
use crate::model::{LOST_UNIT, Sampling, SamplingId};
use crate::varint::take;

#[derive(Clone, Default)]
pub(super) struct Losses {
    /// The first samples of this block, and of the one before.
    block: u32,
    before: u32,
    /// Lost samples for which none stands yet.
    owed: u64,
    /// In a merged file: what it says of the samples from here on.
    said: Option<u32>,
}

impl Losses {
    pub(super) fn starting_at(sample: u32) -> Self {
        Self {
            block: sample,
            before: sample,
            ..Self::default()
        }
    }

    /// Samples were left out: `new` says how many are left before each.
    pub(super) fn renumber(&mut self, new: impl Fn(u32) -> u32) {
        self.block = new(self.block);
        self.before = new(self.before);
    }
}

impl Loader {
    /// Called between two blocks, and at the end of the file.
    pub(super) fn end_block(&mut self) {
        self.scale_for(0);
        let end = self.profile.samples.len() as u32;
        self.losses.before = std::mem::replace(&mut self.losses.block, end);
    }

    /// Makes the samples that were kept meanwhile stand for so many lost ones, too.
    pub(super) fn scale_for(&mut self, lost: u64) {
        let lost = self.losses.owed.saturating_add(lost);
        if lost == 0 || self.losses.said.is_some() {
            return;
        }
        let end = self.profile.samples.len() as u32;
        let first = if end > self.losses.block {
            self.losses.block
        } else {
            self.losses.before
        };
        let kept = u64::from(end - first);
        self.losses.owed = if kept == 0 { lost } else { 0 };
        if kept == 0 {
            return;
        }
        let each = lost.saturating_mul(LOST_UNIT.into()) / kept;
        let each = u32::try_from(each).unwrap_or(u32::MAX);
        for id in (first..end).map(SampleId) {
            let shape = self
                .profile
                .samples
                .shape(self.profile.samples.shape_id(id));
            let sampling = self.with_lost(shape.sampling, each);
            self.profile.samples.set_sampling(id, sampling);
        }
    }

    /// Reads what a merged file says of the samples that follow.
    pub(super) fn lost_from_here(&mut self, mut bytes: &[u8]) -> Option<()> {
        let lost = u32::try_from(take(&mut bytes)?).ok()?;
        self.losses.said = Some(lost);
        Some(())
    }

    /// The sampling of the next sample, if the file says what was lost beside it.
    #[inline]
    pub(super) fn said_to_be_lost(&mut self, sampling: SamplingId) -> SamplingId {
        match self.losses.said {
            Some(lost) if lost > 0 => self.with_lost(sampling, lost),
            _ => sampling,
        }
    }

    fn with_lost(&mut self, sampling: SamplingId, lost: u32) -> SamplingId {
        let known = self.profile.sampling(sampling);
        let lost = known.lost.saturating_add(lost);
        self.sources
            .intern(&mut self.profile, Sampling { lost, ..known })
    }
}
