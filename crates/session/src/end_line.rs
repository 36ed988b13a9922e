//! The line that is printed when the program has ended, and its like: what was recorded, and the command that shows it.
//!
//! Agents without Python call the functions. Launchers in Python [ask](answer) for the texts.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use nthbyte_host::process::for_each_name;
use nthbyte_profile::shown::{self, grouped};
use nthbyte_profile::{claim, names};
use serde::Deserialize;

use crate::SessionOutcome;

/// What launchers in Python ask for. Times are in nanoseconds of Unix time. `folder` is where the user enters the next command.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// See [`line()`]. There is no command if `path` is no file to look at.
    Line {
        samples: u64,
        time_samples: u64,
        lost: u64,
        notes: Vec<String>,
        is_stalled: bool,
        children: usize,
        remarks: Vec<String>,
        path: PathBuf,
        folder: PathBuf,
    },
    /// The numbers of the processes in [`children`], with commas between them.
    Children { path: PathBuf, since: u64 },
    /// See [`at_signal`].
    AtSignal {
        signal: String,
        path: PathBuf,
        folder: PathBuf,
    },
    /// See [`renamed`].
    Renamed {
        wanted: PathBuf,
        path: PathBuf,
        folder: PathBuf,
    },
    /// See [`shortest`].
    ShortPath { path: PathBuf, folder: PathBuf },
    /// See [`without_profile`].
    WithoutProfile {
        path: PathBuf,
        since: u64,
        folder: PathBuf,
    },
}

/// The text that a launcher asks for with a JSON object; empty if there is none.
#[must_use]
pub fn answer(request: &str) -> String {
    let time = |since| SystemTime::UNIX_EPOCH + Duration::from_nanos(since);
    match serde_json::from_str(request) {
        Err(error) => format!("bad request: {error}"),
        Ok(Request::Line {
            samples,
            time_samples,
            lost,
            notes,
            is_stalled,
            children,
            remarks,
            path,
            folder,
        }) => {
            let outcome = SessionOutcome {
                samples,
                time_samples,
                lost,
                notes,
                is_stalled,
                path: Some(path),
                ..SessionOutcome::default()
            };
            line(&outcome, children, &remarks, &folder)
        }
        Ok(Request::Children { path, since }) => {
            let found = numbers(&children(&path, time(since)));
            let texts: Vec<String> = found.iter().map(u32::to_string).collect();
            texts.join(",")
        }
        Ok(Request::AtSignal {
            signal,
            path,
            folder,
        }) => at_signal(&signal, &path, &folder).unwrap_or_default(),
        Ok(Request::Renamed {
            wanted,
            path,
            folder,
        }) => renamed(&wanted, &path, &folder),
        Ok(Request::ShortPath { path, folder }) => shortest(&path, &folder),
        Ok(Request::WithoutProfile {
            path,
            since,
            folder,
        }) => without_profile(&children(&path, time(since)), &folder),
    }
}

/// The line about a session. `children` is the number of child processes with a profile; `remarks` are parts of the line.
#[must_use]
pub fn line(
    outcome: &SessionOutcome,
    children: usize,
    remarks: &[String],
    folder: &Path,
) -> String {
    let counted = |number: u64, one: &str, several: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{} {several}", grouped(number)),
    };
    let mut parts = vec![counted(outcome.samples, "sample", "samples")];
    if outcome.time_samples > 0 {
        parts.push(counted(outcome.time_samples, "time sample", "time samples"));
    }
    if children > 0 {
        parts.push(counted(children as u64, "child process", "child processes"));
    }
    parts.extend_from_slice(remarks);
    if outcome.lost > 0 {
        parts.push(counted(outcome.lost, "event lost", "events lost"));
    }
    let notes = outcome.notes.iter();
    parts.extend(notes.map(|note| note.trim_end_matches('.').to_owned()));
    let parts = parts.join(", ");
    match &outcome.path {
        // Who looks at a stalled file may wait for ever, too. Others are such files as /dev/null.
        Some(path) if !outcome.is_stalled && path.is_file() => {
            format!("{parts}; {}", command(path, folder))
        }
        _ => parts,
    }
}

