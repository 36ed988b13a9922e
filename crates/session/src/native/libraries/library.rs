//! The libraries of the process, by the addresses of their code: for samples that are named by one.

use nthbyte_host::preload::Kind;
use nthbyte_host::process::prepare_to_find_images;

/// A loaded library, or the program.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    /// The name of its file up to the first dot; empty for the program.
    pub name: String,
    /// The folder of the Python package that it belongs to, or its name if it belongs to none.
    pub package: String,
    /// Whether it belongs to an installed package.
    pub is_installed: bool,
    /// Whether other libraries run on it, or are called through it: the C library and its like. It says nothing of who does the
    /// work.
    pub serves_others: bool,
    /// The frame of what its threads do.
    pub own_threads: String,
    /// The type of mappings that it makes.
    pub mappings: String,
    /// The types of blocks that it takes: the function, and the type.
    blocks: [(&'static str, String); Kind::OF_BLOCKS.len()],
}

/// Finds what [`at`](super::at) and [`of_caller`](super::of_caller) need of the C library, which must not happen inside of a request: the search takes the
/// dynamic linker's lock, and a thread that has it may wait for the recording.
pub fn prepare() {
    prepare_to_find_images();
}

impl Library {
    /// The library at a path.
    pub(crate) fn new(path: &str) -> Self {
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
            name: name.to_owned(),
            package: package.to_owned(),
            blocks,
            is_installed,
            serves_others: serves_others(name),
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
}

/// Whether a library of this name [serves others](Library::serves_others).
fn serves_others(name: &str) -> bool {
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
            let library = Library::new(path);
            let found = (&*library.name, &*library.package, library.is_installed);
            assert_eq!(found, (name, package, is_installed));
            let blocks = format!("calloc by {package}");
            assert_eq!(library.blocks_by("calloc"), Some(&*blocks));
        }
        let serves = |path: &str| Library::new(path).serves_others;
        assert!(serves("/lib/libc.so.6") && serves("") && serves("/v/libnthbyte_cpython.so"));
        assert!(!serves("/lib/libcurl.so.4"));
    }
}
