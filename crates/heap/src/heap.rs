//! The state of a heap.

use crate::addresses::Addresses;
use crate::arena::{ArenaTable, Arenas};
use crate::class::Class;
use crate::config::{HeapConfig, HoldsLock, Trusts};
use crate::filter::Filter;
use crate::geometry::{
    ARENA_SIZE, BLOCK_SIZES, CLASSES, GROUPS, MEDIUM_LIMIT, SMALL_LIMIT, STATE_SIZE, TABLE_SIZE,
};
use crate::observer::{BlockDomain, Fallback, HeapObserver};
use crate::os;
use crate::page::{Block, Page, Slot};
use crate::reservation;
use crate::shared::Shared;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use nthbyte_sampling::SamplePoints;

/// The slot of the pages for sampled blocks. Its budget is always spent.
pub const SAMPLED_SLOT: usize = CLASSES;

/// The pages for sampled blocks of a group of classes.
#[derive(Clone, Copy)]
pub struct Sampled {
    /// The pages with free blocks.
    pub queue: *mut Page,
    /// The page from which new blocks are carved, or null.
    pub fresh: *mut Page,
}

/// The state of a heap. Its address is the context of all allocation functions.
///
/// `slots` is the first field, so that the fast path of `malloc` finds a class's list at `context +
/// 16·class`. The arena table follows at `context + STATE_SIZE`.
#[repr(C)]
pub struct Heap {
    /// A slot for each class, and one for the pages for sampled blocks.
    pub slots: [Slot; CLASSES + 1],
    /// The slow path's state of each class.
    pub classes: [Class; CLASSES],
    /// The pages for sampled blocks, for each group of classes.
    pub sampled: [Sampled; GROUPS],
    /// All arenas: the source of pages.
    pub arenas: Arenas,
    /// The moved state and the test for the lock, if the heap was shared; see `shared.rs`.
    pub shared: Option<Shared>,
    /// The largest request of each [`BlockDomain`] that the heap serves itself, in bytes.
    pub limits: [usize; 2],
    /// The check of callers above the limits; see [`HeapConfig::trusts`].
    pub trusts: Option<Trusts>,
    /// The check for the lock where fallbacks serve requests; see [`HeapConfig::holds_lock`].
    pub holds_lock: Option<HoldsLock>,
    /// The allocation site of the last call that took a slow path; 0 if unknown.
    pub site: usize,
    /// The source of sample points; `None` while sampling is off.
    pub points: Option<SamplePoints>,
    /// The receiver of samples; `None` while sampling is off.
    pub observer: Option<HeapObserver>,
    /// The number of the session. The tag of a block from an earlier session has another number.
    pub session: u32,
    /// Whether the observer is running.
    pub observing: bool,
    /// Number of samples that the observer could not receive: there was no memory, or it was
    /// running.
    pub lost: u64,
    /// The fallback of each [`BlockDomain`].
    pub fallbacks: [Fallback; 2],
    /// The distance to the next sample point, in bytes of requests that the fallbacks serve. `u64::MAX` while sampling is
    /// off: no program allocates as much. Atomic, for a caller without the lock counts down too (`large.rs`).
    pub large_until_sample: AtomicU64,
    /// Bytes that the fallbacks served since the session's start.
    pub large_bytes: AtomicU64,
    /// The bytes of live blocks of the fallbacks, estimated: what the samples of those that are live stand for.
    pub large_in_use: u64,
    /// The address of the last large block for which huge pages were requested.
    pub advised: usize,
    /// Sampled blocks of the fallbacks that are still in use.
    pub large_sampled: Addresses,
    /// Which blocks may be among them.
    pub large_filter: Filter,
    /// Blocks that other threads freed.
    pub remote: AtomicPtr<Block>,
}

const _: () = assert!(size_of::<Heap>() <= STATE_SIZE);
const _: () = assert!(core::mem::offset_of!(Heap, slots) == 0);

impl Heap {
    /// Makes a heap, with sampling off. The heap is never unmapped: its blocks may be in use until the process
    /// ends.
    ///
    /// `fallbacks` are the fallbacks of [`BlockDomain::Object`] and [`BlockDomain::Memory`]. Returns `None` if there is
    /// no address space: 64 MiB, of which very little is touched, or 1 or 2 MiB where the address space is limited.
    #[must_use]
    pub fn create(config: HeapConfig, fallbacks: [Fallback; 2]) -> Option<NonNull<Self>> {
        let base = reservation::reserve()?;
        // SAFETY: just mapped, writable zeroes, page-aligned, large enough; nothing else refers to
        // it.
        unsafe {
            os::advise_huge(base.as_ptr(), STATE_SIZE + TABLE_SIZE, false);
            let heap: NonNull<Self> = base.cast();
            heap.write(Self::new(config, fallbacks));
            Some(heap)
        }
    }

