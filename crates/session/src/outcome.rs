//! The result of a session, as the host's Python code receives it.

use std::ffi::c_char;
use std::path::PathBuf;

/// The note of an [`SessionOutcome`] whose session ended with a panic.
pub(crate) const INTERNAL_ERROR: &str = "an error inside nthbyte ended the sampling early";

/// What a host has counted by the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Bytes that the program asked for: exact, or estimated from `blocks`.
    pub allocated: u64,
    /// Bytes of the blocks that the heap handed out for them, if it counted each. Exact.
    pub blocks: Option<u64>,
}

/// The result of a session. Python code receives it as [text](Self::to_text).
#[derive(Clone, Debug, Default)]
pub struct SessionOutcome {
    /// The path of the profile. `None` if there was nothing to write (the child of a fork that took no sample).
    pub path: Option<PathBuf>,
    /// Samples of memory recorded.
    pub samples: u64,
    /// Time samples recorded.
    pub time_samples: u64,
    /// Events dropped.
    pub lost: u64,
    /// Bytes allocated during the session, sampled or not: see [`Counted::allocated`]. `None` where the host cannot count them.
    pub bytes_allocated: Option<u64>,
    /// Whether the profile's file took nothing for some seconds. Whoever looks into its folder may wait for ever.
    pub is_stalled: bool,
    /// Messages for the user, one sentence each: why the profile is incomplete, for example.
    pub notes: Vec<String>,
}

impl SessionOutcome {
    /// The outcome as text, which Python code takes apart without a module: the numbers of samples, of time samples, of
    /// dropped events and of allocated bytes (`-` if they were not counted), and 1 if the file is stalled, else 0, with commas
    /// between them; a line for each note; an empty line; the path, with U+FFFD for bytes that are not UTF-8. It has no zero byte.
    #[must_use]
    pub fn to_text(&self) -> String {
        let allocated = self.bytes_allocated.map(|bytes| bytes.to_string());
        let allocated = allocated.as_deref().unwrap_or("-");
        let mut text = format!(
            "{},{},{},{allocated},{}\n",
            self.samples,
            self.time_samples,
            self.lost,
            u8::from(self.is_stalled)
        );
        for note in self.notes.iter().filter(|note| !note.is_empty()) {
            text += &note.replace(['\n', '\0'], " ");
            text.push('\n');
        }
        text.push('\n');
        let path = self.path.as_ref().map(|path| path.to_string_lossy());
        text += path.as_deref().unwrap_or_default();
        text
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_text() {
        assert_eq!(SessionOutcome::default().to_text(), "0,0,0,-,0\n\n");
        let outcome = SessionOutcome {
            path: Some(PathBuf::from("/tmp/a\n\nb.nthb")),
            samples: 3,
            time_samples: 6,
            lost: 4,
            bytes_allocated: Some(5),
            is_stalled: true,
            notes: vec!["two\nlines\n\0".to_owned(), String::new(), "one".to_owned()],
        };
        assert_eq!(
            outcome.to_text(),
            "3,6,4,5,1\ntwo lines  \none\n\n/tmp/a\n\nb.nthb"
        );
    }
}
