//! A moment of a running session, and what was recorded up to then.
//!
//! A part of a recording is what lies between two marks. So a program can measure a piece of its work while somebody
//! records all of it.

use std::path::PathBuf;

use nthbyte_profile::event::Nanos;

/// What was recorded up to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The moment.
    pub time: Nanos,
    /// Samples of memory.
    pub samples: u64,
    /// Time samples.
    pub time_samples: u64,
    /// Events that were lost since the process began.
    pub lost: u64,
    /// Bytes that the process allocated; `None` where the host cannot count them.
    pub allocated: Option<u64>,
    /// The path of the profile.
    pub path: PathBuf,
}

impl Mark {
    /// The mark as text, for Python: its numbers in the order of the fields, with commas between them, the time in
    /// nanoseconds, and `-` if bytes were not counted; then a line end, and the path.
    #[must_use]
    pub fn to_text(&self) -> String {
        let allocated = self.allocated.map(|bytes| bytes.to_string());
        format!(
            "{},{},{},{},{}\n{}",
            self.time.0,
            self.samples,
            self.time_samples,
            self.lost,
            allocated.as_deref().unwrap_or("-"),
            self.path.to_string_lossy()
        )
    }
}
