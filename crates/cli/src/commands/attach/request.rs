//! Requests to another process, and the ways to send them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nthbyte_attach::{Awaited, Target, Way, ready};

use super::slow_answer;

/// The way into a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// The first of the others that works.
    #[default]
    Auto,
    /// The socket of a process that was started with NTHBYTE=ready. It needs no rights.
    Ready,
    /// Its main thread is stopped for a moment (CPython). It needs the right to trace the process.
    Ptrace,
    /// CPython's own protocol, from 3.14 on (PEP 768). It needs a file in the process's /tmp, can be switched off, and begins later in a
    /// program that waits for a lock.
    #[value(alias = "sys.remote_exec")]
    RemoteExec,
}

/// The signals that wait until a script has ended, so that no handler of the program raises in the middle of it: all but
/// faults'.
const SIGNALS: &str = "1, 2, 3, 6, 10, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, *range(34, 65)";

/// A request: fields with names, as `_remote.py` reads them.
#[derive(Clone, Debug)]
pub struct Request(String);

impl Request {
    /// A request to do something, from the present folder.
    ///
    /// # Errors
    /// If there is no present folder, or its path is not UTF-8.
    pub fn new(what: &str) -> Result<Self> {
        let folder = std::env::current_dir().context("there is no working folder")?;
        let folder = text(&folder)?;
        Ok(Self(format!("do={what}\0folder={folder}")))
    }

    /// Adds a field.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push('\0');
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(value);
        self
    }

    /// The script that asks it inside of the process. The package is imported from `package`, without a change of
    /// `sys.path`, unless it is there already.
    fn script(&self, package: &Path) -> Result<String> {
        let folder = literal(text(package)?);
        let request = literal(&self.0);
        Ok(format!(
            "
def run():
    import sys
    site = sys.modules.get('site')
    if site is None and not sys.flags.no_site:
        return 'again'
    if getattr(getattr(site, '__spec__', None), '_initializing', False):
        return 'again'
    try:
        if 'nthbyte' not in sys.modules:
            from _frozen_importlib import _load
            from _frozen_importlib_external import spec_from_file_location
            folder = {folder}
            _load(spec_from_file_location(
                'nthbyte', folder + '/__init__.py', submodule_search_locations=[folder]))
        from nthbyte._remote import answer
    except Exception as error:
        # A signal handler of the program may have raised it.
        import os
        own, at = ({folder}, os.path.dirname(os.__file__), '<frozen ', '<nthbyte '), error.__traceback__
        while at is not None:
            if not at.tb_frame.f_code.co_filename.startswith(own):
                raise
            at = at.tb_next
        return f'!it cannot import nthbyte: {{type(error).__name__}}: {{error}}'
    return answer({request})
from _signal import SIG_BLOCK, SIG_UNBLOCK, pthread_sigmask
signals = {{{SIGNALS}}} - pthread_sigmask(SIG_BLOCK, ())
result = '!it was interrupted by a signal while it began: try again'
try:
    # It runs handlers of signals that have come, which may raise.
    pthread_sigmask(SIG_BLOCK, signals)
    result = run()
finally:
    # It refers to its names, and they to it: garbage that would lie there until a full collection.
    del run
    pthread_sigmask(SIG_UNBLOCK, signals)
"
        ))
    }

    /// Asks it of a process, and returns the lines of the answer. It has to begin within `limit`. `package` is where the
    /// process finds nthbyte.
    ///
    /// # Errors
    /// If there is no way into the process, or it refuses.
    pub fn ask(
        &self,
        pid: u32,
        method: Method,
        limit: Duration,
        package: &Path,
    ) -> Result<Vec<String>> {
        slow_answer::during(pid, |awaited| {
            self.ask_by(pid, method, limit, package, awaited)
        })
    }

    fn ask_by(
        &self,
        pid: u32,
        method: Method,
        limit: Duration,
        package: &Path,
        awaited: &Awaited,
    ) -> Result<Vec<String>> {
        let inside = |way| self.ask_inside(pid, limit, package, way, awaited);
        let answer = match method {
            Method::Ready => match ready::ask(pid, &self.0, limit, awaited)? {
                Some(answer) => answer,
                None => match ready::why_not(pid)? {
                    Some(reason) => bail!("{reason}"),
                    None => bail!(
                        "process {pid} is not ready: start it with NTHBYTE=ready in its environment"
                    ),
                },
            },
            Method::Ptrace => inside(Way::Best)?,
            Method::RemoteExec => inside(Way::Remote)?,
            Method::Auto => match ready::ask(pid, &self.0, limit, awaited)? {
                Some(answer) => answer,
                None => inside(Way::Best)?,
            },
        };
        if let Some(reason) = answer.strip_prefix('!') {
            bail!("{reason}");
        }
        let lines = answer.strip_prefix('+').unwrap_or_default();
        Ok(lines.split('\n').map(str::to_owned).collect())
    }

    fn ask_inside(
        &self,
        pid: u32,
        limit: Duration,
        package: &Path,
        way: Way,
        awaited: &Awaited,
    ) -> Result<String> {
        let target = Target::open(pid)?.by(way);
        let script = self.script(package)?;
        Ok(target.run(&script, limit, awaited)?)
    }
}

/// Whether a process listens.
///
/// # Errors
/// If there is no such process.
pub fn is_ready(pid: u32) -> Result<bool> {
    Ok(ready::listens(pid)?)
}

/// Says which way leads into a process. Nothing in it is changed.
///
/// # Errors
/// If none does.
pub fn look(pid: u32) -> Result<String> {
    if is_ready(pid)? {
        return Ok("the process listens (NTHBYTE=ready)".to_owned());
    }
    let target = Target::open(pid)?;
    Ok(format!("{}, by ptrace", target.interpreter()))
}

/// The folder of the Python package, in which this program lies.
///
/// # Errors
/// If there is none.
pub fn package() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the package")?;
    let folder = own.parent().and_then(Path::parent);
    let package = folder.filter(|folder| folder.join("_remote.py").is_file());
    match package {
        Some(package) => Ok(package.to_owned()),
        None => bail!(
            "there is no Python package beside {}: install nthbyte again",
            own.display()
        ),
    }
}

/// A path as text.
///
/// # Errors
/// If it is not UTF-8, or has a zero or a line end.
pub fn text(path: &Path) -> Result<&str> {
    match path.to_str() {
        Some(text) if !text.contains(['\0', '\n']) => Ok(text),
        _ => bail!("the path {} is not UTF-8: use another one", path.display()),
    }
}

/// A text as a literal of Python.
fn literal(text: &str) -> String {
    let mut literal = String::from("'");
    for sign in text.chars() {
        if sign.is_ascii_alphanumeric() || " /._-=".contains(sign) {
            literal.push(sign);
        } else {
            literal.push_str(&format!("\\U{:08x}", u32::from(sign)));
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_has_no_sign_that_ends_it() {
        assert_eq!(
            literal("a'\\\n\0é"),
            "'a\\U00000027\\U0000005c\\U0000000a\\U00000000\\U000000e9'"
        );
    }
}
