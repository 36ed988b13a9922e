//! The kinds of memory whose periods are decided.

use nthbyte_profile::Meta;

/// Kinds of memory, each with a period of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The interpreter's.
    Own = 0,
    Native = 1,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Own, Self::Native];

    /// A bit for each source of native memory.
    pub(crate) fn native_sources(meta: &Meta) -> u64 {
        let sources = meta.sources.iter().take(64).enumerate();
        let native = sources.filter(|(_, source)| source.is_native());
        native.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Own => Self::Native,
            Self::Native => Self::Own,
        }
    }
}
