//! `--by`: what a row of a table stands for, and what a tree begins with.

use anyhow::{Result, ensure};
use clap::Args;
pub use nthbyte_profile::{AWAITED_BY, HOST, TASK, THREAD};
use nthbyte_report::{By, LabelKey};

/// Reads what a row stands for.
///
/// # Errors
/// One line, for the command line's parser.
pub fn rows(text: &str) -> std::result::Result<By, String> {
    match text {
        "function" => Ok(By::Function),
        "line" => Ok(By::Line),
        "file" => Ok(By::File),
        "type" => Ok(By::Type),
        "process" => Ok(By::Process),
        text => label(text)
            .map(|key| By::Label(LabelKey::new(key)))
            .ok_or_else(|| {
                "write function, line, file, type, process, thread, host, task, test, or label:KEY"
                    .to_owned()
            }),
    }
}

/// `--label` where a command has no answer to it: it says why, and what has one.
#[derive(Args)]
pub struct NoLabel {
    #[arg(long = "label", hide = true, value_name = "KEY=VALUE")]
    labels: Vec<String>,
}

impl NoLabel {
    /// # Errors
    /// If it was given: `why`.
    pub fn refuse(&self, why: &str) -> Result<()> {
        ensure!(self.labels.is_empty(), "--label: {why}");
        Ok(())
    }
}

/// The same of `--by`.
#[derive(Args)]
pub struct NoBy {
    #[arg(long = "by", hide = true, value_name = "label:KEY")]
    by: Option<String>,
}

impl NoBy {
    /// # Errors
    /// If it was given: `why`.
    pub fn refuse(&self, why: &str) -> Result<()> {
        ensure!(self.by.is_none(), "--by: {why}");
        Ok(())
    }
}

/// The same of `--thread` and `--where`.
#[derive(Args)]
pub struct NoPlace {
    #[arg(long = "thread", hide = true, value_name = "NAME")]
    threads: Vec<String>,
    #[arg(long = "where", hide = true, value_name = "PLACE")]
    places: Vec<String>,
}

impl NoPlace {
    /// # Errors
    /// If one was given: `why`.
    pub fn refuse(&self, why: &str) -> Result<()> {
        ensure!(self.threads.is_empty(), "--thread: {why}");
        ensure!(self.places.is_empty(), "--where: {why}");
        Ok(())
    }
}

/// The key of `label:KEY`, or of what needs no label of the program's.
pub fn label(text: &str) -> Option<&str> {
    match text {
        THREAD | HOST | TASK | TEST => Some(text),
        text => text.strip_prefix("label:").filter(|key| !key.is_empty()),
    }
}

/// The label that the plugin for pytest sets.
pub const TEST: &str = "test";

/// The rows at the top of a tree, with their own calls below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Each process.
    Process,
    /// Each value of a label.
    Label(String),
}

/// Reads which rows are at the top of a tree.
///
/// # Errors
/// One line, for the command line's parser.
pub fn apart(text: &str) -> std::result::Result<Apart, String> {
    match text {
        "process" => Ok(Apart::Process),
        text => label(text)
            .map(|key| Apart::Label(key.to_owned()))
            .ok_or_else(|| "write process, thread, host, task, test or label:KEY".to_owned()),
    }
}
