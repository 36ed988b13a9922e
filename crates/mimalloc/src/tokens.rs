//! The pages of sampled blocks, and the token of each block in them.
//!
//! A sampled block lies in a page that holds nothing else. The page's flag [`FLAG_ALIGNED`](crate::layout::FLAG_ALIGNED) sends
//! each free of one of its blocks to the slow path, which finds the token here. So frees of other blocks cost nothing more.
//!
//! Entries are found without a lock, and never removed: a page that has another use later has not the flag, and the entry is
//! used again if the page becomes one of sampled blocks again. Only a page without blocks in use changes its entry, so no free
//! looks at an entry that changes.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use crate::layout::Page;

const CHAINS: usize = 1 << 12;

static TABLE: [AtomicPtr<SampledPage>; CHAINS] = [const { AtomicPtr::new(null_mut()) }; CHAINS];

/// What a token is while the block is not sampled, or nobody asks for its free.
const NONE: u64 = 0;

/// A page of sampled blocks.
pub struct SampledPage {
    page: *mut Page,
    next: *mut Self,
    start: AtomicUsize,
    block_size: AtomicUsize,
    tokens: AtomicPtr<AtomicU64>,
    /// How many tokens there is room for.
    room: AtomicU32,
    /// The class of the thread that takes the page's blocks for its samples; null if that thread has ended.
    pub owner: AtomicPtr<u8>,
}

fn chain(page: *mut Page) -> &'static AtomicPtr<SampledPage> {
    let hash = (page as usize >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52;
    &TABLE[hash % CHAINS]
}

/// The entry of a page, if it was one of sampled blocks once.
pub fn find(page: *mut Page) -> Option<&'static SampledPage> {
    let mut at = chain(page).load(Acquire);
    while !at.is_null() {
        // SAFETY: entries are never freed.
        let entry = unsafe { &*at };
        if entry.page == page {
            return Some(entry);
        }
        at = entry.next;
    }
    None
}

/// Calls `visit` with each entry.
pub fn for_each(mut visit: impl FnMut(&'static SampledPage)) {
    for chain in &TABLE {
        let mut at = chain.load(Acquire);
        while !at.is_null() {
            // SAFETY: entries are never freed.
            let entry: &'static SampledPage = unsafe { &*at };
            visit(entry);
            at = entry.next;
        }
    }
}

/// Makes a page one of sampled blocks. `None` without memory.
///
/// # Safety
/// The page has `capacity` blocks of `block_size` bytes from `start` on, none of which is in use. The lock of the threads is held.
pub unsafe fn insert(
    page: *mut Page,
    start: usize,
    block_size: usize,
    capacity: u32,
    owner: *mut u8,
) -> Option<&'static SampledPage> {
    let entry = match find(page) {
        Some(entry) => entry,
        None => {
            let chain = chain(page);
            // SAFETY: not of size 0; zeroes are valid, and null is seen.
            let new = unsafe { alloc_zeroed(Layout::new::<SampledPage>()) }.cast::<SampledPage>();
            if new.is_null() {
                return None;
            }
            // SAFETY: just made, and nobody else sees it yet. There is one writer, which has the lock.
            unsafe {
                (&raw mut (*new).page).write(page);
                (&raw mut (*new).next).write(chain.load(Relaxed));
                chain.store(new, Release);
                &*new
            }
        }
    };
    if entry.room.load(Relaxed) < capacity {
        let layout = Layout::array::<AtomicU64>(capacity as usize).ok()?;
        // SAFETY: not of size 0; zeroes are valid, and null is seen.
        let tokens = unsafe { alloc_zeroed(layout) }.cast::<AtomicU64>();
        if tokens.is_null() {
            return None;
        }
        // The smaller array before stays: pages of one address have different capacities only if their blocks had different sizes.
        entry.tokens.store(tokens, Release);
        entry.room.store(capacity, Relaxed);
    }
    entry.start.store(start, Relaxed);
    entry.block_size.store(block_size, Relaxed);
    entry.owner.store(owner, Release);
    Some(entry)
}

impl SampledPage {
    /// The page's record.
    pub const fn page(&self) -> *mut Page {
        self.page
    }

    fn token(&self, block: *mut u8) -> Option<&AtomicU64> {
        let offset = (block as usize).checked_sub(self.start.load(Relaxed))?;
        let index = offset.checked_div(self.block_size.load(Relaxed))?;
        if index >= self.room.load(Relaxed) as usize {
            return None;
        }
        // SAFETY: the array has so many.
        Some(unsafe { &*self.tokens.load(Acquire).add(index) })
    }

    /// Notes that a block was sampled in a session.
    pub fn set(&self, block: *mut u8, session: u32, token: u32) {
        if let Some(place) = self.token(block) {
            place.store(u64::from(session) << 32 | u64::from(token), Release);
        }
    }

    /// The session and the token of a block that is being freed, which it has no more then. `None` if it was not sampled.
    pub fn take(&self, block: *mut u8) -> Option<(u32, u32)> {
        let taken = self.token(block)?.swap(NONE, AcqRel);
        // Sessions are numbered from 1 on.
        (taken != NONE).then_some(((taken >> 32) as u32, taken as u32))
    }
}
