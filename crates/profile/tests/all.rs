//! The tests of the file and the tables, in one program: each program more would link all of it once more.

mod claim;
mod created;
mod damage;
mod extensions;
mod halves;
mod lines;
mod lost;
mod model;
#[path = "processes/main.rs"]
mod processes;
mod read_format;
mod round_trip;
mod selection;
mod sources;

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
