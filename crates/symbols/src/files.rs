//! The files that may tell the functions of an image.

use std::path::PathBuf;

/// Where distributions put debug files.
pub(crate) const DEBUG: &str = "/usr/lib/debug";

/// The debug file of the distribution, and what debuginfod's client has downloaded.
pub(crate) fn debug_files(build_id: &str) -> Vec<PathBuf> {
    let (first, rest) = build_id.split_at(2);
    let mut paths = vec![PathBuf::from(format!(
        "{DEBUG}/.build-id/{first}/{rest}.debug"
    ))];
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let caches = [
        variable("DEBUGINFOD_CACHE_PATH").map(PathBuf::from),
        variable("XDG_CACHE_HOME").map(|home| PathBuf::from(home).join("debuginfod_client")),
        variable("HOME").map(|home| PathBuf::from(home).join(".cache/debuginfod_client")),
    ];
    for cache in caches.into_iter().flatten() {
        for kind in ["debuginfo", "executable"] {
            paths.push(cache.join(build_id).join(kind));
        }
    }
    paths
}
