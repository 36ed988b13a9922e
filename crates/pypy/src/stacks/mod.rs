//! Who runs: the Python stack of a thread.
//!
//! ```text
//! record        what `_vmprof` writes: frames and their kinds
//! names         the names of code objects in it
//! handler       `_vmprof`'s handler of SIGPROF, called from here, and its calls of the system, listened to
//! links         the elements of PyPy's own list of frames
//! frame_list    the stack, read from that list
//! vmprof        the stack, from either
//! nodes         the nodes of the stack tree that steps of a stack have led to lately
//! tree          stacks as nodes of the profile's stack tree
//! ```

mod frame_list;
mod handler;
mod links;
mod names;
mod nodes;
mod record;
mod tree;
mod vmprof;

pub use frame_list::FrameList;
pub use handler::{DESCRIPTOR, Work, lseek_hook, mmap_hook, write_hook};
pub use tree::Stacks;
pub use vmprof::{Vmprof, take_over};
