//! Linux with the GNU C library.

mod fast;
mod marks;
mod session;
mod slow;
mod thread;

pub(crate) use session::{start, stop};
