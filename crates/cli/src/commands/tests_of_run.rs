//! `nthbyte tests`: what each test of a run of pytest allocated.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_profile::Profile;
use nthbyte_report::suite::{Baseline, Builder, Marks, VERSION};

use crate::json;
use crate::output::{self, Output};
use crate::question::by::{NoBy, NoLabel};

/// What `tests` takes.
#[derive(Args)]
pub struct Arguments {
    /// The profile that `pytest --nthbyte` has written. What ran when is in a file beside it, with the suffix `.tests.json`.
    #[arg(value_name = "PROFILE")]
    path: PathBuf,
    /// Show at most N rows in each table; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
    /// Write JSON: all tests, in the order of the run.
    #[arg(long)]
    json: bool,
    /// Also say what has surely grown since an earlier run: the JSON of that run.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Exit with status 1 if something has.
    #[arg(long, requires = "baseline")]
    fail: bool,
    #[command(flatten)]
    by: NoBy,
    #[command(flatten)]
    label: NoLabel,
}

impl Arguments {
    /// Prints it.
    ///
    /// # Errors
    /// If the file with the marks or a profile cannot be read, or standard output cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        self.by
            .refuse("a row is a test; nthbyte summary --by test has what all of its samples say")?;
        self.label.refuse(
            "a row is a whole test; nthbyte summary --by test --label KEY=VALUE has a part of each",
        )?;
        let path = marks_of(&self.path);
        let marks = read(&path)?;
        let mut builder = Builder::new(marks.owners);
        // One at a time: a run of many processes needs the memory of its largest profile.
        for recording in &marks.recordings {
            // Whoever has written the file may name files of this folder only.
            let name = Path::new(&recording.profile).file_name();
            let path = path.with_file_name(name.unwrap_or_default());
            let profile = Profile::load(&path);
            let profile = profile.with_context(|| format!("cannot read {}", path.display()))?;
            builder.add(recording, &profile);
        }
        for measured in &marks.measured {
            builder.add_measured(measured);
        }
        let mut suite = builder.finish();
        if let Some(path) = &self.baseline {
            suite.changes = Some(suite.since(&baseline(path)?));
        }
        Output::Standard.write(|out| {
            if self.json {
                json::write(out, &suite)?;
            } else {
                let text = suite.render(output::terminal_width(), self.top);
                out.write_all(text.as_bytes())?;
            }
            Ok(())
        })?;
        let has_grown = suite
            .changes
            .is_some_and(|changes| !changes.grown.is_empty());
        Ok(ExitCode::from(u8::from(self.fail && has_grown)))
    }
}

fn baseline(path: &Path) -> Result<Baseline> {
    let text = std::fs::read(path).with_context(|| {
        let advice = "`nthbyte tests --json` writes one";
        format!("there is no baseline {} ({advice})", path.display())
    })?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is not of `nthbyte tests --json`", path.display()))
}

/// The file with the marks that belongs to a profile. It may be named itself.
fn marks_of(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|suffix| suffix == "json") {
        path.to_owned()
    } else {
        path.with_extension("tests.json")
    }
}

fn read(path: &Path) -> Result<Marks> {
    let text = std::fs::read(path).with_context(|| {
        let advice = "`pytest --nthbyte` writes it";
        format!(
            "what ran when is not known, without {} ({advice})",
            path.display()
        )
    })?;
    let marks: Marks = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not of `pytest --nthbyte`", path.display()))?;
    if marks.nthbyte_tests != VERSION {
        bail!(
            "{} is of version {}, and this nthbyte reads version {VERSION}",
            path.display(),
            marks.nthbyte_tests
        );
    }
    Ok(marks)
}
