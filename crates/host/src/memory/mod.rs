//! Memory that is not the program's.
//!
//! ```text
//! reserve    the allocator of the agents, with a reserve for when memory runs out
//! pool       its small blocks
//! region     the reserve's memory
//! free_list  blocks that were given back
//! mappings   memory of the system
//! page       the size of OS pages
//! ```

mod free_list;
mod mappings;
mod page;
mod pool;
mod region;
mod reserve;

pub use mappings::prefer_huge_pages;
pub use page::{SMALLEST_PAGE, page_size};
#[cfg(any(test, feature = "test-seams"))]
pub use reserve::failing;
pub use reserve::{AgentAllocator, Room, close_reserve, has, is_short, own_memory};

#[cfg(test)]
fn layout(size: usize, align: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(size, align).unwrap()
}
