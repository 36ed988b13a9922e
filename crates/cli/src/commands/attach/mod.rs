//! `nthbyte attach`, `detach` and `snapshot`: a process that runs already.

mod elsewhere;
mod family;
mod given;
mod request;
mod slow_answer;
mod watch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use nthbyte_profile::event::Nanos;
use nthbyte_report::text;

use crate::output::say;
use crate::question::selecting::time;
use elsewhere::Needed;
use family::Family;
use request::{Method, Request};

/// What `attach` takes. The options of a recording are `run`'s.
#[derive(Args)]
pub struct Attach {
    /// The process.
    #[arg(value_name = "PID")]
    pid: u32,
    /// Where to write the profile (default: nthbyte-NAME.PID.nthb in the current folder).
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the profile OUT if it exists; without it, a new name is taken.
    #[arg(short, long)]
    force: bool,
    /// Record for TIME: 30s, 1.5min; a number alone is in seconds (default: until Ctrl-C, or the end of the process).
    #[arg(long = "for", visible_alias = "duration", value_name = "TIME", value_parser = seconds)]
    length: Option<Duration>,
    /// Mean distance between samples, as for `nthbyte run`.
    #[arg(long, value_name = "SIZE")]
    every: Option<String>,
    /// Sample at exactly every SIZE bytes, instead of at random distances (PyPy).
    #[arg(long)]
    fixed: bool,
    /// Use the same random distances each time.
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Also take time samples, HZ per second of CPU time (1000 without a number).
    #[arg(long, value_name = "HZ", num_args = 0..=1, default_missing_value = "1000")]
    cpu: Option<u32>,
    /// Fail if native memory cannot be recorded.
    #[arg(long, overrides_with = "no_native")]
    native: bool,
    /// Leave native memory out.
    #[arg(long, overrides_with = "native")]
    no_native: bool,
    /// Record the frames of C, C++ and Rust code too.
    #[arg(long)]
    native_frames: bool,
    /// Look at who holds what is alive, whatever it costs: at the end, and at `nthbyte snapshot`.
    #[arg(long, overrides_with = "no_holders")]
    holders: bool,
    /// Do not look at who holds what is alive.
    #[arg(long, overrides_with = "holders")]
    no_holders: bool,
    /// Leave the keys of dictionaries out of what --holders records.
    #[arg(long)]
    no_names: bool,
    /// Look at who holds what every TIME, too, such as 60s, or whenever the signal NAME comes, such as USR2.
    #[arg(long, value_name = "TIME|NAME")]
    snapshot: Option<String>,
    /// Keep what was recorded in the last TIME, or in files of so many bytes together, as for `nthbyte run`.
    #[arg(long, value_name = "TIME|SIZE")]
    keep: Option<String>,
    /// Labels of the whole process: service:web,env:prod.
    #[arg(long, value_name = "KEY:VALUE")]
    tags: Option<String>,
    /// Record this process only. Without it, its children and the Python programs that it starts write profiles of their own beside
    /// this one.
    #[arg(long)]
    no_children: bool,
    /// Only say whether it would work, and how.
    #[arg(long, hide = true)]
    look: bool,
    #[command(flatten)]
    way: Way,
}

/// What `detach` takes.
#[derive(Args)]
pub struct Detach {
    /// The process.
    #[arg(value_name = "PID")]
    pid: u32,
    #[command(flatten)]
    way: Way,
}

/// What `snapshot` takes.
#[derive(Args)]
pub struct Snapshot {
    /// The process.
    #[arg(value_name = "PID")]
    pid: u32,
    #[command(flatten)]
    way: Way,
}

/// How the process is reached.
#[derive(Args)]
struct Way {
    /// The way into the process.
    #[arg(long, value_enum, default_value_t, value_name = "WAY")]
    method: Method,
    /// Give up if the process runs no Python code for TIME.
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "10s")]
    timeout: Duration,
}

impl Way {
    /// Asks something of a process.
    fn ask(&self, pid: u32, request: &Request) -> Result<Vec<String>> {
        self.ask_with(pid, request, &request::package()?)
    }

    /// Asks something of a process that finds nthbyte at `package`.
    fn ask_with(&self, pid: u32, request: &Request, package: &Path) -> Result<Vec<String>> {
        request.ask(pid, self.method, self.timeout, package)
    }

    /// Ends the recording of a process that finds nthbyte at `package`, and of those that descend from it. Returns the answer of the
    /// first one.
    fn end(&self, pid: u32, package: &Path) -> Result<Vec<String>> {
        let end = Request::new("end")?;
        let family = Family::of(pid);
        let answer = self.ask_with(pid, &end, package);
        if answer.is_ok() || watch::is_gone(pid) {
            self.end_descendants(family.as_ref(), &end, package);
        }
        answer
    }

