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

/// Builds the example as a release has it. Cargo itself would also build everything else that the tests use, optimised.
fn library() -> Vec<u8> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release-build");
    let release = target.join("release");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--lib", "--manifest-path"])
        .arg(manifest.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo runs");
    assert!(status.success());
    let library = release.join("libfast_path.so");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(compiler)
        .args(["--edition", "2024", "--crate-type", "cdylib"])
        .args(["-C", "opt-level=3", "-C", "codegen-units=1"])
        .arg("-L")
        .arg(format!("dependency={}", release.join("deps").display()))
        .arg("--extern")
        .arg(format!(
            "nthbyte_nursery={}",
            release.join("libnthbyte_nursery.rlib").display()
        ))
        .arg("-o")
        .arg(&library)
        .arg(manifest.join("examples/fast_path.rs"))
        .status()
        .expect("rustc runs");
    assert!(status.success());
    std::fs::read(library).expect("it was built")
}

#[test]
fn an_allocation_is_short() {
    let library = library();
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
