//! Memory that is not the program's.
//!
//! ```text
//! reserve    the allocator of the agents, with a reserve for when memory runs out
//! pool       its small blocks
//! region     the reserve's memory
//! free_list  blocks that were given back
//! mappings   memory of the system, and the size of its pages
//! ```

mod free_list;
mod mappings;
mod pool;
mod region;
mod reserve;

pub use mappings::{SMALLEST_PAGE, page_size, prefer_huge_pages};
#[cfg(any(test, feature = "test-seams"))]
pub use reserve::failing;
pub use reserve::{AgentAllocator, Room, close_reserve, has, is_short, own_memory};

#[cfg(test)]
fn layout(size: usize, align: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(size, align).unwrap()
}
