//! The limits of this process's memory, and how much of each is in use.
//!
//! A control group's memory contains the cached pages of files, which the kernel drops when it needs room. What it lists as
//! inactive of them does not count as in use here: a process that reads files is not near its limit.

use std::fs;
use std::path::{Path, PathBuf};

use nthbyte_profile::pressure::Limit;

/// A limit, and what is in use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) limit: Limit,
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

/// A control group with a limit: that of this process, or one around it.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
    names: &'static Names,
    limit: Limit,
    most: u64,
}

/// The names of a version's files.
#[derive(Debug)]
struct Names {
    limits: &'static [(&'static str, Limit)],
    used: &'static str,
    events: &'static str,
    /// In `memory.stat`.
    inactive: &'static str,
}

static VERSION_2: Names = Names {
    limits: &[
        ("memory.max", Limit::Group),
        ("memory.high", Limit::GroupHigh),
    ],
    used: "memory.current",
    events: "memory.events",
    inactive: "inactive_file",
};

static VERSION_1: Names = Names {
    limits: &[("memory.limit_in_bytes", Limit::Group)],
    used: "memory.usage_in_bytes",
    events: "memory.oom_control",
    inactive: "total_inactive_file",
};

/// A limit from here on is none: version 1 has no word for that.
const NONE: u64 = 1 << 60;

impl Limits {
    pub(super) const fn below(root: PathBuf) -> Self {
        Self {
            root,
            groups: Vec::new(),
        }
    }

    /// Looks for groups with limits, which can change. Reads some ten small files.
    pub(super) fn look(&mut self) {
        self.groups.clear();
        let text = fs::read_to_string(self.root.join("proc/self/cgroup")).unwrap_or_default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next(), fields.next(), fields.next());
            match (controllers, path) {
                (Some(""), Some(path)) => self.groups_of(path, "sys/fs/cgroup", &VERSION_2),
                (Some(names), Some(path)) if names.split(',').any(|name| name == "memory") => {
                    self.groups_of(path, "sys/fs/cgroup/memory", &VERSION_1);
                }
                _ => {}
            }
        }
    }

    /// The group of this path and those around it. In a container, the path may be that of the host: then only the outermost
    /// folder is there.
    fn groups_of(&mut self, path: &str, mount: &str, names: &'static Names) {
        let mount = self.root.join(mount);
        // A path with `..` leads out of what the process can see.
        let inner = Path::new(path.trim_start_matches('/'));
        for part in inner.ancestors().filter(|part| !part.starts_with("..")) {
            let folder = mount.join(part);
            for &(name, limit) in names.limits {
                if let Some(most) = number(&folder.join(name)).filter(|&most| most < NONE) {
                    self.groups.push(Group {
                        folder: folder.clone(),
                        names,
                        limit,
                        most,
                    });
                }
            }
        }
    }

    /// The limit with the least room, of those that count.
    pub(super) fn nearest(&self, counts: impl Fn(&Reading) -> bool) -> Option<Reading> {
        let groups = self.groups.iter().filter_map(Group::reading);
        let others = [self.addresses(), self.machine()].into_iter().flatten();
        let all = groups.chain(others).filter(counts);
        all.min_by_key(Reading::room)
    }

    /// How many processes of the group the kernel has killed for memory.
    pub(super) fn kills(&self) -> u64 {
        let kills = self.groups.iter().map(|group| {
            let text = fs::read_to_string(group.folder.join(group.names.events));
            value(&text.unwrap_or_default(), "oom_kill").unwrap_or(0)
        });
        kills.max().unwrap_or(0)
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
            limit: Limit::Addresses,
            most,
            used,
        })
    }

    fn machine(&self) -> Option<Reading> {
        let text = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let most = value(&text, "MemTotal:")? << 10;
        let free = value(&text, "MemAvailable:")? << 10;
        Some(Reading {
            limit: Limit::Machine,
            most,
            used: most.saturating_sub(free),
        })
    }
}

impl Group {
    fn reading(&self) -> Option<Reading> {
        let used = number(&self.folder.join(self.names.used))?;
        // The kernel sums up for this file: not where it does not matter.
        let inactive = if used > self.most / 2 {
            let text = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
            value(&text, self.names.inactive).unwrap_or(0)
        } else {
            0
        };
        Some(Reading {
            limit: self.limit,
            most: self.most,
            used: used.saturating_sub(inactive),
        })
    }
}

/// The number in a file; `None` if it has none, as `max` is none.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number after a name, in a text with a name and a number in each line.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}
