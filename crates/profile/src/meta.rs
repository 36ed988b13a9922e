//! What is known about a session before anything happens in it.

pub use nthbyte_sampling::Distances;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::SourceDefinition;

/// An enum of which each variant has a name in the file. Lists of names are open: [`Source`] keeps
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

            /// What a name stands for; `None` if this version does not know it.
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
    /// How samples were taken.
    Method {
        /// CPython: free lists cut at the sample point.
        CutFreeLists = "cut-free-lists",
        /// PyPy: the nursery's limit moved to the sample point.
        NurseryLimit = "nursery-limit",
        /// PyPy: one sample at every k-th minor collection, through `gc.hooks`.
        GcHooks = "gc-hooks",
        /// At equal intervals of processor time.
        Timer = "timer",
        /// Converted from another profiler's file.
        Imported = "imported",
    }
}

named! {
    /// What a source samples.
    SourceKind {
        /// Allocations from the interpreter's heap of small objects and what lies behind it.
        ObjectHeap = "object-heap",
        /// Allocations of a moving collector: its nursery, and what is too large for that.
        Nursery = "nursery",
        /// Calls of `malloc` and its kind.
        Native = "native",
        /// Mappings of memory.
        Mapping = "mapping",
        /// Processor time.
        Time = "time",
        /// Allocations in another profiler's file, which does not say of what.
        Imported = "imported",
    }
}

named! {
    /// What a source counts.
    Unit {
        /// Bytes allocated.
        Bytes = "bytes",
        /// Nanoseconds.
        Nanoseconds = "nanoseconds",
    }
}

/// A source of samples: a sampler and how it works. Names are those of the file, which may have
/// been written by a later version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Source {
    /// What it samples: a name of [`SourceKind`].
    pub kind: String,
    /// What its period and its samples are counted in: a name of [`Unit`].
    pub unit: String,
    /// How samples are taken: a name of [`Method`].
    pub method: String,
    /// How distances between sample points are drawn: a name of [`Distances`].
    pub distances: String,
    /// Mean distance between sample points, in the unit; 1 with [`Distances::Every`]; 0 if it is
    /// not known.
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

    /// A source of time samples, so many a second; 0 if it is not known how many.
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
    /// `period` (in bytes) are those of allocations, whose kind follows from the method; `cpu_hz`:
    /// time samples a second.
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
            Method::Imported | Method::Timer => (SourceKind::Imported, Method::Imported),
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

    /// What it samples; `None` if this version does not know it. So for the next three.
    #[must_use]
    pub fn kind(&self) -> Option<SourceKind> {
        SourceKind::of_name(&self.kind)
    }

    /// What it counts.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        Unit::of_name(&self.unit)
    }

    /// How samples are taken.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        Method::of_name(&self.method)
    }

    /// How distances are drawn.
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
    /// The process that this one was forked or spawned from, if that one was profiled too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_pid: Option<u32>,
    /// Wall-clock time of the session's start: nanoseconds since 1970-01-01 UTC.
    pub started_unix_nanos: u64,
    /// The sources that the session begins with. A
    /// [`SourceId`](crate::event::SourceId) is an index into this.
    #[serde(default)]
    pub sources: Vec<Source>,
    /// Seed of the distances.
    #[serde(default)]
    pub seed: u64,
    /// Remarks for whoever reads the profile, a sentence each ("hugetlb: the pool was empty, …").
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What version 1 says of sources.
#[derive(Deserialize)]
struct Version1 {
    period: u64,
    distances: Distances,
    method: Method,
    #[serde(default)]
    cpu_hz: Option<u32>,
}

impl Meta {
    /// The description in a file of this version; `None` if it makes no sense.
    pub(crate) fn parse(version: u32, json: &[u8]) -> Option<Self> {
        let mut meta: Self = serde_json::from_slice(json).ok()?;
        if version == 1 {
            let old: Version1 = serde_json::from_slice(json).ok()?;
            let hz = Some(old.cpu_hz.unwrap_or(0));
            meta.sources = Source::of_session(old.method, old.distances, old.period, hz);
        }
        Some(meta)
    }

    fn first(&self, unit: Unit) -> Option<&Source> {
        let mut sources = self.sources.iter();
        sources.find(|source| source.unit() == Some(unit))
    }

    /// The first source of allocations, as the session begins.
    #[must_use]
    pub fn allocations(&self) -> Option<&Source> {
        self.first(Unit::Bytes)
    }

    /// Mean distance between the sample points of allocations as the session begins, in bytes; 1
    /// if no allocations are sampled.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.allocations().map_or(1, |source| source.period)
    }

    /// How the distances between the sample points of allocations are drawn as the session begins.
    #[must_use]
    pub fn distances(&self) -> Distances {
        let distances = self.allocations().and_then(Source::distances);
        distances.unwrap_or(Distances::Exponential)
    }

    /// How allocations are sampled; empty if they are not.
    #[must_use]
    pub fn method(&self) -> &str {
        self.allocations().map_or("", |source| &source.method)
    }
}
