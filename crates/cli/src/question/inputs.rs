//! The profiles that a command reads.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_profile::{Profile, family, folder};

use super::selecting::is_size;
use crate::output::{Output, say};
use crate::progress::Progress;

/// One profile, or several that are shown as one.
#[derive(Args)]
pub struct Profiles {
    /// The profile (.nthb), or a folder with profiles; several are shown as one.
    #[arg(required = true, value_name = "PROFILE")]
    paths: Vec<PathBuf>,
    /// Also the profiles of the processes that the program started: app.1235.nthb beside app.nthb. This is the default for one
    /// profile; of several, each one's are taken.
    #[arg(long)]
    all: bool,
    /// Only the named profile, without the processes that its program started.
    #[arg(long, conflicts_with = "all")]
    alone: bool,
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
        let option = match (self.all, self.alone) {
            // One profile has its family anyway.
            (true, _) if self.paths.len() > 1 => Some("--all"),
            (_, true) => Some("--alone"),
            _ => None,
        };
        paths.chain(option.map(str::to_owned)).collect()
    }

    /// The same; only the one that is named, unless `--all` is given.
    pub fn or_alone(self) -> Self {
        Self {
            alone: !self.all,
            ..self
        }
    }

    /// The number of profiles that `--alone` leaves out.
    pub fn more_processes(&self) -> usize {
        match &self.paths[..] {
            [path] if self.alone => family::find(path).map_or(0, |family| family.members.len()),
            _ => 0,
        }
    }

    /// Finds all of them. Prints one line on stderr if some are left out.
    ///
    /// # Errors
    /// If one is named twice; with `--all`, if one is not a profile, or is a child's.
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
        let paths = match &self.paths[..] {
            paths if paths.iter().any(|path| path.is_dir()) => in_folders(paths)?,
            paths if self.all => with_families(paths)?,
            [path] if !self.alone => with_own_family(path),
            paths => paths.to_vec(),
        };
        Ok(Inputs {
            paths: with_earlier(&paths),
            file_names: self.file_names.clone(),
            most: None,
        })
    }
}

/// The runs of a program that these profiles are of: each one process, or a family of them. With `all`, each profile is the
/// first of its family. Else profiles of one run that are named together are that run, and one that is named by itself is the first of
/// its family, unless `alone` is given. A folder stands for all profiles in it.
///
/// # Errors
/// If one is named twice, cannot be read or is not a profile.
pub fn runs(paths: &[PathBuf], all: bool, alone: bool) -> Result<Vec<Inputs>> {
    family::require_distinct(paths)?;
    let of_folders;
    let (paths, all, alone) = match paths.iter().any(|path| path.is_dir()) {
        true => {
            of_folders = in_folders(paths)?;
            (&of_folders[..], false, true)
        }
        false => (paths, all, alone),
    };
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
        let mut runs = family::runs(paths)?;
        for at in (0..runs.len()).filter(|_| !alone) {
            let [path] = &runs[at][..] else { continue };
            let mut whole = runs.clone();
            whole[at] = with_own_family(path);
            // One of its processes may be named as a run of its own.
            if family::require_distinct(&whole.concat()).is_ok() {
                runs = whole;
            }
        }
        runs
    };
    let most = (runs.len() > MANY).then(|| MOST_SAMPLES / runs.len());
    let inputs = |paths: Vec<PathBuf>| Inputs {
        paths: with_earlier(&paths),
        file_names: Vec::new(),
        most,
    };
    Ok(runs.into_iter().map(inputs).collect())
}

/// The files that a command reads as one profile.
#[derive(Clone)]
pub struct Inputs {
    paths: Vec<PathBuf>,
    file_names: Vec<FileName>,
    /// At most about so many samples are kept in memory, for a command that has many runs there.
    most: Option<usize>,
}

/// More runs than this share [`MOST_SAMPLES`].
const MANY: usize = 16;
const MOST_SAMPLES: usize = 8 << 20;

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
            paths if self.most.is_some() => {
                Profile::load_some(paths, self.most.unwrap_or(MOST_SAMPLES), at)?
            }
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
            most: self.most,
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

/// The profiles with the files of earlier parts of their sessions, each once.
fn with_earlier(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = paths.to_vec();
    let named: HashSet<PathBuf> = paths
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    for path in paths {
        let earlier = folder::earlier(path).into_iter();
        all.extend(
            earlier.filter(|path| path.canonicalize().is_ok_and(|path| !named.contains(&path))),
        );
    }
    all
}

/// The profiles that are named, with all those in the folders that are named, each once.
fn in_folders(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut known = HashSet::new();
    for path in paths {
        let of_path = match path.is_dir() {
            false => vec![path.clone()],
            true => {
                let found = folder::profiles_in(path)
                    .with_context(|| format!("cannot look for profiles in {}", path.display()))?;
                if found.is_empty() {
                    bail!("there is no profile in {}", path.display());
                }
                found
            }
        };
        let is_new = |path: &PathBuf| {
            let found = path.metadata();
            found.map_or(true, |found| known.insert((found.dev(), found.ino())))
        };
        all.extend(of_path.into_iter().filter(is_new));
    }
    Ok(all)
}

/// A profile, and the profiles of the processes that its program started. One that cannot be read has none: who reads it
/// says why.
fn with_own_family(path: &Path) -> Vec<PathBuf> {
    let family = family::find(path).unwrap_or_default();
    if !family.members.is_empty() {
        leave_out(path, &family);
    }
    std::iter::once(path.to_owned())
        .chain(family.members)
        .collect()
}

/// The profiles of these families, each once.
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
