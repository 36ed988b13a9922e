//! The description of a session, which is known at its start.

use std::collections::BTreeMap;

pub use nthbyte_sampling::Distances;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::SourceDefinition;
use crate::segment::SessionPart;

/// Defines an enum whose variants have names in the file. Lists of names are open: [`Source`] keeps
/// names as text, and a name of a later version is `None` here.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The name in files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// The variant of a name; `None` if this version does not know the name.
            #[must_use]
            pub fn of_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = String::deserialize(deserializer)?;
                Self::of_name(&name)
                    .ok_or_else(|| serde::de::Error::unknown_variant(&name, &[$($text),*]))
            }
        }
    };
}
named! {
    /// The method of sampling.
    Method {
        /// CPython: free lists that are cut at the sample point.
        CutFreeLists = "cut-free-lists",
        /// PyPy: the nursery's limit is moved to the sample point.
        NurseryLimit = "nursery-limit",
        /// PyPy: one sample at every k-th minor collection, through `gc.hooks`.
        GcHooks = "gc-hooks",
        /// A preloaded library counts down the bytes of each thread.
        Preload = "preload",
        /// The global allocator of a Rust program counts down the bytes of each thread.
        GlobalAllocator = "global-allocator",
        /// At equal intervals of processor time.
        Timer = "timer",
        /// Converted from another profiler's file.
        Imported = "imported",
    }
}

named! {
    /// The kind of memory or time that a source samples.
    SourceKind {
        /// Allocations from the interpreter's heap of small objects, and from the allocator behind
        /// it.
        ObjectHeap = "object-heap",
        /// Allocations of a moving collector: in its nursery, and of objects that are too large for
        /// the nursery.
        Nursery = "nursery",
        /// Calls of `malloc` and similar functions.
        Native = "native",
        /// Mappings of memory.
        Mapping = "mapping",
        /// Memory of a device, or for it, such as a GPU's.
        Device = "device",
        /// Processor time.
        Time = "time",
        /// Allocations in another profiler's file that does not name their kind.
        Imported = "imported",
    }
}

named! {
    /// The unit of a source.
    Unit {
        /// Bytes allocated.
        Bytes = "bytes",
        /// Nanoseconds.
        Nanoseconds = "nanoseconds",
    }
}

/// A source of samples: a sampler and its settings. Its names are as they stand in the file, which a later
/// version may have written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Source {
    /// The sampled kind of memory or time: a name of [`SourceKind`].
    pub kind: String,
    /// The unit of its period and its samples: a name of [`Unit`].
    pub unit: String,
    /// The method of sampling: a name of [`Method`].
    pub method: String,
    /// The distribution of distances between sample points: a name of [`Distances`].
    pub distances: String,
    /// Mean distance between sample points, in the unit; 1 with [`Distances::Every`]; 0 if unknown.
    pub period: u64,
}

impl Source {
    /// A source of allocations, counted in bytes.
    #[must_use]
    pub fn allocations(
        kind: SourceKind,
        method: Method,
        distances: Distances,
        period: u64,
    ) -> Self {
        Self::new(kind, Unit::Bytes, method, distances, period)
    }

    /// A source of time samples, with the number of samples per second; 0 if unknown.
    #[must_use]
    pub fn time(method: Method, hz: u32) -> Self {
        let period = (NANOS_A_SECOND + u64::from(hz) / 2)
            .checked_div(hz.into())
            .unwrap_or(0);
        let (kind, unit) = (SourceKind::Time, Unit::Nanoseconds);
        Self::new(kind, unit, method, Distances::Fixed, period)
    }

    /// The sources of a session: [`SourceId::ALLOCATIONS`](crate::event::SourceId::ALLOCATIONS)
    /// and, if time is sampled, [`SourceId::TIME`](crate::event::SourceId::TIME). `method` and
    /// `period` (in bytes) are for allocations, whose kind follows from the method. `cpu_hz` is the
    /// number of time samples per second.
    #[must_use]
    pub fn of_session(
        method: Method,
        distances: Distances,
        period: u64,
        cpu_hz: Option<u32>,
    ) -> Vec<Self> {
        let (kind, timer) = match method {
            Method::CutFreeLists => (SourceKind::ObjectHeap, Method::Timer),
            Method::NurseryLimit | Method::GcHooks => (SourceKind::Nursery, Method::Timer),
            Method::Imported | Method::Timer | Method::Preload | Method::GlobalAllocator => {
                (SourceKind::Imported, Method::Imported)
            }
        };
        let mut sources = vec![Self::allocations(kind, method, distances, period)];
        sources.extend(cpu_hz.map(|hz| Self::time(timer, hz)));
        sources
    }

    fn new(
        kind: SourceKind,
        unit: Unit,
        method: Method,
        distances: Distances,
        period: u64,
    ) -> Self {
        Self {
            kind: kind.name().to_owned(),
            unit: unit.name().to_owned(),
            method: method.name().to_owned(),
            distances: distances.name().to_owned(),
            period,
        }
    }

