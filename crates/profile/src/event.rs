//! What can happen in a session: the events that an agent hands to the [`Writer`](crate::Writer).
//!
//! Vocabulary, used in every later file:
//!
//! - *definition*: an event that gives a number to something ([`Code`], [`Node`], [`TypeName`],
//!   [`Thread`], [`Label`]). Definitions of one kind are numbered 0, 1, 2, … in the order of their
//!   events, so the number itself is implied; a definition comes before anything that refers to it.
//! - *stack*: a [`NodeId`]: a node of the stack tree and, by its parents, all its callers.
//! - *sample*: one [`Allocation`] or [`CpuSample`] event. A [`SampleId`] is that of an allocation;
//!   they are numbered in the order of their events.
//! - *source*: what a sample comes from: a sampler with a unit, a method and a period of its own
//!   ([`crate::Source`]).
//! - *label set*: what the program was at work on when a sample was taken (task, request, test):
//!   any number of keys with values.
//! - *young*: allocated since the last collection of the youngest generation.
//!
//! Events are in the order of time as the agent saw it, but for one exception: an allocation
//! may be written a little later than it happened (its type is known only after it), but always
//! before the collection that follows it, and always before its own [`Event::Freed`].

/// The time of an event: nanoseconds of `CLOCK_MONOTONIC` since the start of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

macro_rules! id {
    ($($(#[$doc:meta])+ $name:ident),* $(,)?) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index into a table.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

id! {
    /// A code object: its number in the order of [`Code`] definitions.
    CodeId,
    /// A node of the stack tree. Node 0 is the root and is never defined: its stack is empty.
    NodeId,
    /// The type of an object. Type 0 is never defined: it stands for "not known".
    TypeId,
    /// A thread: its number in the order of [`Thread`] definitions.
    ThreadId,
    /// A sample: its number in the order of [`Allocation`] events.
    SampleId,
    /// A label set: its number in the order of [`Label`] definitions. Set 0 is empty and is never
    /// defined.
    LabelSetId,
}

/// A source of samples. The first ones are those of [`Meta::sources`](crate::Meta::sources), in
/// their order; a source that begins during the session takes any number that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u16);

impl SourceId {
    /// The source of allocations in [`Source::of_session`](crate::Source::of_session).
    pub const ALLOCATIONS: Self = Self(0);
    /// The source of time samples in [`Source::of_session`](crate::Source::of_session).
    pub const TIME: Self = Self(1);

    /// The number as an index into a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LabelSetId {
    /// No labels.
    pub const NONE: Self = Self(0);
}

impl NodeId {
    /// The empty stack.
    pub const ROOT: Self = Self(0);
}

impl TypeId {
    /// The type that stands for "not known".
    pub const UNKNOWN: Self = Self(0);
}

/// One event, borrowed from whoever made or read it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// Defines the next [`CodeId`].
    Code(Code<'a>),
    /// Defines the next [`NodeId`].
    Node(Node),
    /// Defines the next [`TypeId`].
    Type(TypeName<'a>),
    /// Defines the next [`ThreadId`].
    Thread(Thread<'a>),
    /// Gives a thread that is already defined a new name.
    ThreadName(ThreadId, &'a str),
    /// Defines the next [`LabelSetId`].
    Label(Label<'a>),
    /// From here on, this source is what the definition says. The writer repeats it at the start
    /// of each later block, so that no block depends on another.
    Source(SourceId, SourceDefinition<'a>),
    /// From here on, this source has this period, in its unit; samples before it keep the one that
    /// they had. Whoever changes a period first writes the samples that are pending. Repeated as
    /// [`Event::Source`] is.
    Period(SourceId, u64),
    /// The next sample: an allocation.
    Allocation(Allocation),
    /// A sampled object was freed.
    Freed(SampleId, Nanos),
    /// A time sample: the stack of a thread that was using the processor.
    Cpu(CpuSample),
    /// A collection of the garbage collector, or one phase of it. Written when it ends.
    Collection(Collection),
    /// Memory totals at one moment.
    Memory(Memory),
    /// This many events of a kind were dropped, because the ring was full or memory ran out.
    Lost(LostKind, u64),
    /// Something that a later version of the format has and this one only passes on.
    Extension(Extension<'a>),
    /// The session ended in an orderly way. Nothing follows. A profile without it was cut off.
    End(End),
}

/// A code object, or anything else that a frame can belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'a> {
    /// The qualified name where the interpreter has one: `Class.method`.
    pub name: &'a str,
    /// The source file, as the interpreter names it; a shared library for native code; may be empty.
    pub file: &'a str,
    /// The line of the definition; 0 if there is none.
    pub first_line: u32,
    /// How [`Node::position`] becomes a line.
    pub lines: Lines<'a>,
}

/// How the position in a frame becomes a line number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines<'a> {
    /// The position is the line itself; 0 if it is not known.
    Direct,
    /// The position is a byte offset into the code, and this is `co_linetable` of CPython 3.11 and
    /// later: the "location table" of `Objects/locations.md` (`InternalDocs/code_objects.md` since 3.14).
    LocationTable(&'a [u8]),
    /// Machine code of an executable or a shared library: the position is an address relative to
    /// where the image is loaded, and this is the image's build id in hexadecimal digits (empty if
    /// it has none). Lines are not known.
    Image(&'a str),
}

/// What runs in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameKind {
    /// Bytecode, run by the interpreter.
    Interpreted = 0,
    /// Machine code made by a just-in-time compiler.
    Jit = 1,
    /// Machine code of a shared library or of the executable.
    Native = 2,
    /// The garbage collector.
    Gc = 3,
    /// Not a frame of the program: a note of the agent, such as where a deep stack was cut.
    Note = 4,
}

/// A node of the stack tree: a frame and the frames that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The caller; [`NodeId::ROOT`] for an outermost frame.
    pub parent: NodeId,
    /// The code that runs in the frame.
    pub code: CodeId,
    /// Where in the code: see [`Lines`].
    pub position: u32,
    /// What runs.
    pub kind: FrameKind,
}

/// The name of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeName<'a> {
    /// As a Python programmer says it: `dict`, `collections.OrderedDict`, `list items`.
    pub name: &'a str,
    /// What the interpreter itself calls it, where that is another name (`W_IntObject`); else empty.
    pub native: &'a str,
}

/// A thread of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread<'a> {
    /// The operating system's number of the thread.
    pub os_id: u64,
    /// Its name; may be empty.
    pub name: &'a str,
}

/// A label set: another one, and one label more. Where a key occurs again, the newer value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// The labels that this set has too.
    pub parent: LabelSetId,
    /// What kind of thing: `task`, `request`, `test`.
    pub key: &'a str,
    /// Which one.
    pub value: &'a str,
}

/// A source in the words of the file, which may be of a later version: see [`crate::Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceDefinition<'a> {
    /// [`SourceKind`](crate::SourceKind)'s name.
    pub kind: &'a str,
    /// [`Unit`](crate::Unit)'s name.
    pub unit: &'a str,
    /// [`Method`](crate::Method)'s name.
    pub method: &'a str,
    /// [`Distances`](crate::Distances)' name.
    pub distances: &'a str,
    /// Mean distance between sample points, in the unit; 0 if it is not known.
    pub period: u64,
}

/// An allocation that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// When it was allocated.
    pub time: Nanos,
    /// Who allocated it.
    pub thread: ThreadId,
    /// The stack that allocated it.
    pub stack: NodeId,
    /// The size that the program asked for, in bytes.
    pub size: u64,
    /// The size that the sampler counted, in bytes, at least `size`: what the allocator set aside.
    pub block: u64,
    /// How many sample points the block covers; at least 1.
    pub points: u32,
    /// What was allocated.
    pub type_id: TypeId,
    /// What the thread was at work on.
    pub labels: LabelSetId,
    /// Which sampler took it; its unit is bytes.
    pub source: SourceId,
    /// What became of the object, as far as it is known when the event is written.
    pub survival: Survival,
}

/// Whether an object survived the first minor collection after its allocation, where the sample's own event says it (PyPy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Survival {
    /// Not said here: it follows from [`Event::Freed`] and [`Event::Collection`].
    Unsaid = 0,
    /// It did not survive it.
    DiedYoung = 1,
    /// It survived it, and was tenured.
    Survived = 2,
}

/// A time sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSample {
    /// When.
    pub time: Nanos,
    /// The thread that ran.
    pub thread: ThreadId,
    /// Its stack.
    pub stack: NodeId,
    /// What it was at work on.
    pub labels: LabelSetId,
    /// Which sampler took it; its unit is nanoseconds.
    pub source: SourceId,
}

/// Work of the garbage collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// When it began.
    pub start: Nanos,
    /// How long it took.
    pub duration: Nanos,
    /// The thread that did it.
    pub thread: ThreadId,
    /// What was collected.
    pub kind: CollectionKind,
    /// Objects found dead, where the collector counts them.
    pub freed_objects: Option<u64>,
    /// Memory in use before, in bytes, where it is known.
    pub bytes_before: Option<u64>,
    /// Memory in use after, in bytes, where it is known.
    pub bytes_after: Option<u64>,
}

