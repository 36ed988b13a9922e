//! The profiles that a command reads.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_profile::{Profile, family};

use super::selecting::is_size;
use crate::output::{Output, say};
use crate::progress::Progress;

/// One profile, or several that are shown as one.
#[derive(Args)]
pub struct Profiles {
    /// The profile (.nthb); several are shown as one.
    #[arg(required = true, value_name = "PROFILE")]
    paths: Vec<PathBuf>,
    /// Also the profiles of the processes that this program started, if there are any: app.1235.nthb beside app.nthb.
    #[arg(long)]
    all: bool,
    /// A file, and the name that is shown in its place: for cells of a notebook.
    #[arg(long = "file-name", value_name = "FILE=NAME", value_parser = file_name, hide = true)]
    file_names: Vec<FileName>,
}

/// A file's name in the profile, and the one that is shown.
type FileName = (String, String);

fn file_name(text: &str) -> Result<FileName, String> {
    let (file, name) = text.rsplit_once('=').ok_or("write FILE=NAME")?;
    Ok((file.to_owned(), name.to_owned()))
}

impl Profiles {
    /// The first one named, after which outputs are named.
    pub fn first(&self) -> &Path {
        &self.paths[0]
    }

    /// The words that name them on a command line.
    pub fn words(&self) -> Vec<String> {
        // What begins like an option is none after a folder.
        let folder = |path: &Path| match path.as_os_str().as_encoded_bytes() {
            [b'-', ..] => "./",
            _ => "",
        };
        let paths = self.paths.iter();
        let paths = paths.map(|path| format!("{}{}", folder(path), path.display()));
        let all = self.all.then(|| "--all".to_owned());
        paths.chain(all).collect()
    }

    /// The same; if a single one is named that has a family, with `--all`.
    pub fn or_family(self) -> Self {
        Self {
            all: self.all || self.more_processes() > 0,
            ..self
        }
    }

    /// The number of profiles that `--all` would add; 0 if it is given.
    pub fn more_processes(&self) -> usize {
        let [path] = &self.paths[..] else { return 0 };
        if self.all {
            return 0;
        }
        family::find(path).map_or(0, |family| family.members.len())
    }

    /// Finds all of them. Prints one line on stderr if some are left out.
    ///
    /// # Errors
    /// If one is named twice; with `--all`, if one is not a profile, or is that of a child.
    pub fn find(&self) -> Result<Inputs> {
        family::require_distinct(&self.paths)?;
        let missing = self.paths.iter().find(|path| !path.exists());
        if let Some(size) = missing
            .and_then(|path| path.to_str())
            .filter(|text| is_size(text))
        {
            bail!(
                "there is no profile {size}; the size of an option is written --temporary={size}"
            );
        }
        let paths = if self.all {
            with_families(&self.paths)?
        } else {
            self.paths.clone()
        };
        Ok(Inputs {
            paths,
            file_names: self.file_names.clone(),
        })
    }
}

/// The runs of a program that these profiles are of: each one process, or a family of them. With `all`, each profile is the
/// first of its family, if it has one.
///
/// # Errors
/// If one is named twice, cannot be read or is not a profile; with `all`, if none has a family.
pub fn runs(paths: &[PathBuf], all: bool) -> Result<Vec<Inputs>> {
    family::require_distinct(paths)?;
    let runs = if all {
        let mut runs = Vec::new();
        for path in paths {
            let family = family::find(path)?;
            leave_out(path, &family);
            runs.push([vec![path.clone()], family.members].concat());
        }
        family::require_distinct(&runs.concat())?;
        runs
    } else {
        family::runs(paths)?
    };
    let inputs = |paths| Inputs {
        paths,
        file_names: Vec::new(),
    };
    Ok(runs.into_iter().map(inputs).collect())
}

/// The files that a command reads as one profile.
pub struct Inputs {
    paths: Vec<PathBuf>,
    file_names: Vec<FileName>,
}

impl Inputs {
    /// The paths.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Reads them.
    ///
    /// # Errors
    /// If one cannot be read, or is not a profile.
    pub(super) fn read(&self) -> Result<Profile> {
        let progress = Progress::bytes("reading");
        let at = |done, total| progress.at(done, total);
        let mut profile = match &self.paths[..] {
            [path] => Profile::load_with(path, at)
                .map_err(anyhow::Error::from)
                .with_context(|| format!("cannot read {}", path.display()))?,
            paths => Profile::load_all(paths, at)?,
        };
        for (file, name) in &self.file_names {
            let functions = profile.functions.iter_mut();
            let of_file = functions.filter(|function| function.file == *file);
            of_file.for_each(|function| function.file.clone_from(name));
        }
        Ok(profile)
    }

    /// If a part of them is damaged, prints one line about it on stderr.
    pub(super) fn warn(&self, profile: &Profile) {
        let Some(first) = profile.damage.first() else {
            return;
        };
        let more = match profile.damage.len() - 1 {
            0 => String::new(),
            further => format!(" (and {further} more)"),
        };
        // Of several, the damage says whose it is.
        let which = match &self.paths[..] {
            [path] => path.display().to_string(),
            several => format!("one of {} profiles", several.len()),
        };
        say!(
            "nthbyte: {which} is damaged at byte {}: {}{more}; what could be read is shown",
            first.offset,
            first.what.trim_end_matches('.'),
        );
    }

    /// Each of them by itself.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        let paths = self.paths.iter().cloned();
        paths.map(|path| Self {
            paths: vec![path],
            file_names: self.file_names.clone(),
        })
    }

    /// Makes sure that writing destroys nothing: see [`Output::protect`].
    ///
    /// # Errors
    /// As there.
    pub fn protect(&self, output: &Output, force: bool) -> Result<()> {
        output.protect(&self.paths, force)
    }
}

/// The profiles and those of their families, each once.
fn with_families(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = paths.to_vec();
    let mut found = 0;
    let mut first = None;
    for path in paths {
        let family = family::find(path)?;
        leave_out(path, &family);
        first = first.or(family.first);
        found += family.members.len();
        for member in family.members {
            all.push(member);
            if family::require_distinct(&all).is_err() {
                // Named on the command line too.
                all.pop();
            }
        }
    }
    if let (0, Some(first)) = (found, first) {
        bail!(
            "{} is the profile of a child: --all needs that of the first process, {}",
            paths[0].display(),
            first.display()
        );
    }
    Ok(all)
}

/// Says on stderr which files have names like the family's and are not shown, a line in all.
fn leave_out(path: &Path, family: &family::Family) {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        OsStr::to_string_lossy(name).into_owned()
    };
    let strangers = family.strangers.iter();
    let strangers = strangers.map(|path| format!("{} (of another run)", name(path)));
    let unreadable = family.unreadable.iter();
    let unreadable = unreadable.map(|(path, error)| format!("{} ({error})", name(path)));
    let all: Vec<String> = strangers.chain(unreadable).collect();
    let more = match all.len() {
        0 => return,
        len @ 1..=3 => all[..len].join(", "),
        len => format!("{}, and {} more", all[..3].join(", "), len - 3),
    };
    say!(
        "nthbyte: left out of the family of {}: {more}",
        path.display()
    );
}
