//! The profiles in a folder: of a program's processes, of a service, or of a fleet.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::format::MAGIC;
use crate::reader::Reader;
use crate::segment::folder_of;

/// So many folders deep are looked into.
const DEEPEST: usize = 16;

/// All profiles in a folder and in the folders below it, in the order of their names. Other files are left out, and so are
/// hidden files and folders, links to folders, and what this user cannot read below the folder.
///
/// # Errors
/// If the folder itself cannot be read.
pub fn profiles_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    look(folder, DEEPEST, &mut found)?;
    found.sort_unstable();
    Ok(found)
}

fn look(folder: &Path, deeper: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else {
            continue;
        };
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            // Of a program that has not finished it.
            continue;
        }
        if kind.is_dir() && deeper > 0 {
            // It may be another user's, or gone by now.
            let _ = look(&path, deeper - 1, found);
        } else if !kind.is_dir() && path.is_file() && is_profile(&path) {
            found.push(path);
        }
    }
    Ok(())
}

/// The files of earlier parts of a profile's session, in the order of their names; none if it was not recorded with `--keep`.
#[must_use]
pub fn earlier(profile: &Path) -> Vec<PathBuf> {
    let folder = folder_of(profile);
    let session = |path: &Path| {
        let meta = Reader::describe(path).ok()?;
        let number = meta.segment?.number;
        Some((number, (meta.run, meta.pid, meta.started_unix_nanos)))
    };
    let Some((number, own)) = folder.is_dir().then(|| session(profile)).flatten() else {
        return Vec::new();
    };
    let mut found = profiles_in(&folder).unwrap_or_default();
    // The file itself is there, too, where the process was killed just before it got its next one.
    found.retain(|path| session(path).is_some_and(|(of, key)| key == own && of < number));
    found
}

/// Whether a file begins as a profile does.
#[must_use]
pub fn is_profile(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_profiles_below_it_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("b/c")).unwrap();
        for name in ["z.nthb", "b/c/a.1234", "b/a.nthb"] {
            std::fs::write(at(name), MAGIC).unwrap();
        }
        std::fs::write(at("page.html"), "<p>").unwrap();
        std::fs::write(at("b/.hidden"), MAGIC).unwrap();
        std::fs::write(at("empty.nthb"), "").unwrap();
        // A circle, a link to nothing, and a link to a profile elsewhere.
        std::os::unix::fs::symlink(folder.path(), at("b/c/up")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("lost.nthb")).unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("there"), MAGIC).unwrap();
        std::os::unix::fs::symlink(other.path().join("there"), at("link.nthb")).unwrap();
        let found = profiles_in(folder.path()).unwrap();
        let expected = ["b/a.nthb", "b/c/a.1234", "link.nthb", "z.nthb"];
        assert_eq!(found, expected.map(at));
        assert!(profiles_in(&at("z.nthb")).is_err());
    }
}