    pub(crate) fn new(config: HeapConfig, fallbacks: [Fallback; 2]) -> Self {
        Self {
            slots: core::array::from_fn(|_| Slot {
                head: null_mut(),
                budget: 1,
            }),
            classes: core::array::from_fn(|class| Class::new(BLOCK_SIZES[class])),
            sampled: [Sampled {
                queue: null_mut(),
                fresh: null_mut(),
            }; GROUPS],
            arenas: Arenas::new(config.huge_pages, config.huge_pages_from / ARENA_SIZE),
            shared: None,
            limits: config
                .limits
                .map(|limit| limit.clamp(SMALL_LIMIT, MEDIUM_LIMIT)),
            trusts: config.trusts,
            holds_lock: config.holds_lock,
            site: 0,
            points: None,
            observer: None,
            session: 0,
            observing: false,
            lost: 0,
            fallbacks,
            large_until_sample: AtomicU64::new(u64::MAX),
            large_bytes: AtomicU64::new(0),
            large_in_use: 0,
            advised: 0,
            large_sampled: Addresses::new(),
            large_filter: Filter::new(),
            remote: AtomicPtr::new(null_mut()),
        }
    }

    /// The arena table after the state of the heap at `context`.
    #[inline(always)]
    pub fn table(context: *mut c_void) -> ArenaTable {
        ArenaTable::at(context.cast::<u8>().wrapping_add(STATE_SIZE))
    }

    /// Collapses one arena of ordinary OS pages into a huge page, if all its pages are in use and huge pages are wanted
    /// ([`crate::HugePages::Thp`]). Returns whether an arena was found. This takes about a millisecond and makes the
    /// program faster afterwards, so call it at intervals in a long-running program. After a slow collapse there is a
    /// pause.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    pub unsafe fn collapse(heap: *mut Self) -> bool {
        // SAFETY: by the caller.
        unsafe { &mut *Self::state(heap) }
            .arenas
            .collapse_full_arena()
    }

    /// Gives half of the free memory back to the system that was not needed since the last call. Call this at intervals,
    /// such as a second: then free memory that is not used again has a half-life of one interval. Returns whether
    /// there was such memory.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    pub unsafe fn decay(heap: *mut Self) -> bool {
        // SAFETY: by the caller.
        unsafe {
            let state = Self::state(heap);
            (*state).arenas.decay(Self::table(state.cast()))
        }
    }

    /// Whether this heap itself allocated a block, and not a fallback. Any thread may call this for a
    /// block that is in use.
    ///
    /// # Safety
    /// `context` is the address of a heap.
    #[must_use]
    pub unsafe fn owns(context: *mut c_void, block: *const c_void) -> bool {
        // SAFETY: by the caller.
        let heap = unsafe { Self::state(context.cast()) };
        Self::table(heap.cast()).holds(block.cast_mut().cast())
    }

    /// Whether an address lies in an arena of this heap, so that it can be read. Any number is allowed, also where only
    /// parts of the arena table are mapped.
    ///
    /// # Safety
    /// `context` is the address of a heap that no other thread uses now. An observer may call this.
    #[must_use]
    pub unsafe fn has_address(context: *mut c_void, address: usize) -> bool {
        // SAFETY: by the caller.
        unsafe {
            let state = Self::state(context.cast());
            (*state).arenas.hold(address, Self::table(state.cast()))
        }
    }

    /// Whether a block in an arena of this heap was sampled, in this session or before.
    ///
    /// # Safety
    /// `context` is the address of a heap that no other thread uses now. The address is a used block's.
    #[must_use]
    pub unsafe fn is_sampled(context: *mut c_void, block: usize) -> bool {
        // SAFETY: by the caller; the block lies in a page of this heap.
        unsafe {
            Self::has_address(context, block)
                && (*Page::of(core::ptr::with_exposed_provenance_mut(block))).sampled
        }
    }

    /// The number of bytes of a block that the program may use. Any thread may call this for a block
    /// that is in use.
    ///
    /// # Safety
    /// `context` is the address of a heap which [owns](Self::owns) the block; the block is in use.
    #[must_use]
    pub unsafe fn usable_size(_context: *mut c_void, block: *const c_void) -> usize {
        // SAFETY: the block is in use, so its class does not change.
        let class = unsafe { Page::class_of(block.cast_mut().cast()) };
        BLOCK_SIZES[class] as usize
    }

    pub(crate) fn fallback(&self, domain: BlockDomain) -> Fallback {
        self.fallbacks[domain as usize]
    }
}
