//! Arenas: 2 MiB of memory at a multiple of 2 MiB, cut into pages.
//!
//! An arena's header lies behind the header of its first page, so that a heap of any size needs no
//! other place for it. Arenas that have free pages are queued by how many they have, and a page is
//! taken from the fullest: so the emptiest get a chance to become empty and be given back. But a free page
//! that was in use before (*dirty*: there is memory behind it) is always preferred to one that was not.
//!
//! Memory of freed pages is kept, as it is likely to be needed again, up to [`KEEP_AT_LEAST`] or a quarter of
//! what is in use, whichever is more. When it is exceeded, half of that goes back to the system.

mod queues;

use self::queues::Queues;
use crate::os::{self, HugePages};
use crate::page::{PAGE_HEADER, PAGE_SIZE, Page};
use core::ops::Range;
use core::ptr::null_mut;

/// The size of an arena and its alignment: one huge page of x86-64 and of AArch64 with 4 KiB pages.
pub const ARENA_SIZE: usize = 1 << ARENA_BITS;
/// An arena's number is its address shifted by this.
pub const ARENA_BITS: u32 = 21;
/// Addresses of programs have this many bits, unless one asks the kernel for more, which we do not.
pub const ADDRESS_BITS: u32 = if cfg!(target_arch = "x86_64") { 47 } else { 48 };

const PAGES: u32 = (ARENA_SIZE / PAGE_SIZE) as u32;
/// Where the first block of an arena's first page may lie.
pub const FIRST_PAGE_HEADER: usize = PAGE_HEADER + size_of::<Arena>();
/// So many pages may be kept although they are free: 8 MiB, by measurement (docs/fast-path.md).
const KEEP_AT_LEAST: usize = (8 << 20) / PAGE_SIZE;
/// How many requests for an arena go unasked after one was refused: at the limit of memory each would cost
/// two system calls, with the fallback serving the block in the end all the same.
const PATIENCE: u32 = 64;
/// An arena becomes a huge page when no more of it is free than this part of the heap (see also [`REST`]), so that the last
/// one does not waste more. From 64 MiB on that is so from the start.
const WASTED: usize = 32;
/// Until then, so many of its pages get their memory together: that takes half the time of a fault for each 4 KiB.
const POPULATED: u32 = 16;
/// A full arena is joined into a huge page if no more of it than this, in bytes, was never touched: pages of
/// seldom used classes are full only later, if ever.
const MISSING: usize = ARENA_SIZE / 32;
/// So many full arenas are looked at for one that can be joined, the most recently filled first.
const LOOKED_AT: usize = 4;
/// After so many refusals to join pages the kernel is not asked again: it has looked for a huge page in vain.
const REFUSALS: u32 = 3;
/// CPU time that it takes to join an arena where huge pages are at hand, in nanoseconds. It takes longer where the kernel has to
/// make them out of others, or a hypervisor has yet to put memory behind them. After that no arena is joined until the
/// process has used so many times as much as it took longer.
const QUICK_JOIN: u64 = 1_000_000;
const REST: u64 = 100;

const _: () = assert!(PAGES == 128, "the bitmaps are u128");
const _: () = assert!(PAGES.is_multiple_of(POPULATED));
const _: () = assert!(FIRST_PAGE_HEADER % 64 == PAGE_HEADER % 64);

/// The header of an arena.
#[repr(C, align(16))]
pub struct Arena {
    /// Neighbours in the queue of arenas with the same number of free pages.
    next: *mut Arena,
    previous: *mut Arena,
    /// Bit i: page i is free.
    free: u128,
    /// Bit i: page i is free and still has memory behind it.
    dirty: u128,
    memory: Memory,
}

/// What memory an arena has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Ordinary pages, which may be joined if all of them are in use.
    Ordinary,
    /// Ordinary pages, until most of them are in use and can be joined.
    Filling,
    /// One huge page, or what may be one, or could not be made one.
    Huge,
}

