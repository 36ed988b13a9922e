//! Who holds live objects: snapshots of the references between objects, at some moments.
//!
//! A child process of the program, a copy of its memory at one moment, looks at every object that the garbage collector
//! knows, and at the references between them. It draws a sample of the blocks that are alive. Of the graph, a [`Snapshot`]
//! keeps what leads to a sample: as two trees over the same [`SnapshotNode`]s.
//!
//! - *dominator*: without it, the object would be unreachable. What a node dominates would be freed with it, so amounts
//!   belong to the tree of dominators.
//! - *parent*: the object before it on a shortest path from a root. Paths are what a person reads, so names come from the
//!   tree of parents. Where the parent is not the dominator, several objects hold the node, and each would be enough.
//!
//! Sizes are blocks'. The sum of the samples' weights below a node estimates what it holds. Nothing here is computed: that
//! is the reports' part.

mod bytes;
mod chains;
mod texts;

use crate::event::{Nanos, SampleId};
use crate::meta::Distances;
use crate::model::Weight;

pub use bytes::head;
pub use chains::Chains;
pub use texts::{Interner, Texts};

/// The kind of an event that holds a [`Snapshot`].
pub const HOLDERS: u8 = 72;

macro_rules! numbered {
    ($(#[$doc:meta])+ $name:ident { $($(#[$of:meta])+ $value:ident = $number:literal),* $(,)? }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$of])+ $value = $number,)*
        }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// The value with a number in a file; `None` if this version does not know it.
            #[must_use]
            pub const fn of_number(number: u64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// Why a snapshot was taken.
    Reason {
        /// The session ended.
        End = 0,
        /// More memory was in use than ever before.
        Peak = 1,
        /// The program asked for it.
        Call = 2,
        /// A signal, or another process, asked for it.
        Signal = 3,
        /// A fixed time had passed since the last one.
        Interval = 4,
    }
}

numbered! {
    /// What a node is. [`SnapshotNode::name`] says which one.
    Kind {
        /// An object; the name is its type's.
        Object = 0,
        /// A module, or its dictionary; the name is the module's.
        Module = 1,
        /// A class; the name is its own.
        Class = 2,
        /// A function; the name is its qualified name.
        Function = 3,
        /// A running call; the name is the qualified name of its function.
        Frame = 4,
        /// A generator, a coroutine or an asynchronous generator; the name is the qualified name of its function.
        Generator = 5,
        /// A thread; the name is its number in the operating system, in decimal digits.
        Thread = 6,
    }
}

numbered! {
    /// How an object refers to another one. [`SnapshotNode::reference`] says by which name.
    Link {
        /// Not known, or no reference: the node is a root.
        Unknown = 0,
        /// An attribute of a module, a class or an instance; also a field of an object that is not written in Python.
        Attribute = 1,
        /// The value of a dictionary. The name is the key as Python would write it, or empty if keys are not recorded.
        Key = 2,
        /// An element of a sequence. The name is the index, or empty if it is not recorded.
        Element = 3,
        /// A local variable of a running or suspended function.
        Local = 4,
        /// A variable of an enclosing function.
        Closure = 5,
        /// The dictionary of an object's attributes. Without a name.
        Dictionary = 6,
        /// The object's class. Without a name.
        Class = 7,
        /// A call of a thread, or the caller of a call. Without a name.
        Call = 8,
        /// The key of a dictionary itself. Without a name.
        KeyItself = 9,
    }
}

/// The references at one moment, as far as they lead to drawn or sampled blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The moment.
    pub time: Nanos,
    /// Why it was taken.
    pub reason: Reason,
    /// What was taken.
    pub outcome: SnapshotOutcome,
    /// The number of objects that were looked at.
    pub objects: u64,
    /// Processor time of the child that looked at them.
    pub cpu: Nanos,
    /// How long the program stood still.
    pub pause: Nanos,
    /// The mean distance between the samples that the child drew, in bytes.
    pub period: u64,
    /// Names: nodes and samples have numbers of them.
    pub texts: Texts,
    /// The nodes; the first one has number 1. 0 is above all roots.
    pub nodes: Vec<SnapshotNode>,
    /// Pairs of a node and another node that refers to it, by a path that avoids the node's parent. In the order of the first.
    pub others: Vec<(u32, u32)>,
    /// The blocks that were drawn, and those that the recording has samples of.
    pub samples: Vec<Held>,
}

/// What was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotOutcome {
    /// Everything.
    Complete,
    /// No dominators: each node's is its parent. So what several objects hold counts for one of them. In one clause, why.
    PathsOnly(String),
    /// Nothing. In one clause, why.
    NotTaken(String),
}