    /// The sampled kind; `None` if this version does not know it. `unit` and `distances` do the
    /// same.
    #[must_use]
    pub fn kind(&self) -> Option<SourceKind> {
        SourceKind::of_name(&self.kind)
    }

    /// Whether the source is native memory: `malloc` and its relatives, or mappings.
    #[must_use]
    pub fn is_native(&self) -> bool {
        matches!(self.kind(), Some(SourceKind::Native | SourceKind::Mapping))
    }

    /// The unit.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        Unit::of_name(&self.unit)
    }

    /// The distribution of distances.
    #[must_use]
    pub fn distances(&self) -> Option<Distances> {
        Distances::of_name(&self.distances)
    }

    /// The source as an event.
    #[must_use]
    pub fn definition(&self) -> SourceDefinition<'_> {
        SourceDefinition {
            kind: &self.kind,
            unit: &self.unit,
            method: &self.method,
            distances: &self.distances,
            period: self.period,
        }
    }
}

impl From<SourceDefinition<'_>> for Source {
    fn from(definition: SourceDefinition<'_>) -> Self {
        Self {
            kind: definition.kind.to_owned(),
            unit: definition.unit.to_owned(),
            method: definition.method.to_owned(),
            distances: definition.distances.to_owned(),
            period: definition.period,
        }
    }
}

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// The session's description: the first thing in a profile, written as JSON so that fields can be added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of nthbyte that wrote the profile.
    pub nthbyte: String,
    /// Interpreter and version: `CPython 3.13.0`, `PyPy 7.3.11 (Python 3.9.16)`.
    pub interpreter: String,
    /// Path of the interpreter.
    pub executable: String,
    /// The program and its arguments (`sys.argv`).
    pub command: Vec<String>,
    /// Process number.
    pub pid: u32,
    /// The process that forked or spawned this one, if it was profiled too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_pid: Option<u32>,
    /// A number that all processes of a run have in common, and no other run of the same program has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// The bytes of the process that were in memory when the session began, if the process ran already then. The profile
    /// does not know who allocated them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_before: Option<u64>,
    /// The labels of the whole process, which every sample has: `service`, `env`, `version`. A thread's labels are inside of
    /// them. Readers take the first [`MOST_TAGS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The name of the machine, or of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Wall-clock time of the session's start: nanoseconds since 1970-01-01 UTC.
    pub started_unix_nanos: u64,
    /// The sources at the session's start. A [`SourceId`](crate::event::SourceId) is an index into
    /// this.
    pub sources: Vec<Source>,
    /// Seed of the distances.
    #[serde(default)]
    pub seed: u64,
    /// Which part of the session the file has, if it is one of several: `nthbyte run --keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<SessionPart>,
    /// Remarks for the reader of the profile, one sentence each ("hugetlb: the pool was empty, …").
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why an agent cannot read memory through the kernel: the end of a note.
pub const READS_ARE_FORBIDDEN: &str =
    "this system forbids a process to read itself (process_vm_readv)";

/// So many tags of a process are read.
pub const MOST_TAGS: usize = 64;

impl Meta {
    /// Whether the interpreter was a PyPy.
    #[must_use]
    pub fn is_pypy(&self) -> bool {
        self.interpreter.starts_with("PyPy")
    }

    /// The tags that are read: keys with values, in the order of keys.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        let tags = self.tags.iter().take(MOST_TAGS);
        tags.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Parses the description in a file; `None` if it is not valid.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// When the session began, and how much of the process was in memory then, if the process ran already; one clause.
    #[must_use]
    pub fn before(&self) -> Option<String> {
        let bytes = self.memory_before?;
        let minutes = self.started_unix_nanos / NANOS_A_SECOND / 60;
        let (hour, minute) = (minutes / 60 % 24, minutes % 60);
        let mib = bytes.div_ceil(1 << 20);
        Some(format!(
            "recorded from {hour:02}:{minute:02} UTC on; {mib} MiB were there before, and who allocated them is not known"
        ))
    }

    fn first(&self, unit: Unit) -> Option<&Source> {
        let mut sources = self.sources.iter();
        sources.find(|source| source.unit() == Some(unit))
    }

    /// The first source of allocations at the session's start.
    #[must_use]
    pub fn allocations(&self) -> Option<&Source> {
        self.first(Unit::Bytes)
    }

    /// Whether the process had an interpreter, or any other heap with a collector. A program of
    /// native code only has `malloc` and mappings.
    #[must_use]
    pub fn has_collector(&self) -> bool {
        !self.allocations().is_some_and(Source::is_native)
    }

    /// Mean distance between the sample points of allocations at the session's start, in bytes; 1
    /// if no allocations are sampled.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.allocations().map_or(1, |source| source.period)
    }

    /// The distribution of distances between the sample points of allocations at the session's
    /// start.
    #[must_use]
    pub fn distances(&self) -> Distances {
        let distances = self.allocations().and_then(Source::distances);
        distances.unwrap_or(Distances::Exponential)
    }

    /// The method of sampling allocations; empty if allocations are not sampled.
    #[must_use]
    pub fn method(&self) -> &str {
        self.allocations().map_or("", |source| &source.method)
    }
}
