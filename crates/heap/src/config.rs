//! The settings that the embedder may choose.

use crate::geometry::MEDIUM_LIMIT;
use core::str::FromStr;

/// The use of the processor's huge pages for arenas. Large blocks of the fallbacks get transparent huge
/// pages, unless [`HugePages::Off`] is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HugePages {
    /// `thp`: transparent huge pages (`MADV_HUGEPAGE` and `MADV_COLLAPSE`), when the heap is large enough to benefit
    /// from them. The kernel collapses pages even if the administrator forbids transparent huge pages; an embedder
    /// that respects this chooses [`HugePages::Off`].
    #[default]
    Thp,
    /// `hugetlb`: pages from the pool that the administrator reserved (`/proc/sys/vm/nr_hugepages`), and ordinary pages
    /// when the pool is empty.
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
pub struct HeapConfig {
    /// The use of huge pages.
    pub huge_pages: HugePages,
    /// With [`HugePages::Thp`]: the size in bytes from which a growing heap requests huge pages. Below it small
    /// programs stay small; arenas whose pages are all in use can still be collapsed ([`crate::Heap::collapse`]). The
    /// default comes from measurements: docs/fast-path.md.
    pub huge_pages_from: usize,
    /// The largest request of each [`BlockDomain`](crate::BlockDomain) that the heap serves itself, in bytes; at least 512, at
    /// most [`MEDIUM_LIMIT`]. The default comes from measurements: docs/fast-path.md.
    pub limits: [usize; 2],
    /// The callers whose requests above the limits the heap serves too, up to [`MEDIUM_LIMIT`]; `None`: nobody's.
    pub trusts: Option<Trusts>,
    /// Set by an embedder whose programs may make requests above the limits, and free such blocks, without the lock of
    /// the heap. Then the fallback serves them, and they are not counted. `None`: all callers hold the lock.
    pub holds_lock: Option<HoldsLock>,
}

/// Whether the call that returns to this address is from a caller who holds the lock of the heap, and who frees what it
/// gets through the heap's functions. Callable by any thread at any time; 0 stands for an address that is not known.
pub type Trusts = unsafe extern "C" fn(usize) -> bool;

/// Whether the calling thread holds the heap's lock. Callable by any thread at any time.
pub type HoldsLock = unsafe extern "C" fn() -> bool;

impl Default for HeapConfig {
    fn default() -> Self {
        Self {
            huge_pages: HugePages::Thp,
            huge_pages_from: 8 << 20,
            limits: [MEDIUM_LIMIT; 2],
            trusts: None,
            holds_lock: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_have_names() {
        let kinds = [HugePages::Thp, HugePages::Hugetlb, HugePages::Off];
        assert_eq!(["thp", "hugetlb", "off"].map(str::parse), kinds.map(Ok));
        assert_eq!("on".parse::<HugePages>(), Err(UnknownHugePages));
    }
}