impl SnapshotOutcome {
    /// Why not everything was taken; `None` if it was.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Complete => None,
            Self::PathsOnly(why) | Self::NotTaken(why) => Some(why),
        }
    }
}

/// An object that leads to samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotNode {
    /// The node that dominates it: a smaller number; 0 if no single node does.
    pub dominator: u32,
    /// The node before it on a shortest path from a root: a smaller number; 0 if it is a root.
    pub parent: u32,
    /// What it is.
    pub kind: Kind,
    /// Whether it is a root because more references to it exist than objects explain: C code holds it. References from the
    /// stack of the interpreter are of that kind too.
    pub held_by_c: bool,
    /// A number in [`Snapshot::texts`].
    pub name: u32,
    /// How [`parent`](Self::parent) refers to it.
    pub link: Link,
    /// By which name: a number in [`Snapshot::texts`].
    pub reference: u32,
    /// The number of its elements, if it is a container.
    pub len: Option<u32>,
    /// The number of objects of a chain that it stands for, such as the nodes of a linked list: at least 1. Each refers to
    /// the next one as the first does to the second.
    pub chain: u32,
}

/// A block that was alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who holds it.
    pub by: Holder,
    /// The type of the object, or what else the block is (`list items`): a number in [`Snapshot::texts`].
    pub what: u32,
    /// The block's size in bytes; at least 1.
    pub size: u64,
    /// Whether the child drew it. If not, the recording's sample says what it stands for.
    pub is_drawn: bool,
    /// Whether its weight is part of the sum of live bytes. Drawn blocks are. Of a block that only the recording has
    /// sampled, it says that the child could not draw it: it is large, or native memory.
    pub counts: bool,
    /// The recording's sample of this block.
    pub recorded: Option<SampleId>,
}

/// Who holds a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The node that is the object itself, or that the block belongs to.
    Node(u32),
    /// Nobody: garbage that was not collected yet.
    Garbage,
    /// No object was found that refers to it.
    NotFound,
}

impl Snapshot {
    /// A snapshot that was not taken, and why: one clause.
    #[must_use]
    pub fn not_taken(time: Nanos, reason: Reason, why: &str) -> Self {
        Self {
            outcome: SnapshotOutcome::NotTaken(why.to_owned()),
            ..Self::empty(time, reason)
        }
    }

    /// A snapshot of no objects.
    #[must_use]
    pub fn empty(time: Nanos, reason: Reason) -> Self {
        Self {
            time,
            reason,
            outcome: SnapshotOutcome::Complete,
            objects: 0,
            cpu: Nanos(0),
            pause: Nanos(0),
            period: 0,
            texts: Texts::default(),
            nodes: Vec::new(),
            others: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// A node.
    ///
    /// # Panics
    /// If there is no such node. 0 is none.
    #[must_use]
    pub fn node(&self, number: u32) -> &SnapshotNode {
        &self.nodes[number as usize - 1]
    }

    /// The other nodes that refer to a node; each leads to a root on a path of its own.
    pub fn others_of(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.others.partition_point(|&(of, _)| of < node);
        let rest = self.others[first..].iter();
        rest.take_while(move |&&(of, _)| of == node)
            .map(|&(_, other)| other)
    }

    /// What a drawn block stands for. The child takes a block of `b` bytes with probability `1 − exp(−b / period)`, by a
    /// hash of its address.
    #[must_use]
    pub fn weight(&self, of: &Held) -> Weight {
        Weight::of(Distances::Exponential, self.period, of.size, of.size, 1)
    }

    /// Gives samples the numbers that they have after others were removed: `number` says it, or `None` of one that was
    /// removed.
    pub fn renumber(&mut self, mut number: impl FnMut(SampleId) -> Option<SampleId>) {
        for of in &mut self.samples {
            let had = of.recorded.is_some();
            of.recorded = of.recorded.and_then(&mut number);
            // What it stands for is not known any more.
            of.counts &= of.is_drawn || of.recorded.is_some() == had;
        }
    }
}
