//! The state of a heap, and how it is made.

use crate::addresses::Addresses;
use crate::arena::{ArenaTable, Arenas};
use crate::class::{BLOCK_SIZES, CLASSES, GROUPS, MEDIUM_LIMIT};
use crate::deal::{DEAL_BLOCKS, GRANT_BYTES};
use crate::observer::{Domain, Fallback, Observer};
use crate::os::{self, HugePages};
use crate::page::{Block, Page, Slot};
use crate::shared::Shared;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::AtomicPtr;
use nthbyte_sampling::{Countdown, SamplePoints};

/// The bytes between the start of the state and the start of the arena table.
pub const STATE_SIZE: usize = 16 << 10;

/// The slot of pages that are kept for sampled blocks: its allowance is always 1.
pub const SAMPLED_SLOT: usize = CLASSES;

/// How a heap is to be.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Huge pages.
    pub huge_pages: HugePages,
    /// With [`HugePages::Transparent`], the size in bytes that the heap must have before it asks for
    /// them as it grows, so that small programs stay small: below, memory that is full can be given them, see
    /// [`Heap::join_pages`]. The default is by measurement: docs/fast-path.md.
    pub huge_pages_from: usize,
    /// The largest request that the heap serves itself, in bytes; at least 512, at most
    /// [`MEDIUM_LIMIT`]. The default is by measurement: docs/fast-path.md.
    pub limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            huge_pages: HugePages::Transparent,
            huge_pages_from: 8 << 20,
            limit: MEDIUM_LIMIT,
        }
    }
}

/// What the slow path knows of a size class.
pub struct Class {
    /// The size of a block.
    pub size: u32,
    /// How many blocks were on the list when it was last dealt, see `deal.rs`.
    pub handed: usize,
    /// How many more `free` was allowed to push then.
    pub granted: usize,
    /// How many bytes `free` may push before the list is looked at, if no sample point is near.
    pub grant_bytes: u32,
    /// How many blocks are dealt at most when the list runs empty.
    pub deal_blocks: usize,
    /// To the next sample point among this class's bytes.
    pub countdown: Countdown,
    /// Allocations of this class, up to when its list was last counted.
    pub allocations: u64,
    /// Blocks in use or out.
    pub used: usize,
    /// Pages with free blocks, the most recently freed to in front.
    pub queue: *mut Page,
    /// The page from which fresh blocks are carved, or null.
    pub fresh: *mut Page,
}

/// Pages kept for the sampled blocks of a group of classes.
#[derive(Clone, Copy)]
pub struct Sampled {
    /// Those with free blocks.
    pub queue: *mut Page,
    /// The one from which fresh blocks are carved, or null.
    pub fresh: *mut Page,
}

/// The state of a heap. Its address is the context of all allocation functions.
///
/// `slots` comes first, so that the fast path of `malloc` finds a class's list at
/// `context + 16·class`, and the arena table follows at `context + STATE_SIZE`.
#[repr(C)]
pub struct Heap {
    /// One for each class, and that of the pages kept for sampled blocks.
    pub slots: [Slot; CLASSES + 1],
    /// What the slow path knows of each class.
    pub classes: [Class; CLASSES],
    /// Where sampled blocks are, by the group of their class.
    pub sampled: [Sampled; GROUPS],
    /// Where pages come from.
    pub arenas: Arenas,
    /// Where the state is if the heap was shared; see `shared.rs`.
    pub shared: Option<Shared>,
    /// The largest request served here.
    pub limit: usize,
    /// Where the allocation that took a slow path last was called from; 0 if that is not known.
    pub caller: usize,
    /// Where the sample points are; `None` while sampling is off.
    pub points: Option<SamplePoints>,
    /// Who is told; `None` while sampling is off.
    pub observer: Option<Observer>,
    /// The number of the session, so that a tag of an earlier one is recognised.
    pub session: u32,
    /// Set while an observer runs.
    pub observing: bool,
    /// Samples that could not be reported for want of memory or from within an observer.
    pub lost: u64,
    /// By [`Domain`].
    pub fallbacks: [Fallback; 2],
    /// The sample points among the bytes of requests that the fallbacks serve.
    pub large_countdown: Countdown,
    /// Bytes that the fallbacks served since the session began.
    pub large_bytes: u64,
    /// The block of a fallback that was advised to be huge last.
    pub advised: usize,
    /// Blocks of the fallbacks that were sampled and are still in use.
    pub large_sampled: Addresses,
    /// Blocks that other threads freed.
    pub remote: AtomicPtr<Block>,
}

