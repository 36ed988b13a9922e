//! A whole profile in memory, as tables by column.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::composition::ArenaRun;
use crate::event::{
    Collection, FrameKind, LabelSetId, LostKind, Memory, Nanos, NodeId, SampleId, SourceId,
    ThreadId,
};
pub use crate::images::{CodePlace, Image};
use crate::meta::{Distances, Meta, Source, Unit};
use crate::missing::Missing;
pub use crate::processes::{Process, ProcessId, process_label};
pub use crate::samples::{Lifetime, Sample, Samples, SamplingId, Shape, ShapeId, Site, SiteId};
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

/// A place in a function, as a frame of a stack refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Index into [`Profile::functions`].
    pub function: u32,
    /// The current line; 0 if unknown.
    pub line: u32,
    /// The kind of code.
    pub kind: FrameKind,
}

/// A node of the stack tree. Parents come before their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The caller; the root is its own parent.
    pub parent: NodeId,
    /// Index into [`Profile::frames`]; not used for the root.
    pub frame: u32,
}

/// A type's names; see [`crate::event::TypeName`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypeNames {
    /// The Python name.
    pub name: String,
    /// The interpreter's own name, or the called function of the C library, if it differs.
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

/// A label set: another set with one more label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSet {
    /// The set without this label; the empty set is its own parent.
    pub parent: LabelSetId,
    /// The kind of work: `task`, `request`, `test`.
    pub key: String,
    /// The name of the task, request or test.
    pub value: String,
}

/// A source while its period stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sampling {
    /// An index into [`Profile::sources`].
    pub source: SourceId,
    /// The unit that is counted.
    pub unit: Unit,
    /// The distribution of distances.
    pub distances: Distances,
    /// Mean distance between sample points, in the unit; 0 if unknown.
    pub period: u64,
    /// How many samples were lost for each [`LOST_UNIT`] that were kept, at that time: 0 nearly always.
    pub lost: u32,
}

/// The number of kept samples to which [`Sampling::lost`] refers.
pub const LOST_UNIT: u32 = 1024;

impl Sampling {
    /// The sampling of a source with a period; `None` if this version does not know its kind, unit
    /// or distances.
    #[must_use]
    pub fn of(number: SourceId, source: &Source, period: u64) -> Option<Self> {
        source.kind()?;
        Some(Self {
            source: number,
            unit: source.unit()?,
            distances: source.distances()?,
            period,
            lost: 0,
        })
    }

    /// How many samples, with the lost ones, each kept sample stands for: 1 if none was lost.
    #[must_use]
    pub fn taken(&self) -> f64 {
        1.0 + f64::from(self.lost) / f64::from(LOST_UNIT)
    }

    /// The weight of an allocation of this shape. A kept sample stands for the samples that were lost beside it, too: an
    /// allocation is sampled *and kept* with a probability that is smaller by this factor.
    #[must_use]
    pub fn weight(&self, shape: &Shape) -> Weight {
        let of_taken = Weight::of(
            self.distances,
            self.period,
            shape.size,
            shape.block,
            shape.points,
        );
        let taken = self.taken();
        Weight {
            probability: of_taken.probability / taken,
            allocations: of_taken.allocations * taken,
            bytes: of_taken.bytes * taken,
        }
    }
}

/// A time sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSample {
    /// Time of the sample.
    pub time: Nanos,
    /// The running thread.
    pub thread: ThreadId,
    /// Its stack.
    pub stack: NodeId,
    /// The labels of the thread's work: an index into [`Profile::label_sets`].
    pub labels: LabelSetId,
    /// The source with its period at that time: an index into [`Profile::samplings`].
    pub sampling: SamplingId,
}

/// Labels of a set that are looked at. A program has a handful; a file may have any number, and each sample another set.
pub const MOST_LABELS: usize = 64;

/// Part of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset in the file.
    pub offset: u64,
    /// A description of the damage, as one sentence for a person.
    pub what: String,
}

