//! The profile's file as the writer thread begins it, and its errors.

use std::io;
use std::path::Path;

use nthbyte_profile::{Meta, Writer};

use crate::output::Output;

/// Where the events go.
pub(super) enum Sink {
    /// The file is created when there is data to write.
    Later(Box<Meta>),
    Open(Box<Writer<Output>>),
    Failed(String),
}

/// Opens a profile's file with one of the functions of [`Output`], and writes its beginning.
pub(super) fn create(
    path: &Path,
    meta: &Meta,
    create: fn(&Path) -> io::Result<Output>,
) -> Result<Writer<Output>, String> {
    let writer = create(path).and_then(|file| Writer::new(file, meta));
    writer.map_err(|error| describe(path, &error))
}

/// An error of the file, for its user.
pub(super) fn describe(path: &Path, error: &std::io::Error) -> String {
    let has_folder = path.parent().is_some_and(Path::is_dir);
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::StorageFull => {
            format!("no space left for {path}; choose another place with -o")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("not allowed to write {path}; choose another place with -o")
        }
        std::io::ErrorKind::NotFound if !has_folder => {
            format!("the folder of {path} does not exist; make it, or choose another with -o")
        }
        // The errors of `nthbyte_profile::create` already contain the path.
        _ if error.to_string().starts_with("cannot write") => error.to_string(),
        _ => format!("cannot write {path}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_written_is_named_once() {
        let config = r#"{"output": "/", "period": 64, "distances": "exponential"}"#;
        let meta = crate::Config::parse(config).unwrap().meta(
            nthbyte_profile::Method::NurseryLimit,
            1,
            Vec::new(),
        );
        for path in ["/", "/proc/self/fd"] {
            let refusal = create(Path::new(path), &meta, Output::create);
            let refusal = refusal.err().unwrap();
            assert_eq!(refusal.matches("cannot write").count(), 1, "{refusal}");
            assert_eq!(refusal.matches(path).count(), 1, "{refusal}");
        }
    }
}
