//! Where a command writes: standard output, or a file that appears only when it is complete.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nthbyte_profile::claim::{self, AtPath, ClaimRefusal};
use nthbyte_profile::folder::is_profile;
use nthbyte_report::explain::Style;
use rustix::fs::{AtFlags, CWD};
use tempfile::NamedTempFile;

/// Names of files that are not yet complete begin with this.
const PREFIX: &str = ".nthbyte-";

/// The destination of what a command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output: `-` on the command line.
    Standard,
    /// A page, or another program's format.
    File(PathBuf),
    /// A profile: a file that only its owner can read.
    Profile(PathBuf),
}

impl Output {
    /// The value of `-o`; without it, a file in this folder with the profile's name and another suffix.
    pub fn beside(profile: &Path, option: Option<PathBuf>, suffix: &str) -> Self {
        match option {
            Some(path) if path.as_os_str() == "-" => Self::Standard,
            Some(path) => Self::File(path),
            None => {
                let name = PathBuf::from(profile.file_name().unwrap_or_default());
                Self::File(name.with_extension(suffix))
            }
        }
    }

    /// Makes sure that writing destroys nothing: a file that is there stays, unless it is empty. With `force`, a profile
    /// replaces a profile, and any other output any other file.
    ///
    /// # Errors
    /// If the file stays: always if it is one that the command reads, by whatever name.
    pub fn protect(&self, inputs: &[PathBuf], force: bool) -> Result<()> {
        let found = match self {
            Self::Standard => {
                let stdout = io::stdout().as_fd().try_clone_to_owned();
                stdout.and_then(|stdout| File::from(stdout).metadata())
            }
            Self::File(path) | Self::Profile(path) => path.metadata(),
        };
        let is_found = |input: &PathBuf| {
            let (Ok(found), Ok(read)) = (&found, input.metadata()) else {
                // A file that is not there, or cannot be looked at, is none that could be destroyed.
                return false;
            };
            found.is_file() && (read.dev(), read.ino()) == (found.dev(), found.ino())
        };
        let refuse = |why: &str| bail!("cannot write {}: {why}", self.name());
        if inputs.iter().any(is_found) {
            return refuse("it is the file that is read; choose another name");
        }
        let (Self::File(path) | Self::Profile(path)) = self else {
            return Ok(());
        };
        let real = match claim::look(path) {
            Ok(AtPath::Own(real, found)) if found.len() > 0 => real,
            // Also where the folder does not exist: the write says so.
            Ok(AtPath::Own(..) | AtPath::Free(_) | AtPath::Special)
            | Err(ClaimRefusal::System(_) | ClaimRefusal::NotAllowed) => return Ok(()),
            Ok(AtPath::Foreign) => {
                return refuse(&format!("{}; choose another name", ClaimRefusal::Foreign));
            }
            Err(why) => return refuse(&format!("{why}; choose another name")),
        };
        match (self, is_profile(&real)) {
            (Self::Profile(_), false) => refuse("it is no profile; choose another name"),
            (Self::File(_), true) => refuse("it is a profile; choose another name"),
            _ if force => Ok(()),
            _ => refuse("it exists; choose another name, or replace it with --force"),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Standard => "to standard output".to_owned(),
            Self::File(path) | Self::Profile(path) => path.display().to_string(),
        }
    }

    /// Calls `write` with a buffered writer. A file gets its name only when it is complete; then its
    /// name is printed on stderr. A reader that has closed the pipe, as `head` does, has all that it wants: that is no error.
    ///
    /// # Errors
    /// What `write` returns, or what the system says, with the file's name.
    pub fn write(&self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        self.write_silently(write)?;
        if let Self::File(path) | Self::Profile(path) = self
            && path.is_file()
        {
            say!("nthbyte: wrote {}", path.display());
        }
        Ok(())
    }

