//! A process with another root folder: a container, seen from the host.
//!
//! Nothing of nthbyte need be in there. The package is put into a private folder of the container, with the owner of the
//! process, and so is the profile while it is recorded; both are taken away at the end, and the profile gets its place.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::StatVfsMountFlags;

/// Folders that can be written to in most containers.
const CANDIDATES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
/// What a process imports: not the command, and not what is preloaded into programs without Python.
const LIBRARIES: [&str; 3] = [
    "libnthbyte_cpython.so",
    "libnthbyte_native.so",
    "libnthbyte_pypy.so",
];

/// A private folder in the root of a process. It is removed when this is dropped.
#[derive(Debug)]
pub struct Private {
    /// As the process sees it.
    inside: PathBuf,
    /// As this process sees it.
    outside: PathBuf,
}

/// Where a process has its files, as this process sees them.
fn root(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// A path of a process, as this process sees it.
pub fn inside_of(pid: u32, path: &Path) -> PathBuf {
    root(pid).join(path.strip_prefix("/").unwrap_or(path))
}

/// Which file it is: the numbers of its device and of itself.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// Whether a process sees another file or folder at a path than this one, or none.
fn differs(pid: u32, path: &Path) -> bool {
    let here = identity(path);
    // Its root may not be looked at: then ptrace is refused, too, with a reason.
    root(pid).metadata().is_ok() && (here.is_none() || here != identity(&inside_of(pid, path)))
}

/// Makes a private folder with the package in it, if the process does not see `package` itself.
///
/// # Errors
/// If no folder of the process can be written to, or none has files that may be executed.
pub fn prepare(pid: u32, package: &Path) -> Result<Option<Private>> {
    if !differs(pid, package) {
        return Ok(None);
    }
    let owner = nthbyte_attach::owner(pid).context("the process has ended")?;
    let mut last = None;
    for candidate in CANDIDATES.map(Path::new) {
        let folder = inside_of(pid, candidate);
        match rustix::fs::statvfs(&folder) {
            Ok(found) if found.f_flag.contains(StatVfsMountFlags::NOEXEC) => continue,
            Ok(_) => {}
            Err(_) => continue,
        }
        match fill(pid, candidate, package, owner) {
            Ok(private) => return Ok(Some(private)),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error).with_context(|| {
            format!("process {pid} has its own files (a container), where nthbyte cannot be put")
        }),
        None => bail!(
            "process {pid} has its own files (a container), and no folder there can be written to and executed from: \
             start it with NTHBYTE=ready"
        ),
    }
}

fn fill(pid: u32, folder: &Path, package: &Path, owner: (u32, u32)) -> io::Result<Private> {
    let name = format!(".nthbyte-{pid}-{}", std::process::id());
    let inside = folder.join(name);
    let private = Private {
        outside: inside_of(pid, &inside),
        inside,
    };
    let own = |path: &Path| chown(path, Some(owner.0), Some(owner.1));
    DirBuilder::new().mode(0o700).create(&private.outside)?;
    let to = private.outside.join("nthbyte");
    DirBuilder::new().mode(0o700).create(&to)?;
    for entry in fs::read_dir(package)? {
        let name = entry?.file_name();
        let is_module = Path::new(&name).extension().is_some_and(|end| end == "py");
        if is_module || LIBRARIES.iter().any(|library| name == *library) {
            fs::copy(package.join(&name), to.join(&name))?;
            own(&to.join(&name))?;
        }
    }
    own(&to)?;
    own(&private.outside)?;
    Ok(private)
}

impl Private {
    /// The package, as the process sees it.
    pub fn package(&self) -> PathBuf {
        self.inside.join("nthbyte")
    }

    /// Where the process writes a profile that has its place outside: as the process sees it.
    pub fn profile(&self) -> PathBuf {
        self.inside.join("profile.nthb")
    }

    /// Gives the profile its place: `path` is where the process has written it.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn take_out(&self, to: &Path, force: bool) -> Result<()> {
        let from = self.outside.join("profile.nthb");
        let output = crate::output::Output::Profile(to.to_owned());
        output.protect(&[], force)?;
        let mut profile = fs::File::open(&from).context("the profile cannot be read")?;
        output.write(|out| {
            io::copy(&mut profile, out)?;
            Ok(())
        })
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // What cannot be removed stays, in a folder of the process's own user.
        let _ = fs::remove_dir_all(&self.outside);
    }
}