impl Arena {
    fn base(this: *mut Self) -> *mut u8 {
        this.cast::<u8>().wrapping_sub(PAGE_HEADER)
    }

    fn of(address: *mut u8) -> *mut Self {
        address
            .map_addr(|address| (address & !(ARENA_SIZE - 1)) + PAGE_HEADER)
            .cast()
    }
}

/// All arenas of a heap.
pub struct Arenas {
    /// Arenas with free pages, some of them dirty.
    dirty_arenas: Queues,
    /// Arenas with free pages, none of them dirty.
    clean_arenas: Queues,
    /// Arenas of ordinary pages without a free one.
    full_arenas: Queues,
    /// So often the kernel may still refuse to join the pages of one.
    refusals_left: u32,
    /// None is joined while the process's CPU time, in nanoseconds, lies in here. (That of a child begins anew; it may rest
    /// once for nothing.)
    resting: Range<u64>,
    pub huge_pages: HugePages,
    /// In [`HugePages::Transparent`]: ordinary pages, if there are fewer arenas.
    huge_from: usize,
    /// Whether huge pages were wanted from the pool and it had none.
    pub pool_was_empty: bool,
    /// So often the system is not asked for an arena, since it has just refused one.
    patience: u32,
    /// All arenas lie, or lay, in here; as numbers of [`ARENA_BITS`].
    span: Range<usize>,
    /// Where the next arena should lie: right below the last one, as the kernel itself would do.
    hint: *mut u8,
    /// Arenas mapped now.
    pub count: usize,
    /// As many were mapped at once.
    most: usize,
    /// Pages in use.
    pub pages_in_use: usize,
    /// Free pages with memory behind them.
    dirty: usize,
}

impl Arenas {
    pub const fn new(huge_pages: HugePages, huge_from: usize) -> Self {
        Self {
            dirty_arenas: Queues::new(),
            clean_arenas: Queues::new(),
            full_arenas: Queues::new(),
            refusals_left: REFUSALS,
            resting: 0..0,
            huge_pages,
            huge_from,
            pool_was_empty: false,
            patience: 0,
            span: 0..0,
            hint: null_mut(),
            count: 0,
            most: 0,
            pages_in_use: 0,
            dirty: 0,
        }
    }

    /// A page that holds nothing, and the bytes at its start that are not its own; `None` if there is no memory.
    /// `register` is told of a new arena.
    pub fn acquire(&mut self, table: ArenaTable) -> Option<(*mut Page, usize)> {
        if self.dirty_arenas.is_empty() && self.clean_arenas.is_empty() {
            if self.patience > 0 {
                self.patience -= 1;
                return None;
            }
            self.add_arena(table)?;
        }
        // SAFETY: arenas in the queues are mapped and their headers are only used here.
        unsafe {
            let is_clean = self.dirty_arenas.is_empty();
            let (fullest, pages) = if is_clean {
                let arena = self.clean_arenas.fullest();
                (arena, (*arena).free)
            } else {
                self.dirty -= 1;
                let arena = self.dirty_arenas.fullest();
                (arena, (*arena).dirty)
            };
            let index = pages.trailing_zeros();
            self.unlink(fullest);
            (*fullest).free &= !(1 << index);
            (*fullest).dirty &= !(1 << index);
            if (*fullest).memory == Memory::Filling {
                self.fill(fullest, is_clean.then_some(index));
            }
            self.link(fullest);
            let page = Arena::base(fullest).add(index as usize * PAGE_SIZE);
            self.pages_in_use += 1;
            let reserved = if index == 0 {
                FIRST_PAGE_HEADER
            } else {
                PAGE_HEADER
            };
            Some((page.cast(), reserved))
        }
    }

