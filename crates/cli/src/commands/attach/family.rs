//! The processes that a recorded process has forked, and that are recorded with it: what ends one recording ends theirs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use nthbyte_profile::family::descends;
use nthbyte_profile::{Meta, Reader};

use super::elsewhere::inside_of;
use super::watch::{identity, is_gone};

/// Rounds of looking for processes: one may have forked meanwhile.
pub const ROUNDS: usize = 3;

/// A recorded process, and where its and its children's profiles are.
#[derive(Debug)]
pub struct Family {
    meta: Meta,
    /// As this process sees it.
    folder: PathBuf,
}

impl Family {
    /// Of a process that is recorded now; `None` if it is not, or may not be looked at.
    pub fn of(pid: u32) -> Option<Self> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        descriptors
            .flatten()
            .find_map(|entry| Self::of_profile(pid, &entry.path()))
    }

    /// Of the process that has a profile open as this descriptor.
    fn of_profile(pid: u32, descriptor: &Path) -> Option<Self> {
        let name = descriptor.read_link().ok()?;
        // A terminal or a pipe would be waited for.
        if !descriptor.is_file() {
            return None;
        }
        let meta = Reader::describe(descriptor).ok()?;
        // Its name is one of its own root folder, or of the mounts that this lies in, unless the file was given to it from here.
        let root = fs::read_link(format!("/proc/{pid}/root")).unwrap_or_default();
        let below_root = name.strip_prefix(root).unwrap_or(&name);
        let seen = [inside_of(pid, &name), inside_of(pid, below_root), name];
        let mut seen = seen.into_iter();
        let path = seen.find(|path| identity(path) == identity(descriptor))?;
        let is_own = meta.pid == nthbyte_attach::own_number(pid);
        let folder = path.parent()?.to_owned();
        is_own.then_some(Self { meta, folder })
    }

    /// The processes that descend from it, are recorded in its run and have not ended, as this process numbers them.
    pub fn descendants(&self) -> Vec<u32> {
        let profiles: Vec<(PathBuf, Meta)> = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "nthb") && path.is_file())
            .filter_map(|path| {
                let meta = Reader::describe(&path).ok()?;
                (meta.run.is_some() && meta.run == self.meta.run).then_some((path, meta))
            })
            .collect();
        let parents: HashMap<u32, Option<u32>> = profiles
            .iter()
            .map(|(_, meta)| (meta.pid, meta.parent_pid))
            .collect();
        let parent = |pid: u32| parents.get(&pid).copied().flatten();
        let descends = |pid| descends(pid, self.meta.pid, parents.len(), parent);
        let of_descendants = profiles
            .iter()
            .filter(|(_, meta)| meta.pid != self.meta.pid && descends(meta.pid));
        let mut found: Vec<u32> = of_descendants
            .filter_map(|(path, meta)| writer(meta.pid, path))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The process that has a profile open: most often the one with the number in it, which is another one in a container.
fn writer(pid: u32, profile: &Path) -> Option<u32> {
    let of_profile = identity(profile)?;
    let has_open = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
        let mut files = descriptors.flatten().flatten();
        !is_gone(*pid) && files.any(|entry| identity(&entry.path()) == Some(of_profile))
    };
    if has_open(&pid) {
        return Some(pid);
    }
    let all = fs::read_dir("/proc").ok()?.flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // Not of several processes that have it open for a moment after a fork, but of the one that writes it.
    let mut writers = numbers.filter(|number| nthbyte_attach::own_number(*number) == pid);
    writers.find(has_open)
}
