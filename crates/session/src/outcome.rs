//! The result of a session, as the host's Python code receives it.

use std::ffi::c_char;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// The note of an [`Outcome`] whose session ended with a panic.
pub(crate) const INTERNAL_ERROR: &str = "an error inside nthbyte ended the sampling early";

/// The result of a session. Python code receives it as JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The path of the profile. `None` if there was nothing to write (the child of a fork that took no sample).
    #[serde(serialize_with = "lossy")]
    pub path: Option<PathBuf>,
    /// Samples recorded.
    pub samples: u64,
    /// Events dropped.
    pub lost: u64,
    /// Bytes allocated during the session, sampled or not. `None` where the host cannot count them.
    pub bytes_allocated: Option<u64>,
    /// Messages for the user, one sentence each: why the profile is incomplete, for example.
    pub notes: Vec<String>,
}

impl Outcome {
    /// The outcome as a JSON object with the fields of this structure.
    #[must_use]
    pub fn to_json(&self) -> String {
        // The structure contains only strings, numbers and lists of them, so encoding cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Writes a path as text; bytes that are not UTF-8 become U+FFFD.
fn lossy<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref()
        .map(|path| path.to_string_lossy())
        .serialize(to)
}

/// Copies as much of `text` as fits, whole characters only, and a zero byte.
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
