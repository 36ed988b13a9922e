//! The settings of a session. The host's Python code passes them as a JSON text.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nthbyte_profile::{Distances, Meta, Method, Source, names};
use nthbyte_sampling::Period;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::pace::SHORTEST_NATIVE_PERIOD;

/// One session's settings. An unknown field is an error: it means that the table of options in Python has a mistake.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The path of the profile; absolute.
    pub output: PathBuf,
    /// Whether the file was claimed for the session (`nthbyte_profile::claim`); otherwise it is made, in place of this user's
    /// file of that name.
    #[serde(default)]
    pub claimed: bool,
    /// Mean distance between sample points, in bytes.
    pub period: u64,
    /// Whether the period follows the program from there on: see [`crate::pace`].
    #[serde(default)]
    pub auto: bool,
    /// How distances are drawn.
    pub distances: Distances,
    /// Seed of the distances; drawn from the system if absent.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Time samples per second.
    #[serde(default)]
    pub cpu_hz: Option<u32>,
    /// Whether native memory is recorded. The host has made it available: see `native::load`.
    #[serde(default)]
    pub native: bool,
    /// Whether samples of native memory have the frames of native code. Only the CPython agent reads it.
    #[serde(default)]
    pub native_frames: bool,
    /// Whether mappings, and large blocks, count as a whole from their request on, and not with their touched part. Only
    /// the CPython agent reads it.
    #[serde(default)]
    pub whole_mappings: bool,
    /// Why native memory is not recorded, although it should be; one clause.
    #[serde(default)]
    pub native_problem: Option<String>,
    /// The name of the huge page setting. Only the CPython agent reads it: the names are `nthbyte_heap::HugePages`'s.
    #[serde(default)]
    pub huge_pages: Option<String>,
    /// `sys.argv` of the program.
    #[serde(default)]
    pub command: Vec<String>,
    /// `sys.executable`.
    #[serde(default)]
    pub executable: String,
    /// Name and version of the interpreter, for people to read: `CPython 3.13.0`.
    #[serde(default)]
    pub interpreter: String,
    /// The profiled process that started this one, if any.
    #[serde(default)]
    pub parent_pid: Option<u32>,
    /// The memory that was there before the session: see [`Meta::memory_before`].
    #[serde(default)]
    pub memory_before: Option<u64>,
    /// The labels of the process: see [`Meta::tags`].
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The line on stderr if a signal ends the process; with its end.
    #[serde(default)]
    pub line_at_signal: Option<String>,
    /// The number of the run: see [`Meta::run`].
    #[serde(default)]
    pub run: Option<u64>,
    /// How much of the profile is kept: all of it without this.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// Whether snapshots of who holds what are taken. Only the CPython agent reads it.
    #[serde(default)]
    pub holders: SnapshotMode,
    /// Whether snapshots leave out the keys of dictionaries, which are the program's data.
    #[serde(default)]
    pub no_names: bool,
    /// Between two snapshots at a fixed interval. Only the CPython agent reads it.
    #[serde(default, deserialize_with = "seconds")]
    pub snapshot_every: Option<Duration>,
    /// The signal at which one is taken: the part in Python handles it.
    #[serde(default)]
    pub snapshot_signal: Option<i32>,
    /// Settings that only the PyPy agent uses.
    #[serde(default)]
    pub pypy: serde_json::Value,
}

/// How much of a profile is kept, while the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// Nanoseconds of time.
    #[serde(default)]
    pub nanos: Option<u64>,
    /// Bytes of all files.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// The time after which a new file begins; it follows from the others if absent.
    #[serde(default)]
    pub part_nanos: Option<u64>,
}

fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    let duration = seconds.map(Duration::try_from_secs_f64);
    duration.transpose().map_err(D::Error::custom)
}

/// Whether snapshots of who holds what are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotMode {
    /// Never.
    #[default]
    Never,
    /// As far as a small part of the program's processor time pays for them.
    Auto,
    /// Whatever they cost.
    Always,
}

impl Config {
    /// Reads the JSON text and checks everything that does not need the interpreter.
    ///
    /// # Errors
    /// One line that describes the problem.
    pub fn parse(json: &str) -> Result<Self, String> {
        let config: Self =
            serde_json::from_str(json).map_err(|error| format!("bad configuration: {error}"))?;
        config.check()?;
        Ok(config)
    }

    /// Checks everything that does not need the host.
    ///
    /// # Errors
    /// One line that describes the problem.
    pub fn check(&self) -> Result<(), String> {
        if self.distances != Distances::Every && !(Period::MIN..=Period::MAX).contains(&self.period)
        {
            return Err(format!(
                "a period of {} bytes is outside of 64 bytes to 1 TiB; choose one within, or 1 for every allocation",
                self.period
            ));
        }
        if self.auto && self.distances != Distances::Exponential {
            return Err("a period that changes needs distances at random".to_owned());
        }
        Ok(())
    }

    /// Mean distance between samples of native memory, in bytes.
    #[must_use]
    pub fn native_period(&self) -> u64 {
        native_period(self.allocation_period(), self.auto)
    }

