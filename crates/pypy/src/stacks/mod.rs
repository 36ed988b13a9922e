//! The Python stack of a thread.
//!
//! ```text
//! record        the records of `_vmprof`: frames and their kinds
//! names         the names of code objects in the records
//! known_names   the names that were read
//! handler       calls `_vmprof`'s handler of SIGPROF, and receives its system calls
//! links         the elements of PyPy's own list of frames
//! frame_list    the stack, read from that list
//! vmprof        the stack, read from the list or by the handler
//! nodes         a table of recent steps and their nodes of the stack tree
//! tree          stacks as nodes of the profile's stack tree
//! native        the stack of a sample of native memory
//! ticks         time samples
//! ```

mod frame_list;
mod handler;
mod known_names;
mod links;
mod names;
pub mod native;
mod nodes;
mod record;
pub mod ticks;
mod tree;
mod vmprof;

pub use frame_list::FrameList;
pub use handler::{
    DESCRIPTOR, Work, changes_here, lseek_hook, mmap_hook, setitimer_hook, write_hook,
};
pub use known_names::keep as keep_names;
pub use tree::Stacks;
pub use vmprof::{Action, Vmprof, take_over};
