//! The control groups of this process that limit its memory: its own, and those around it.
//!
//! The same rule as in `nthbyte/_limits.py`, which says the limits to a user.

use std::fs;
use std::path::{Path, PathBuf};

use nthbyte_profile::pressure::MemoryLimit;

/// Where the kernel shows the groups, and where it says which ones the process is in.
const GROUPS: &str = "sys/fs/cgroup";
const OWN: &str = "proc/self/cgroup";
/// The most groups above each other.
const MOST_LEVELS: usize = 32;
/// A limit from here on is none: version 1 has no word for that.
pub(crate) const NONE: u64 = 1 << 60;

/// A limit of a control group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) folder: PathBuf,
    pub(crate) limit: MemoryLimit,
    pub(crate) most: u64,
    names: &'static Names,
}

/// The names of a version's files.
#[derive(Debug)]
struct Names {
    limits: &'static [(&'static str, MemoryLimit)],
    used: &'static str,
    events: &'static str,
    /// In `memory.stat`.
    inactive: &'static str,
}

static VERSION_2: Names = Names {
    limits: &[
        ("memory.max", MemoryLimit::Group),
        ("memory.high", MemoryLimit::GroupHigh),
    ],
    used: "memory.current",
    events: "memory.events",
    inactive: "inactive_file",
};

static VERSION_1: Names = Names {
    limits: &[("memory.limit_in_bytes", MemoryLimit::Group)],
    used: "memory.usage_in_bytes",
    events: "memory.oom_control",
    inactive: "total_inactive_file",
};

impl Group {
    /// The bytes in use, with all cached pages of files.
    pub(crate) fn used(&self) -> Option<u64> {
        number(&self.folder.join(self.names.used))
    }

    /// What of it are cached pages of files that were not used lately.
    pub(crate) fn inactive(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        value(&text, self.names.inactive).unwrap_or(0)
    }

    /// How many processes of the group the kernel has killed for memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.names.events)).unwrap_or_default();
        value(&text, "oom_kill").unwrap_or(0)
    }
}

/// The limits of the groups that the process is in. `root`: the root folder; tests have their own.
pub(crate) fn limits(root: &Path) -> Vec<Group> {
    let own = fs::read_to_string(root.join(OWN)).unwrap_or_default();
    limits_of(&root.join(GROUPS), &own)
}

/// The same. `groups`: the folder of the groups; `own`: which ones the process is in, as the kernel says it.
pub(crate) fn limits_of(groups: &Path, own: &str) -> Vec<Group> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        // The only line of version 2 has no controllers; the controllers of version 1 have a folder each.
        let (tops, names) = match controllers {
            "" => (vec![groups.to_owned(), groups.join("unified")], &VERSION_2),
            some if some.split(',').any(|one| one == "memory") => {
                let mut tops = vec![groups.join(some), groups.join("memory")];
                tops.dedup();
                (tops, &VERSION_1)
            }
            _ => continue,
        };
        // In a container the path may be one of the host, of which only the end, or nothing, is here.
        let parts = path
            .split('/')
            .filter(|&part| !part.is_empty() && part != "..");
        let inner: PathBuf = parts.collect();
        for top in &tops {
            for part in inner.ancestors().take(MOST_LEVELS) {
                let folder = top.join(part);
                found.extend(names.limits.iter().filter_map(|&(name, limit)| {
                    let most = number(&folder.join(name)).filter(|&most| most < NONE)?;
                    Some(Group {
                        folder: folder.clone(),
                        limit,
                        most,
                        names,
                    })
                }));
            }
        }
    }
    found
}

/// The number in a file; `None` if it has none, as `max` is none.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number after a name, in a text with a name and a number in each line.
pub(crate) fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}
