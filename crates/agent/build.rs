//! Has the linker put what is seldom used apart: see `layout.ld`.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=layout.ld");
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    // GNU's linker and LLVM's know such a script; gold and mold, which one has to ask for, do not.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let usual_linker = !flags.contains("-fuse-ld") && !flags.contains("--ld-path");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") && usual_linker {
        let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{folder}/layout.ld");
    }
}
