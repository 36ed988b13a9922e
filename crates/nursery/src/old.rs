//! The old space: objects that survived a minor collection. It is collected by marking and sweeping, and moves nothing.
//!
//! Small objects lie in *pages* of blocks of one size, a multiple of 16 bytes. A block whose first word is 0 is free, and its
//! second word is the next free block. Larger objects have memory of their own, and so do those that never were in the nursery.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use crate::object::{Address, MARKED, Type, WORD, Word};

/// Objects above this size have memory of their own.
const LARGEST_BLOCK: usize = 2048;
/// The sizes of blocks are multiples of this.
const STEP: usize = 16;
const PAGE: usize = 64 << 10;

/// Memory of the old space.
#[derive(Debug, Default)]
pub(crate) struct Old {
    /// By size class: the first free block, 0 if there is none.
    free: Vec<usize>,
    pages: Vec<Page>,
    large: Vec<Large>,
    /// The bytes of all objects.
    used: usize,
}

#[derive(Debug)]
struct Page {
    start: usize,
    block: usize,
}

#[derive(Debug)]
struct Large {
    object: Address,
    size: usize,
}

/// Zeroed memory, as an address.
fn memory(layout: Layout) -> usize {
    // SAFETY: no layout here has the size 0.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    memory.expose_provenance()
}

fn free_memory(start: usize, layout: Layout) {
    // SAFETY: `memory` gave this address for this layout, and the caller forgets it.
    unsafe { dealloc(std::ptr::with_exposed_provenance_mut(start), layout) };
}

const fn page_layout() -> Layout {
    match Layout::from_size_align(PAGE, STEP) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    }
}

fn large_layout(size: usize) -> Layout {
    Layout::from_size_align(size, STEP).expect("an object fits in memory")
}

impl Page {
    fn blocks(&self) -> impl Iterator<Item = Address> + use<> {
        let last = self.start + PAGE - self.block;
        (self.start..=last).step_by(self.block).map(Address)
    }
}

impl Old {
    /// The bytes of all objects: the paper's `total_memory_used` (section 3.6).
    pub fn used(&self) -> usize {
        self.used
    }

    /// The bytes that were taken from the system for them: the paper's `total_size_of_arenas`.
    pub fn reserved(&self) -> usize {
        self.pages.len() * PAGE + self.large.iter().map(|large| large.size).sum::<usize>()
    }

    /// Memory for an object of `size` bytes. Its content is not defined.
    pub fn allocate(&mut self, size: usize) -> Address {
        if size > LARGEST_BLOCK {
            return self.allocate_large(size);
        }
        self.used += size;
        let class = size.div_ceil(STEP);
        if self.free.len() <= class {
            self.free.resize(LARGEST_BLOCK / STEP + 1, 0);
        }
        if self.free[class] == 0 {
            let page = Page {
                start: memory(page_layout()),
                block: class * STEP,
            };
            page.blocks()
                .for_each(|block| push(&mut self.free[class], block));
            self.pages.push(page);
        }
        let block = Address(self.free[class]);
        self.free[class] = block.read(0).0 as usize;
        block
    }

    /// Memory of its own for an object of `size` bytes, all zero.
    pub fn allocate_large(&mut self, size: usize) -> Address {
        self.used += size;
        let object = Address(memory(large_layout(size)));
        self.large.push(Large { object, size });
        object
    }

    /// Frees the large objects that are `dead`, but leaves the first `from` alone.
    pub fn sweep_large(&mut self, from: usize, mut dead: impl FnMut(Address) -> bool) {
        let mut kept = self.large.split_off(from);
        kept.retain(|large| {
            let dead = dead(large.object);
            if dead {
                self.used -= large.size;
                free_memory(large.object.0, large_layout(large.size));
            }
            !dead
        });
        self.large.append(&mut kept);
    }

    /// The number of large objects. Objects that are allocated later come after them: see [`sweep_large`](Self::sweep_large).
    pub fn large_objects(&self) -> usize {
        self.large.len()
    }

    /// Frees every object that is not marked, after a call of `freed` for it, and removes the marks. Pages without objects are
    /// given back.
    pub fn sweep(&mut self, types: &[Type], mut freed: impl FnMut(Address)) {
        let mut live = |object: Address| {
            if object.has(MARKED) {
                object.clear(MARKED);
                true
            } else {
                freed(object);
                false
            }
        };
        self.sweep_large(0, |object| !live(object));
        let mut used: usize = self.large.iter().map(|large| large.size).sum();
        self.free.fill(0);
        self.pages.retain(|page| {
            let list = &mut self.free[page.block / STEP];
            let before = *list;
            let mut empty = true;
            for block in page.blocks() {
                if block.header() != 0 && live(block) {
                    empty = false;
                    used += block.size(types);
                } else {
                    push(list, block);
                }
            }
            if empty {
                *list = before;
                free_memory(page.start, page_layout());
            }
            !empty
        });
        self.used = used;
    }
}

/// Makes a block free.
fn push(list: &mut usize, block: Address) {
    block.set_header(0);
    block.write(0, Word(*list as u64));
    *list = block.0;
}

impl Drop for Old {
    fn drop(&mut self) {
        for page in &self.pages {
            free_memory(page.start, page_layout());
        }
        for large in &self.large {
            free_memory(large.object.0, large_layout(large.size));
        }
    }
}

const _: () =
    assert!(PAGE >= LARGEST_BLOCK && LARGEST_BLOCK.is_multiple_of(STEP) && STEP >= 2 * WORD);
