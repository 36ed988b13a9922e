//! `--by`: what a row of a table stands for, and what a tree begins with.

use nthbyte_report::{By, LabelKey};

/// Reads what a row stands for.
///
/// # Errors
/// One line, for the command line's parser.
pub fn rows(text: &str) -> Result<By, String> {
    match text {
        "function" => Ok(By::Function),
        "line" => Ok(By::Line),
        "file" => Ok(By::File),
        "type" => Ok(By::Type),
        "process" => Ok(By::Process),
        text => label(text)
            .map(|key| By::Label(LabelKey::new(key)))
            .ok_or_else(|| "write function, line, file, type, process, or label:KEY".to_owned()),
    }
}

/// The key of `label:KEY`.
fn label(text: &str) -> Option<&str> {
    text.strip_prefix("label:").filter(|key| !key.is_empty())
}

/// What is at the top of a tree, with its own calls below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Each process.
    Process,
    /// Each value of a label.
    Label(String),
}

/// Reads what is at the top of a tree.
///
/// # Errors
/// One line, for the command line's parser.
pub fn apart(text: &str) -> Result<Apart, String> {
    match text {
        "process" => Ok(Apart::Process),
        text => label(text)
            .map(|key| Apart::Label(key.to_owned()))
            .ok_or_else(|| "write process or label:KEY".to_owned()),
    }
}