    /// The same; no name is printed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_silently(&self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let (path, mode) = match self {
            Self::Standard => {
                let written = write_to(io::stdout().lock(), write);
                return written.context("cannot write to standard output");
            }
            // Like any new file: the umask removes rights from this.
            Self::File(path) => (path, 0o666),
            Self::Profile(path) => (path, 0o600),
        };
        let context = || format!("cannot write {}", path.display());
        let real = match claim::look(path).with_context(context)? {
            AtPath::Special => return write_device(path, write).with_context(context),
            AtPath::Foreign => return Err(ClaimRefusal::Foreign).with_context(context),
            AtPath::Free(real) | AtPath::Own(real, _) => real,
        };
        let folder = match real.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut file = Unfinished::new(folder, mode).with_context(context)?;
        fill(file.file(), write).with_context(context)?;
        file.persist(folder, &real).with_context(context)
    }
}

/// Prints a line on stderr. If nobody can read it, the command goes on; `eprintln!` would end it with a panic.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut ::std::io::stderr(),
            format_args!("{}\n", format_args!($($words)*)),
        );
    }};
}
pub(crate) use say;

/// Makes sure that a profile is written to a file.
///
/// # Errors
/// If it is to be written to standard output.
pub fn require_file(profile: &Path) -> Result<()> {
    if profile.as_os_str() == "-" {
        bail!("a profile is binary, and not for a terminal: name a file with -o");
    }
    Ok(())
}

/// The width of tables in columns: the environment's COLUMNS, else the width of the terminal that standard output is,
/// or 100 if it is none.
pub fn terminal_width() -> usize {
    let set = std::env::var("COLUMNS").ok();
    let set = set.and_then(|columns| columns.trim().parse().ok());
    set.filter(|&columns| columns > 0).unwrap_or_else(|| {
        terminal_size::terminal_size_of(io::stdout()).map_or(100, |(width, _)| usize::from(width.0))
    })
}

/// How text looks on standard output: coloured on a terminal, unless its user says otherwise (NO_COLOR, CLICOLOR).
pub fn style() -> Style {
    match anstream::AutoStream::choice(&io::stdout()) {
        anstream::ColorChoice::Never => Style::Plain,
        _ => Style::Coloured,
    }
}

/// A file that is not yet complete.
enum Unfinished {
    /// The kernel removes a file without a name if the command is stopped.
    Nameless(File),
    /// Where the file system has no files without a name.
    Named(NamedTempFile),
}

impl Unfinished {
    /// Makes a file in the folder. The umask removes rights from `mode`.
    fn new(folder: &Path, mode: u32) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(file) = nameless(folder, mode) {
            return Ok(Self::Nameless(file));
        }
        let named = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder);
        match named {
            Ok(named) => Ok(Self::Named(named)),
            Err(error) => Err(without_temporary_name(error, folder)),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::Nameless(file) => file,
            Self::Named(named) => named.as_file_mut(),
        }
    }

    /// Gives the file its name, in place of the file that has it.
    fn persist(self, folder: &Path, path: &Path) -> io::Result<()> {
        match self {
            // Only a new name can be given to a file, and only a file with a name takes another one's place.
            Self::Nameless(file) => {
                let named = tempfile::Builder::new()
                    .prefix(PREFIX)
                    .make_in(folder, |new| Ok(give_name(&file, new)?))
                    .map_err(|error| without_temporary_name(error, folder))?;
                named.persist(path)?;
            }
            Self::Named(named) => {
                named.persist(path)?;
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn nameless(folder: &Path, mode: u32) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)).ok()?;
    entry_of(&file).exists().then(|| file.into())
}

