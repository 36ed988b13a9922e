//! Names of the profiles of one run.
//!
//! ```text
//! app.nthb         the first process
//! app.1235.nthb    process 1235, which it started
//! app-2.nthb, app.1235-2.nthb
//!                  the same where a file of that name is there already: of another run, or an earlier recording
//! ```

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// So many names are tried for a new profile.
const MOST: u32 = 10_000;

/// Another name for a profile: `app.nthb` becomes `app-2.nthb`.
#[must_use]
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    // A process's number is no suffix.
    let suffix = path
        .extension()
        .filter(|end| process(end.as_bytes()).is_none());
    let stem = suffix.and(path.file_stem()).or(path.file_name());
    with_stem(path, joined(stem.unwrap_or_default(), "-", number), suffix)
}

/// Makes a file that is not there yet: with this name, or with the next one that is free. Returns it with its name.
///
/// # Errors
/// The errors of `make`; that a file is there already is an error only after ten thousand names.
pub fn first_free<T>(
    path: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    let mut candidate = path.to_owned();
    let mut number = 1;
    loop {
        match make(&candidate) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST => {
                number += 1;
                candidate = numbered(path, number);
            }
            made => return Ok((made?, candidate)),
        }
    }
}

/// The name of a child's profile: `app.nthb` becomes `app.1235.nthb`. `first` is the first process's.
#[must_use]
pub fn of_child(first: &Path, pid: u32) -> PathBuf {
    let stem = first.file_stem().unwrap_or_default();
    with_stem(first, joined(stem, ".", pid), first.extension())
}

/// The name of the first process's profile, if `path` is one of its child with this number.
#[must_use]
pub fn first_of(path: &Path, pid: u32) -> Option<PathBuf> {
    let is_own = |end: &OsStr| process(end.as_bytes()) == Some(pid);
    let stem = path.file_stem()?;
    // A name without a suffix: `app.1235`.
    if path.extension().is_some_and(is_own) {
        return Some(path.with_file_name(stem));
    }
    let inner = Path::new(stem);
    inner.extension().filter(|end| is_own(end))?;
    Some(with_stem(
        path,
        inner.file_stem()?.to_owned(),
        path.extension(),
    ))
}

/// The number of the child whose profile has this name, if that is a name of a child of `first`.
#[must_use]
pub fn child_in(first: &Path, name: &OsStr) -> Option<u32> {
    let stem = first.file_stem()?.as_bytes();
    let rest = name.as_bytes().strip_prefix(stem)?.strip_prefix(b".")?;
    process(match first.extension() {
        Some(suffix) => rest.strip_suffix(suffix.as_bytes())?.strip_suffix(b".")?,
        None => rest,
    })
}

/// The process in `1235` or `1235-2`.
fn process(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let (pid, again) = text.split_once('-').unwrap_or((text, "2"));
    number(again).filter(|&again| again > 1)?;
    number(pid)
}

/// A number in its usual form, not `+1` or `01`.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn joined(stem: &OsStr, sign: &str, number: u32) -> OsString {
    let mut name = stem.to_owned();
    name.push(format!("{sign}{number}"));
    name
}

fn with_stem(path: &Path, mut name: OsString, suffix: Option<&OsStr>) -> PathBuf {
    if let Some(suffix) = suffix {
        name.push(".");
        name.push(suffix);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_its_number_before_the_suffix() {
        for (first, child, again) in [
            ("/a/b.c.nthb", "/a/b.c.7.nthb", "/a/b.c.7-2.nthb"),
            ("b", "b.7", "b.7-2"),
            ("/a/b.5.nthb", "/a/b.5.7.nthb", "/a/b.5.7-2.nthb"),
        ] {
            let (first, child) = (Path::new(first), Path::new(child));
            assert_eq!(of_child(first, 7), child);
            assert_eq!(first_of(child, 7).as_deref(), Some(first));
            assert_eq!(child_in(first, child.file_name().unwrap()), Some(7));
            assert_eq!(first_of(child, 8), None);
            assert_eq!(numbered(child, 2), Path::new(again));
        }
        assert_eq!(numbered(Path::new("a.nthb"), 3), Path::new("a-3.nthb"));
        let again = Path::new("/a/b.7-3.nthb");
        assert_eq!(first_of(again, 7).as_deref(), Some(Path::new("/a/b.nthb")));
        assert_eq!(
            child_in(Path::new("b.nthb"), again.file_name().unwrap()),
            Some(7)
        );
    }

    #[test]
    fn other_names_are_no_childs() {
        for name in [
            "app.nthb",
            "app..nthb",
            "app.12x.nthb",
            "app.+1.nthb",
            "app.01.nthb",
            "app.1-1.nthb",
            "app.1-02.nthb",
            "app.1-2-3.nthb",
            "app.-2.nthb",
            "app.1-.nthb",
            "app.1.2.nthb",
            "app.1235.nthb.gz",
            "app1235.nthb",
            "app-2.1235.nthb",
            "other.1235.nthb",
            "app.99999999999.nthb",
        ] {
            assert_eq!(
                child_in(Path::new("app.nthb"), OsStr::new(name)),
                None,
                "{name}"
            );
        }
    }
}
