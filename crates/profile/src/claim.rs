//! The file of a profile, claimed by one session, and never another user's.
//!
//! ```text
//! look     at a path: nothing, this user's file, another's, a device
//! Claim    nothing there ─▶ a new file (O_CREAT | O_EXCL | O_NOFOLLOW)
//!          this user's, and it may be replaced ─▶ a new file, renamed over it; the old one comes back at `withdraw`
//!          this user's or another's, and it stays ─▶ app-2.nthb
//!          a link to nothing, another user's link or pipe ─▶ an error
//! adopt    opens what was claimed; another thread or process may have claimed it
//! ```
//!
//! A claimed file begins like a profile, so that no other session takes it for an empty one. Two processes that look at
//! the same file take turns by its lock. Only the last part of a path is looked at.

mod refusal;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::format::MAGIC;
use crate::names;

pub use refusal::{ClaimError, ClaimRefusal};
use refusal::{has_folder, refusal};

/// Another process holds the lock of a file for the time of one claim. After this time it must be stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A session writes into the file that it has claimed before so much time has passed. Later it must be stopped.
pub const LONGEST_START: Duration = Duration::from_secs(10);

/// So many links are followed, as by the kernel (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// So often a claim looks at a path that others change.
const MOST_LOOKS: usize = 100;

/// The file at a path. A path in it leads through no link.
#[derive(Debug)]
pub enum AtPath {
    /// Nothing.
    /// Nothing.
    Free(PathBuf),
    /// An ordinary file of this user.
    Own(PathBuf, Metadata),
    /// An ordinary file of another user.
    Foreign,
    /// A device or a pipe, which is written to as it is.
    Special,
}

/// Which of this user's files a new one takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// An empty one.
    Empty,
    /// A profile, too; not one that another session has just claimed.
    Profile,
    /// Any: the caller has looked at it.
    Any,
}

/// A file that only this session uses for a profile. Dropped, it stays as it is.
#[derive(Debug)]
#[must_use]
pub struct Claim {
    path: PathBuf,
    undo: Undo,
}

/// What makes the file what it was.
#[derive(Debug)]
enum Undo {
    Nothing,
    /// The file is new.
    Remove(PathBuf),
    /// The file was empty.
    Empty(PathBuf),
    /// The other name of the file whose place the new one has.
    Restore {
        old: PathBuf,
        at: PathBuf,
    },
}

impl Claim {
    /// Makes a new file for a profile: at `path`, or with a free name that resembles it. A file that is there stays,
    /// unless it is `replaced`; one whose real path is in `kept` stays in any case. A device or a pipe is used as it is.
    ///
    /// # Errors
    /// If the file cannot be made, or if one at `path` cannot be replaced that was to be, but for an empty one.
    pub fn new(path: &Path, replaced: Replaced, kept: &[PathBuf]) -> Result<Self, ClaimError> {
        let mut candidate = path.to_owned();
        let mut number = 1;
        loop {
            let is_kept = !kept.is_empty()
                && candidate
                    .canonicalize()
                    .is_ok_and(|real| kept.contains(&real));
            if !is_kept {
                let is_wanted = replaced != Replaced::Empty && number == 1;
                match take(&candidate, replaced, is_wanted) {
                    Ok(Some(claim)) => return Ok(claim),
                    Ok(None) => {}
                    Err(why) => {
                        return Err(ClaimError {
                            path: candidate,
                            why,
                        });
                    }
                }
            }
            number += 1;
            candidate = names::numbered(path, number);
        }
    }

    /// The path of the file, as the user may name it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what the file replaces, because the session has begun.
    pub fn confirm(self) {
        if let Undo::Restore { old, .. } = &self.undo {
            // It is gone already, or the folder does not allow it.
            let _ = fs::remove_file(old);
        }
    }

    /// The file, empty, for whoever writes the profile at once: what it replaces is removed.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn into_file(self) -> Result<File, ClaimError> {
        let file = open_claimed(&self.path, |_| true)?;
        self.confirm();
        Ok(file)
    }

    /// Makes the file what it was, because no session began.
    pub fn withdraw(self) {
        // It is gone already, or the folder does not allow it.
        let _ = match self.undo {
            Undo::Nothing => Ok(()),
            Undo::Remove(path) => fs::remove_file(path),
            Undo::Empty(path) => match open_own(&path) {
                Ok(Some(file)) => file.set_len(0),
                _ => Ok(()),
            },
            Undo::Restore { old, at } => fs::rename(old, at),
        };
    }
}

/// The name that a claim would take now that replaces nothing. It makes no file.
#[must_use]
pub fn free_name(path: &Path) -> PathBuf {
    let mut candidate = path.to_owned();
    let mut number = 1;
    loop {
        let stays = match look(&candidate) {
            Ok(AtPath::Own(_, found)) => found.len() > 0,
            Ok(AtPath::Foreign) => true,
            // The claim says why it is refused.
            Ok(AtPath::Free(_) | AtPath::Special) | Err(_) => false,
        };
        if !stays {
            return candidate;
        }
        number += 1;
        candidate = names::numbered(path, number);
    }
}

