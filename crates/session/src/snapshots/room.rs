//! What is left of the memory limit of the process's group.
//!
//! A child counts in the same group, and so do the pages that are copied because of it. Where the limit is reached, the kernel
//! kills a process of the group, or all of them (`memory.oom.group`): then the host dies of the child.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows the groups.
const GROUPS: &str = "/sys/fs/cgroup";
/// The most groups above each other.
const MOST_LEVELS: usize = 32;
/// The limit, and what is in use, in version 2 and in version 1.
const FILES: [[&str; 2]; 2] = [
    ["memory.max", "memory.current"],
    ["memory.limit_in_bytes", "memory.usage_in_bytes"],
];
/// Where there is no limit, version 1 has a number of nearly 2^63.
const UNLIMITED: u64 = 1 << 60;

/// Whether the process has room for so many bytes more, as far as is known.
///
/// # Errors
/// One clause that says what is left.
pub fn has(bytes: u64) -> Result<(), String> {
    let Ok(own) = fs::read_to_string("/proc/self/cgroup") else {
        return Ok(());
    };
    match left(Path::new(GROUPS), &own) {
        Some(left) if left < bytes => Err(format!(
            "it may need {} MiB, and the memory limit leaves {} MiB",
            bytes.div_ceil(1 << 20),
            left >> 20
        )),
        _ => Ok(()),
    }
}

/// The least that any group which the process is in leaves; `None` if none has a limit. `own`: `/proc/self/cgroup`. The same
/// rule as in `nthbyte/_limits.py`, which says the limits to a user.
fn left(groups: &Path, own: &str) -> Option<u64> {
    let found = own.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        // The only line of version 2 has no controllers; those of version 1 have a folder each.
        let tops = match controllers {
            "" => vec![groups.to_owned(), groups.join("unified")],
            some if some.split(',').any(|one| one == "memory") => vec![groups.join(some)],
            _ => Vec::new(),
        };
        tops.into_iter()
            .filter_map(move |top| left_below(&top, path))
    });
    found.min()
}

/// The same of a hierarchy of groups.
fn left_below(top: &Path, path: &str) -> Option<u64> {
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    // In a container the path may be one of the host, of which only the end, or nothing, is here.
    let parts = path
        .split('/')
        .filter(|&part| !part.is_empty() && part != "..");
    let mut folder = parts.fold(top.to_owned(), |folder, part| folder.join(part));
    let mut least = None;
    for _ in 0..MOST_LEVELS {
        for [limit, used] in FILES {
            if let Some(limit) = number(folder.join(limit)).filter(|&limit| limit < UNLIMITED)
                && let Some(used) = number(folder.join(used))
            {
                let left = limit.saturating_sub(used);
                least = Some(least.map_or(left, |least: u64| least.min(left)));
            }
        }
        if folder == top || !folder.pop() {
            break;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_group_counts() {
        let groups = std::env::temp_dir().join(format!("nthbyte-groups-{}", std::process::id()));
        let inner = groups.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let write = |folder: &str, limit: &str, used: &str| {
            let folder = groups.join(folder);
            fs::write(folder.join("memory.max"), format!("{limit}\n")).unwrap();
            fs::write(folder.join("memory.current"), format!("{used}\n")).unwrap();
        };
        let own = "1:cpu:/x\n0::/a/b\n";
        assert_eq!(left(&groups, own), None);
        write("a/b", "max", "70");
        assert_eq!(left(&groups, own), None);
        write("a", "100", "70");
        assert_eq!(left(&groups, own), Some(30));
        write("a/b", "80", "70");
        assert_eq!(left(&groups, own), Some(10));
        write("a", "60", "70");
        assert_eq!(left(&groups, own), Some(0));
        // Of a container, whose groups above are not there.
        assert_eq!(left(&groups, "0::/kubepods/../x\n"), None);
        write("", "50", "45");
        assert_eq!(left(&groups, "0::/kubepods/../x\n"), Some(5));
        // Version 1: a folder for each controller.
        let old = groups.join("memory/a");
        fs::create_dir_all(&old).unwrap();
        let write = |name: &str, number: u64| fs::write(old.join(name), number.to_string());
        write("memory.usage_in_bytes", 40).unwrap();
        write("memory.limit_in_bytes", i64::MAX as u64 & !4095).unwrap();
        assert_eq!(left(&groups, "3:cpu:/\n4:memory:/a/b\n"), None);
        write("memory.limit_in_bytes", 100).unwrap();
        assert_eq!(left(&groups, "3:cpu:/\n4:memory:/a/b\n"), Some(60));
        fs::remove_dir_all(groups).unwrap();
    }
}
