//! The profiles of a program and of the processes that it started.
//!
//! A process that a profiled one forks, or starts with `multiprocessing`, writes a profile of its
//! own: `app.nthb` is the first process's, `app.1235.nthb` that of process 1235, whoever started
//! it. Names alone do not make a family: files of earlier runs may lie beside. See
//! [`find`].

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::event::Nanos;
use crate::load::Loader;
use crate::merge::whole_ticks;
use crate::meta::Meta;
use crate::model::Profile;
use crate::reader::{ReadError, Reader};

/// Why several profiles cannot be read as one.
#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    /// One of them cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// The folder in which to look cannot be read.
    #[error("cannot look for profiles beside {}", path.display())]
    Folder {
        /// The profile beside which to look.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two names are of one file, whose samples would count twice.
    #[error("{} and {} are the same file", one.display(), other.display())]
    Twice {
        /// One name.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
}

/// What lies beside a profile.
#[derive(Debug, Default)]
pub struct Family {
    /// The other processes' profiles, by process number.
    pub members: Vec<PathBuf>,
    /// Files that have a member's name and belong to another run.
    pub strangers: Vec<PathBuf>,
    /// Files that have a member's name and cannot be read.
    pub unreadable: Vec<(PathBuf, ReadError)>,
    /// The name of the family's first profile, if the one given is a child's.
    pub first: Option<PathBuf>,
}

/// Looks beside the profile of a program's first process for those of the others.
///
/// A member's name is the first one's with the process's number before the suffix. The description in it has that number,
/// its session began no earlier than the first one's, and its parents lead to the first process: each
/// of them has a profile in the family, or none at all (a process that takes no sample leaves no file).
///
/// # Errors
/// If the profile or its folder cannot be read.
pub fn find(path: &Path) -> Result<Family, FamilyError> {
    let first = describe(path)?;
    let mut family = Family {
        first: parents_name(path, &first),
        ..Family::default()
    };
    let mut fresh: HashMap<u32, (PathBuf, Meta)> = HashMap::new();
    let mut old: HashSet<u32> = HashSet::new();
    for (pid, path) in candidates(path)? {
        match Reader::open(&path) {
            Err(error) => family.unreadable.push((path, error)),
            Ok(reader) => {
                let meta = reader.meta();
                if meta.pid == pid && meta.started_unix_nanos >= first.started_unix_nanos {
                    fresh.insert(pid, (path, meta.clone()));
                } else {
                    old.insert(meta.pid);
                    family.strangers.push(path);
                }
            }
        }
    }
    let mut pids: Vec<u32> = fresh.keys().copied().collect();
    pids.sort_unstable();
    for pid in pids {
        let path = fresh[&pid].0.clone();
        if descends(pid, first.pid, &fresh, &old) {
            family.members.push(path);
        } else {
            family.strangers.push(path);
        }
    }
    Ok(family)
}

/// Whether a process's parents lead to the first one.
fn descends(
    pid: u32,
    first: u32,
    fresh: &HashMap<u32, (PathBuf, Meta)>,
    old: &HashSet<u32>,
) -> bool {
    let mut at = pid;
    // Numbers are used again, so parents could form a circle.
    for _ in 0..=fresh.len() {
        let parent = fresh.get(&at).map(|(_, meta)| meta.parent_pid);
        match parent {
            Some(Some(parent)) if parent == first => return true,
            Some(Some(parent)) => at = parent,
            Some(None) => return false,
            None => return !old.contains(&at),
        }
    }
    false
}

/// `app.nthb` for `app.1235.nthb`, if that is the profile of a child.
fn parents_name(path: &Path, meta: &Meta) -> Option<PathBuf> {
    meta.parent_pid?;
    let stem = Path::new(path.file_stem()?);
    let number = stem.extension()?.to_str()?;
    if number != meta.pid.to_string() {
        return None;
    }
    let mut name = stem.file_stem()?.to_owned();
    if let Some(suffix) = path.extension() {
        name.push(".");
        name.push(suffix);
    }
    Some(path.with_file_name(name))
}

/// Files beside `path` that have a member's name, with the number in it.
fn candidates(path: &Path) -> Result<Vec<(u32, PathBuf)>, FamilyError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed = |source| FamilyError::Folder {
        path: path.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(pid) = number_in(path, &name) {
            found.push((pid, path.with_file_name(name)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The process's number in a name, if it is a member's of the family of `first`.
fn number_in(first: &Path, name: &OsStr) -> Option<u32> {
    let stem = first.file_stem()?.as_bytes();
    let number = name.as_bytes().strip_prefix(stem)?.strip_prefix(b".")?;
    let number = match first.extension() {
        Some(suffix) => number.strip_suffix(suffix.as_bytes())?.strip_suffix(b".")?,
        None => number,
    };
    let number = std::str::from_utf8(number).ok()?;
    // As it is written: not `+1` or `01`.
    let pid: u32 = number.parse().ok()?;
    (pid.to_string() == number).then_some(pid)
}

fn describe(path: &Path) -> Result<Meta, FamilyError> {
    let reader = Reader::open(path).map_err(|source| FamilyError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(reader.meta().clone())
}

/// Makes sure that no two names are of one file.
///
/// # Errors
/// If two are. What does not exist is left to whoever reads it.
pub fn require_distinct(paths: &[PathBuf]) -> Result<(), FamilyError> {
    let mut known: HashMap<(u64, u64), &PathBuf> = HashMap::new();
    for path in paths {
        let Ok(found) = path.metadata() else { continue };
        if let Some(one) = known.insert((found.dev(), found.ino()), path) {
            return Err(FamilyError::Twice {
                one: one.clone(),
                other: path.clone(),
            });
        }
    }
    Ok(())
}

impl Profile {
    /// Reads several profiles as one: processes in the order in which they started, and their times since
    /// the start of the first. Samples keep their weights, whatever their periods. Calls `progress` after each block with the bytes that are
    /// read and the bytes in all.
    ///
    /// # Errors
    /// If one of them cannot be read, is not a profile, or is named twice.
    ///
    /// # Panics
    /// If there is no path.
    pub fn load_all(
        paths: &[PathBuf],
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self, FamilyError> {
        assert!(!paths.is_empty(), "a profile is read from a file at least");
        require_distinct(paths)?;
        // Not all are held open: a program may have had more processes than one may open files.
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            files.push((describe(path)?, path));
        }
        files.sort_by_key(|(meta, path)| (meta.started_unix_nanos, meta.pid, *path));
        let began = files[0].0.started_unix_nanos;
        let sizes = paths.iter().filter_map(|path| path.metadata().ok());
        let total = sizes.map(|found| found.len()).sum();
        let mut loader = Loader::default();
        let mut before = 0;
        for (meta, path) in &files {
            let start = whole_ticks(Nanos(meta.started_unix_nanos - began));
            let mut of_file = 0;
            let read = Reader::open(path).and_then(|reader| {
                loader.file(reader, start, |done| {
                    of_file = done;
                    progress(before + done, total);
                })
            });
            read.map_err(|source| FamilyError::Read {
                path: (*path).clone(),
                source,
            })?;
            before += of_file;
        }
        Ok(loader.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_the_number_before_the_suffix() {
        let number = |first: &str, name: &str| number_in(Path::new(first), OsStr::new(name));
        assert_eq!(number("x/app.nthb", "app.1235.nthb"), Some(1235));
        assert_eq!(number("app.77.nthb", "app.77.1235.nthb"), Some(1235));
        assert_eq!(number("app", "app.1235"), Some(1235));
        for name in [
            "app.nthb",
            "app..nthb",
            "app.12x.nthb",
            "app.+1.nthb",
            "app.01.nthb",
            "app.1.2.nthb",
            "app.1235.nthb.gz",
            "app1235.nthb",
            "other.1235.nthb",
            "app.99999999999.nthb",
        ] {
            assert_eq!(number("app.nthb", name), None, "{name}");
        }
    }
}
