//! The Python class of an instance.

/// Where classes are found.
#[derive(Debug)]
pub struct Classes;

impl Classes {
    /// Forgets.
    pub fn forget(&mut self) {}
}
