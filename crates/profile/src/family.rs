//! The profiles of a program and of the processes that it started.
//!
//! A process that a profiled process forks, or starts with `multiprocessing`, writes its own
//! profile: `app.nthb` belongs to the first process, and `app.1235.nthb` to process 1235, whichever
//! process started it; so does `app.1235-2.nthb`, of a second recording for example. Names alone do not define a family:
//! files of earlier runs may be in the same folder. See [`find`].

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::event::Nanos;
use crate::load::Loader;
use crate::merge::whole_ticks;
use crate::meta::Meta;
use crate::model::Profile;
use crate::names;
use crate::processes::Process;
use crate::reader::{ReadError, Reader};

/// The reason why several profiles cannot be read as one.
#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    /// One of the profiles cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The path of that profile.
        path: PathBuf,
        /// The reason.
        source: ReadError,
    },
    /// The folder of the profiles cannot be read.
    #[error("cannot look for profiles beside {}", path.display())]
    Folder {
        /// The profile whose folder was read.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// One of several profiles is a pipe.
    #[error(
        "{} is a pipe, which cannot be read twice: write the profile into a file first",
        path.display()
    )]
    Pipe {
        /// The path of that profile.
        path: PathBuf,
    },
    /// Two files have the samples of one session, which would count twice.
    #[error("the session of process {0} is in two of the profiles: name it once")]
    SameSession(u32),
    /// Two paths refer to one file, whose samples would count twice.
    #[error("{} and {} are the same file", one.display(), other.display())]
    Twice {
        /// One path.
        one: PathBuf,
        /// The other path.
        other: PathBuf,
    },
}

/// The profiles in the same folder as a profile.
#[derive(Debug, Default)]
pub struct Family {
    /// The other processes' profiles, by process number.
    pub members: Vec<PathBuf>,
    /// Files with a member's name that belong to another run.
    pub strangers: Vec<PathBuf>,
    /// Files with a member's name that cannot be read.
    pub unreadable: Vec<(PathBuf, ReadError)>,
    /// The path of the family's first profile, if the given profile belongs to a child.
    pub first: Option<PathBuf>,
}

/// Searches the folder of the first process's profile for the profiles of the other processes.
///
/// A member's name is the first profile's name with the process's number before the suffix. The member's description
/// has the same number, it is of the same run, and its parents lead to the first process: each parent has a profile in the
/// family, or no profile at all (a process without samples leaves no file). A profile of an older nthbyte does not say its
/// run; then a member's session began no earlier than the first one. Later recordings of the first process are members, too.
///
/// # Errors
/// If the profile or its folder cannot be read.
pub fn find(path: &Path) -> Result<Family, FamilyError> {
    let first = describe(path)?;
    let mut family = Family {
        first: first
            .parent_pid
            .and_then(|_| names::first_of(path, first.pid)),
        ..Family::default()
    };
    let mut fresh: HashMap<u32, Vec<(PathBuf, Meta)>> = HashMap::new();
    let mut old: HashSet<u32> = HashSet::new();
    for (pid, path) in candidates(path)? {
        match Reader::describe(&path) {
            Err(error) => family.unreadable.push((path, error)),
            Ok(meta) => {
                if meta.pid == pid && is_of_run(&meta, &first) {
                    let recordings = fresh.entry(pid).or_default();
                    recordings.push((path, meta));
                } else {
                    old.insert(meta.pid);
                    family.strangers.push(path);
                }
            }
        }
    }
    let parent = |pid: u32| match fresh.get(&pid) {
        // All recordings of a process have the same parent, but for one after `exec`: it names its own process.
        Some(of) => {
            let mut parents = of.iter().map(|(_, meta)| meta.parent_pid);
            parents.find(|&parent| parent != Some(pid)).flatten()
        }
        // What has no profile was started by the first process.
        None => (!old.contains(&pid)).then_some(first.pid),
    };
    let mut pids: Vec<u32> = fresh.keys().copied().collect();
    pids.sort_unstable();
    for pid in pids {
        let paths = fresh[&pid].iter().map(|(path, _)| path.clone());
        // Another recording of the first process is a member, too.
        if pid == first.pid || descends(pid, first.pid, fresh.len(), parent) {
            family.members.extend(paths);
        } else {
            family.strangers.extend(paths);
        }
    }
    Ok(family)
}

/// Whether a session may be one of the run in which the other one is the first process's. A part of a run can be recorded, and
/// then a child may begin before its parent.
fn is_of_run(meta: &Meta, first: &Meta) -> bool {
    match (meta.run, first.run) {
        (Some(one), Some(other)) => one == other,
        _ => meta.started_unix_nanos >= first.started_unix_nanos,
    }
}

