//! The libraries of the process, by the addresses of their code: for samples that are named by one.
//!
//! The dynamic linker is asked without a lock ([`library_at`]), in the thread that takes the sample. Each library is asked for
//! once; a library that replaces another one at the same addresses has its name.

use std::cell::UnsafeCell;
use std::ops::Range;

use crate::preload::Kind;
use crate::process::{Probe, library_at, prepare_to_find_libraries};
use crate::recording::Recording;

/// The largest number of libraries that are known.
const MOST: usize = 256;
/// Longer paths have no name.
const LONGEST_PATH: usize = 512;

/// A loaded library, or the program.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    /// From its first byte to its last.
    pub addresses: Range<usize>,
    /// The name of its file up to the first dot; empty for the program.
    pub name: String,
    /// The folder of the Python package that it belongs to, or its name if it belongs to none.
    pub package: String,
    /// Whether it belongs to an installed package.
    pub is_installed: bool,
    /// The frame of what its threads do.
    pub own_threads: String,
    /// The type of mappings that it makes.
    pub mappings: String,
    /// The types of blocks that it takes: the function, and the type.
    blocks: [(&'static str, String); Kind::OF_BLOCKS.len()],
}

/// Those that were met, for the thread that has a recording.
struct Shared(UnsafeCell<Vec<&'static Library>>);

// SAFETY: only the thread with a recording uses the content, and there is one recording at a time.
unsafe impl Sync for Shared {}

static KNOWN: Shared = Shared(UnsafeCell::new(Vec::new()));

/// Finds what [`at`] needs of the C library, which must not happen inside of a request: the search takes the dynamic linker's
/// lock, and a thread that has it may wait for the recording.
pub fn prepare() {
    prepare_to_find_libraries();
}

/// The library that calls this thread; `None` if it is not known. Only the first sample of each library makes system calls.
pub fn of_caller(recording: &mut Recording<'_>, address: usize) -> Option<&'static Library> {
    known_at(recording, address).or_else(|| at(recording, &Probe::new()?, address))
}

/// The library that has an address, if it was met.
fn known_at(_recording: &mut Recording<'_>, address: usize) -> Option<&'static Library> {
    // SAFETY: there is a recording, which is borrowed, and this is the only use of the list in this thread.
    let known = unsafe { &*KNOWN.0.get() };
    let mut known = known.iter();
    known
        .find(|of| of.addresses.contains(&address))
        .map(|library| &**library)
}

/// The library that has an address; `None` if there is none, or if it is not known.
#[inline(never)]
pub fn at(
    recording: &mut Recording<'_>,
    probe: &Probe,
    address: usize,
) -> Option<&'static Library> {
    if let Some(library) = known_at(recording, address) {
        return Some(library);
    }
    // SAFETY: as in `known_at`.
    let known = unsafe { &mut *KNOWN.0.get() };
    if known.len() == MOST || known.try_reserve(1).is_err() {
        return None;
    }
    let mut path = [0; LONGEST_PATH];
    let (addresses, length) = library_at(address, probe, &mut path)?;
    let library = Library::new(addresses, &String::from_utf8_lossy(&path[..length]));
    let library: &'static Library = Box::leak(Box::new(library));
    known.push(library);
    Some(library)
}

impl Library {
    fn new(addresses: Range<usize>, path: &str) -> Self {
        let file = path.rsplit('/').next().unwrap_or(path);
        let mut name = file.split('.').next().unwrap_or(file);
        // Wheels add a part of a checksum.
        if let Some((start, sum)) = name.rsplit_once('-')
            && sum.len() == 8
            && sum.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            name = start;
        }
        let mut folders = path.split('/');
        let is_installed =
            folders.any(|folder| matches!(folder, "site-packages" | "dist-packages"));
        let package = folders.next().filter(|&folder| folder != file);
        let package = package.unwrap_or(name);
        let package = package.strip_suffix(".libs").unwrap_or(package);
        let functions = Kind::OF_BLOCKS.map(Kind::name);
        let blocks = functions.map(|function| (function, format!("{function} by {package}")));
        Self {
            addresses,
            name: name.to_owned(),
            package: package.to_owned(),
            blocks,
            is_installed,
            own_threads: format!("[{name}, its own threads]"),
            mappings: format!("mmap by {name}"),
        }
    }

    /// The type of blocks that it takes from this function.
    #[must_use]
    pub fn blocks_by(&self, function: &str) -> Option<&str> {
        let mut blocks = self.blocks.iter();
        let found = blocks.find(|(name, _)| *name == function);
        found.map(|(_, blocks)| blocks.as_str())
    }

    /// Whether other libraries run on it, or are called through it: the C library and its like. It says nothing of who does the
    /// work.
    #[must_use]
    pub fn serves_others(&self) -> bool {
        let name = self.name.as_str();
        let starts = [
            "libnthbyte_",
            "libpython",
            "libffi",
            "ld-linux",
            "linux-vdso",
        ];
        name.is_empty()
            || starts.iter().any(|start| name.starts_with(start))
            || matches!(
                name,
                "libc"
                    | "libpthread"
                    | "libm"
                    | "libdl"
                    | "librt"
                    | "libstdc++"
                    | "libgcc_s"
                    | "_ctypes"
                    | "_cffi_backend"
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_has_its_files_name_and_its_package() {
        for (path, name, package, is_installed) in [
            (
                "/v/site-packages/pyarrow/libarrow.so.2600",
                "libarrow",
                "pyarrow",
                true,
            ),
            (
                "/v/site-packages/pyarrow/lib.cpython-311-x86_64.so",
                "lib",
                "pyarrow",
                true,
            ),
            (
                "/v/site-packages/numpy.libs/libblas64_-32a4b2a6.so",
                "libblas64_",
                "numpy",
                true,
            ),
            (
                "/v/dist-packages/_duckdb.cpython-311.so",
                "_duckdb",
                "_duckdb",
                true,
            ),
            (
                "/usr/lib/x86_64-linux-gnu/libssl.so.3",
                "libssl",
                "libssl",
                false,
            ),
            ("", "", "", false),
        ] {
            let library = Library::new(0..1, path);
            let found = (&*library.name, &*library.package, library.is_installed);
            assert_eq!(found, (name, package, is_installed));
            let blocks = format!("calloc by {package}");
            assert_eq!(library.blocks_by("calloc"), Some(&*blocks));
        }
        let serves = |path: &str| Library::new(0..1, path).serves_others();
        assert!(serves("/lib/libc.so.6") && serves("") && serves("/v/libnthbyte_cpython.so"));
        assert!(!serves("/lib/libcurl.so.4"));
    }

    #[test]
    fn the_library_of_an_address_is_found() {
        let Some(probe) = Probe::new() else {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        };
        let mut path = [0; LONGEST_PATH];
        let address = libc::gnu_get_libc_version as *const () as usize;
        if let Some((addresses, length)) = library_at(address, &probe, &mut path) {
            assert!(addresses.contains(&address));
            assert_eq!(
                Library::new(addresses, &String::from_utf8_lossy(&path[..length])).name,
                "libc"
            );
        }
        assert_eq!(library_at(64, &probe, &mut path), None);
    }
}
