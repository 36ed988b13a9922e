//! Has the linker put what is seldom used apart (see `layout.ld`), and the unwinder into the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=layout.ld");
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // GNU's linker and LLVM's know such a script; gold and mold, which one has to ask for, do not.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if !flags.contains("-fuse-ld") && !flags.contains("--ld-path") {
        let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{folder}/layout.ld");
    }
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") && has_static_unwinder() {
        let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        put_unwinder_in(&folder);
    }
}

/// Whether the compiler that links has the unwinder as an archive.
fn has_static_unwinder() -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(linker)
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    // The compiler says the bare name if it has no such file.
    asked.is_ok_and(|said| Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_absolute())
}

/// The standard library asks for `libgcc_s.so`, which would be 100 KiB more of each profiled program, and which a small
/// container may not have. In this folder, which is searched first, the linker finds that name to mean the archive.
fn put_unwinder_in(folder: &Path) {
    fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("cargo made it");
    println!("cargo:rustc-cdylib-link-arg=-L{}", folder.display());
}
