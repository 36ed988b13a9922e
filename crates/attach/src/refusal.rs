//! Why a process is left alone: one line for its user, which says what to do.

use std::fmt;
use std::io;

/// Why nothing was done in a process. The text is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// Returns a refusal with the text of a format.
macro_rules! refuse {
    ($($words:tt)*) => { $crate::refusal::Refusal(format!($($words)*)) };
}
pub(crate) use refuse;

/// An error of the system without its number.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