    /// Takes a page back.
    ///
    /// # Safety
    /// The page came from [`Arenas::acquire`] and holds nothing any more.
    pub unsafe fn release(&mut self, page: *mut Page, table: ArenaTable) {
        let arena = Arena::of(page.cast());
        // SAFETY: the page lies in a mapped arena, since it came from here.
        unsafe {
            let index = (page.addr() % ARENA_SIZE) / PAGE_SIZE;
            self.unlink(arena);
            (*arena).free |= 1 << index;
            (*arena).dirty |= 1 << index;
            self.link(arena);
        }
        self.pages_in_use -= 1;
        self.dirty += 1;
        if self.dirty > self.may_keep() {
            self.give_back(table);
        }
    }

    /// Has the kernel copy one full arena of ordinary pages into a huge page, if such are wanted. It costs the better part of
    /// a millisecond, and next to no memory. Whether there was one to copy, and it was the time for it.
    pub fn join_pages(&mut self) -> bool {
        if self.huge_pages != HugePages::Transparent || self.refusals_left == 0 || self.is_resting()
        {
            return false;
        }
        let mut arena = self.full_arenas.heads[0];
        // SAFETY: arenas in the queues are mapped.
        unsafe {
            for _ in 0..LOOKED_AT {
                if arena.is_null() {
                    return false;
                }
                let base = Arena::base(arena);
                if ARENA_SIZE - os::resident(base) <= MISSING {
                    self.unlink(arena);
                    self.join(arena);
                    self.link(arena);
                    return true;
                }
                arena = (*arena).next;
            }
        }
        false
    }

    /// Has the kernel join the pages of an arena.
    ///
    /// # Safety
    /// The arena is mapped and in no queue.
    unsafe fn join(&mut self, arena: *mut Arena) {
        let start = os::thread_nanos();
        // SAFETY: by the caller.
        let is_joined = unsafe {
            (*arena).memory = Memory::Huge;
            os::join_pages(Arena::base(arena), ARENA_SIZE)
        };
        if !is_joined {
            self.refusals_left = self.refusals_left.saturating_sub(1);
            return;
        }
        let took = os::thread_nanos().saturating_sub(start);
        let rest = took.saturating_sub(QUICK_JOIN).saturating_mul(REST);
        let now = os::process_nanos();
        self.resting = now..now.saturating_add(rest);
    }

    /// Forgets all arenas in a table.
    ///
    /// # Safety
    /// `table` was the table of these arenas.
    pub unsafe fn clear_table(&self, table: ArenaTable) {
        for number in self.span.clone() {
            table.set(
                core::ptr::with_exposed_provenance_mut(number << ARENA_BITS),
                false,
            );
        }
    }

    /// Copies the table to another place, which has zeroes. `visit` gets each page in use.
    ///
    /// # Safety
    /// `from` is the table of these arenas.
    pub unsafe fn copy_table(
        &self,
        from: ArenaTable,
        to: ArenaTable,
        mut visit: impl FnMut(*mut Page),
    ) {
        for number in self.span.clone() {
            let base: *mut u8 = core::ptr::with_exposed_provenance_mut(number << ARENA_BITS);
            if !from.holds(base) {
                continue;
            }
            to.set(base, true);
            // SAFETY: what the table holds is mapped.
            let mut used = unsafe { !(*Arena::of(base)).free };
            while used != 0 {
                let index = used.trailing_zeros() as usize;
                used &= used - 1;
                visit(base.wrapping_add(index * PAGE_SIZE).cast());
            }
        }
    }

    fn is_resting(&self) -> bool {
        !self.resting.is_empty() && self.resting.contains(&os::process_nanos())
    }

    /// Looks after an arena that will become a huge page. A page of it has just been taken: its index, if it was never used.
    ///
    /// # Safety
    /// The arena is mapped and in no queue.
    #[cold]
    unsafe fn fill(&mut self, arena: *mut Arena, unused: Option<u32>) {
        // SAFETY: by the caller; the range lies in the arena.
        unsafe {
            if (*arena).free.count_ones() as usize <= self.may_waste() && !self.is_resting() {
                self.join(arena);
            } else if let Some(index) = unused.filter(|index| index.is_multiple_of(POPULATED)) {
                let start = Arena::base(arena).add(index as usize * PAGE_SIZE);
                os::populate(start, POPULATED as usize * PAGE_SIZE);
            }
        }
    }

