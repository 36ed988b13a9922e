//! Options of the linker.
//!
//! A use of `malloc` inside this library means its own function. If the agent loads the library, another library comes first
//! in the search. The linker of zig has no option for that, so there the symbols are protected; then the dynamic loader
//! warns on stderr of each program that was not built as position-independent and takes the address of such a function.
//! (`-Bsymbolic` would also make `dlsym` find this library first.)

fn main() {
    println!("cargo::rustc-check-cfg=cfg(protected)");
    println!("cargo::rerun-if-env-changed=NTHBYTE_TARGET");
    if std::env::var_os("NTHBYTE_TARGET").is_some_and(|target| !target.is_empty()) {
        println!("cargo::rustc-cfg=protected");
    } else {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
