//! A name for the profile that no other file has.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nthbyte_profile::names;

/// The path of a new profile, and the file: empty, unless it was there before.
pub(super) struct Claim {
    pub(super) path: PathBuf,
    is_new: bool,
}

impl Claim {
    /// Makes a new file at this path, or with a free name that resembles it. With `force`, a file that is there is
    /// replaced. What is no ordinary file, such as a device, is used as it is.
    ///
    /// # Errors
    /// One line that says why the file cannot be made.
    pub(super) fn new(path: &Path, force: bool) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let is_special = std::fs::metadata(&path).is_ok_and(|data| !data.is_file());
        if force || is_special {
            return Ok(Self {
                path,
                is_new: false,
            });
        }
        let make = |path: &Path| {
            let mut options = OpenOptions::new();
            let made = options.write(true).create_new(true).mode(0o600).open(path);
            made.map_err(|error| explained(path, &error))
        };
        let (_, path) = names::first_free(&path, make)?;
        Ok(Self { path, is_new: true })
    }

    /// Removes the file, because no session began.
    pub(super) fn withdraw(self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn explained(path: &Path, error: &io::Error) -> io::Error {
    let has_folder = path.parent().is_some_and(Path::is_dir);
    let why = match error.kind() {
        ErrorKind::NotFound if !has_folder => "its folder does not exist".to_owned(),
        _ => error.to_string(),
    };
    let message = format!("cannot write the profile {}: {why}", path.display());
    io::Error::new(error.kind(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.x.nthb");
        let claim = |force| Claim::new(&path, force).unwrap();
        let first = claim(false);
        assert_eq!(first.path, path);
        let names = [(); 2].map(|()| claim(false).path);
        assert_eq!(
            names,
            ["app.x-2.nthb", "app.x-3.nthb"].map(|name| folder.path().join(name))
        );
        let forced = claim(true);
        assert_eq!(forced.path, path);
        forced.withdraw();
        assert!(path.exists());
        first.withdraw();
        assert!(!path.exists());
        assert_eq!(
            Claim::new(Path::new("/dev/null"), false).unwrap().path,
            Path::new("/dev/null")
        );
    }
}
