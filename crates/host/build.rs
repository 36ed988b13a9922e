//! Makes the linker put the unwinder into each shared library that is built from this crate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") && has_static_unwinder() {
        let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        put_unwinder_in(&folder);
    }
}

/// Whether the linking compiler has the unwinder as a static archive.
fn has_static_unwinder() -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(linker)
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    // The compiler prints the bare name if it has no such file.
    asked.is_ok_and(|said| Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_absolute())
}

/// The standard library links `libgcc_s.so`, which adds 100 KiB to each profiled program, and a small container may not
/// have it. The linker searches this folder first, and finds the archive under that name.
fn put_unwinder_in(folder: &Path) {
    fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("cargo made it");
    // Cargo passes search paths on to every crate that links this one.
    println!("cargo:rustc-link-search=native={}", folder.display());
}
