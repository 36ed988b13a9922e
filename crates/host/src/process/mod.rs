//! Access to the host's process.
//!
//! ```text
//! descriptor   a descriptor that the program may close, identified by its inode
//! identity     which process this is
//! maps         lines of the kernel's list of mappings
//! memory_file  a file in memory that a signal handler may append to
//! reads        reads of addresses that may be unmapped
//! image        releases this library's own pages
//! host_images  releases what the host's start-up used of its images
//! segments     the segments of the process's images
//! folder       the names in a folder
//! thread_list  the threads of the process
//! waiting      where a thread waits
//! dynamic_section    the tables of an image: names, symbols, relocations
//! ```

pub mod dynamic_section;
pub mod host_images;
pub mod image;

mod descriptor;
mod folder;
mod identity;
mod maps;
mod memory_file;
mod reads;
mod segments;
#[cfg(test)]
mod tests;
mod thread_list;
mod waiting;

pub use descriptor::{HostDescriptor, Identity, duplicate_high, keep_only};
pub use folder::for_each_name;
pub use identity::ProcessIdentity;
pub use maps::MapsLine;
pub use memory_file::MemoryFile;
pub use reads::{CachedProbe, Plain, Probe, field};
pub use segments::{LoadedImage, prepare_to_find_images};
pub use segments::{Segment, for_each as for_each_segment};
pub use thread_list::ThreadList;
pub use waiting::stack_pointer_of_waiting;
