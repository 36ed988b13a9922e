//! The settings of a session.

use std::env::{self, VarError};
use std::io;
use std::path::PathBuf;

/// Mean distance between sample points, in bytes, unless the program chooses another.
const DEFAULT_PERIOD: u64 = 512 << 10;

/// How often requests are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Every {
    /// Once in so many bytes on average; 1 for each request.
    Bytes(u64),
    /// As often as the cost of the samples allows.
    Auto,
}

/// The settings of a session.
#[derive(Clone, Debug)]
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu")), allow(dead_code))]
pub struct Options {
    pub(crate) output: Option<PathBuf>,
    pub(crate) every: Every,
    pub(crate) seed: Option<u64>,
    pub(crate) force: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            output: None,
            every: Every::Bytes(DEFAULT_PERIOD),
            seed: None,
            force: false,
        }
    }
}

impl Options {
    /// One sample every 512 KiB on average, in the file `nthbyte-PROGRAM.PID.nthb` in the current folder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the path of the profile. If a file is there, the profile gets a free name that resembles it: `app-2.nthb`
    /// beside `app.nthb`.
    #[must_use]
    pub fn output(mut self, path: impl Into<PathBuf>) -> Self {
        self.output = Some(path.into());
        self
    }

    /// Replaces the file at the path of the profile, if there is one.
    #[must_use]
    pub const fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// Sets the mean distance between samples, in bytes: from 64 to 1 TiB, or 1 to record each request.
    #[must_use]
    pub const fn every(mut self, bytes: u64) -> Self {
        self.every = Every::Bytes(bytes);
        self
    }

    /// Lets the distance between samples follow the program: from 256 KiB on, it grows if samples are expensive or the
    /// file becomes large.
    #[must_use]
    pub const fn auto(mut self) -> Self {
        self.every = Every::Auto;
        self
    }

    /// Sets the seed of the distances. With one thread and the same seed, each run has the same samples.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The settings that the environment has: see [`start_from_env`](crate::start_from_env). `None` if `NTHBYTE_OUTPUT` is
    /// not set, or empty.
    ///
    /// # Errors
    /// One line that says which value cannot be read.
    pub fn from_env() -> io::Result<Option<Self>> {
        Self::from_variables(
            env::var_os("NTHBYTE_OUTPUT").map(PathBuf::from),
            variable("NTHBYTE_EVERY")?.as_deref(),
            variable("NTHBYTE_SEED")?.as_deref(),
        )
    }

    fn from_variables(
        output: Option<PathBuf>,
        every: Option<&str>,
        seed: Option<&str>,
    ) -> io::Result<Option<Self>> {
        let Some(path) = output.filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let mut options = Self::new().output(path);
        match every {
            None => {}
            Some("auto") => options = options.auto(),
            Some(text) => {
                let bytes = nthbyte_sampling::parse_size(text).ok_or_else(|| {
                    invalid(format!(
                        "NTHBYTE_EVERY={text} is no size: write 512KiB, 0.5MiB, 524288 or auto"
                    ))
                })?;
                options = options.every(bytes);
            }
        }
        if let Some(text) = seed {
            let seed = text.parse().map_err(|_| {
                invalid(format!(
                    "NTHBYTE_SEED={text} is no seed: write a number from 0 to 2^64-1"
                ))
            })?;
            options = options.seed(seed);
        }
        Ok(Some(options))
    }
}

fn variable(name: &str) -> io::Result<Option<String>> {
    match env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(text)) => {
            Err(invalid(format!("{name}={} cannot be read", text.display())))
        }
    }
}

/// An error of a setting.
pub(crate) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(output: &str, every: Option<&str>, seed: Option<&str>) -> io::Result<Option<Options>> {
        Options::from_variables(Some(output.into()), every, seed)
    }

    #[test]
    fn the_environment_decides() {
        assert!(
            Options::from_variables(None, Some("1"), None)
                .unwrap()
                .is_none()
        );
        assert!(from("", None, None).unwrap().is_none());
        let plain = from("a.nthb", None, None).unwrap().unwrap();
        assert_eq!(plain.output, Some("a.nthb".into()));
        assert_eq!((plain.every, plain.seed), (Every::Bytes(524_288), None));
        let all = from("a.nthb", Some("64KiB"), Some("7")).unwrap().unwrap();
        assert_eq!((all.every, all.seed), (Every::Bytes(65536), Some(7)));
        let auto = from("a.nthb", Some("auto"), None).unwrap().unwrap();
        assert_eq!(auto.every, Every::Auto);
    }

    #[test]
    fn wrong_values_are_refused_in_one_line() {
        for (every, seed) in [
            (Some("64 bananas"), None),
            (Some(""), None),
            (None, Some("-1")),
        ] {
            let error = from("a.nthb", every, seed).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with("NTHBYTE_") && !error.to_string().contains('\n'));
        }
    }
}
