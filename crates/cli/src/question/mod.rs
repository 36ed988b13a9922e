//! What a command asks of profiles, and how they are made ready to answer it: in one order, for all commands.
//!
//! ```text
//! inputs ─▶ read ─▶ native functions ─▶ a look at the whole ─▶ selection ─▶ frames ─▶ by process
//! ```

pub mod by;
pub mod inputs;
pub mod selecting;

use anyhow::{Result, bail};
use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;
use nthbyte_report::summary::NO_LABEL;
use nthbyte_report::{Selected, Selection, fold};

use crate::output::say;
use crate::progress::during;
use by::{AWAITED_BY, Apart, HOST, TASK, TEST, THREAD};
use inputs::Inputs;
pub use selecting::Frames;

/// What a command asks.
pub struct Question {
    /// The files that are read as one profile.
    pub inputs: Inputs,
    /// The part of it; `None` for all, as it was recorded.
    pub selection: Option<Selection>,
    /// Which samples the answer is about.
    pub samples: Samples,
    /// Whether what was not alive at the selection's moment stays: the answer shows it beside what was alive.
    pub keeps_dead: bool,
    /// For a page, which shows several moments: what was not alive at the selection's moment stays, and it is found when most was alive.
    pub finds_peak: bool,
    /// The frames that stacks have.
    pub frames: Frames,
    /// What stacks begin with.
    pub by: Option<Apart>,
    /// Whether the answer says which parts of the files are damaged. Else a line on stderr does.
    pub says_damage: bool,
}

/// The samples that an answer is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Samples {
    /// All of them.
    All,
    /// Time samples if they are asked for, or if there are no others; else allocations.
    OneKind {
        /// They are asked for.
        time: bool,
    },
}

/// A profile that is ready for an answer.
pub struct Prepared {
    /// It has the selected samples only.
    pub profile: Profile,
    /// What was selected.
    pub selected: Selected,
    /// When most was alive, if that was to be found and is known.
    pub peak: Option<Nanos>,
    /// Whether the answer is about time samples.
    pub is_of_time: bool,
}

/// Checks that samples have labels with this key, which rows or trees are to be made by. Labels of threads and hosts are
/// made.
///
/// # Errors
/// If they have none.
pub fn check_label(profile: &mut Profile, key: &str) -> Result<()> {
    let keys = profile.label_keys();
    if keys.contains(&key) {
        return Ok(());
    }
    match key {
        THREAD => {
            profile.label_by_thread();
            return Ok(());
        }
        HOST => {
            profile.label_by_host();
            return Ok(());
        }
        _ => {}
    }
    let of_task = [TASK, AWAITED_BY].contains(&key);
    if of_task && profile.meta.is_pypy() {
        bail!(
            "no sample has a label {key}: on PyPy, the program calls nthbyte.integrations.asyncio.label(), see docs/guide/labels.md"
        );
    }
    match key {
        TASK => bail!("no sample has a label task: no task of asyncio was running at one"),
        AWAITED_BY => bail!(
            "no sample has a label awaited_by: no task at one was awaited by another, or the program ran on CPython 3.13 or older, which do not know it"
        ),
        TEST => bail!("no sample has a label test: pytest --nthbyte sets it"),
        _ => {}
    }
    if keys.is_empty() {
        bail!("the profile has no labels: nthbyte.label(...) sets them, see docs/guide/labels.md");
    }
    bail!("no sample has a label {key}: there are {}", keys.join(", "));
}

/// Tracks of one label in the Firefox Profiler.
const MOST_TRACKS: usize = 40;

/// Gives each value of a label a track of its own, in files for the Firefox Profiler.
///
/// # Errors
/// If samples have no such label.
pub fn tracks_by_label(profile: &mut Profile, key: &str) -> Result<()> {
    check_label(profile, key)?;
    profile.thread_by_label(key, NO_LABEL, MOST_TRACKS);
    Ok(())
}

impl Question {
    /// All of these profiles, with all frames.
    pub fn about(inputs: Inputs) -> Self {
        Self {
            inputs,
            selection: None,
            samples: Samples::All,
            keeps_dead: false,
            finds_peak: false,
            frames: Frames::All,
            by: None,
            says_damage: false,
        }
    }

    /// Reads the profiles, and keeps the part that is asked for. If nothing is left of it, a line on stderr says that.
    ///
    /// # Errors
    /// If one cannot be read or is not a profile; if what was selected, or time samples that were asked for, are not in it.
    pub fn prepare(&self) -> Result<Prepared> {
        Ok(self.prepare_after(|_| ())?.1)
    }

    /// The same. What `look` finds in the whole profile, before a part of it is kept, is returned too.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_after<T>(&self, look: impl FnOnce(&Profile) -> T) -> Result<(T, Prepared)> {
        let mut profile = self.inputs.read()?;
        if self.frames != Frames::Recorded {
            nthbyte_symbols::resolve(&mut profile);
        }
        if !self.says_damage {
            self.inputs.warn(&profile);
        }
        let looked = look(&profile);
        let is_of_time = self.is_of_time(&profile)?;
        let (selected, peak) = match &self.selection {
            Some(selection) => during("selecting", || self.select(selection, &mut profile))?,
            None => (Selected::everything(), None),
        };
        match self.frames {
            Frames::Recorded | Frames::All => {}
            Frames::WithoutLauncher => fold::fold_launcher(&mut profile),
            Frames::Folded => fold::fold(&mut profile),
        }
        match &self.by {
            Some(Apart::Process) => profile.root_by_process(),
            Some(Apart::Label(key)) => {
                check_label(&mut profile, key)?;
                profile.root_by_label(key, NO_LABEL);
            }
            None => {}
        }
        let prepared = Prepared {
            profile,
            selected,
            peak,
            is_of_time,
        };
        Ok((looked, prepared))
    }

    /// Whether the answer is about time samples.
    fn is_of_time(&self, profile: &Profile) -> Result<bool> {
        let Samples::OneKind { time } = self.samples else {
            return Ok(false);
        };
        if profile.cpu.is_empty() && time {
            bail!(
                "{} has no time samples: record it with `nthbyte run --cpu`",
                self.inputs.paths()[0].display()
            );
        }
        let is_of_time = time || (profile.samples.is_empty() && !profile.cpu.is_empty());
        let is_about_objects = |of: &Selection| of.is_about_objects();
        if is_of_time && self.selection.as_ref().is_some_and(is_about_objects) {
            bail!(
                "--at and --temporary are about objects, and --time is not: leave one of them out"
            );
        }
        Ok(is_of_time)
    }

    fn select(
        &self,
        selection: &Selection,
        profile: &mut Profile,
    ) -> Result<(Selected, Option<Nanos>)> {
        if self.keeps_dead {
            return Ok((selection.narrow(profile)?, None));
        }
        let has_samples =
            |profile: &Profile| !(profile.samples.is_empty() && profile.cpu.is_empty());
        let had_samples = has_samples(profile);
        let selected = if self.finds_peak {
            let (selected, peak) = selection.narrow_with_peak(profile)?;
            if selection.temporary.is_some() {
                profile.cpu.clear();
            }
            let conditions = selected.conditions().map(str::to_owned);
            profile.meta.notes.extend(conditions);
            (selected, peak)
        } else {
            (selection.apply(profile)?, None)
        };
        if had_samples && !has_samples(profile) {
            say!("nthbyte: no sample is in the selected part");
        }
        Ok(selected)
    }
}
