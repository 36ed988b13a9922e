//! The fast paths stay short: `malloc` has at most 12 instructions and `free` at most 14.
#![cfg(target_arch = "x86_64")]

mod listing;

use object::{Object, ObjectSymbol};

use listing::{LIMITS, fast_path, listing};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library to check: `NTHBYTE_LIBRARY`, or else a release build of the heap as a shared library.
fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("NTHBYTE_LIBRARY") {
        return path.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release-build");
    let status = Command::new(env!("CARGO"))
        .args([
            "rustc",
            "--release",
            "--quiet",
            "--lib",
            "--crate-type",
            "cdylib",
        ])
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo runs");
    assert!(status.success());
    target.join("release/libnthbyte_heap.so")
}

#[test]
fn fast_paths_are_short() {
    let path = library();
    let library = std::fs::read(&path).expect("the library was built");
    for (symbol, limit) in LIMITS {
        let path = fast_path(&library, symbol).unwrap_or_else(|error| panic!("{error}"));
        let count = path.len();
        assert!(
            count <= limit,
            "{symbol}: {count} instructions\n{}",
            listing(&path)
        );
    }
}

/// A function that calls others is no fast path, and the checker must refuse it.
#[test]
fn the_checker_refuses_other_functions() {
    let library = std::fs::read(library()).expect("the library was built");
    let file = object::File::parse(library.as_slice()).expect("a library");
    let calling = file
        .symbols()
        .filter_map(|symbol| symbol.name().ok())
        .find(|name| name.contains("allocate_sampled"))
        .expect("the library has its symbols");
    assert!(fast_path(&library, calling).is_err());
    assert!(fast_path(&library, "no_such_function").is_err());
    assert!(fast_path(&library[..1000], "nthbyte_heap_obj_free").is_err());
}
