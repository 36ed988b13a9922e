//! What objects are called.
//!
//! ```text
//! names          the collector's types, by the numbers in objects' headers
//! python_names   what a Python programmer calls them
//! classes        the Python class of an instance
//! ```

mod classes;
mod names;
mod python_names;

pub use classes::Recent;
pub use names::{ProbeInstance, Types};
