//! Names of types.
//!
//! ```text
//! names          the collector's types, by the numbers in objects' headers
//! python_names   their Python names
//! classes        the Python class of an instance
//! ```

mod classes;
mod names;
mod python_names;

pub use classes::Recent;
pub use names::{ProbeInstance, Types};
pub use python_names::{is_cache, is_compiled, is_of_python};
