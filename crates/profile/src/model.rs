//! A profile read whole into memory: tables by column, ready to be asked.

use crate::event::{
    Collection, CpuSample, FrameKind, LostKind, Memory, Nanos, NodeId, SampleId, ThreadId, TypeId,
};
use crate::meta::{Distances, Meta};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// The caller; the root is its own parent.
    pub parent: NodeId,
    /// Index into [`Profile::frames`]; meaningless for the root.
    pub frame: u32,
}

/// A type's names; see [`crate::event::TypeName`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

/// What became of a sampled object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// Freed before, or by, the first collection of the youngest generation after its allocation.
    DiedYoung,
    /// Survived that collection and was freed later, at a known time.
    Freed,
    /// Survived that collection; what came later was not recorded (PyPy).
    Survived,
    /// Alive when the session ended or the profile breaks off.
    StillLive,
}

/// The allocation samples, a column each; all have the same length.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// When allocated.
    pub time: Vec<Nanos>,
    /// By which thread.
    pub thread: Vec<ThreadId>,
    /// From which stack.
    pub stack: Vec<NodeId>,
    /// Bytes asked for.
    pub size: Vec<u64>,
    /// Bytes that the sampler counted.
    pub block: Vec<u64>,
    /// Sample points covered.
    pub points: Vec<u32>,
    /// What was allocated.
    pub type_id: Vec<TypeId>,
    /// What became of it.
    pub fate: Vec<Fate>,
    /// When it was freed; `Nanos(u64::MAX)` if it was not, or if that is not known.
    pub freed: Vec<Nanos>,
}

impl Samples {
    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// All sample numbers in order.
    pub fn ids(&self) -> impl Iterator<Item = SampleId> + use<> {
        (0..u32::try_from(self.len()).unwrap_or(u32::MAX)).map(SampleId)
    }
}

/// The probability with which a sampler of a given period notices a block, and what one noticed block stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// Probability that a block of this size is sampled at all; 1 if every allocation is recorded.
    pub probability: f64,
    /// How many allocations this sample stands for.
    pub allocations: f64,
    /// How many bytes this sample stands for.
    pub bytes: f64,
}

impl Weight {
    /// The weight of a sample: the Horvitz-Thompson estimator with inclusion probability
    /// `1 - exp(-block / period)` for exponential distances; in fixed mode, `points` samples of
    /// `period` bytes each (section 3.2 of "Low Overhead Allocation Sampling in a Garbage
    /// Collected Virtual Machine").
    #[must_use]
    pub fn of(distances: Distances, period: u64, size: u64, block: u64, points: u32) -> Self {
        let (size, block, period) = (size as f64, block.max(1) as f64, period.max(1) as f64);
        match distances {
            Distances::Every => Self {
                probability: 1.0,
                allocations: 1.0,
                bytes: size,
            },
            Distances::Exponential => {
                let probability = -(-block / period).exp_m1();
                Self {
                    probability,
                    allocations: 1.0 / probability,
                    bytes: size / probability,
                }
            }
            Distances::Fixed => {
                let bytes = f64::from(points) * period;
                Self {
                    probability: (block / period).min(1.0),
                    allocations: bytes / block,
                    bytes,
                }
            }
        }
    }
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
    /// The session's description.
    pub meta: Meta,
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
    /// Allocation samples.
    pub samples: Samples,
    /// Time samples.
    pub cpu: Vec<CpuSample>,
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
    /// Bytes allocated in all, sampled or not, if the agent counted them.
    pub allocated: Option<u64>,
    /// What could not be read.
    pub damage: Vec<Damage>,
}

impl Profile {
    /// The weight of one sample.
    #[must_use]
    pub fn weight(&self, sample: SampleId) -> Weight {
        let (samples, at) = (&self.samples, sample.index());
        Weight::of(
            self.meta.distances,
            self.meta.period,
            samples.size[at],
            samples.block[at],
            samples.points[at],
        )
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