    /// Says that nothing helped and no arena was to be had, so that asking again is pointless for a while.
    pub fn refused(&mut self) {
        self.patience = PATIENCE;
    }

    /// Whether the last refusal was not the system's but ours.
    pub fn is_patient(&self) -> bool {
        self.patience > 0
    }

    /// How many pages may be free of an arena that becomes a huge page.
    fn may_waste(&self) -> usize {
        self.count * PAGES as usize / WASTED
    }

    fn may_keep(&self) -> usize {
        KEEP_AT_LEAST.max(self.pages_in_use / 4)
    }

    /// Gives memory of free pages back until half of what may be kept is left: empty arenas first, then
    /// free pages of the emptiest arenas. A huge page is broken up only if half of it is free.
    #[cold]
    fn give_back(&mut self, table: ArenaTable) {
        let keep = self.may_keep() / 2;
        for queue in (0..PAGES as usize).rev() {
            let mut arena = self.dirty_arenas.heads[queue];
            while !arena.is_null() && self.dirty > keep {
                // SAFETY: arenas in the queues are mapped; `next` is read before the arena may go.
                unsafe {
                    let next = (*arena).next;
                    if (*arena).free == u128::MAX {
                        self.dirty -= (*arena).dirty.count_ones() as usize;
                        self.unlink(arena);
                        self.count -= 1;
                        table.set(Arena::base(arena), false);
                        os::unmap(Arena::base(arena), ARENA_SIZE);
                    } else if (*arena).memory != Memory::Huge || queue as u32 >= PAGES / 2 {
                        self.unlink(arena);
                        self.discard_free_pages(arena);
                        self.link(arena);
                    }
                    arena = next;
                }
            }
        }
    }

    /// # Safety
    /// The arena is mapped.
    unsafe fn discard_free_pages(&mut self, arena: *mut Arena) {
        // SAFETY: free pages hold nothing; what the first one shares with the arena's header stays.
        unsafe {
            let mut dirty = (*arena).dirty;
            self.dirty -= dirty.count_ones() as usize;
            (*arena).dirty = 0;
            while dirty != 0 {
                let from = dirty.trailing_zeros();
                let pages = (dirty >> from).trailing_ones();
                let run = if pages == 128 {
                    u128::MAX
                } else {
                    ((1 << pages) - 1) << from
                };
                dirty &= !run;
                let skip = if from == 0 { FIRST_PAGE_HEADER } else { 0 };
                let start = Arena::base(arena).add(from as usize * PAGE_SIZE + skip);
                os::discard(start, pages as usize * PAGE_SIZE - skip);
            }
        }
    }

    #[cold]
    fn add_arena(&mut self, table: ArenaTable) -> Option<()> {
        let (base, memory) = self.map_arena()?;
        if base.addr() >> ADDRESS_BITS != 0 {
            // SAFETY: just mapped, known to nobody.
            unsafe { os::unmap(base, ARENA_SIZE) };
            return None;
        }
        self.hint = base.wrapping_sub(ARENA_SIZE);
        self.count += 1;
        self.most = self.most.max(self.count);
        let arena = Arena::of(base);
        // SAFETY: the arena was just mapped, and is writable zeroes.
        unsafe {
            arena.write(Arena {
                next: null_mut(),
                previous: null_mut(),
                free: u128::MAX,
                dirty: 0,
                memory,
            });
            self.link(arena);
            table.set(base, true);
        }
        let number = base.addr() >> ARENA_BITS;
        self.span = if self.span.is_empty() {
            number..number + 1
        } else {
            self.span.start.min(number)..self.span.end.max(number + 1)
        };
        Some(())
    }