    /// The seed from the settings, or a new random one.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(fresh_seed)
    }

    /// Mean distance between allocation samples, in bytes.
    #[must_use]
    pub fn allocation_period(&self) -> u64 {
        if self.distances == Distances::Every {
            1
        } else {
            self.period
        }
    }

    /// The description of a session that starts now in this process.
    #[must_use]
    pub fn meta(&self, method: Method, seed: u64, mut notes: Vec<String>) -> Meta {
        if let Some(problem) = &self.native_problem {
            notes.push(format!("native memory was not recorded: {problem}"));
        }
        Meta {
            nthbyte: env!("CARGO_PKG_VERSION").to_owned(),
            interpreter: self.interpreter.clone(),
            executable: self.executable.clone(),
            command: self.command.clone(),
            pid: std::process::id(),
            parent_pid: self.parent_pid,
            run: self.run,
            memory_before: self.memory_before,
            segment: None,
            tags: self.tags.clone(),
            host: host_name(),
            started_unix_nanos: unix_nanos(),
            sources: Source::of_session(
                method,
                self.distances,
                self.allocation_period(),
                self.cpu_hz,
            ),
            seed,
            notes,
        }
    }
}

/// The period of native memory beside this one of the interpreter's memory. `is_auto`: whether it changes.
pub(super) fn native_period(period: u64, is_auto: bool) -> u64 {
    if is_auto {
        period.max(SHORTEST_NATIVE_PERIOD)
    } else {
        period
    }
}

/// The description of the same session when it continues in a forked child, with the sources' present periods.
pub(super) fn child_meta(parent: &Meta, periods: &[u64]) -> Meta {
    let mut meta = Meta {
        pid: std::process::id(),
        parent_pid: Some(parent.pid),
        started_unix_nanos: unix_nanos(),
        ..parent.clone()
    };
    for (source, &period) in meta.sources.iter_mut().zip(periods) {
        source.period = period;
    }
    meta
}

/// The path of a child process's profile: the path of the family's first process, with the child's number before the
/// suffix. `path` and `parent` describe the process that starts it, whose own number is not kept if it is a child.
#[must_use]
pub fn child_path(path: &Path, parent: &Meta, pid: u32) -> PathBuf {
    let first = parent
        .parent_pid
        .and_then(|_| names::first_of(path, parent.pid));
    names::of_child(first.as_deref().unwrap_or(path), pid)
}

fn unix_nanos() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
}

/// The name of this machine, or of the container; `None` if it has none in UTF-8.
fn host_name() -> Option<String> {
    let mut name = [0u8; 65];
    // SAFETY: the pointer and the length are `name`'s, whose last byte stays zero.
    let found = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let name = CStr::from_bytes_until_nul(&name).ok()?.to_str().ok()?;
    (found == 0 && !name.is_empty()).then(|| name.to_owned())
}

fn fresh_seed() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the pointer and the length are `bytes`'s.
    let got =
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if got == 8 {
        u64::from_ne_bytes(bytes)
    } else {
        unix_nanos() ^ (u64::from(std::process::id()) << 40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_path_keeps_folder_and_suffix() {
        let json = r#"{"output": "/x", "period": 64, "distances": "exponential"}"#;
        let meta = Config::parse(json)
            .unwrap()
            .meta(Method::NurseryLimit, 1, Vec::new());
        let path = |parent: &str, pid, parent_pid| {
            let meta = Meta {
                pid,
                parent_pid,
                ..meta.clone()
            };
            child_path(Path::new(parent), &meta, 7)
        };
        assert_eq!(path("/a/b.c.nthb", 5, None), Path::new("/a/b.c.7.nthb"));
        assert_eq!(path("/a/b", 5, None), Path::new("/a/b.7"));
        // A child's own number gives way, but not what only looks like one.
        assert_eq!(path("/a/b.5.nthb", 5, Some(4)), Path::new("/a/b.7.nthb"));
        assert_eq!(path("/a/b.5", 5, Some(4)), Path::new("/a/b.7"));
        assert_eq!(path("/a/b.5-2.nthb", 5, Some(4)), Path::new("/a/b.7.nthb"));
        assert_eq!(path("/a/b.5.nthb", 5, None), Path::new("/a/b.5.7.nthb"));
        assert_eq!(path("/a/b.6.nthb", 5, Some(4)), Path::new("/a/b.6.7.nthb"));
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let json = r#"{"output": "/x", "period": 64, "distances": "exponential", "cpu": 7}"#;
        let refusal = Config::parse(json).err().unwrap();
        assert!(refusal.contains("unknown field `cpu`"), "{refusal}");
    }

    #[test]
    fn period_outside_the_range_is_refused() {
        let json = |period: u64| {
            format!(r#"{{"output": "/x", "period": {period}, "distances": "exponential"}}"#)
        };
        assert!(Config::parse(&json(63)).is_err());
        assert!(Config::parse(&json(64)).is_ok());
        assert!(Config::parse(&json((1 << 40) + 1)).is_err());
    }
}
