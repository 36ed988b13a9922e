//! The limits of this process's memory, and how much of each is in use.
//!
//! A control group's memory contains the cached pages of files, which the kernel drops when it needs room. What it lists as
//! inactive of them does not count as in use here: a process that reads files is not near its limit.

use std::fs;
use std::path::PathBuf;

use nthbyte_profile::pressure::MemoryLimit;

use crate::groups::{self, Group, NONE, value};

/// A limit, and the bytes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) limit: MemoryLimit,
    pub(super) most: u64,
    pub(super) used: u64,
}

impl Reading {
    pub(super) fn room(&self) -> u64 {
        self.most.saturating_sub(self.used)
    }
}

/// Where they are found. Tests have a root folder of their own.
#[derive(Debug)]
pub(super) struct Limits {
    root: PathBuf,
    groups: Vec<Group>,
}

impl Limits {
    pub(super) const fn below(root: PathBuf) -> Self {
        Self {
            root,
            groups: Vec::new(),
        }
    }

    /// Looks for groups with limits, which can change. Reads some ten small files.
    pub(super) fn look(&mut self) {
        self.groups = groups::limits(&self.root);
    }

    /// The limit with the least room, of those that count.
    pub(super) fn nearest(&self, counts: impl Fn(&Reading) -> bool) -> Option<Reading> {
        let groups = self.groups.iter().filter_map(reading);
        let others = [self.addresses(), self.machine()].into_iter().flatten();
        let all = groups.chain(others).filter(counts);
        all.min_by_key(Reading::room)
    }

    /// How many processes of the group the kernel has killed for memory.
    pub(super) fn kills(&self) -> u64 {
        self.groups.iter().map(Group::kills).max().unwrap_or(0)
    }

    /// The part of the last ten seconds in which all tasks waited for memory, in percent.
    pub(super) fn stalled(&self) -> f64 {
        let own = self.groups.first().map(|group| &group.folder);
        let own = own.map(|folder| folder.join("memory.pressure"));
        let text = own
            .and_then(|path| fs::read_to_string(path).ok())
            .or_else(|| fs::read_to_string(self.root.join("proc/pressure/memory")).ok());
        let text = text.unwrap_or_default();
        let full = text.lines().find_map(|line| line.strip_prefix("full "));
        let average = full.and_then(|line| line.split_ascii_whitespace().next());
        average
            .and_then(|word| word.strip_prefix("avg10=")?.parse().ok())
            .unwrap_or(0.0)
    }

    fn addresses(&self) -> Option<Reading> {
        // SAFETY: zeroes are a valid `rlimit`, which the function fills.
        let most = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            let known = libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0;
            (known && limit.rlim_cur < NONE).then_some(limit.rlim_cur)?
        };
        let text = fs::read_to_string(self.root.join("proc/self/status")).ok()?;
        let used = value(&text, "VmSize:")? << 10;
        Some(Reading {
            limit: MemoryLimit::Addresses,
            most,
            used,
        })
    }

    fn machine(&self) -> Option<Reading> {
        let text = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let most = value(&text, "MemTotal:")? << 10;
        let free = value(&text, "MemAvailable:")? << 10;
        Some(Reading {
            limit: MemoryLimit::Machine,
            most,
            used: most.saturating_sub(free),
        })
    }
}

/// A group's limit, and the bytes in use.
fn reading(group: &Group) -> Option<Reading> {
    let used = group.used()?;
    // The kernel sums up for this file: not where it does not matter.
    let inactive = match used > group.most / 2 {
        true => group.inactive(),
        false => 0,
    };
    Some(Reading {
        limit: group.limit,
        most: group.most,
        used: used.saturating_sub(inactive),
    })
}