/// A whole profile.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The session's description. Its notes also name the data that was left out because this
    /// version does not know it.
    pub meta: Meta,
    /// The sources of samples: [`Meta::sources`], and sources that began during the session.
    pub sources: Vec<Source>,
    /// Sources with their periods.
    pub samplings: Vec<Sampling>,
    /// Label sets; index 0 is the empty one. Parents come before their children.
    pub label_sets: Vec<LabelSet>,
    /// Functions, each once.
    pub functions: Vec<Function>,
    /// Frames, each once.
    pub frames: Vec<Frame>,
    /// Executables and shared libraries whose code is in frames.
    pub images: Vec<Image>,
    /// A place in an image, by frame, of frames whose functions were looked up. See [`Profile::replace_frames`].
    pub code_places: HashMap<u32, CodePlace, RandomState>,
    /// The stack tree; index 0 is the root.
    pub stacks: Vec<StackNode>,
    /// Types; index 0 is "not known".
    pub types: Vec<TypeNames>,
    /// Threads.
    pub threads: Vec<ThreadNames>,
    /// The processes of the profile, in the order of their starts; at least one.
    pub processes: Vec<Process>,
    /// The process of each thread; threads beyond its end belong to the first process. See [`Profile::process_of`].
    pub thread_processes: Vec<ProcessId>,
    /// Allocation samples.
    pub samples: Samples,
    /// The arenas of samples, in the order of the samples.
    pub arenas: Vec<ArenaRun>,
    /// Time samples.
    pub cpu: Vec<TimeSample>,
    /// Collections, in the order in which they ended.
    pub collections: Vec<Collection>,
    /// Memory totals over time.
    pub memory: Vec<Memory>,
    /// Events that the agent dropped, by kind; kinds without loss are absent.
    pub lost: Vec<(LostKind, u64)>,
    /// The end of the session: the time of the `End` event, else the time of the last event.
    pub end: Nanos,
    /// Whether the session ended normally (with an `End` event).
    pub complete: bool,
    /// All bytes that the interpreter's heap was asked for, sampled or not, if the agent counted until the end of the
    /// session. CPython's heap counts blocks: this is `counted`, times the part that was asked for, which is estimated from
    /// the samples.
    pub allocated: Option<u64>,
    /// Bytes of the blocks that the interpreter's heap handed out: sizes rounded up to the block's size. Counted, so exact;
    /// `None` if the agent did not count until the end of the session. What native code allocated is in neither.
    pub counted: Option<u64>,
    /// The parts that could not be read.
    pub damage: Vec<Damage>,
}

impl Profile {
    /// A profile without events.
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

    /// A profile with empty tables, for files that are read later.
    pub(crate) fn empty_of(sources: Vec<Source>) -> Self {
        Self {
            meta: Meta::default(),
            sources,
            samplings: Vec::new(),
            label_sets: vec![LabelSet::default()],
            functions: Vec::new(),
            frames: Vec::new(),
            images: Vec::new(),
            code_places: HashMap::default(),
            stacks: vec![StackNode {
                parent: NodeId::ROOT,
                frame: 0,
            }],
            types: vec![TypeNames::default()],
            threads: Vec::new(),
            processes: Vec::new(),
            thread_processes: Vec::new(),
            samples: Samples::default(),
            arenas: Vec::new(),
            cpu: Vec::new(),
            collections: Vec::new(),
            memory: Vec::new(),
            lost: Vec::new(),
            end: Nanos(0),
            complete: false,
            allocated: None,
            counted: None,
            damage: Vec::new(),
        }
    }

    /// One clause, without a full stop, for each thing that is in no profile of these processes.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        let mut sum = Missing::default();
        for missing in self.processes.iter().map(|process| &process.missing) {
            sum.interpreters |= missing.interpreters;
            sum.children = sum.children.saturating_add(missing.children);
            if sum.reason.is_empty() {
                sum.reason.clone_from(&missing.reason);
            }
        }
        sum.clauses().into_iter()
    }

    /// The tags that all processes have in common, each as `service=web`, in the order of keys.
    #[must_use]
    pub fn common_tags(&self) -> Vec<String> {
        let in_all = |&(key, value): &(&str, &str)| {
            let mut others = self.processes.iter().skip(1);
            others.all(|one| one.meta.tags.get(key).is_some_and(|of| of == value))
        };
        let first = self.processes.iter().take(1);
        let tags = first.flat_map(|process| process.meta.tags());
        tags.filter(in_all)
            .map(|(key, value)| format!("{key}={value}"))
            .collect()
    }

    /// What the first process that was recorded from a later moment on had before: see [`Meta::before`].
    #[must_use]
    pub fn before(&self) -> Option<String> {
        self.processes
            .iter()
            .find_map(|process| process.meta.before())
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

    /// The sampling of the allocation samples. Without samples: the sampling that they would have
    /// had.
    #[must_use]
    pub fn allocation_samplings(&self) -> Vec<Sampling> {
        let shapes = self.samples.shapes().iter();
        self.used(Unit::Bytes, shapes.map(|shape| shape.sampling))
    }

    /// The sampling of the time samples. Without samples: the sampling that they would have had.
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

    /// Whether every allocation was recorded, so that the numbers are exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let samplings = self.allocation_samplings();
        let every = |of: &Sampling| of.distances == Distances::Every && of.lost == 0;
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

    /// Time samples per second, averaged over all samples; `None` if unknown.
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

    /// Adds a label set: another one with one more label.
    pub(crate) fn push_label(&mut self, parent: LabelSetId, key: &str, value: &str) -> LabelSetId {
        self.label_sets.push(LabelSet {
            parent,
            key: key.to_owned(),
            value: value.to_owned(),
        });
        LabelSetId(self.label_sets.len() as u32 - 1)
    }

    /// The labels of a set, each key once. Of a set that many others are part of, the innermost [`MOST_LABELS`] are looked at.
    #[must_use]
    pub fn labels(&self, set: LabelSetId) -> Vec<(&str, &str)> {
        let mut labels: Vec<(&str, &str)> = Vec::new();
        let mut at = set;
        for _ in 0..MOST_LABELS {
            if at == LabelSetId::NONE {
                break;
            }
            let LabelSet { parent, key, value } = &self.label_sets[at.index()];
            // The newest value of a key is valid, and comes first here.
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