/// The line, with its end, for the case that a signal ends the program. What was recorded is not known before. `None` if the
/// profile is no file to look at.
#[must_use]
pub fn at_signal(signal: &str, path: &Path, folder: &Path) -> Option<String> {
    let command = path.is_file().then(|| command(path, folder))?;
    Some(format!("nthbyte: ended by {signal}; {command}\n"))
}

/// Says that the profile has another name than the wanted one, and how to replace the file of that name.
#[must_use]
pub fn renamed(wanted: &Path, path: &Path, folder: &Path) -> String {
    // No other file is ever replaced.
    let how = match claim::is_own_profile(wanted) {
        true => " (-f replaces it)",
        false => "",
    };
    let (wanted, path) = (shortest(wanted, folder), shortest(path, folder));
    format!("{wanted} exists: the profile is {path}{how}")
}

/// Says that no recording began in this process, and which profiles there are instead.
fn without_profile(children: &[(u32, PathBuf)], folder: &Path) -> String {
    let found = match numbers(children).len() {
        0 => {
            return "the program ended before a recording began, so there is no profile".to_owned();
        }
        1 => "a child process has one".to_owned(),
        several => format!("{several} child processes have one"),
    };
    let mut texts = vec!["see it with: nthbyte explain".to_owned()];
    texts.extend(
        children
            .iter()
            .map(|(_, path)| quoted(&shortest(path, folder))),
    );
    let texts = texts.join(" ");
    format!("this process has no profile, but {found}; {texts}")
}

/// The profiles of processes that this one has started, sorted by their paths, with the processes' numbers: `app.1234.nthb`
/// beside `app.nthb`, which is the `path` of this one. They were written since then. A process may have several.
#[must_use]
pub fn children(path: &Path, since: SystemTime) -> Vec<(u32, PathBuf)> {
    let Some(folder) = path.parent() else {
        return Vec::new();
    };
    let is_new = |path: &Path| {
        let data = std::fs::metadata(path).and_then(|data| data.modified());
        data.is_ok_and(|written| written >= since)
    };
    let flags = libc::O_DIRECTORY | libc::O_CLOEXEC;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(folder);
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    if let Ok(opened) = opened {
        for_each_name(opened.as_raw_fd(), |name| {
            let name = OsStr::from_bytes(name.to_bytes());
            let child = names::child_in(path, name).map(|process| (process, folder.join(name)));
            found.extend(child.filter(|(_, path)| is_new(path)));
            true
        });
    }
    found.sort_unstable_by(|one, other| one.1.cmp(&other.1));
    found
}

