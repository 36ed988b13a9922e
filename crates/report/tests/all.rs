//! The tests of questions asked of profiles, in one program: each program more would link all of it once more.

mod coverage;
mod difference;
mod difference_limits;
mod explain;
mod fold;
mod halves;
mod held;
mod holders;
mod killed;
mod knowledge;
mod leaks;
mod memory;
mod memory_before;
mod peak;
mod processes;
mod rounds;
mod selection;
mod service;
mod sides;
mod suite;
mod summary;
mod time;

/// A file that is not named above would not be compiled.
#[test]
fn each_file_is_named_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for entry in std::fs::read_dir(folder).expect("the folder of this file") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name");
        if let Some(module) = name.strip_suffix(".rs").filter(|&module| module != "all") {
            let line = format!("mod {module};");
            assert!(
                include_str!("all.rs").lines().any(|one| one == line),
                "{line} is missing"
            );
        }
    }
}
