//! A profile read whole into memory: tables by column, ready to be asked.

use crate::event::{Collection, CpuSample, FrameKind, LostKind, Memory, Nanos, NodeId, SampleId};
use crate::meta::Meta;
pub use crate::samples::{Fate, Sample, Samples, Shape, ShapeId};
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
    /// Bytes allocated in all, sampled or not, if the agent counted them to the end of the session.
    pub allocated: Option<u64>,
    /// What could not be read.
    pub damage: Vec<Damage>,
}

impl Profile {
    /// A profile in which nothing has happened yet.
    #[must_use]
    pub fn empty(meta: Meta) -> Self {
        Self {
            meta,
            functions: Vec::new(),
            frames: Vec::new(),
            stacks: vec![StackNode {
                parent: NodeId::ROOT,
                frame: 0,
            }],
            types: vec![TypeNames::default()],
            threads: Vec::new(),
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
        Weight::of(
            self.meta.distances,
            self.meta.period,
            shape.size,
            shape.block,
            shape.points,
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