/// Where the kernel shows an open file.
fn entry_of(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

fn give_name(file: &File, name: &Path) -> rustix::io::Result<()> {
    rustix::fs::linkat(CWD, entry_of(file), CWD, name, AtFlags::SYMLINK_FOLLOW)
}

fn fill(file: &mut File, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    Ok(out.flush()?)
}

/// Writes to something that cannot be replaced, such as `/dev/null` or a named pipe.
fn write_device(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    write_to(claim::open_special(path)?, write)
}

/// Writes through a buffer, until the reader closes the pipe if it is one.
fn write_to(out: impl Write, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(out);
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    match written {
        Err(error) if is_broken_pipe(&error) => {
            // The rest of the buffer has no reader.
            let _ = out.into_parts();
            Ok(())
        }
        written => written,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let json = cause.downcast_ref::<serde_json::Error>();
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        io.or(json.and_then(serde_json::Error::io_error_kind))
    };
    let mut causes = error.chain();
    causes.any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

/// `tempfile` puts the name of the temporary file into its errors, which the user does not know.
fn without_temporary_name(error: io::Error, folder: &Path) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
            io::Error::new(error.kind(), "it cannot be made in its folder")
        }
        None if error.kind() == io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), "its folder does not exist")
        }
        None => io::Error::from(error.kind()),
    }
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::MAGIC;

    use super::*;

    #[test]
    fn the_default_name_is_the_profiles_with_another_suffix_in_this_folder() {
        let output = Output::beside(Path::new("/tmp/x/app.1234.nthb"), None, "html");
        assert_eq!(output, Output::File(PathBuf::from("app.1234.html")));
        let output = Output::beside(Path::new("/tmp/x/app.nthb"), None, "pb.gz");
        assert_eq!(output, Output::File(PathBuf::from("app.pb.gz")));
    }

    #[test]
    fn a_file_that_is_there_stays_unless_one_of_its_kind_is_forced_into_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let input = folder.path().join("app.nthb");
        std::fs::write(&input, MAGIC).expect("writable");
        let path = folder.path().join("out");
        let [page, profile] = [Output::File, Output::Profile].map(|of| of(path.clone()));
        // Whether a page and a profile may take its place, without `--force` and with it.
        for (content, [as_page, as_profile]) in [
            (&b""[..], [[true, true]; 2]),
            (&MAGIC, [[false, false], [false, true]]),
            (b"<!doctype html>", [[false, true], [false, false]]),
        ] {
            std::fs::write(&path, content).expect("writable");
            for (output, may) in [(&page, as_page), (&profile, as_profile)] {
                let found = [false, true]
                    .map(|force| output.protect(std::slice::from_ref(&input), force).is_ok());
                assert_eq!(found, may, "{output:?} over {content:?}");
            }
        }
    }

    #[test]
    fn a_file_has_no_name_before_it_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.json");
        let entries = || std::fs::read_dir(folder.path()).expect("a folder").count();
        let is_nameless = matches!(
            Unfinished::new(folder.path(), 0o600),
            Ok(Unfinished::Nameless(_))
        );
        for content in ["first", "second"] {
            let before = entries();
            let written = Output::File(path.clone()).write(|out| {
                out.write_all(content.as_bytes())?;
                assert_eq!(entries() - before, usize::from(!is_nameless));
                Ok(())
            });
            written.expect("it is written");
            assert_eq!(std::fs::read_to_string(&path).expect("readable"), content);
            assert_eq!(entries(), 1);
        }
    }

    #[test]
    fn a_file_with_a_temporary_name_takes_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.json");
        std::fs::write(&path, "before").expect("writable");
        let named = NamedTempFile::new_in(folder.path()).expect("a file");
        let mut file = Unfinished::Named(named);
        fill(file.file(), |out| Ok(out.write_all(b"after")?)).expect("writable");
        file.persist(folder.path(), &path).expect("it is renamed");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "after");
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.json");
        std::fs::write(&path, "before").expect("writable");
        let failed = Output::File(path.clone()).write(|out| {
            out.write_all(b"half")?;
            anyhow::bail!("enough")
        });
        assert!(format!("{:#}", failed.expect_err("it fails")).contains("out.json: enough"));
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), "before");
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            1
        );
    }
}
