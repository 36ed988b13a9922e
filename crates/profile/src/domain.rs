//! Domains of memory: the interpreter's heap, native memory, and devices'.

use crate::event::SampleId;
use crate::meta::{Source, SourceKind};
use crate::model::{Profile, SamplingId};
use crate::samples::Samples;

/// A part of the program's memory, by who allocates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Memory of the interpreter's heap: objects and their buffers. Also samples of kinds that this version does not
    /// know.
    Python,
    /// Calls of `malloc` and similar functions, and mappings.
    Native,
    /// Memory of a device, by an import.
    Device,
}

impl Profile {
    /// The domain of a sample.
    #[must_use]
    pub fn domain(&self, sample: SampleId) -> Domain {
        self.domain_of(self.samples.shape(self.samples.shape_id(sample)).sampling)
    }

    fn domain_of(&self, sampling: SamplingId) -> Domain {
        match self.source_of(sampling) {
            Some(source) if source.is_native() => Domain::Native,
            Some(source) if source.kind() == Some(SourceKind::Device) => Domain::Device,
            _ => Domain::Python,
        }
    }

    /// The source of the samples with these settings; `None` if the file does not define it.
    pub(crate) fn source_of(&self, sampling: SamplingId) -> Option<&Source> {
        let sampling = self.samplings.get(sampling.index())?;
        self.sources.get(sampling.source.index())
    }

    /// Keeps the allocation samples of one domain, or of all. The agent counts only what the interpreter's heap
    /// allocates. So where samples of other memory stay, the count of all bytes is removed, and where no others stay, the count
    /// of blocks.
    pub fn keep_domain(&mut self, domain: Option<Domain>) {
        let mut left = Samples::default();
        let mut has_others = false;
        let mut kept = Vec::new();
        let shapes = self.samples.shapes().iter();
        let domains: Vec<Domain> = shapes
            .map(|&shape| self.domain_of(shape.sampling))
            .collect();
        if domain.is_none() && domains.iter().all(|&of| of == Domain::Python) {
            return;
        }
        for id in self.samples.ids() {
            let of = domains[self.samples.shape_id(id).0 as usize];
            let is_kept = domain.is_none_or(|domain| domain == of);
            has_others |= is_kept && of != Domain::Python;
            if domain.is_some() {
                kept.push(is_kept);
                if is_kept {
                    left.push(self.samples.get(id));
                }
            }
        }
        if domain.is_some() {
            self.samples = left;
            self.keep_numbers(&kept);
        }
        let is_other = domain.is_some_and(|domain| domain != Domain::Python);
        if is_other {
            self.forget_counted();
        }
        if has_others || is_other {
            self.forget_counts();
        }
    }

    /// Removes what the agents counted: the counts are of all samples, and some samples are gone.
    pub fn forget_counts(&mut self) {
        self.allocated = None;
        for process in &mut self.processes {
            process.allocated = None;
        }
    }
}
