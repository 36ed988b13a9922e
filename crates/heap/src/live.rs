//! The blocks that are alive, one by one.
//!
//! The heap counts blocks, and knows of each page which of them are on the page's own list. The blocks on a class's list
//! are alive by that count, so those lists are looked through first. This is for a copy of the process, which has the
//! time.

use crate::arena::{HEADER_BYTES, pages_of};
use crate::geometry::{
    ALIGNMENT, ARENA_BITS, ARENA_SIZE, BLOCK_SIZES, CLASSES, PAGE_HEADER, PAGE_SIZE,
    PAGES_PER_ARENA,
};
use crate::heap::Heap;
use crate::observer::NOT_INTERESTED;
use crate::page::{Block, Page, Tag, label_of};
use core::sync::atomic::Ordering::Relaxed;

/// A block that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its first byte.
    pub address: usize,
    /// Its size in bytes; 0 if a fallback served it, which does not say it.
    pub size: usize,
    /// The observer's token, if the block was sampled in this session.
    pub token: Option<u32>,
}

/// The bits of a page's blocks.
const WORD: usize = u64::BITS as usize;
const WORDS: usize = PAGE_SIZE / ALIGNMENT / WORD;

impl Heap {
    /// Calls `visit` with the address of each free block that no page knows of: those on the lists of classes and beside
    /// them, and those that other threads have freed.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    pub unsafe fn listed(heap: *const Self, mut visit: impl FnMut(usize)) {
        // SAFETY: by the caller, lists are of blocks that nobody uses.
        unsafe {
            let heap = &*Self::state(heap);
            let heads = heap.slots[..CLASSES].iter().map(|slot| slot.head);
            let aside = heap.classes.iter().map(|class| class.aside);
            for head in heads.chain(aside).chain([heap.remote.load(Relaxed)]) {
                let mut block: *mut Block = head;
                while !block.is_null() {
                    visit(block.addr());
                    block = (*block).next;
                }
            }
        }
    }

    /// Calls `visit` with each block that is alive, in the order of addresses; then with each sampled block of a fallback.
    /// `listed` is what [`Heap::listed`] has visited, sorted.
    ///
    /// # Safety
    /// `heap` is a heap that no other thread uses now.
    pub unsafe fn live(heap: *const Self, listed: &[usize], mut visit: impl FnMut(LiveBlock)) {
        // SAFETY: by the caller.
        unsafe {
            let heap = Self::state(heap);
            let table = Self::table(heap.cast());
            let state = &*heap;
            let token = |tag: Tag| {
                let is_ours = tag.session == state.session && tag.token != NOT_INTERESTED;
                is_ours.then_some(tag.token)
            };
            let mut listed = listed;
            for number in state.arenas.span() {
                let arena = core::ptr::with_exposed_provenance_mut::<u8>(number << ARENA_BITS);
                if !state.arenas.hold(arena.addr(), table) {
                    continue;
                }
                let header = arena.byte_add(PAGE_HEADER).cast::<[u8; HEADER_BYTES]>();
                let (free, _) = pages_of(&*header);
                for page in (0..PAGES_PER_ARENA).filter(|page| free >> page & 1 == 0) {
                    let page = arena.byte_add(page as usize * PAGE_SIZE).cast::<Page>();
                    listed = &listed[listed.partition_point(|&at| at < page.addr())..];
                    live_in(page, listed, token, &mut visit);
                }
                debug_assert!(arena.addr().is_multiple_of(ARENA_SIZE));
            }
            state.large_sampled.for_each(|address, sampled| {
                visit(LiveBlock {
                    address,
                    size: 0,
                    token: token(sampled.tag),
                });
            });
        }
    }
}

/// # Safety
/// The page is in use, and nobody changes it.
unsafe fn live_in(
    page: *mut Page,
    listed: &[usize],
    token: impl Fn(Tag) -> Option<u32>,
    visit: &mut impl FnMut(LiveBlock),
) {
    let mut free = [0_u64; WORDS];
    let mut note = |address: usize| {
        let place = (address % PAGE_SIZE) / ALIGNMENT;
        free[place / WORD] |= 1 << (place % WORD);
    };
    let end = page.addr() + PAGE_SIZE;
    listed
        .iter()
        .take_while(|&&at| at < end)
        .copied()
        .for_each(&mut note);
    // SAFETY: by the caller, its list has blocks of this page, and the blocks that were carved lie in it.
    unsafe {
        let mut block = (*page).local;
        while !block.is_null() {
            note(block.addr());
            block = (*block).next;
        }
        let size = match (*page).sampled {
            true => 0,
            false => BLOCK_SIZES[usize::from((*page).class)] as usize,
        };
        let (first, stride) = (usize::from((*page).first), usize::from((*page).stride));
        for number in 0..usize::from((*page).carved) {
            let offset = first + number * stride;
            let place = offset / ALIGNMENT;
            if free[place / WORD] >> (place % WORD) & 1 == 1 {
                continue;
            }
            let block: *mut Block = page.byte_add(offset).cast();
            let (size, token) = match (*page).sampled {
                true => {
                    let label = &*label_of(block);
                    (
                        BLOCK_SIZES[usize::from(label.class)] as usize,
                        token(label.tag),
                    )
                }
                false => (size, None),
            };
            visit(LiveBlock {
                address: block.addr(),
                size,
                token,
            });
        }
    }
}
