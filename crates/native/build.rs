//! Options of the linker.

fn main() {
    // A use of `malloc` inside this library means its own function. If the agent loads the library, another library
    // comes first in the search. (`-Bsymbolic` would also make `dlsym` find this library first.)
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rerun-if-changed=build.rs");
}
