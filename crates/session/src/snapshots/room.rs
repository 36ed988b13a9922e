//! What is left of the memory limit of the process's group.
//!
//! A child counts in the same group, and so do the pages that are copied because of it. Where the limit is reached, the kernel
//! kills a process of the group, or all of them (`memory.oom.group`): then the host dies of the child.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows the groups (cgroup v2).
const GROUPS: &str = "/sys/fs/cgroup";
/// The most groups above each other.
const MOST_LEVELS: usize = 32;

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

/// The least that any group which the process is in leaves; `None` if none has a limit. `own`: `/proc/self/cgroup`.
fn left(groups: &Path, own: &str) -> Option<u64> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let mut folder = groups.join(own);
    let mut least = None;
    for _ in 0..MOST_LEVELS {
        let limit = number(folder.join("memory.max"));
        let used = number(folder.join("memory.current"));
        if let (Some(limit), Some(used)) = (limit, used) {
            let left = limit.saturating_sub(used);
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        if folder == groups || !folder.pop() {
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
        assert_eq!(left(&groups, "1:memory:/a\n"), None);
        fs::remove_dir_all(groups).unwrap();
    }
}
