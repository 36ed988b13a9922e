//! What the embedder may choose.

use crate::geometry::MEDIUM_LIMIT;
use core::str::FromStr;

/// How arenas use the processor's huge pages. Large blocks of the fallbacks get transparent ones, unless
/// [`HugePages::Off`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HugePages {
    /// `thp`: transparent huge pages (`MADV_HUGEPAGE` and `MADV_COLLAPSE`), once the heap is large enough to gain from
    /// them. The kernel collapses pages even where the administrator forbids transparent huge pages; an embedder that
    /// respects this chooses [`HugePages::Off`].
    #[default]
    Thp,
    /// `hugetlb`: pages from the pool that the administrator reserved (`/proc/sys/vm/nr_hugepages`), and ordinary pages
    /// when it is empty.
    Hugetlb,
    /// `off`: ordinary pages only.
    Off,
}

/// The name is none of `thp`, `hugetlb` and `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownHugePages;

impl FromStr for HugePages {
    type Err = UnknownHugePages;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "thp" => Ok(Self::Thp),
            "hugetlb" => Ok(Self::Hugetlb),
            "off" => Ok(Self::Off),
            _ => Err(UnknownHugePages),
        }
    }
}

/// The settings of a heap.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Huge pages.
    pub huge_pages: HugePages,
    /// With [`HugePages::Thp`]: the size in bytes from which a growing heap asks for huge pages, so that small programs
    /// stay small. Below it, arenas whose pages are all in use can be collapsed ([`crate::Heap::collapse`]). The default is
    /// from measurements: docs/fast-path.md.
    pub huge_pages_from: usize,
    /// The largest request that the heap serves itself, in bytes; at least 512, at most
    /// [`MEDIUM_LIMIT`]. The default is from measurements: docs/fast-path.md.
    pub limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            huge_pages: HugePages::Thp,
            huge_pages_from: 8 << 20,
            limit: MEDIUM_LIMIT,
        }
    }
}
