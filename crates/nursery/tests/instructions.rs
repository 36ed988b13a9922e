//! The fast path stays short, and is the same machine code whether sampling is on or off: there is only one.
#![cfg(target_arch = "x86_64")]

#[path = "../../heap/tests/listing/mod.rs"]
#[allow(dead_code)]
mod listing;

use std::path::Path;
use std::process::Command;

use listing::{fast_path, listing};

/// Loads of `nursery_free` and the limit, an addition, a store, a comparison with its jump, the header's store, and what the
/// calling convention needs.
const LIMIT: usize = 11;

#[test]
fn an_allocation_is_short() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release-build");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--example", "fast_path"])
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo runs");
    assert!(status.success());
    let library =
        std::fs::read(target.join("release/examples/libfast_path.so")).expect("it was built");
    let path =
        fast_path(&library, "nthbyte_nursery_allocate").unwrap_or_else(|error| panic!("{error}"));
    println!("{}", listing(&path));
    assert!(
        path.len() <= LIMIT,
        "{} instructions\n{}",
        path.len(),
        listing(&path)
    );
}