/// Whether there is a profile that a claim could replace.
#[must_use]
pub fn is_own_profile(path: &Path) -> bool {
    let Ok(AtPath::Own(real, _)) = look(path) else {
        return false;
    };
    let file = File::open(real);
    file.and_then(|file| head(&file))
        .is_ok_and(|head| head == MAGIC)
}

/// Opens a file that was claimed, and empties it: this user's, without a link and without another name.
///
/// # Errors
/// If there is none.
pub fn adopt(path: &Path) -> Result<File, ClaimError> {
    open_claimed(path, |head| MAGIC.starts_with(head))
}

/// Opens a file that was claimed, if it begins in the right way, and empties it.
fn open_claimed(path: &Path, is_right: impl Fn(&[u8]) -> bool) -> Result<File, ClaimError> {
    let open = || match look(path)? {
        AtPath::Special => open_special(path),
        AtPath::Own(real, _) => {
            let file = open_own(&real)?.ok_or(ClaimRefusal::Replaced)?;
            let found = file.metadata().map_err(refusal)?;
            let head = head(&file).map_err(refusal)?;
            if found.nlink() != 1 || !is_right(&head) {
                return Err(ClaimRefusal::Replaced);
            }
            file.set_len(0).map_err(refusal)?;
            private(&file)?;
            Ok(file)
        }
        AtPath::Free(_) | AtPath::Foreign => Err(ClaimRefusal::Replaced),
    };
    open().map_err(|why| ClaimError {
        path: path.to_owned(),
        why,
    })
}

/// Looks at a path, and whether this user may write a file there.
///
/// Links are followed that this user or the superuser has made. The others lead where somebody else wants.
///
/// # Errors
/// If it is a folder, another user's link or pipe, or a link to nothing; or what the system says.
pub fn look(path: &Path) -> Result<AtPath, ClaimRefusal> {
    let user = rustix::process::geteuid().as_raw();
    let is_trusted = |found: &Metadata| found.uid() == user || found.uid() == 0;
    let mut place = path.to_owned();
    for links in 0..MOST_LINKS {
        let found = match fs::symlink_metadata(&place) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return match fs::metadata(path) {
                    _ if links == 0 => Ok(AtPath::Free(place)),
                    // The links in /proc/self/fd lead to what has no name.
                    Ok(found) if !found.is_file() && !found.is_dir() => Ok(AtPath::Special),
                    _ => Err(ClaimRefusal::DanglingLink),
                };
            }
            Err(error) => return Err(refusal(error)),
        };
        let kind = found.file_type();
        if kind.is_symlink() {
            if !is_trusted(&found) {
                return Err(ClaimRefusal::ForeignLink);
            }
            let target = fs::read_link(&place).map_err(refusal)?;
            place = place.parent().unwrap_or(Path::new("/")).join(target);
        } else if kind.is_dir() {
            return Err(ClaimRefusal::Folder);
        } else if kind.is_file() {
            return Ok(if found.uid() == user {
                AtPath::Own(place, found)
            } else {
                AtPath::Foreign
            });
        } else if kind.is_char_device() || kind.is_block_device() || is_trusted(&found) {
            // An ordinary user makes no devices: a terminal is the one of whoever has logged in.
            return Ok(AtPath::Special);
        } else {
            return Err(ClaimRefusal::ForeignPipe);
        }
    }
    Err(ClaimRefusal::DanglingLink)
}

/// Claims this path. `None` if a file is there that stays: with `is_wanted`, this is an error.
fn take(path: &Path, replaced: Replaced, is_wanted: bool) -> Result<Option<Claim>, ClaimRefusal> {
    let claim = |undo| {
        let path = path.to_owned();
        Ok(Some(Claim { path, undo }))
    };
    for _ in 0..MOST_LOOKS {
        let real = match look(path)? {
            AtPath::Special => return claim(Undo::Nothing),
            AtPath::Foreign if is_wanted => return Err(ClaimRefusal::Foreign),
            AtPath::Foreign => return Ok(None),
            AtPath::Free(real) => {
                match create_new(&real) {
                    Ok(file) => {
                        let locked = lock(&file);
                        // Another process may have taken it for an empty file.
                        if is_at(&real, &file) {
                            begin(&file).inspect_err(|_| {
                                let _ = fs::remove_file(&real);
                            })?;
                            drop(locked);
                            return claim(Undo::Remove(real));
                        }
                    }
                    // Two processes may come here, but only one of them makes the file.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) if error.kind() == ErrorKind::NotFound && !has_folder(&real) => {
                        return Err(ClaimRefusal::NoFolder);
                    }
                    Err(error) => return Err(refusal(error)),
                }
                continue;
            }
            AtPath::Own(real, _) => real,
        };
        let file = match open_own(&real) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            // This user has forbidden it to itself.
            Err(ClaimRefusal::NotAllowed) if !is_wanted => return Ok(None),
            Err(why) => return Err(why),
        };
        let locked = lock(&file);
        let head = head(&file).map_err(refusal)?;
        let may = match replaced {
            Replaced::Empty => head.is_empty(),
            Replaced::Profile => MAGIC.starts_with(&head),
            Replaced::Any => true,
        };
        if !may {
            return if is_wanted {
                Err(ClaimRefusal::NotAProfile)
            } else {
                Ok(None)
            };
        }
        if !is_at(&real, &file) {
            // Another process has just replaced it.
            continue;
        }
        if replaced != Replaced::Any && is_just_claimed(&file, &head) {
            return Ok(None);
        }
        if let Some(old) = replace(&real) {
            return claim(Undo::Restore { old, at: real });
        }
        // The folder does not allow it, or the file is mounted there.
        if head.is_empty() {
            begin(&file)?;
            drop(locked);
            return claim(Undo::Empty(real));
        }
        return claim(Undo::Nothing);
    }
    Err(ClaimRefusal::Replaced)
}