const _: () = assert!(size_of::<Heap>() <= STATE_SIZE);
const _: () = assert!(core::mem::offset_of!(Heap, slots) == 0 && size_of::<Slot>() == 16);

impl Heap {
    /// Makes a heap, with sampling off. It is never given back: blocks may outlive everything.
    ///
    /// `fallbacks` are those of [`Domain::Object`] and [`Domain::Memory`]. Returns `None` if the
    /// address space for it is not to be had (64 MiB, next to nothing of it touched).
    #[must_use]
    pub fn create(config: Config, fallbacks: [Fallback; 2]) -> Option<NonNull<Self>> {
        let base = os::map(STATE_SIZE + ArenaTable::SIZE)?;
        // SAFETY: just mapped, writable zeroes, page-aligned, large enough, known to nobody else.
        unsafe {
            os::advise_huge(base.as_ptr(), STATE_SIZE + ArenaTable::SIZE, false);
            let heap: NonNull<Self> = base.cast();
            heap.write(Self::new(config, fallbacks));
            let slots = (&raw mut (*heap.as_ptr()).slots).cast::<Slot>();
            for index in 0..=CLASSES {
                (*slots.add(index)).allowance = 1;
            }
            Some(heap)
        }
    }

    pub(crate) fn new(config: Config, fallbacks: [Fallback; 2]) -> Self {
        Self {
            slots: core::array::from_fn(|_| Slot {
                head: null_mut(),
                allowance: 1,
            }),
            classes: core::array::from_fn(|class| Class {
                size: BLOCK_SIZES[class],
                handed: 0,
                granted: 0,
                grant_bytes: GRANT_BYTES,
                deal_blocks: DEAL_BLOCKS,
                countdown: Countdown::NEVER,
                allocations: 0,
                used: 0,
                queue: null_mut(),
                fresh: null_mut(),
            }),
            sampled: [Sampled {
                queue: null_mut(),
                fresh: null_mut(),
            }; GROUPS],
            arenas: Arenas::new(
                config.huge_pages,
                config.huge_pages_from / crate::arena::ARENA_SIZE,
            ),
            shared: None,
            limit: config.limit.clamp(crate::class::SMALL_LIMIT, MEDIUM_LIMIT),
            caller: 0,
            points: None,
            observer: None,
            session: 0,
            observing: false,
            lost: 0,
            fallbacks,
            large_countdown: Countdown::NEVER,
            large_bytes: 0,
            advised: 0,
            large_sampled: Addresses::new(),
            remote: AtomicPtr::new(null_mut()),
        }
    }

    /// The table behind the state of the heap at `context`.
    #[inline(always)]
    pub fn table(context: *mut c_void) -> ArenaTable {
        ArenaTable::at(context.cast::<u8>().wrapping_add(STATE_SIZE))
    }

    /// Has the kernel put 2 MiB of ordinary pages that are all in use into one huge page, if there are such and huge pages are
    /// wanted ([`HugePages::Transparent`]). To be called now and then, if the program is to run for a while: it takes the
    /// better part of a millisecond, and makes what the program does afterwards faster. Whether there was something to do, and
    /// it was the time for it: not soon after it took long.
    ///
    /// # Safety
    /// `heap` is a heap that nobody else is using now.
    pub unsafe fn join_pages(heap: *mut Self) -> bool {
        // SAFETY: by the caller.
        unsafe { &mut *Self::state(heap) }.arenas.join_pages()
    }

    /// Whether a block was allocated by this heap itself, and not by a fallback. May be asked by any thread
    /// about a block that is in use.
    ///
    /// # Safety
    /// `context` is the address of a heap.
    #[must_use]
    pub unsafe fn owns(context: *mut c_void, block: *const c_void) -> bool {
        // SAFETY: by the caller.
        let heap = unsafe { Self::state(context.cast()) };
        Self::table(heap.cast()).holds(block.cast_mut().cast())
    }

    /// How many bytes of a block the program may use. May be asked by any thread about a block that is in use.
    ///
    /// # Safety
    /// `context` is the address of a heap which [owns](Self::owns) the block; the block is in use.
    #[must_use]
    pub unsafe fn usable_size(_context: *mut c_void, block: *const c_void) -> usize {
        // SAFETY: the block is in use, and its class does not change meanwhile.
        let class = unsafe { Page::class_of(block.cast_mut().cast()) };
        BLOCK_SIZES[class] as usize
    }

    pub(crate) fn fallback(&self, domain: Domain) -> Fallback {
        self.fallbacks[domain as usize]
    }
}