/// The numbers of the processes, each once.
#[must_use]
pub fn numbers(children: &[(u32, PathBuf)]) -> Vec<u32> {
    let mut numbers: Vec<u32> = children.iter().map(|&(number, _)| number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn command(path: &Path, folder: &Path) -> String {
    let path = quoted(&shortest(path, folder));
    format!("see it with: nthbyte explain {path}")
}

/// The path, or the one from `folder`, whichever is shorter.
fn shortest(path: &Path, folder: &Path) -> String {
    let whole = path.to_string_lossy().into_owned();
    if !folder.is_absolute() {
        return whole;
    }
    let pairs = path.components().zip(folder.components());
    let shared = pairs.take_while(|(one, other)| one == other).count();
    let up = folder
        .components()
        .skip(shared)
        .map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(path.components().skip(shared)).collect();
    let relative = relative.to_string_lossy().into_owned();
    if relative.chars().count() < whole.chars().count() {
        return relative;
    }
    whole
}

/// A path as a shell takes it, and the command as no option.
fn quoted(path: &str) -> String {
    match path.starts_with('-') {
        true => shown::quoted(&format!("./{path}")),
        false => shown::quoted(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new folder with empty files.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        folder
    }

    #[test]
    fn the_shorter_path_is_shown() {
        for (path, folder, shown) in [
            ("/srv/app/a.nthb", "/srv/app", "a.nthb"),
            ("/srv/app/a.nthb", "/srv", "app/a.nthb"),
            (
                "/srv/app/profiles/a.nthb",
                "/srv/app/work",
                "../profiles/a.nthb",
            ),
            ("/srv/app/a.nthb", "/tmp", "/srv/app/a.nthb"),
            ("/a.nthb", "/tmp", "/a.nthb"),
            ("/srv/app2/a.nthb", "/srv/app", "../app2/a.nthb"),
            ("/srv/äöü/a.nthb", "/srv/x", "../äöü/a.nthb"),
            ("/a/b", "", "/a/b"),
        ] {
            assert_eq!(shortest(Path::new(path), Path::new(folder)), shown);
        }
    }

    #[test]
    fn a_path_is_no_option() {
        assert_eq!(quoted("a.nthb"), "a.nthb");
        assert_eq!(quoted("-a.nthb"), "./-a.nthb");
        assert_eq!(quoted("-it's my.nthb"), r"'./-it'\''s my.nthb'");
    }

    #[test]
    fn what_was_recorded_is_said() {
        let folder = folder(&["a.nthb"]);
        let folder = folder.path();
        let said = |numbers: [u64; 3], children, notes: &[&str], remarks: &[&str], is_stalled| {
            let outcome = SessionOutcome {
                samples: numbers[0],
                time_samples: numbers[1],
                lost: numbers[2],
                notes: notes.iter().map(|&note| note.to_owned()).collect(),
                is_stalled,
                path: Some(folder.join("a.nthb")),
                ..SessionOutcome::default()
            };
            let remarks: Vec<String> = remarks.iter().map(|&text| text.to_owned()).collect();
            line(&outcome, children, &remarks, folder)
        };
        let next = "; see it with: nthbyte explain a.nthb";
        assert_eq!(
            said([0, 0, 0], 0, &[], &[], false),
            format!("0 samples{next}")
        );
        assert_eq!(
            said([1, 1, 1], 1, &[], &["not recorded: pypy3"], false),
            format!(
                "1 sample, 1 time sample, 1 child process, not recorded: pypy3, 1 event lost{next}"
            )
        );
        assert_eq!(
            said(
                [1_234_567, 1000, 12_345],
                2,
                &["The disk is full."],
                &[],
                false
            ),
            format!(
                "1,234,567 samples, 1,000 time samples, 2 child processes, 12,345 events lost, The disk is full{next}"
            )
        );
        assert_eq!(
            said([2, 0, 0], 0, &["one", "Two."], &[], true),
            "2 samples, one, Two"
        );
        let device = SessionOutcome {
            path: Some(PathBuf::from("/dev/null")),
            ..SessionOutcome::default()
        };
        assert_eq!(line(&device, 0, &[], folder), "0 samples");
    }

    #[test]
    fn only_profiles_of_children_are_counted() {
        let folder = folder(&[
            "a.nthb",
            "a.12.nthb",
            "a.7.nthb",
            "a.7-2.nthb",
            "a.x.nthb",
            "a.7.txt",
            "b.7.nthb",
            "a-2.nthb",
        ]);
        let folder = folder.path();
        let path = folder.join("a.nthb");
        let found = children(&path, SystemTime::UNIX_EPOCH);
        assert_eq!(numbers(&found), [7, 12]);
        assert_eq!(
            without_profile(&found, folder),
            "this process has no profile, but 2 child processes have one; see it with: nthbyte explain a.12.nthb \
             a.7-2.nthb a.7.nthb"
        );
        let later = SystemTime::now() + Duration::from_secs(60);
        assert!(children(&path, later).is_empty());
        let path = path.to_str().unwrap();
        assert_eq!(
            answer(&format!(r#"{{"children":{{"path":"{path}","since":0}}}}"#)),
            "7,12"
        );
        assert!(answer(r#"{"children":{}}"#).starts_with("bad request: "));
    }
}