    /// Ends the recordings of the processes that descend from one whose recording has ended, and says so. Those that do not answer in
    /// time go on, which is said, too.
    fn end_descendants(&self, family: Option<&Family>, end: &Request, package: &Path) {
        let until = Instant::now() + self.timeout;
        let mut ended = 0;
        let mut left: Vec<(u32, String)> = Vec::new();
        for _ in 0..family::ROUNDS {
            let found = family.map(Family::descendants).unwrap_or_default();
            let new = found
                .into_iter()
                .filter(|pid| left.iter().all(|(known, _)| known != pid));
            let new: Vec<u32> = new.collect();
            if new.is_empty() {
                break;
            }
            for pid in new {
                let limit = until.saturating_duration_since(Instant::now());
                match end.ask(pid, self.method, limit.max(LEAST), package) {
                    Ok(_) => ended += 1,
                    Err(_) if watch::is_gone(pid) => {}
                    Err(error) => left.push((pid, format!("{error:#}"))),
                }
            }
        }
        if ended > 0 {
            let recordings = text::counted(ended, "recording");
            let are = if ended == 1 { "is" } else { "are" };
            say!("nthbyte: {recordings} of its child processes {are} ended, too");
        }
        for (pid, why) in left {
            say!(
                "nthbyte: process {pid}, which it has started, is recorded on: {why}; end it with nthbyte detach {pid}"
            );
        }
    }
}

/// The least time that a process has to answer, after others took long.
const LEAST: Duration = Duration::from_millis(500);

impl Attach {
    /// Begins a recording, and ends it.
    ///
    /// # Errors
    /// If it cannot begin, or cannot be ended.
    pub fn run(self) -> Result<()> {
        if self.look {
            println!("{}", request::look(self.pid)?);
            return Ok(());
        }
        let output = match &self.output {
            Some(path) if path.as_os_str() == "-" => {
                bail!("a profile is written to a file, not to standard output: name one with -o")
            }
            Some(path) => path.clone(),
            None => default_output(self.pid),
        };
        let output = std::path::absolute(&output).context("there is no working folder")?;
        let mut package = request::package()?;
        let needed = match self.way.method {
            // What listens has nthbyte.
            Method::Ready => Needed::Place,
            Method::Auto if request::is_ready(self.pid)? => Needed::Place,
            _ => Needed::Package,
        };
        let private = elsewhere::prepare(self.pid, needed, &package, &output, self.way.timeout)?;
        if private.is_some() && self.keep.is_some() {
            bail!(
                "--keep needs a profile that stays where process {} writes it: attach from inside of its container, as its user",
                self.pid
            );
        }
        let mut written = output.clone();
        if let Some(private) = &private {
            package.clone_from(&private.package);
            written.clone_from(&private.profile);
        }
        let mut request = Request::new("begin")?.with("output", request::text(&written)?);
        for (name, value) in [
            ("every", &self.every),
            ("seed", &self.seed),
            ("snapshot", &self.snapshot),
            ("keep", &self.keep),
            ("tags", &self.tags),
        ] {
            if let Some(value) = value {
                request = request.with(name, value);
            }
        }
        if let Some(cpu) = self.cpu {
            request = request.with("cpu", &cpu.to_string());
        }
        for (name, is_given) in [
            ("force", self.force),
            ("fixed", self.fixed),
            ("native", self.native),
            ("native_frames", self.native_frames),
            ("holders", self.holders),
        ] {
            if is_given {
                request = request.with(name, "yes");
            }
        }
        for (name, is_given) in [
            ("native", self.no_native),
            ("holders", self.no_holders),
            ("names", self.no_names),
            ("children", self.no_children),
        ] {
            if is_given {
                request = request.with(name, "no");
            }
        }
        watch::during(|watch| {
            let answer = self.way.ask_with(self.pid, &request, &package)?;
            let path = PathBuf::from(answer.first().map(String::as_str).unwrap_or_default());
            let before = answer.get(1).and_then(|text| text.parse::<u64>().ok());
            let how_long = match self.length {
                Some(length) => format!("for {} s", length.as_secs_f64()),
                None => "until Ctrl-C".to_owned(),
            };
            say!(
                "nthbyte: recording process {} {how_long}, into {}; {} MiB were there before",
                self.pid,
                shown(if private.is_some() { &output } else { &path }).display(),
                before.unwrap_or(0).div_ceil(1 << 20),
            );
            let profile = match &private {
                Some(private) => private.identity(),
                None => watch::identity(&elsewhere::inside_of(self.pid, &path)),
            };
            let family = Family::of(self.pid);
            let ended = watch.until(self.pid, profile, self.length);
            if let Some(private) = &private {
                if ended == watch::Ended::WithProcess {
                    // Their profiles are in the folder that is removed.
                    let end = Request::new("end")?;
                    self.way.end_descendants(family.as_ref(), &end, &package);
                }
                return self.end_elsewhere(private, ended, &output);
            }
            let see = format!("see it with: nthbyte explain {}", shown(&path).display());
            match ended {
                watch::Ended::Now => self.end(&see),
                watch::Ended::WithProcess => {
                    for child in family.map(|of| of.descendants()).unwrap_or_default() {
                        say!(
                            "nthbyte: process {child}, which it has started, is recorded on: end it with nthbyte detach {child}"
                        );
                    }
                    say!("nthbyte: process {} has ended; {see}", self.pid);
                    Ok(())
                }
                watch::Ended::Elsewhere => {
                    say!(
                        "nthbyte: the recording was ended, by the program or by nthbyte detach; {see}"
                    );
                    Ok(())
                }
            }
        })
    }
}