/// Puts a new file in the place of an old one. Returns the old one's other name.
///
/// A session that still writes the old file goes on with that, and does not write into the new one. `None` if the folder
/// does not allow it; then the file is still the old one.
fn replace(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let process = std::process::id();
    let beside = |which| path.with_file_name(format!(".{name}.{process}.{which}"));
    let (old, new) = (beside("old"), beside("new"));
    fs::hard_link(path, &old).ok()?;
    let file = create_new(&new);
    let is_put = matches!(&file, Ok(file) if begin(file).is_ok() && fs::rename(&new, path).is_ok());
    if !is_put {
        let _ = fs::remove_file(&old);
        let _ = file.map(|_| fs::remove_file(&new));
    }
    is_put.then_some(old)
}

/// Makes an empty file that only its owner can read.
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] if there is anything at the path, a link too.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let file = options().create_new(true).open(path)?;
    private(&file).map_err(io::Error::other)?;
    Ok(file)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC).bits() as i32;
    options
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(flags);
    options
}

/// Opens this user's file. `None` if there is another one by now.
fn open_own(path: &Path) -> Result<Option<File>, ClaimRefusal> {
    let file = match options().open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(ClaimRefusal::NotAllowed);
        }
        Err(error)
            if error.kind() == ErrorKind::NotFound
                || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(refusal(error)),
    };
    let found = file.metadata().map_err(refusal)?;
    let is_own = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
    Ok(is_own.then_some(file))
}

/// Opens a device or a pipe. One that was also read here would not wait for its reader.
///
/// # Errors
/// What the system says; or if it is a file by now.
pub fn open_special(path: &Path) -> Result<File, ClaimRefusal> {
    let flags = OFlags::NOCTTY.bits() as i32;
    let mut options = OpenOptions::new();
    let opened = options.write(true).custom_flags(flags).open(path);
    let file = opened.map_err(refusal)?;
    if file.metadata().map_err(refusal)?.is_file() {
        return Err(ClaimRefusal::Replaced);
    }
    Ok(file)
}

/// Only the owner may read a profile: it contains private details of a program. The umask may have removed more.
fn private(file: &File) -> Result<(), ClaimRefusal> {
    let found = file.metadata().map_err(refusal)?;
    if found.mode() & 0o777 != 0o600 {
        let mode = PermissionsExt::from_mode(0o600);
        file.set_permissions(mode).map_err(refusal)?;
    }
    Ok(())
}

/// Makes the file begin like a profile. Whoever writes to it begins at its start.
fn begin(file: &File) -> Result<(), ClaimRefusal> {
    file.write_all_at(&MAGIC, 0).map_err(refusal)
}

fn head(file: &File) -> io::Result<Vec<u8>> {
    let mut head = [0; MAGIC.len()];
    let length = file.read_at(&mut head, 0)?;
    Ok(head[..length].to_vec())
}

/// Whether another session has claimed the file, and has not written into it.
fn is_just_claimed(file: &File, head: &[u8]) -> bool {
    let Ok(found) = file.metadata() else {
        return false;
    };
    let changed = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let age = SystemTime::now().duration_since(changed);
    !head.is_empty() && found.len() <= MAGIC.len() as u64 && age.unwrap_or_default() < LONGEST_START
}

fn is_at(path: &Path, file: &File) -> bool {
    let (Ok(there), Ok(here)) = (fs::symlink_metadata(path), file.metadata()) else {
        return false;
    };
    (there.dev(), there.ino()) == (here.dev(), here.ino())
}

/// Keeps other processes from claiming the file, as far as the file system can, until it is dropped.
struct Locked<'a>(&'a File);

/// Does not wait for long.
fn lock(file: &File) -> Locked<'_> {
    let end = Instant::now() + LONGEST_WAIT;
    let held = |result| matches!(result, Err(rustix::io::Errno::WOULDBLOCK));
    while held(flock(file, FlockOperation::NonBlockingLockExclusive)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    Locked(file)
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}