/// What a collection collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectionKind {
    /// CPython: this generation and all younger ones.
    Generation(u8),
    /// PyPy: the nursery.
    Minor,
    /// PyPy: one step of a major collection, in this phase.
    MajorStep(MajorPhase),
    /// PyPy: a major collection as a whole, from its first step to its last.
    Major,
}

impl CollectionKind {
    /// Whether the youngest generation was collected, so that what was alive then has survived.
    #[must_use]
    pub const fn ends_youth(self) -> bool {
        matches!(self, Self::Generation(_) | Self::Minor)
    }
}

/// The phases of PyPy's incremental major collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MajorPhase {
    /// Looking for roots.
    Scanning = 0,
    /// Marking what is reachable.
    Marking = 1,
    /// Sweeping what is not.
    Sweeping = 2,
    /// Running finalizers.
    Finalizing = 3,
}

/// Memory totals, in bytes. What is not known is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When.
    pub time: Nanos,
    /// Heap memory in blocks that are in use.
    pub heap_used: Option<u64>,
    /// Heap memory taken from the operating system.
    pub heap_reserved: Option<u64>,
    /// Resident set size of the process.
    pub rss: Option<u64>,
    /// Bytes allocated since the session's start, sampled or not, where the agent can count them.
    pub allocated: Option<u64>,
}

/// What kind of event was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LostKind {
    /// Allocation samples.
    Allocations = 0,
    /// Time samples.
    CpuSamples = 1,
    /// Anything else: frees, collections, memory totals.
    Other = 2,
}

/// An event of a kind that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its number in the file: at least 64. The writer drops events with another one.
    pub kind: u8,
    /// All that it says: at most a mebibyte. The writer drops longer ones.
    pub bytes: &'a [u8],
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// When.
    pub time: Nanos,
    /// Bytes allocated since the session's start, sampled or not, where the agent can count them.
    pub allocated: Option<u64>,
}