    /// Maps an arena, and says what memory it has.
    fn map_arena(&mut self) -> Option<(*mut u8, Memory)> {
        if self.huge_pages == HugePages::Reserved {
            if let Some(base) = os::map_reserved_huge(ARENA_SIZE) {
                return Some((base.as_ptr(), Memory::Huge));
            }
            self.pool_was_empty = true;
        }
        let base = os::map_aligned(ARENA_SIZE, self.hint)?.as_ptr();
        let memory = if self.huge_pages != HugePages::Transparent || self.count < self.huge_from {
            Memory::Ordinary
        } else if self.count < self.most {
            // What is wasted now does not make the peak higher.
            Memory::Huge
        } else if self.may_waste() < PAGES as usize && self.refusals_left > 0 {
            Memory::Filling
        } else {
            Memory::Huge
        };
        // SAFETY: just mapped.
        unsafe { os::advise_huge(base, ARENA_SIZE, memory == Memory::Huge) };
        Some((base, memory))
    }

    /// Where an arena is queued; one that is full and huge is nowhere.
    fn queues_of(&mut self, arena: &Arena) -> Option<&mut Queues> {
        match (arena.free, arena.dirty) {
            (0, _) if arena.memory == Memory::Huge => None,
            (0, _) => Some(&mut self.full_arenas),
            (_, 0) => Some(&mut self.clean_arenas),
            _ => Some(&mut self.dirty_arenas),
        }
    }

    /// Queues an arena.
    ///
    /// # Safety
    /// The arena is mapped and in no queue.
    unsafe fn link(&mut self, arena: *mut Arena) {
        // SAFETY: by the caller.
        unsafe {
            if let Some(queues) = self.queues_of(&*arena) {
                queues.link(arena);
            }
        }
    }

    /// Takes an arena out of its queue. To be done before anything in its header changes.
    ///
    /// # Safety
    /// The arena was linked, and has not changed since.
    unsafe fn unlink(&mut self, arena: *mut Arena) {
        // SAFETY: by the caller.
        unsafe {
            if let Some(queues) = self.queues_of(&*arena) {
                queues.unlink(arena);
            }
        }
    }
}

/// The table that says which 2 MiB of the address space are arenas of this heap: one byte for each,
/// so that `free` needs one comparison with memory. It is 64 MiB of address space on x86-64, of which
/// next to nothing is ever touched.
#[derive(Clone, Copy)]
pub struct ArenaTable(*mut u8);

impl ArenaTable {
    /// The size of the table in bytes.
    pub const SIZE: usize = 1 << (ADDRESS_BITS - ARENA_BITS);

    /// The table at an address.
    pub const fn at(address: *mut u8) -> Self {
        Self(address)
    }

    /// Whether an address lies in an arena. Any number may be asked for: bits above [`ADDRESS_BITS`] are
    /// ignored, which keeps the look-up inside the table. Blocks up there do not come about: the kernel maps
    /// memory above only for who names such an address, and no allocator does (Documentation/arch/x86/
    /// x86_64/5level-paging.rst); and a tag in the top byte of a pointer, as on AArch64, does no harm.
    #[inline(always)]
    pub fn holds(self, address: *mut u8) -> bool {
        const UNUSED: u32 = usize::BITS - ADDRESS_BITS;
        let index = (address.addr() << UNUSED) >> (UNUSED + ARENA_BITS);
        // SAFETY: `index` < SIZE, and the whole table is mapped.
        unsafe { *self.0.add(index) != 0 }
    }

    fn set(self, arena: *mut u8, ours: bool) {
        // SAFETY: arenas lie below 2^ADDRESS_BITS, which `add_arena` made sure of.
        unsafe { *self.0.add(arena.addr() >> ARENA_BITS) = u8::from(ours) };
    }
}
