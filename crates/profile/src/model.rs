//! A profile read whole into memory: tables by column, ready to be asked.

use crate::event::{
    Collection, FrameKind, LabelSetId, LostKind, Memory, Nanos, NodeId, SampleId, SourceId,
    ThreadId,
};
use crate::meta::{Distances, Meta, Source, Unit};
pub use crate::processes::{Process, ProcessId, process_label};
pub use crate::samples::{Lifetime, Sample, Samples, Shape, ShapeId};
pub use nthbyte_sampling::Weight;

/// A function: a name in a file. Code objects with the same name, file and first line are one function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Qualified name.
    pub name: String,
    /// Source file; may be empty.
    pub file: String,
    /// Line of the definition; 0 if unknown.
    pub first_line: u32,
}

/// A place in a function, as a frame of a stack shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Index into [`Profile::functions`].
    pub function: u32,
    /// The line that runs; 0 if unknown.
    pub line: u32,
    /// What runs.
    pub kind: FrameKind,
}

/// A node of the stack tree. Parents come before their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The caller; the root is its own parent.
    pub parent: NodeId,
    /// Index into [`Profile::frames`]; without meaning for the root.
    pub frame: u32,
}

/// A type's names; see [`crate::event::TypeName`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypeNames {
    /// As a Python programmer says it.
    pub name: String,
    /// The interpreter's own name, if it is another one.
    pub native: String,
}

/// A thread's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadNames {
    /// The operating system's number.
    pub os_id: u64,
    /// Name; may be empty.
    pub name: String,
}

/// A label set: another one, and one label more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSet {
    /// The set without this label; the empty set is its own.
    pub parent: LabelSetId,
    /// What kind of thing: `task`, `request`, `test`.
    pub key: String,
    /// Which one.
    pub value: String,
}

/// A [`Sampling`]: an index into [`Profile::samplings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SamplingId(pub u32);

impl SamplingId {
    /// The number as an index into a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A source for as long as its period stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sampling {
    /// An index into [`Profile::sources`].
    pub source: SourceId,
    /// What is counted.
    pub unit: Unit,
    /// How distances are drawn.
    pub distances: Distances,
    /// Mean distance between sample points, in the unit; 0 if it is not known.
    pub period: u64,
}

impl Sampling {
    /// That of a source with a period; `None` if it has a kind, a unit or distances that this
    /// version does not know.
    #[must_use]
    pub fn of(number: SourceId, source: &Source, period: u64) -> Option<Self> {
        source.kind()?;
        Some(Self {
            source: number,
            unit: source.unit()?,
            distances: source.distances()?,
            period,
        })
    }

    /// The weight of an allocation of this shape.
    #[must_use]
    pub fn weight(&self, shape: &Shape) -> Weight {
        Weight::of(
            self.distances,
            self.period,
            shape.size,
            shape.block,
            shape.points,
        )
    }
}

/// A time sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSample {
    /// When.
    pub time: Nanos,
    /// The thread that ran.
    pub thread: ThreadId,
    /// Its stack.
    pub stack: NodeId,
    /// What it was at work on: an index into [`Profile::label_sets`].
    pub labels: LabelSetId,
    /// The source, with the period that it had: an index into [`Profile::samplings`].
    pub sampling: SamplingId,
}

/// Part of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset in the file.
    pub offset: u64,
    /// What is wrong there, as one sentence for a person.
    pub what: String,
}

/// A whole profile.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The session's description. Its notes also say what was left out because this version does
    /// not know it.
    pub meta: Meta,
    /// Where samples come from: [`Meta::sources`], and those that began during the session.
    pub sources: Vec<Source>,
    /// Sources with their periods.
    pub samplings: Vec<Sampling>,
    /// Label sets; index 0 is the empty one. Parents come before their children.
    pub label_sets: Vec<LabelSet>,
    /// Functions, each once.
    pub functions: Vec<Function>,
    /// Frames, each once.
    pub frames: Vec<Frame>,
    /// The stack tree; index 0 is the root.
    pub stacks: Vec<StackNode>,
    /// Types; index 0 is "not known".
    pub types: Vec<TypeNames>,
    /// Threads.
    pub threads: Vec<ThreadNames>,
    /// The processes that the profile is of, in the order of their starts; at least one.
    pub processes: Vec<Process>,
    /// The process of each thread; threads that it does not reach belong to the first. See [`Profile::process_of`].
    pub thread_processes: Vec<ProcessId>,
    /// Allocation samples.
    pub samples: Samples,
    /// Time samples.
    pub cpu: Vec<TimeSample>,
    /// Collections, in the order in which they ended.
    pub collections: Vec<Collection>,
    /// Memory totals over time.
    pub memory: Vec<Memory>,
    /// Events that the agent had to drop, by kind; kinds without loss are absent.
    pub lost: Vec<(LostKind, u64)>,
    /// When the session ended: the `End` event's time, else the time of the last event.
    pub end: Nanos,
    /// Whether the session ended in an orderly way (there was an `End` event).
    pub complete: bool,
    /// Bytes allocated in all, sampled or not, if the agent counted them to the end of the session.
    pub allocated: Option<u64>,
    /// What could not be read.
    pub damage: Vec<Damage>,
}

