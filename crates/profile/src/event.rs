//! The events of a session, which an agent passes to the [`Writer`](crate::Writer).
//!
//! Vocabulary, used in all modules:
//!
//! - *definition*: an event that gives a number to something ([`Code`], [`Node`], [`TypeName`],
//!   [`Thread`], [`Label`]). Definitions of one kind are numbered 0, 1, 2, … in the order of their
//!   events, so the number is not stored. A definition comes before every event that refers to it.
//! - *stack*: a [`NodeId`]: a node of the stack tree and, by its parents, all its callers.
//! - *sample*: one [`Allocation`] or [`CpuSample`] event. A [`SampleId`] is the number of an
//!   allocation; allocations are numbered in the order of their events.
//! - *source*: a sampler with its unit, method and period ([`crate::Source`]). Each sample comes
//!   from one source.
//! - *label set*: the work of the program when a sample was taken (task, request, test): any number
//!   of keys with values.
//! - *young*: allocated since the last collection of the youngest generation.
//!
//! Events are in the order of time as the agent saw it, with one exception: an allocation may be
//! written a little later than it happened (its type is known only after it), but always before the
//! next collection, and always before its own [`Event::Freed`].

/// The time of an event: nanoseconds of `CLOCK_MONOTONIC` since the start of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

macro_rules! id {
    ($($(#[$doc:meta])+ $name:ident),* $(,)?) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The number, as an index into a table.
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
    /// The type of an object. Type 0 is never defined: it means "not known".
    TypeId,
    /// A thread: its number in the order of [`Thread`] definitions.
    ThreadId,
    /// A sample: its number in the order of [`Allocation`] events.
    SampleId,
    /// A label set: its number in the order of [`Label`] definitions. Set 0 is empty and is never
    /// defined.
    LabelSetId,
}

/// A source of samples. The first numbers belong to [`Meta::sources`](crate::Meta::sources), in
/// their order; a source that begins during the session takes any free number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u16);

impl SourceId {
    /// The source of allocations in [`Source::of_session`](crate::Source::of_session).
    pub const ALLOCATIONS: Self = Self(0);
    /// The source of time samples in [`Source::of_session`](crate::Source::of_session).
    pub const TIME: Self = Self(1);

    /// The number, as an index into a table.
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
    /// The type "not known".
    pub const UNKNOWN: Self = Self(0);
}

/// One event. It borrows its texts from the code that made or read it.
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
    /// From here on, this definition is valid for this source. The writer repeats it at the start
    /// of each later block, so that no block depends on another.
    Source(SourceId, SourceDefinition<'a>),
    /// From here on, this source has this period, in its unit; samples before it keep the previous
    /// period. Where a sample follows whose sample point was drawn under an earlier period, an agent
    /// writes that period before it. Repeated like [`Event::Source`].
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
    /// An event of a later version of the format. This version only copies it.
    Extension(Extension<'a>),
    /// The session ended normally. No event follows. A profile without this event is incomplete.
    End(End),
}

/// A code object, or another owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code<'a> {
    /// The qualified name, such as `Class.method`, if the interpreter has one.
    pub name: &'a str,
    /// The source file, as the interpreter names it; a shared library for native code; may be empty.
    pub file: &'a str,
    /// The line of the definition; 0 if there is none.
    pub first_line: u32,
    /// The conversion of [`Node::position`] to a line.
    pub lines: Lines<'a>,
}

/// The conversion of a frame's position to a line number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines<'a> {
    /// The position is the line itself; 0 if it is not known.
    Direct,
    /// The position is a byte offset into the code, and this is `co_linetable` of CPython 3.11 and
    /// later: the "location table" of `Objects/locations.md` (`InternalDocs/code_objects.md` since 3.14).
    LocationTable(&'a [u8]),
    /// Machine code of an executable or a shared library. The position is an address relative to
    /// the load address of the image, and this is the image's build id in hexadecimal digits (empty
    /// if it has none). Lines are not known.
    Image(&'a str),
}

/// The kind of code in a frame.
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
    /// Not a frame of the program, but a note of the agent, such as the place where a deep stack
    /// was cut.
    Note = 4,
}

/// A node of the stack tree: a frame and the frames that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The caller; [`NodeId::ROOT`] for an outermost frame.
    pub parent: NodeId,
    /// The code that runs in the frame.
    pub code: CodeId,
    /// The position in the code: see [`Lines`].
    pub position: u32,
    /// The kind of code.
    pub kind: FrameKind,
}

/// The name of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeName<'a> {
    /// The Python name: `dict`, `collections.OrderedDict`, `list items`.
    pub name: &'a str,
    /// The interpreter's own name if it differs (`W_IntObject`); of native memory whose name says who called, the function
    /// that was called; else empty.
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

/// A label set: another set with one more label. If a key occurs twice, the newer value is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// The set with the other labels.
    pub parent: LabelSetId,
    /// The kind of work: `task`, `request`, `test`.
    pub key: &'a str,
    /// The name of the task, request or test.
    pub value: &'a str,
}

/// A source as the file names it. The file may be of a later version: see [`crate::Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceDefinition<'a> {
    /// The name of a [`SourceKind`](crate::SourceKind).
    pub kind: &'a str,
    /// The name of a [`Unit`](crate::Unit).
    pub unit: &'a str,
    /// The name of a [`Method`](crate::Method).
    pub method: &'a str,
    /// The name of [`Distances`](crate::Distances).
    pub distances: &'a str,
    /// Mean distance between sample points, in the unit; 0 if unknown.
    pub period: u64,
}

