//! The subcommands, one file for each.

mod amounts;
#[cfg(target_os = "linux")]
mod attach;
pub mod diff;
mod elsewhere;
mod explain;
mod export;
mod flamegraph;
mod holders;
mod import;
mod leaks;
pub mod meant;
mod measure_test;
mod memory;
mod merge;
#[cfg(target_os = "linux")]
mod run_program;
#[cfg(feature = "ship")]
mod ship;
mod summary;
mod tests_of_run;
mod tree;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[cfg(feature = "live")]
use crate::live;
use crate::view;

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program and record which allocations it makes.
    Run(elsewhere::Words),
    /// Record a process that runs already, until Ctrl-C or for a time.
    #[cfg(target_os = "linux")]
    Attach(attach::Attach),
    /// End the recording of a process.
    #[cfg(target_os = "linux")]
    Detach(attach::Detach),
    /// Let a process that is recorded take a snapshot of what holds what.
    #[cfg(target_os = "linux")]
    Snapshot(attach::Snapshot),
    /// Say in a screen of sentences what a profile shows: the command to start with.
    Explain(explain::Arguments),
    /// Show which functions allocated most, with 95 % intervals.
    Summary(summary::Arguments),
    /// Show the tree of calls that led to the allocations.
    Tree(tree::Arguments),
    /// Say what changed from one profile to another, and whether that is real.
    Diff(diff::Arguments),
    /// Say what accumulates, with the evidence; with --fail, for continuous integration.
    Leaks(leaks::Arguments),
    /// Show what the resident set was made of, at its peak or at a time.
    Memory(memory::Arguments),
    /// Show who holds what is alive: what would be freed without a cache, a list, a closure or a frame.
    Holders(holders::Arguments),
    /// Show what each test of a run of pytest allocated, had at most, and left alive.
    Tests(tests_of_run::Arguments),
    /// Show a profile in the terminal while it grows.
    #[cfg(feature = "live")]
    Live(live::Arguments),
    /// Show the profile in the Firefox Profiler, served from this machine.
    View(view::Arguments),
    /// Write one self-contained HTML page with flame graph, table and timeline.
    Flamegraph(flamegraph::Arguments),
    /// Write the profile in another program's format.
    Export(export::Arguments),
    /// Write several profiles, or a part of one, as one file.
    Merge(merge::Arguments),
    /// Send profiles to an OpenTelemetry Collector, to Pyroscope or into a folder, in windows of a minute.
    #[cfg(feature = "ship")]
    Ship(ship::Arguments),
    /// Convert another profiler's file into a profile.
    Import(import::Arguments),
    /// Say what works here, or in a running process, and what prevents the rest.
    Check(elsewhere::Words),
    /// What `run` executes for a program of native code.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    RunProgram(run_program::Arguments),
    /// What the plugin for pytest asks of a test with a limit.
    #[command(hide = true)]
    MeasureTest(measure_test::Arguments),
    /// Figures of bytes as all reports write them.
    #[command(hide = true)]
    Amounts(amounts::Arguments),
    /// Find the fastest size of PyPy's nursery for a program (PyPy only).
    Tune(elsewhere::Words),
}

impl Command {
    /// Runs the command, and returns the exit status.
    ///
    /// # Errors
    /// If the command fails; the error and its causes make one line for the user.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Self::Diff(arguments) => return arguments.run(),
            Self::Leaks(arguments) => return arguments.run(),
            Self::Tests(arguments) => return arguments.run(),
            #[cfg(target_os = "linux")]
            Self::RunProgram(arguments) => return arguments.run(),
            Self::Run(words) => words.refuse("run"),
            Self::Check(words) => words.refuse("check"),
            Self::Tune(words) => words.refuse("tune"),
            #[cfg(target_os = "linux")]
            Self::Attach(arguments) => arguments.run(),
            #[cfg(target_os = "linux")]
            Self::Detach(arguments) => arguments.run(),
            #[cfg(target_os = "linux")]
            Self::Snapshot(arguments) => arguments.run(),
            Self::Explain(arguments) => arguments.run(),
            #[cfg(feature = "live")]
            Self::Live(arguments) => arguments.run(),
            Self::Memory(arguments) => arguments.run(),
            Self::Holders(arguments) => arguments.run(),
            Self::Summary(arguments) => arguments.run(),
            Self::Tree(arguments) => arguments.run(),
            Self::View(arguments) => arguments.run(),
            Self::Flamegraph(arguments) => arguments.run(),
            Self::Export(arguments) => arguments.run(),
            Self::Merge(arguments) => arguments.run(),
            #[cfg(feature = "ship")]
            Self::Ship(arguments) => arguments.run(),
            Self::Import(arguments) => arguments.run(),
            Self::MeasureTest(arguments) => arguments.run(),
            Self::Amounts(arguments) => arguments.run(),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}