impl Profile {
    /// A profile in which nothing has happened yet.
    #[must_use]
    pub fn empty(meta: Meta) -> Self {
        let mut profile = Self::empty_of(meta.sources.clone());
        let samplings = (0..)
            .zip(&profile.sources)
            .filter_map(|(number, source)| Sampling::of(SourceId(number), source, source.period));
        profile.samplings = samplings.collect();
        profile.meta = meta.clone();
        profile.processes = vec![Process::new(meta, Nanos(0))];
        profile
    }

    /// A profile with tables for files that are still to be read.
    pub(crate) fn empty_of(sources: Vec<Source>) -> Self {
        Self {
            meta: Meta::default(),
            sources,
            samplings: Vec::new(),
            label_sets: vec![LabelSet::default()],
            functions: Vec::new(),
            frames: Vec::new(),
            stacks: vec![StackNode {
                parent: NodeId::ROOT,
                frame: 0,
            }],
            types: vec![TypeNames::default()],
            threads: Vec::new(),
            processes: Vec::new(),
            thread_processes: Vec::new(),
            samples: Samples::default(),
            cpu: Vec::new(),
            collections: Vec::new(),
            memory: Vec::new(),
            lost: Vec::new(),
            end: Nanos(0),
            complete: false,
            allocated: None,
            damage: Vec::new(),
        }
    }

    /// The weight of one sample.
    #[must_use]
    pub fn weight(&self, sample: SampleId) -> Weight {
        self.shape_weight(self.samples.shape(self.samples.shape_id(sample)))
    }

    /// The weight of every shape, by [`ShapeId`]: for passes over all samples.
    #[must_use]
    pub fn shape_weights(&self) -> Vec<Weight> {
        let shapes = self.samples.shapes().iter();
        shapes.map(|&shape| self.shape_weight(shape)).collect()
    }

    fn shape_weight(&self, shape: Shape) -> Weight {
        self.sampling(shape.sampling).weight(&shape)
    }

    /// A source with a period.
    ///
    /// # Panics
    /// If there is no such sampling.
    #[must_use]
    pub fn sampling(&self, sampling: SamplingId) -> Sampling {
        self.samplings[sampling.index()]
    }

    /// How the allocation samples were taken. If there are none: how they would have been.
    #[must_use]
    pub fn allocation_samplings(&self) -> Vec<Sampling> {
        let shapes = self.samples.shapes().iter();
        self.used(Unit::Bytes, shapes.map(|shape| shape.sampling))
    }

    /// How the time samples were taken. If there are none: how they would have been.
    #[must_use]
    pub fn time_samplings(&self) -> Vec<Sampling> {
        let samples = self.cpu.iter();
        self.used(Unit::Nanoseconds, samples.map(|sample| sample.sampling))
    }

    fn used(&self, unit: Unit, ids: impl Iterator<Item = SamplingId>) -> Vec<Sampling> {
        let mut is_used = vec![false; self.samplings.len()];
        ids.for_each(|id| is_used[id.index()] = true);
        let none = !is_used.contains(&true);
        let all = self.samplings.iter().zip(is_used);
        let used = all.filter(|(sampling, used)| sampling.unit == unit && (none || *used));
        used.map(|(&sampling, _)| sampling).collect()
    }

    /// Whether every allocation was recorded, so that figures are exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let samplings = self.allocation_samplings();
        let every = |sampling: &Sampling| sampling.distances == Distances::Every;
        !samplings.is_empty() && samplings.iter().all(every)
    }

    /// The different periods of allocation samples, in bytes, the shortest first. Never empty.
    #[must_use]
    pub fn periods(&self) -> Vec<u64> {
        let samplings = self.allocation_samplings();
        let mut periods: Vec<u64> = samplings.iter().map(|sampling| sampling.period).collect();
        periods.sort_unstable();
        periods.dedup();
        if periods.is_empty() {
            periods.push(1);
        }
        periods
    }

    /// Time samples a second, on average over all of them; `None` if it is not known.
    #[must_use]
    pub fn time_hz(&self) -> Option<f64> {
        let samplings = self.time_samplings();
        if samplings.is_empty() || samplings.iter().any(|sampling| sampling.period == 0) {
            return None;
        }
        if self.cpu.is_empty() {
            return Some(1e9 / samplings[0].period as f64);
        }
        let samples = self.cpu.iter();
        let nanos = samples.map(|sample| self.sampling(sample.sampling).period as f64);
        Some(1e9 * self.cpu.len() as f64 / nanos.sum::<f64>())
    }

    /// The labels of a set, each key once.
    #[must_use]
    pub fn labels(&self, set: LabelSetId) -> Vec<(&str, &str)> {
        let mut labels: Vec<(&str, &str)> = Vec::new();
        let mut at = set;
        while at != LabelSetId::NONE {
            let LabelSet { parent, key, value } = &self.label_sets[at.index()];
            // The newest value of a key holds, and comes first here.
            if labels.iter().all(|(known, _)| known != key) {
                labels.push((key, value));
            }
            at = *parent;
        }
        labels.reverse();
        labels
    }

    /// The frames of a stack, innermost first.
    pub fn stack(&self, stack: NodeId) -> impl Iterator<Item = &Frame> {
        let mut at = stack;
        std::iter::from_fn(move || {
            if at == NodeId::ROOT {
                return None;
            }
            let node = &self.stacks[at.index()];
            at = node.parent;
            Some(&self.frames[node.frame as usize])
        })
    }
}
