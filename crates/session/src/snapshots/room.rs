//! The rest of the memory limit of the process's group.
//!
//! A child counts in the same group, and so do the pages that are copied because of it. Where the limit is reached, the kernel
//! kills a process of the group, or all of them (`memory.oom.group`): then the host dies of the child.

use std::path::Path;

use nthbyte_profile::pressure::MemoryLimit;

use crate::groups::{Group, limits};

/// Whether the process has room for so many bytes more, as far as is known.
///
/// # Errors
/// One clause that says how much is left.
pub fn has(bytes: u64) -> Result<(), String> {
    match left(&limits(Path::new("/"))) {
        Some(left) if left < bytes => Err(format!(
            "it may need {} MiB, and the memory limit leaves {} MiB",
            bytes.div_ceil(1 << 20),
            left >> 20
        )),
        _ => Ok(()),
    }
}

/// The least that any group leaves; `None` if none has a limit. What the kernel could drop counts as in use here.
fn left(limits: &[Group]) -> Option<u64> {
    let hard = limits
        .iter()
        .filter(|group| group.limit == MemoryLimit::Group);
    hard.filter_map(|group| Some(group.most.saturating_sub(group.used()?)))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::limits_of;
    use std::fs;

    #[test]
    fn the_narrowest_group_counts() {
        let left = |groups: &Path, own: &str| left(&limits_of(groups, own));
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
