//! The record of each thread: its classes, and how far each is from its sample point.
//!
//! A record belongs to a thread state, known by its address and the cookie of its first heap: states and interpreters of one
//! address follow each other, and their numbers may be the same, but each time that a heap is initialized its cookie is another.
//! Records are never unmapped, and used again when their thread state is gone.

use std::alloc::{Layout, alloc_zeroed};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use nthbyte_heap::BlockDomain;
use nthbyte_host::lock::Lock;
use nthbyte_host::process::Probe;
use nthbyte_sampling::{Countdown, SamplePoints};

use crate::layout::{Block, CLASSES, HEAP_MEM, HEAPS, Page, V3_13, heap_at, page_count};
use crate::settings::{ThreadedObserver, original};
use crate::thread::{thread_pointer, thread_state};
use crate::tokens;

/// A size class of one heap of one thread.
#[repr(C)]
pub struct Class {
    /// The record that `pages_free_direct` points at. The first field: a pointer to it is a pointer to the class.
    pub fake: Page,
    /// Of the collector's heaps: the page whose blocks the collector was told to ignore last, and how many it had been carved into then.
    pub real: *mut Page,
    pub capacity: u16,
    /// The numbers of the heap and of the class.
    pub heap: u8,
    pub number: u8,
    /// `fake.used` when the class was counted last.
    pub base: u32,
    /// The length of the list then; of no meaning while it is empty.
    pub held: u32,
    pub is_active: bool,
    /// The distance to the next sample point, in bytes of this class.
    pub countdown: Countdown,
    /// Allocations, when they were counted last.
    pub allocations: u64,
    /// Free blocks of pages of sampled blocks.
    pub spare: *mut Block,
    /// Such blocks that other threads freed.
    pub remote: AtomicPtr<Block>,
    /// The number of both.
    pub spares: AtomicU32,
}

/// The version while the observer runs: none of the settings.
pub const INSIDE: u32 = u32::MAX;

/// A thread with a state.
pub struct Record {
    /// The thread state; 0 if the record belongs to none.
    pub state: AtomicUsize,
    /// The cookie of the state's first heap.
    pub cookie: AtomicUsize,
    /// The thread pointer of the thread that was in a slow path last.
    pub thread: AtomicUsize,
    next: *mut Self,
    /// The version of the settings that the thread has taken over, or [`INSIDE`].
    pub version: u32,
    pub session: u32,
    pub points: Option<SamplePoints>,
    pub observer: Option<ThreadedObserver>,
    /// The distance to the next sample point among requests that are larger than small ones, in bytes that are asked for.
    pub large: Countdown,
    /// Whether mimalloc was asked for a block.
    pub is_asking: AtomicBool,
    /// The pages of all heaps when the entries were looked at last.
    pub pages: usize,
    /// The numbers of the classes that were used, of each heap, and how many these are.
    pub active: [[u8; CLASSES]; HEAPS],
    pub actives: [usize; HEAPS],
    pub counts: Counts,
    pub classes: [[Class; CLASSES]; HEAPS],
}

/// Totals of a thread in the session. Other threads read them.
pub struct Counts {
    /// Bytes and number of large requests.
    pub large_bytes: AtomicU64,
    pub large: AtomicU64,
    pub samples: AtomicU64,
    /// Samples that could not be taken.
    pub lost: AtomicU64,
    /// Entries that mimalloc had set to pages of its own.
    pub displaced: AtomicU64,
    /// Allocations that may not have been counted, because their entry was displaced when they began.
    pub uncounted: AtomicU64,
    /// Pages of sampled blocks that were made.
    pub sampled_pages: AtomicU64,
}

