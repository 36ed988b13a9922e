//! `--by`: what a row of a table stands for, and what a tree begins with.

use clap::ValueEnum;
use nthbyte_report::By;

/// What a row can stand for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// A function.
    Function,
    /// A line of a function.
    Line,
    /// A source file.
    File,
    /// The type of the allocated object.
    Type,
    /// A process.
    Process,
}

impl From<Rows> for By {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Function => Self::Function,
            Rows::Line => Self::Line,
            Rows::File => Self::File,
            Rows::Type => Self::Type,
            Rows::Process => Self::Process,
        }
    }
}

/// How a tree tells processes apart.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Apart {
    /// Each process at the top, with its own calls below.
    Process,
}
