//! A program that has forgotten to make it the global allocator.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use nthbyte_global_alloc::{Options, start};

#[test]
fn a_session_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let refused = start(Options::new().output(folder.path().join("out.nthb"))).unwrap_err();
    assert!(
        refused.to_string().contains("#[global_allocator]"),
        "{refused}"
    );
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}