/// An allocation that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Time of the allocation.
    pub time: Nanos,
    /// The thread that allocated.
    pub thread: ThreadId,
    /// The stack of the allocation.
    pub stack: NodeId,
    /// The requested size, in bytes.
    pub size: u64,
    /// The size that the sampler counted, in bytes, at least `size`: the size of the allocator's
    /// block.
    pub block: u64,
    /// Number of sample points that the block covers; at least 1.
    pub points: u32,
    /// The type of the object.
    pub type_id: TypeId,
    /// The labels of the thread's work.
    pub labels: LabelSetId,
    /// The sampler; its unit is bytes.
    pub source: SourceId,
    /// Whether the object survived, if that is known when the event is written.
    pub survival: Survival,
}

/// Whether an object survived the first minor collection after its allocation, if the sample's own event contains it
/// (PyPy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Survival {
    /// Not in this event: it follows from [`Event::Freed`] and [`Event::Collection`].
    Unsaid = 0,
    /// The object did not survive the collection.
    DiedYoung = 1,
    /// The object survived the collection and became old.
    Survived = 2,
}

/// A time sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSample {
    /// Time of the sample.
    pub time: Nanos,
    /// The running thread.
    pub thread: ThreadId,
    /// Its stack.
    pub stack: NodeId,
    /// The labels of the thread's work.
    pub labels: LabelSetId,
    /// The sampler; its unit is nanoseconds.
    pub source: SourceId,
}

/// Work of the garbage collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// Start of the work.
    pub start: Nanos,
    /// Duration of the work.
    pub duration: Nanos,
    /// The thread that did the work.
    pub thread: ThreadId,
    /// The kind of collection.
    pub kind: CollectionKind,
    /// Number of dead objects, if the collector counts them.
    pub freed_objects: Option<u64>,
    /// Memory in use before, in bytes, if known. Of a minor collection of PyPy these two are old memory, without the nursery: they
    /// differ by what survived, less the large objects that were freed.
    pub bytes_before: Option<u64>,
    /// Memory in use after, in bytes, if known.
    pub bytes_after: Option<u64>,
}

impl Collection {
    /// The end of the work.
    #[must_use]
    pub const fn end(&self) -> Nanos {
        Nanos(self.start.0.saturating_add(self.duration.0))
    }
}

/// The kind of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectionKind {
    /// CPython: this generation and all younger ones.
    Generation(u8),
    /// PyPy: the nursery.
    Minor,
    /// PyPy: one step of a major collection, in this phase.
    MajorStep(MajorPhase),
    /// PyPy: a whole major collection, from its first step to its last.
    Major,
}

impl CollectionKind {
    /// Whether the youngest generation was collected, so that objects which are still alive have
    /// survived.
    #[must_use]
    pub const fn ends_youth(self) -> bool {
        matches!(self, Self::Generation(_) | Self::Minor)
    }
}

/// The phases of PyPy's incremental major collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MajorPhase {
    /// Searching the roots.
    Scanning = 0,
    /// Marking reachable objects.
    Marking = 1,
    /// Sweeping unreachable objects.
    Sweeping = 2,
    /// Running finalizers.
    Finalizing = 3,
}

/// Memory totals, in bytes. Unknown totals are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Time of the totals.
    pub time: Nanos,
    /// Heap memory in blocks that are in use, large ones included.
    pub heap_used: Option<u64>,
    /// Heap memory taken from the operating system.
    pub heap_reserved: Option<u64>,
    /// Resident set size of the process.
    pub rss: Option<u64>,
    /// Bytes allocated since the session's start, sampled or not, if the agent can count them.
    pub allocated: Option<u64>,
    /// The largest resident set size that the process has had until now, as the kernel counts it.
    pub peak_rss: Option<u64>,
}

impl Memory {
    /// A peak of the resident set that lay between two readings has a reading of its own, this long before the second
    /// one: the kernel tells its size, but not its time.
    pub const PASSED: Nanos = Nanos(1000);
}

/// The kind of dropped events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LostKind {
    /// Allocation samples.
    Allocations = 0,
    /// Time samples.
    CpuSamples = 1,
    /// All other events: frees, collections, memory totals.
    Other = 2,
}

/// An event of a kind that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// The number of the kind in the file: at least 64. The writer drops events with a smaller
    /// number.
    pub kind: u8,
    /// The content of the event: at most a mebibyte. The writer drops longer events.
    pub bytes: &'a [u8],
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Time of the end.
    pub time: Nanos,
    /// Bytes allocated since the session's start, sampled or not, if the agent can count them.
    pub allocated: Option<u64>,
}
