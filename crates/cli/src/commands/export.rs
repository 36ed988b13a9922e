//! `nthbyte export`: a profile in another program's format.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use nthbyte_formats::{Progress as Report, collapsed, firefox, pprof, speedscope};
use nthbyte_profile::Profile;

use crate::output::Output;
use crate::progress::Progress;

/// What `export` takes.
#[derive(Args)]
pub struct Arguments {
    /// The profile (.nthb).
    profile: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    to: Format,
    /// The file to write; `-` is standard output. Without it, collapsed stacks go to standard
    /// output, and everything else to a file named like the profile.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// The formats.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// The Firefox Profiler (.json.gz).
    Firefox,
    /// Google's pprof (.pb.gz).
    Pprof,
    /// speedscope (.speedscope.json).
    Speedscope,
    /// Collapsed stacks for flame graph tools: a stack and its estimated bytes, one a line.
    Collapsed,
}

/// How a format is written: its suffix and the function that does it.
type Writer = fn(&Profile, &mut dyn Write, Report<'_>) -> io::Result<()>;

impl Format {
    fn writer(self) -> (&'static str, Writer) {
        match self {
            Self::Firefox => ("json.gz", firefox::write),
            Self::Pprof => ("pb.gz", pprof::write),
            Self::Speedscope => ("speedscope.json", speedscope::write),
            Self::Collapsed => ("collapsed", collapsed::write),
        }
    }
}

impl Arguments {
    /// Writes it.
    ///
    /// # Errors
    /// If the profile cannot be read or the file not be written.
    pub fn run(self) -> Result<()> {
        let profile = crate::input::load(&self.profile)?;
        let (suffix, write) = self.to.writer();
        let output = match (self.to, self.output) {
            (Format::Collapsed, None) => Output::Standard,
            (_, option) => Output::beside(&self.profile, option, suffix),
        };
        let write = match (self.to, &output) {
            (Format::Firefox, Output::File(path))
                if path.extension().is_some_and(|end| end == "gz") =>
            {
                firefox::write_gzip
            }
            _ => write,
        };
        let progress = Progress::steps("writing");
        output.write(|out| {
            Ok(write(&profile, out, &mut |done, total| {
                progress.at(done, total)
            })?)
        })
    }
}