/// Adds to a total that one thread writes.
pub fn add(total: &AtomicU64, more: u64) {
    total.store(total.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Counts {
    /// Begins anew.
    pub fn begin(&self) {
        for total in [
            &self.large_bytes,
            &self.large,
            &self.samples,
            &self.lost,
            &self.displaced,
            &self.uncounted,
            &self.sampled_pages,
        ] {
            total.store(0, Relaxed);
        }
    }
}

/// Allocations, in number and bytes, samples, and samples that were lost.
pub type Totals = [u64; 4];

/// The totals of threads that have ended, and the session that they are of.
static ENDED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static ENDED_SESSION: AtomicU32 = AtomicU32::new(0);

/// The totals of a session. They are exact for the calling thread and for those that have ended; what others allocate at this
/// moment may be missing.
pub fn totals(session: u32) -> Totals {
    let mut sums = [0_u64; 4];
    locked(|| {
        if ENDED_SESSION.load(Relaxed) == session {
            sums = std::array::from_fn(|at| ENDED[at].load(Relaxed));
        }
        for_each(|record| {
            // SAFETY: records are never freed; the words that other threads write are read at once.
            for (sum, more) in sums.iter_mut().zip(unsafe { totals_of(record, session) }) {
                *sum = sum.wrapping_add(more);
            }
        });
    });
    sums
}

/// # Safety
/// A record.
unsafe fn totals_of(record: *mut Record, session: u32) -> Totals {
    // SAFETY: by the contract. Other threads may write: each word is read at once, and only summed up.
    unsafe {
        if (*record).state.load(Relaxed) == 0
            || (&raw const (*record).session).read_volatile() != session
        {
            return [0; 4];
        }
        let counts = &(*record).counts;
        let mut sums = [
            counts.large.load(Relaxed),
            counts.large_bytes.load(Relaxed),
            counts.samples.load(Relaxed),
            counts.lost.load(Relaxed),
        ];
        for at in 0..HEAPS * CLASSES {
            let class = (&raw const (*record).classes).cast::<Class>().add(at);
            let since = (&raw const (*class).fake.used)
                .read_volatile()
                .wrapping_sub((&raw const (*class).base).read_volatile());
            let allocations = (&raw const (*class).allocations).read_volatile() + u64::from(since);
            sums[0] += allocations;
            sums[1] +=
                allocations * u64::from((&raw const (*class).fake.block_size).read_volatile());
        }
        sums
    }
}

/// All records, newest first.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(null_mut());
/// Of the list of records, of their state, and of the table of sampled pages. Whoever holds it neither waits nor allocates from
/// the interpreter.
static LOCK: Lock = Lock::new(AtomicUsize::new(0));
/// Its value is the record that the thread used last.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// Whether there were several thread states so far, so that frees of other threads may arrive.
static ARE_SEVERAL: AtomicBool = AtomicBool::new(false);
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Prepares the destructor of threads. Returns false if the process has no key left.
pub fn prepare() -> bool {
    let mut key = 0;
    // SAFETY: a place for the key; the destructor is never unloaded.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) == 0 };
    if made {
        KEY.store(key, Relaxed);
    }
    made
}

/// Whether frees of other threads may have arrived.
#[inline(always)]
pub fn are_several() -> bool {
    ARE_SEVERAL.load(Relaxed)
}

/// Calls `work` under the lock. `None` if it could not be had in time, or this thread holds it.
pub fn locked<T>(work: impl FnOnce() -> T) -> Option<T> {
    if !LOCK.acquire() {
        return None;
    }
    let result = work();
    LOCK.release();
    Some(result)
}

/// In the child of a fork: the other threads do not exist. The list is whole at any moment.
pub fn forked() {
    LOCK.release_in_child();
}

/// Calls `visit` with each record.
pub fn for_each(mut visit: impl FnMut(*mut Record)) {
    let mut at = RECORDS.load(Acquire);
    while !at.is_null() {
        visit(at);
        // SAFETY: records are never freed, and `next` never changes.
        at = unsafe { (*at).next };
    }
}

/// The record that a fake one belongs to; `None` if the page is mimalloc's. mimalloc reads nothing of the page behind an entry but its
/// list.
///
/// # Safety
/// An entry points at it.
#[inline(always)]
pub unsafe fn of_fake(page: *mut Page) -> Option<*mut Record> {
    // SAFETY: by the contract. Each page of mimalloc's has a slice, but for the empty one, which no thread has freed blocks of.
    unsafe {
        let record = (*page).thread_free as *mut Record;
        ((*page).slice_count == 0 && !record.is_null()).then_some(record)
    }
}

/// The calling thread's record, and whether it is new: it has not looked at its heaps then. `None` if there is no memory, or
/// the lock could not be had.
///
/// # Safety
/// The state is the calling thread's.
#[inline]
pub unsafe fn current(state: *mut u8) -> Option<(*mut Record, bool)> {
    // SAFETY: the state is live, and its first heap has a cookie.
    let cookie = unsafe { heap_at(state, 0).add(V3_13.cookie).cast::<usize>().read() };
    // SAFETY: the key was made; the value is null or a record.
    unsafe {
        let last = libc::pthread_getspecific(KEY.load(Relaxed)).cast::<Record>();
        if !last.is_null()
            && (*last).state.load(Relaxed) == state as usize
            && (*last).cookie.load(Relaxed) == cookie
        {
            return Some((last, false));
        }
    }
    // SAFETY: by the contract.
    unsafe { other(state, cookie) }
}

/// As [`current`], for a state that the thread has not used last.
#[cold]
#[inline(never)]
unsafe fn other(state: *mut u8, cookie: usize) -> Option<(*mut Record, bool)> {
    let (record, is_new) = locked(|| {
        let mut same = None;
        let mut free = None;
        for_each(|record| {
            // SAFETY: records are never freed.
            match unsafe { (*record).state.load(Relaxed) } {
                0 => free = Some(record),
                known if known == state as usize => same = Some(record),
                _ => {}
            }
        });
        if let Some(record) = same {
            // SAFETY: as above; of a state that is gone if the cookies differ.
            unsafe {
                if (*record).cookie.load(Relaxed) == cookie {
                    return Some((record, false));
                }
                retire(record);
            }
        }
        ARE_SEVERAL.store(!RECORDS.load(Relaxed).is_null(), Relaxed);
        let record = same.or(free).or_else(make)?;
        // SAFETY: as above; nobody else uses a free one while the lock is held.
        unsafe {
            begin(record);
            (*record).cookie.store(cookie, Relaxed);
            (*record).state.store(state as usize, Release);
        }
        Some((record, true))
    })??;
    // SAFETY: the record is this thread's now. Without the key's value, the thread comes here more often.
    unsafe {
        (*record).thread.store(thread_pointer(), Relaxed);
        libc::pthread_setspecific(KEY.load(Relaxed), record.cast_const().cast());
    }
    Some((record, is_new))
}

/// A new record. `None` without memory.
fn make() -> Option<*mut Record> {
    // SAFETY: not of size 0; all fields that are read before `begin` may be zero.
    let record = unsafe { alloc_zeroed(Layout::new::<Record>()) }.cast::<Record>();
    if record.is_null() {
        return None;
    }
    // SAFETY: just made; the lock is held.
    unsafe {
        (&raw mut (*record).points).write(None);
        (&raw mut (*record).observer).write(None);
        (&raw mut (*record).next).write(RECORDS.load(Relaxed));
    }
    RECORDS.store(record, Release);
    Some(record)
}

/// Clears a record for a new thread. What other threads have put on its lists since its last one ended goes back first.
///
/// # Safety
/// Nobody uses it; the lock is held.
unsafe fn begin(record: *mut Record) {
    // SAFETY: by the contract.
    unsafe {
        give_back_remote(record);
        (*record).version = 1;
        (*record).session = 0;
        (*record).points = None;
        (*record).observer = None;
        (*record).large = Countdown::NEVER;
        (*record).is_asking.store(false, Relaxed);
        (*record).pages = usize::MAX;
        (*record).actives = [0; HEAPS];
        for class in (*record).classes.as_flattened_mut() {
            if class.is_active {
                class.is_active = false;
                class.fake = Page::EMPTY;
                class.real = null_mut();
                class.base = 0;
                class.allocations = 0;
                class.spare = null_mut();
            }
            class.spares.store(0, Relaxed);
        }
    }
}

/// Whether the calling thread has asked mimalloc for a block in a slow path: what it maps is not the program's.
pub fn is_asking() -> bool {
    // SAFETY: the place was found before there were records; without, this is not called.
    let state = unsafe { thread_state() } as usize;
    let mut is_asking = false;
    if state != 0 {
        for_each(|record| {
            // SAFETY: records are never freed.
            unsafe {
                is_asking |=
                    (*record).state.load(Relaxed) == state && (*record).is_asking.load(Relaxed);
            }
        });
    }
    is_asking
}

/// The number and the bytes of the blocks on the lists of all threads whose state passes: mimalloc counts them as in use.
pub fn held(is_counted: &dyn Fn(usize) -> bool) -> (usize, usize) {
    let (mut blocks, mut bytes) = (0, 0);
    for_each(|record| {
        // SAFETY: records are never freed. Other threads may write: each word is read at once, and only summed up.
        unsafe {
            let state = (*record).state.load(Relaxed);
            if state == 0 || !is_counted(state) {
                return;
            }
            for at in 0..HEAPS * CLASSES {
                let class = (&raw const (*record).classes).cast::<Class>().add(at);
                let mut held = (*class).spares.load(Relaxed) as usize;
                if !(&raw const (*class).fake.free).read_volatile().is_null() {
                    let taken = (&raw const (*class).fake.used)
                        .read_volatile()
                        .wrapping_sub((&raw const (*class).base).read_volatile());
                    held += (&raw const (*class).held)
                        .read_volatile()
                        .saturating_sub(taken) as usize;
                }
                blocks += held;
                bytes += held * (&raw const (*class).fake.block_size).read_volatile() as usize;
            }
        }
    });
    (blocks, bytes)
}

impl Record {
    /// Another number for each record's beginning, for its sample points.
    pub fn next_number() -> u64 {
        NUMBER.fetch_add(1, Relaxed) + 1
    }

    /// The class whose record is at this address, if one of these is.
    pub fn class_at(&mut self, page: *mut Page) -> Option<&mut Class> {
        let start = (&raw const self.classes) as usize;
        let at = (page as usize).wrapping_sub(start);
        if at >= size_of_val(&self.classes) {
            return None;
        }
        self.classes
            .as_flattened_mut()
            .get_mut(at / size_of::<Class>())
    }
}

/// The domain of a heap.
pub const fn domain_of(heap: usize) -> BlockDomain {
    BlockDomain::of_objects(heap != HEAP_MEM)
}

/// Frees the blocks of a list, as far as mimalloc knows all in use.
///
/// # Safety
/// They are so, nobody uses them, and they are of this domain.
pub unsafe fn free_list(mut block: *mut Block, domain: BlockDomain) {
    let original = original(domain);
    while !block.is_null() {
        // SAFETY: by the contract.
        unsafe {
            let next = (*block).next;
            (original.free)(original.context, block.cast::<c_void>());
            block = next;
        }
    }
}

/// # Safety
/// Nobody uses the record; the lock is held.
unsafe fn give_back_remote(record: *mut Record) {
    // SAFETY: by the contract.
    unsafe {
        for (heap, classes) in (*record).classes.iter().enumerate() {
            for class in classes {
                if !class.remote.load(Relaxed).is_null() {
                    free_list(class.remote.swap(null_mut(), Acquire), domain_of(heap));
                }
            }
        }
    }
}

/// Gives back what the lists of a thread hold whose state is gone: its pages are abandoned, so that these are remote frees. The
/// pages of its sampled blocks have no owner then.
///
/// # Safety
/// The state is gone; the lock is held.
unsafe fn retire(record: *mut Record) {
    // SAFETY: by the contract, nobody uses the record.
    unsafe {
        let session = (*record).session;
        if ENDED_SESSION.swap(session, Relaxed) != session {
            ENDED.iter().for_each(|total| total.store(0, Relaxed));
        }
        for (total, more) in ENDED.iter().zip(totals_of(record, session)) {
            add(total, more);
        }
        let own = (record as usize)..(record as usize + size_of::<Record>());
        tokens::for_each(|page| {
            if own.contains(&(page.owner.load(Relaxed) as usize)) {
                page.owner.store(null_mut(), Release);
            }
        });
        for (heap, classes) in (*record).classes.iter_mut().enumerate() {
            for class in classes.iter_mut().filter(|class| class.is_active) {
                let domain = domain_of(heap);
                free_list(std::mem::replace(&mut class.fake.free, null_mut()), domain);
                free_list(std::mem::replace(&mut class.spare, null_mut()), domain);
                class.spares.store(0, Relaxed);
            }
        }
        give_back_remote(record);
        (*record).state.store(0, Release);
    }
}

/// The destructor of the key: gives back what was the thread's, if its state is gone.
unsafe extern "C" fn ended(_: *mut c_void) {
    let Some(probe) = Probe::new() else {
        // It cannot be known whether the state is gone. What the lists hold stays.
        return;
    };
    let own = thread_pointer();
    locked(|| {
        for_each(|record| {
            // SAFETY: records are never freed.
            unsafe {
                if (*record).thread.load(Relaxed) == own
                    && (*record).state.load(Relaxed) != 0
                    && is_gone(&*record, probe)
                {
                    retire(record);
                }
            }
        });
    });
}

/// Whether a record's state is gone: unmapped, used for something else, or its heaps have given up all pages, as they do when
/// a thread state is cleared. (Heaps in use have pages as long as our lists hold blocks of them.)
fn is_gone(record: &Record, probe: Probe) -> bool {
    let state = record.state.load(Relaxed) as *mut u8;
    let cookie = probe.read::<usize>(heap_at(state, 0) as usize + V3_13.cookie);
    cookie != Some(record.cookie.load(Relaxed))
        || (0..HEAPS).all(|heap| {
            // SAFETY: readable a moment ago.
            probe.read::<usize>(heap_at(state, heap) as usize + V3_13.page_count) == Some(0)
        })
}

/// The pages of all heaps of a state.
///
/// # Safety
/// The state is the calling thread's.
#[inline(always)]
pub unsafe fn pages_of(state: *mut u8) -> usize {
    // SAFETY: by the contract.
    (0..HEAPS)
        .map(|heap| unsafe { page_count(heap_at(state, heap)) })
        .sum()
}
