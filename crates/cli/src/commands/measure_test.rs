//! `nthbyte measure-test`: the figures of a test that was recorded by itself. It is for the plugin for pytest, and not in the help.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_profile::event::Nanos;
use nthbyte_profile::{Profile, Reader};
use nthbyte_report::suite::{Conditions, Exact, TestFunction};

use crate::json;
use crate::output::Output;

/// What `measure-test` takes.
#[derive(Args)]
pub struct Arguments {
    path: PathBuf,
    /// Only what this thread allocated.
    #[arg(long)]
    thread: Option<u64>,
    /// Count small objects by the arenas that hold them.
    #[arg(long)]
    arenas: bool,
    /// Show the stacks of all that it allocated, too.
    #[arg(long)]
    allocated: bool,
    /// The test's function: its thread, the line of its definition, its file.
    #[arg(long, num_args = 3)]
    test: Option<Vec<String>>,
    /// When the test's function was called again, in nanoseconds since the start of the profile.
    #[arg(long, value_delimiter = ',')]
    repetitions: Vec<u64>,
}

fn test_function(words: &[String]) -> Result<TestFunction> {
    let [thread, line, file] = words else {
        bail!("--test takes three words");
    };
    Ok(TestFunction {
        thread: thread.parse()?,
        file: file.clone(),
        first_line: line.parse()?,
    })
}

impl Arguments {
    /// Prints them as JSON.
    ///
    /// # Errors
    /// If the profile cannot be read.
    pub fn run(self) -> Result<()> {
        let cannot = || format!("cannot read {}", self.path.display());
        let profile = Profile::load(&self.path).with_context(cannot)?;
        let again = Reader::open(&self.path).with_context(cannot)?;
        let conditions = Conditions {
            thread: self.thread,
            by_arenas: self.arenas,
            with_allocated: self.allocated,
            repetitions: self.repetitions.iter().copied().map(Nanos).collect(),
            test: self.test.as_deref().map(test_function).transpose()?,
        };
        let exact = Exact::of(&profile, again, &conditions).with_context(cannot)?;
        Output::Standard.write(|out| json::write(out, &exact))
    }
}
