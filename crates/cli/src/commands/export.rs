//! `nthbyte export`: a profile in another program's format.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use nthbyte_formats::{collapsed, firefox, pprof, speedscope};
use nthbyte_report::holders::{self, Naming};

use crate::output::Output;
use crate::progress::Progress;
use crate::question::by::{self, Apart};
use crate::question::inputs::Profiles;
use crate::question::selecting::{FrameOptions, Selecting};
use crate::question::{Frames, Question, tracks_by_label};

/// What `export` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The format.
    #[arg(long, value_enum)]
    to: Format,
    /// The file to write; `-` is standard output (default: the profile's name with the format's suffix).
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the output if it exists; a profile never is.
    #[arg(short, long)]
    force: bool,
    /// Put the text of the program's Python files, as they are on this machine now, into a Firefox Profiler file.
    #[arg(long)]
    sources: bool,
    /// Put each process, thread, or value of a label at the top, with its own calls below it. A Firefox Profiler file has a track for each value
    /// of a label instead. Without it, Firefox Profiler files have tracks for processes and threads, pprof files labels, and speedscope files profiles.
    #[arg(long, value_name = "process|thread|task|test|label:KEY", value_parser = by::apart)]
    by: Option<Apart>,
    /// Write who holds what was alive, with holders in place of callers: of the snapshot of the end, or of --at. In a Firefox Profiler file it is
    /// a track beside the others.
    #[arg(long, conflicts_with = "by")]
    holders: bool,
    #[command(flatten)]
    frames: FrameOptions,
    #[command(flatten)]
    selecting: Selecting,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// The Firefox Profiler (.json.gz).
    Firefox,
    /// Google's pprof (.pb.gz).
    Pprof,
    /// speedscope (.speedscope.json).
    Speedscope,
    /// Collapsed stacks for flame graph tools: one line for each stack, with its estimated bytes.
    Collapsed,
}

impl Format {
    fn suffix(self) -> &'static str {
        match self {
            Self::Firefox => "json.gz",
            Self::Pprof => "pb.gz",
            Self::Speedscope => "speedscope.json",
            Self::Collapsed => "collapsed",
        }
    }
}

impl Arguments {
    /// Writes it.
    ///
    /// # Errors
    /// If the profile cannot be read or the file cannot be written.
    pub fn run(self) -> Result<()> {
        if self.sources && !matches!(self.to, Format::Firefox) {
            let text = "--sources is for --to firefox only: leave it out";
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text).into());
        }
        let mut selection = self.selecting.selection();
        ensure!(
            !self.holders || selection.labels.is_empty(),
            "--label: --holders writes all that was alive; nthbyte holders --label shows who holds what was allocated under one"
        );
        let inputs = self.profiles.find()?;
        let output = Output::beside(self.profiles.first(), self.output, self.to.suffix());
        inputs.protect(&output, self.force)?;
        // The moment is the snapshot's; a file with both has all samples.
        let at = match self.holders {
            true => selection.at.take(),
            false => None,
        };
        let (by, tracks) = match (self.by, self.to) {
            (Some(Apart::Label(key)), Format::Firefox) => (None, Some(key)),
            (by, _) => (by, None),
        };
        let question = Question {
            selection: Some(selection),
            frames: self.frames.or(match self.to {
                Format::Firefox => Frames::WithoutLauncher,
                _ => Frames::All,
            }),
            by,
            ..Question::about(inputs)
        };
        let mut profile = question.prepare()?.profile;
        if let Some(key) = tracks {
            tracks_by_label(&mut profile, &key)?;
        }
        match (self.holders, self.to) {
            (true, Format::Firefox) => holders::add_track(&mut profile, at, Naming::Short)?,
            (true, _) => profile = holders::as_profile(&profile, at, Naming::Short)?,
            (false, _) => {}
        }
        let compressed = matches!(&output, Output::File(path)
            if path.extension().is_some_and(|end| end == "gz"));
        let options = firefox::FirefoxOptions {
            sources: self.sources,
            ..firefox::FirefoxOptions::default()
        };
        let progress = Progress::steps("writing");
        let at = &mut |done, total| progress.at(done, total);
        output.write(|out| {
            match self.to {
                Format::Firefox if compressed => {
                    firefox::write_gzip_with(&profile, options, out, at)?;
                }
                Format::Firefox => firefox::write_with(&profile, options, out, at)?,
                Format::Pprof => pprof::write(&profile, out, at)?,
                Format::Speedscope => speedscope::write(&profile, out, at)?,
                Format::Collapsed => collapsed::write(&profile, out, at)?,
            }
            Ok(())
        })
    }
}
