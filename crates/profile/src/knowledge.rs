//! What the source of a sample tells of the sampled memory: one description, which every report asks.

use crate::event::SampleId;
use crate::meta::{Method, Source, SourceKind, Unit};
use crate::model::{Lifetime, Profile, SamplingId};

/// How long a source follows what it samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifetimes {
    /// Not at all: a sample is an allocation only.
    None,
    /// Until its first collection: it died young, or survived. When it was freed after that is not known.
    FirstCollection,
    /// Until it is freed.
    All,
}

/// What a source tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// How long it follows what it samples.
    pub lifetimes: Lifetimes,
    /// Whether a collector looks at what it samples: objects of an interpreter, but not blocks of `malloc` or mappings.
    pub is_collected: bool,
}

impl Knowledge {
    const NOTHING: Self = Self {
        lifetimes: Lifetimes::None,
        is_collected: false,
    };
}

impl Source {
    /// What the source tells. Of a method that this version does not know, nothing is known.
    #[must_use]
    pub fn knowledge(&self) -> Knowledge {
        let lifetimes = match Method::of_name(&self.method) {
            Some(Method::CutFreeLists | Method::Preload | Method::GlobalAllocator) => {
                Lifetimes::All
            }
            Some(Method::NurseryLimit) => Lifetimes::FirstCollection,
            Some(Method::GcHooks | Method::Timer | Method::Imported) | None => Lifetimes::None,
        };
        let kind = self.kind();
        Knowledge {
            lifetimes,
            is_collected: matches!(kind, Some(SourceKind::ObjectHeap | SourceKind::Nursery)),
        }
    }
}

impl Profile {
    /// The knowledge about all samples: the least that a source of theirs tells. Of a profile without a sample, what its
    /// sources of allocations tell; nothing if it has none.
    #[must_use]
    pub fn lifetimes(&self) -> Lifetimes {
        let mut is_used = vec![false; self.samples.shapes().len()];
        let mut survived = false;
        for id in self.samples.ids() {
            is_used[self.samples.shape_id(id).0 as usize] = true;
            survived |= self.samples.lifetime(id) == Lifetime::Survived;
        }
        let shapes = self.samples.shapes().iter().zip(&is_used);
        let used = shapes.filter(|(_, is_used)| **is_used);
        let of_samples = used.map(|(shape, _)| self.knowledge_of(shape.sampling).lifetimes);
        let of_sources = || {
            let sources = self.sources.iter();
            let allocations = sources.filter(|source| source.unit() == Some(Unit::Bytes));
            allocations.map(|source| source.knowledge().lifetimes).min()
        };
        let known = of_samples
            .min()
            .or_else(of_sources)
            .unwrap_or(Lifetimes::None);
        // Whatever a source should know: a sample that survived says that the rest is not known.
        if survived {
            known.min(Lifetimes::FirstCollection)
        } else {
            known
        }
    }

    /// What the source of a sample tells; nothing if the file does not define it.
    #[must_use]
    pub fn knowledge(&self, sample: SampleId) -> Knowledge {
        self.knowledge_of(self.samples.shape(self.samples.shape_id(sample)).sampling)
    }

    /// The same of all samples with this sampling.
    #[must_use]
    pub fn knowledge_of(&self, sampling: SamplingId) -> Knowledge {
        self.source_of(sampling)
            .map_or(Knowledge::NOTHING, Source::knowledge)
    }
}