/// Whether the chain of a process's parents leads to the first process. `parent` knows at most so many `processes`: numbers are
/// used again, so parents could form a circle.
pub fn descends(
    pid: u32,
    first: u32,
    processes: usize,
    parent: impl Fn(u32) -> Option<u32>,
) -> bool {
    let mut at = pid;
    for _ in 0..=processes {
        match parent(at) {
            Some(parent) if parent == first => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
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
        if let Some(pid) = names::child_in(path, &name) {
            found.push((pid, path.with_file_name(name)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn describe(path: &Path) -> Result<Meta, FamilyError> {
    // It is read again for its content.
    if path
        .metadata()
        .is_ok_and(|found| found.file_type().is_fifo())
    {
        return Err(FamilyError::Pipe {
            path: path.to_owned(),
        });
    }
    Reader::describe(path).map_err(|source| FamilyError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Checks that no two paths refer to one file.
///
/// # Errors
/// If two paths do. A missing file is not an error here; reading it is.
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

/// The runs that these profiles are of, in the order of their first ones. Profiles of which one names the other as its
/// parent are of one run, if they say the same run; if one of them does not say it, if the parent began first.
///
/// # Errors
/// If one of several cannot be read.
pub fn runs(paths: &[PathBuf]) -> Result<Vec<Vec<PathBuf>>, FamilyError> {
    if let [path] = paths {
        return Ok(vec![vec![path.clone()]]);
    }
    let metas = paths.iter().map(|path| describe(path));
    let metas = metas.collect::<Result<Vec<Meta>, _>>()?;
    // The last process of that number before the child: the system reuses numbers.
    let parent = |child: usize| {
        let of = &metas[child];
        let may_be = |&at: &usize| {
            at != child && of.parent_pid == Some(metas[at].pid) && is_of_run(of, &metas[at])
        };
        let found = (0..metas.len()).filter(may_be);
        found.max_by_key(|&at| {
            let began = metas[at].started_unix_nanos;
            let is_before = began <= of.started_unix_nanos;
            // The last one before the child, else the first one after it.
            (is_before, if is_before { began } else { u64::MAX - began })
        })
    };
    let first = |mut at: usize| {
        // Limited: parents in damaged files could form a circle.
        for _ in 0..metas.len() {
            match parent(at) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        at
    };
    // Parts of one session are one run.
    let mut parts = HashMap::new();
    let mut runs: Vec<(usize, Vec<PathBuf>)> = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        let first = first(at);
        let of = &metas[first];
        let first = match of.segment {
            Some(_) => *parts
                .entry((of.run, of.pid, of.started_unix_nanos))
                .or_insert(first),
            None => first,
        };
        match runs.iter_mut().find(|(known, _)| *known == first) {
            Some((_, run)) => run.push(path.clone()),
            None => runs.push((first, vec![path.clone()])),
        }
    }
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// So many samples of several profiles are kept, so that reports on a fleet need less than a gigabyte: see [`Profile::load_all`].
const MOST_SAMPLES: usize = 8 << 20;

impl Profile {
    /// Reads several profiles as one: processes in the order of their starts, and times since the start of the first
    /// process. Samples keep their weights, even if their periods differ. Calls `progress` after each block with the
    /// number of bytes read and the total number of bytes.
    ///
    /// Of very many samples a part is kept, and stands for the others.
    ///
    /// # Errors
    /// If one of the files cannot be read, is not a profile, or is named twice, or if two of them have one session.
    ///
    /// # Panics
    /// If there is no path.
    pub fn load_all(
        paths: &[PathBuf],
        progress: impl FnMut(u64, u64),
    ) -> Result<Self, FamilyError> {
        Self::load_some(paths, MOST_SAMPLES, progress)
    }

    /// The same, with at most about so many samples, for who has several of them in memory.
    ///
    /// # Errors
    /// As [`load_all`](Self::load_all).
    ///
    /// # Panics
    /// As [`load_all`](Self::load_all).
    pub fn load_some(
        paths: &[PathBuf],
        most: usize,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self, FamilyError> {
        assert!(!paths.is_empty(), "a profile is read from a file at least");
        require_distinct(paths)?;
        // The files are not open at the same time: a program may have had more processes than the
        // limit of open files.
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            files.push((describe(path)?, path));
        }
        let part = |meta: &Meta| meta.segment.map(|segment| segment.number);
        files.sort_by_key(|(meta, path)| (meta.started_unix_nanos, meta.pid, part(meta), *path));
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
            loader.thin_samples(most);
            before += of_file;
        }
        let profile = loader.finish();
        require_different_sessions(&profile.processes)?;
        Ok(profile)
    }
}

/// Checks that no session is there twice: in a copy of its file, or in a joined one too. A session of an older nthbyte does
/// not say its run, and is not known.
pub(crate) fn require_different_sessions(processes: &[Process]) -> Result<(), FamilyError> {
    let mut known = HashSet::new();
    for Process { meta, .. } in processes {
        if let Some(run) = meta.run
            && !known.insert((run, meta.pid, meta.started_unix_nanos))
        {
            return Err(FamilyError::SameSession(meta.pid));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_may_begin_before_its_parent_and_is_of_the_same_run() {
        let meta = |started_unix_nanos, run| Meta {
            started_unix_nanos,
            run,
            ..crate::synthetic::Synthetic::default().meta()
        };
        let first = meta(100, Some(7));
        // With `--signal` a child may get the signal first.
        assert!(is_of_run(&meta(90, Some(7)), &first));
        // In a container, the first process has the same number in each run.
        assert!(!is_of_run(&meta(110, Some(6)), &first));
        // Profiles of an older nthbyte do not say their run.
        assert!(is_of_run(&meta(110, None), &first) && !is_of_run(&meta(90, None), &first));
    }

    #[test]
    fn a_session_counts_once() {
        let sessions = |sessions: &[(Option<u64>, u32, u64)]| {
            let process = |&(run, pid, started_unix_nanos): &_| {
                let meta = Meta {
                    run,
                    pid,
                    started_unix_nanos,
                    ..crate::synthetic::Synthetic::default().meta()
                };
                Process::new(meta, Nanos(0))
            };
            let processes: Vec<Process> = sessions.iter().map(process).collect();
            require_different_sessions(&processes)
        };
        let first = (Some(7), 1, 100);
        // Another process, another recording of it, and another run in a container.
        let others = [(Some(7), 2, 100), (Some(7), 1, 200), (Some(8), 1, 100)];
        assert!(sessions(&[&[first], &others[..]].concat()).is_ok());
        let twice = sessions(&[first, others[0], first]);
        assert!(matches!(twice, Err(FamilyError::SameSession(1))));
        assert!(sessions(&[(None, 1, 100), (None, 1, 100)]).is_ok());
    }
}
