//! What came of a session, and how the host's Python code gets it.

use std::ffi::c_char;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// The note of an [`Outcome`] whose session a panic has ended.
pub(crate) const INTERNAL_ERROR: &str = "an error inside nthbyte ended the sampling early";

/// What came of a session. Python code gets it as JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The profile; none if there was nothing to write (the child of a fork that took no sample).
    #[serde(serialize_with = "lossy")]
    pub path: Option<PathBuf>,
    /// Samples recorded.
    pub samples: u64,
    /// Events dropped.
    pub lost: u64,
    /// Bytes allocated during the session, sampled or not; `None` where they cannot be counted.
    pub bytes_allocated: Option<u64>,
    /// What the user should know, a sentence each: why the profile is not whole, for example.
    pub notes: Vec<String>,
}

impl Outcome {
    /// The outcome as a JSON object with the fields of this structure.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists of them: nothing that JSON does not have.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A path is written as text; bytes that are not UTF-8 become U+FFFD.
fn lossy<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref()
        .map(|path| path.to_string_lossy())
        .serialize(to)
}

/// Copies as much of `text` as there is room for, whole characters only, and a zero.
///
/// # Safety
/// `to` has room for `length` bytes.
pub unsafe fn copy_text(text: &str, to: *mut c_char, length: usize) {
    let Some(room) = length.checked_sub(1) else {
        return;
    };
    let mut end = room.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` is less than `length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), end);
        to.add(end).write(0);
    }
}