impl Attach {
    /// Ends the recording that this command has begun. `see` says what to do with the profile.
    fn end(&self, see: &str) -> Result<()> {
        match self.way.end(self.pid, &request::package()?) {
            Ok(line) => say!("nthbyte: {}", line.join(" ")),
            Err(_) if watch::ends(self.pid) => {
                say!("nthbyte: process {} has ended; {see}", self.pid);
            }
            Err(error) => bail!(
                "{error:#}; the recording goes on: end it with nthbyte detach {}",
                self.pid
            ),
        }
        Ok(())
    }
}

impl Attach {
    /// The same for a process with files of its own: the profile gets its place.
    fn end_elsewhere(
        &self,
        private: &elsewhere::Private,
        ended: watch::Ended,
        output: &Path,
    ) -> Result<()> {
        let mut line = None;
        if ended == watch::Ended::Now {
            match self.way.end(self.pid, &private.package) {
                Ok(lines) => line = Some(lines.join(" ")),
                // The profile is whole up to its last second.
                Err(_) if watch::ends(self.pid) => {}
                Err(error) => return Err(error),
            }
        }
        private.take_out(output, self.force)?;
        let place = shown(output).display().to_string();
        match line {
            Some(line) => {
                // It names the profile where the process had it.
                let said = line.split("; see it with: ").next().unwrap_or(&line);
                say!("nthbyte: {said}; see it with: nthbyte explain {place}");
            }
            None => say!("nthbyte: the recording has ended; see it with: nthbyte explain {place}"),
        }
        Ok(())
    }
}

impl Detach {
    /// Ends the recording of a process.
    ///
    /// # Errors
    /// If there is none, or it cannot be ended.
    pub fn run(self) -> Result<()> {
        let line = self.way.end(self.pid, &request::package()?)?;
        say!("nthbyte: {}", line.join(" "));
        Ok(())
    }
}

impl Snapshot {
    /// Lets a process take a snapshot of what holds what.
    ///
    /// # Errors
    /// If it cannot.
    pub fn run(self) -> Result<()> {
        let answer = self.way.ask(self.pid, &Request::new("snapshot")?)?;
        let path = answer.first().map(String::as_str).unwrap_or_default();
        let into = match path {
            "" => String::new(),
            path => format!(" into {}", shown(Path::new(path)).display()),
        };
        say!("nthbyte: process {} has taken a snapshot{into}", self.pid);
        Ok(())
    }
}

/// A duration as for `nthbyte run`: 60s, 1.5min, 500ms; a number alone is in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    time(text).map(|Nanos(nanos)| Duration::from_nanos(nanos))
}

/// The path as from the present folder, if it lies in it.
fn shown(path: &Path) -> &Path {
    let folder = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(folder).unwrap_or(path)
}

/// The name that `nthbyte run` would give, by the command line of the process.
fn default_output(pid: u32) -> PathBuf {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = line
        .split(|&byte| byte == 0)
        .map(|word| String::from_utf8_lossy(word).replace('\u{fffd}', "_"))
        .collect();
    PathBuf::from(format!("nthbyte-{}.{pid}.nthb", name_of(&words)))
}

/// The name of the program in a command line: of its script or its module.
fn name_of(words: &[String]) -> String {
    let stem = |word: &String| {
        let stem = Path::new(word).file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    };
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-m" => return rest.next().cloned().unwrap_or_default().replace('/', "_"),
            "-c" => return "code".to_owned(),
            "-X" | "-W" => {
                rest.next();
            }
            _ if word.starts_with('-') || word.is_empty() => {}
            _ => return stem(word),
        }
    }
    words.first().map(stem).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> String {
        name_of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_profile_has_the_name_of_the_program() {
        assert_eq!(name("/usr/bin/python3 -u /srv/app.py --port 80"), "app");
        assert_eq!(name("python3 -X dev -m http.server 80"), "http.server");
        assert_eq!(name("python3 -c pass"), "code");
        assert_eq!(name("uwsgi"), "uwsgi");
    }

    #[test]
    fn a_time_is_written_as_for_run() {
        let of = |text: &str| seconds(text).map(|time| time.as_secs_f64());
        assert_eq!(of("30s"), Ok(30.0));
        assert_eq!(of("1.5min"), Ok(90.0));
        assert_eq!(of("500ms"), Ok(0.5));
        assert_eq!(of("7"), Ok(7.0));
        for wrong in ["", "s", "-1s", "1e9", "nan", "9000h"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
