//! The files that may tell the functions of an image.

use std::path::PathBuf;

use crate::binary::Binary;

/// Where distributions put debug files.
pub(crate) const DEBUG: &str = "/usr/lib/debug";

/// The files with the build id of an image, those with more information first. Empty if the image has none: then it cannot
/// be said whether a file is the one that was loaded.
pub(crate) fn find(path: &str, build_id: &str) -> Vec<Binary> {
    if build_id.len() < 4 || !build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Vec::new();
    }
    let mut paths = debug_files(build_id);
    if path.starts_with('/') {
        paths.push(PathBuf::from(path));
    }
    let found = paths.iter();
    let mut found: Vec<Binary> = found
        .filter_map(|path| Binary::open(path, build_id))
        .collect();
    found.sort_by_key(|binary| !binary.has_debug());
    found
}

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
