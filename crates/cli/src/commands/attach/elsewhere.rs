//! A process with another root folder: a container, seen from the host.
//!
//! Nothing of nthbyte need be in there. The package is put into a private folder of the container, with the owner of the
//! process, and so is the profile while it is recorded; both are taken away at the end, and the profile gets its place. Where
//! no folder of the container can be written to and executed from, the process is given folders of this system: see [`given`](super::given).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nthbyte_profile::names;
use rustix::fs::StatVfsMountFlags;

use super::given::Given;
use super::watch::identity;
use crate::output::Output;

/// Folders that can be written to in most containers.
const CANDIDATES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
/// What a process imports: neither the command nor the library for programs without Python.
const LIBRARIES: [&str; 3] = [
    "libnthbyte_cpython.so",
    "libnthbyte_native.so",
    "libnthbyte_pypy.so",
];

/// The name of the profile in a private folder.
const PROFILE: &str = "profile.nthb";

/// How long the process may take to close what it was given.
const CLOSING: Duration = Duration::from_secs(2);

/// A private folder for a process. It is removed when this is dropped.
#[derive(Debug)]
pub struct Private {
    pid: u32,
    /// The package, as the process sees it.
    pub package: PathBuf,
    /// Where the process writes a profile that has its place outside, as the process sees it.
    pub profile: PathBuf,
    /// The folder, as this process sees it.
    outside: PathBuf,
    given: Option<Given>,
}

/// Where a process has its files, as this process sees them.
fn root(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// A path of a process, as this process sees it.
pub fn inside_of(pid: u32, path: &Path) -> PathBuf {
    root(pid).join(path.strip_prefix("/").unwrap_or(path))
}

/// Whether a process sees another file or folder at a path than this one, or none.
fn differs(pid: u32, path: &Path) -> bool {
    let here = identity(path);
    // Its root may not be looked at: then ptrace is refused, too, with a reason.
    root(pid).metadata().is_ok() && (here.is_none() || here != identity(&inside_of(pid, path)))
}

/// What of this system's files a process needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// The package, and a place for the profile.
    Package,
    /// A place for the profile: it has nthbyte.
    Place,
}

/// Makes a private folder for a process that does not see the package, or may not write to the folder of `output`, which is the place of the
/// profile in the end. The process has to run Python code within `limit`.
///
/// # Errors
/// If no folder can be used.
pub fn prepare(
    pid: u32,
    needed: Needed,
    package: &Path,
    output: &Path,
    limit: Duration,
) -> Result<Option<Private>> {
    let owner = nthbyte_attach::owner(pid).context("the process has ended")?;
    let copied = (needed == Needed::Package && differs(pid, package)).then_some(package);
    let place = output.parent().unwrap_or(Path::new("/"));
    // Root's folders are not another user's; without root's rights, no folder can be made for that one.
    let is_other_user = rustix::process::geteuid().is_root() && owner.0 != 0;
    let sees_place = !is_other_user && !differs(pid, place);
    if copied.is_none() && (!place.is_dir() || sees_place) {
        return Ok(None);
    }
    for candidate in CANDIDATES.map(Path::new) {
        let folder = inside_of(pid, candidate);
        let may_execute = rustix::fs::statvfs(&folder)
            .is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::NOEXEC));
        if (may_execute || copied.is_none())
            && let Ok(mut private) = fill(pid, candidate, copied, owner)
        {
            if copied.is_none() {
                private.package = package.to_owned();
            }
            return Ok(Some(private));
        }
    }
    let given = give(pid, package, output, owner, limit);
    given.map(Some).with_context(|| {
        format!(
            "process {pid} has its own files or user, and nthbyte cannot be put there: attach as root of the host, or from inside, where \
             nthbyte is installed"
        )
    })
}

fn own(path: &Path, owner: (u32, u32)) -> io::Result<()> {
    chown(path, Some(owner.0), Some(owner.1))
}

/// The name of a private folder. A shell's `*` does not find it.
fn name(pid: u32) -> String {
    format!(".nthbyte-{pid}-{}", std::process::id())
}

/// Makes a private folder in one of the process, and puts the package into it, if it is needed.
fn fill(pid: u32, folder: &Path, package: Option<&Path>, owner: (u32, u32)) -> io::Result<Private> {
    let inside = folder.join(name(pid));
    let private = Private {
        pid,
        outside: inside_of(pid, &inside),
        package: inside.join("nthbyte"),
        profile: inside.join(PROFILE),
        given: None,
    };
    DirBuilder::new().mode(0o700).create(&private.outside)?;
    own(&private.outside, owner)?;
    let Some(package) = package else {
        return Ok(private);
    };
    let to = private.outside.join("nthbyte");
    DirBuilder::new().mode(0o700).create(&to)?;
    for entry in fs::read_dir(package)? {
        let name = entry?.file_name();
        let is_module = Path::new(&name).extension().is_some_and(|end| end == "py");
        if is_module || LIBRARIES.iter().any(|library| name == *library) {
            fs::copy(package.join(&name), to.join(&name))?;
            own(&to.join(&name), owner)?;
        }
    }
    own(&to, owner)?;
    Ok(private)
}

/// Gives the process the package of this system, and a folder beside the profile's place.
fn give(
    pid: u32,
    package: &Path,
    output: &Path,
    owner: (u32, u32),
    limit: Duration,
) -> Result<Private> {
    let folder = output.with_file_name(name(pid));
    let mut private = Private {
        pid,
        outside: folder.clone(),
        package: PathBuf::new(),
        profile: PathBuf::new(),
        given: None,
    };
    let made = DirBuilder::new().mode(0o700).create(&folder);
    made.and_then(|()| own(&folder, owner))
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let given = Given::give(pid, [package, &folder], limit)?;
    private.package = given.package();
    private.profile = given.output().join(PROFILE);
    private.given = Some(given);
    Ok(private)
}

impl Private {
    /// Which file the profile is.
    pub fn identity(&self) -> Option<(u64, u64)> {
        identity(&self.outside.join(PROFILE))
    }

    /// Gives the profile and forked children's their places, as they are now.
    ///
    /// # Errors
    /// If one cannot be read or written.
    pub fn take_out(&self, to: &Path, force: bool) -> Result<()> {
        let first = self.outside.join(PROFILE);
        copy(&first, to, force)?;
        let mut children: Vec<(u32, PathBuf)> = fs::read_dir(&self.outside)?
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                Some((names::child_in(&first, &name)?, self.outside.join(name)))
            })
            .collect();
        children.sort_unstable();
        let mut number = 1;
        for (at, (pid, path)) in children.iter().enumerate() {
            // A process may have several.
            let is_further = at > 0 && children[at - 1].0 == *pid;
            number = if is_further { number + 1 } else { 1 };
            let place = names::of_child(to, *pid);
            match number {
                1 => copy(path, &place, force)?,
                _ => copy(path, &names::numbered(&place, number), force)?,
            }
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path, force: bool) -> Result<()> {
    let output = Output::Profile(to.to_owned());
    output.protect(&[], force)?;
    let mut profile = fs::File::open(from).context("the profile cannot be read")?;
    output.write_silently(|out| {
        io::copy(&mut profile, out)?;
        Ok(())
    })
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Some(given) = &self.given {
            given.close(self.pid, CLOSING);
        }
        // What cannot be removed stays, in a folder of the process's own user.
        let _ = fs::remove_dir_all(&self.outside);
    }
}
