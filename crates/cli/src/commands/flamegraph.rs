//! `nthbyte flamegraph`: one self-contained page.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use nthbyte_report::flamegraph::{self, Page};
use nthbyte_report::{At, MemoryReport};

use crate::output::Output;
use crate::progress::{Progress, during};
use crate::question::by::{self, Apart, THREAD};
use crate::question::inputs::Profiles;
use crate::question::selecting::{FrameOptions, Selecting};
use crate::question::{Frames, Question, check_label};

/// What `flamegraph` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: Profiles,
    /// The file to write; `-` is standard output (default: the profile's name with the suffix .html).
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the output if it exists; a profile never is.
    #[arg(short, long)]
    force: bool,
    /// Put each process, or each value of a label, at the top, with its own calls below it. The page has a control for labels and threads without it.
    #[arg(long, value_name = "process|thread|task|test|label:KEY", value_parser = by::apart)]
    by: Option<Apart>,
    #[command(flatten)]
    frames: FrameOptions,
    #[command(flatten)]
    selecting: Selecting,
}

impl Arguments {
    /// Writes the page.
    ///
    /// # Errors
    /// If the profile cannot be read or the page cannot be written.
    pub fn run(self) -> Result<()> {
        let inputs = self.profiles.find()?;
        let output = Output::beside(self.profiles.first(), self.output, "html");
        inputs.protect(&output, self.force)?;
        let selection = self.selecting.selection();
        let asked = selection.at;
        // The page arranges by labels itself.
        let (by, label) = match self.by {
            Some(Apart::Label(key)) if key != THREAD => (None, Some(key)),
            by => (by, None),
        };
        let question = Question {
            selection: Some(selection),
            finds_peak: true,
            frames: self.frames.or(Frames::Folded),
            by,
            ..Question::about(inputs)
        };
        let (memory, mut prepared) = question.prepare_after(|whole| {
            during("adding up", || {
                MemoryReport::over_time(whole, flamegraph::MOMENTS)
            })
        })?;
        if let Some(key) = &label {
            check_label(&mut prepared.profile, key)?;
        }
        let groups = prepared.profile.root_by_groups(label.as_deref());
        let page = Page {
            peak: prepared.peak,
            asked: match asked {
                Some(At::Time(time)) => Some(time),
                _ => None,
            },
            opens: asked.map(|at| match at {
                At::Peak => "peak",
                At::Time(_) => "time",
                At::End => "end",
            }),
            memory: &memory,
            groups: groups.as_ref(),
            by: label.as_deref(),
            ..Page::default()
        };
        let progress = Progress::steps("writing");
        output.write(|out| {
            Ok(flamegraph::write_page(
                &prepared.profile,
                &page,
                out,
                &mut |done, total| progress.at(done, total),
            )?)
        })
    }
}
