//! Stands for the release of this library's own pages.

pub(crate) const fn release_again() {}
