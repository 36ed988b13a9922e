//! Why the file of a profile cannot be made, and what to do.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why no file can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClaimRefusal {
    /// The folder is missing.
    #[error("its folder does not exist")]
    NoFolder,
    /// There is a folder at the path.
    #[error("it is a folder")]
    Folder,
    /// The system does not allow it.
    #[error("permission denied")]
    NotAllowed,
    /// The disk is full.
    #[error("no space left")]
    NoSpace,
    /// A file that is no profile, where a profile was to be replaced.
    #[error("it exists and is not a profile")]
    NotAProfile,
    /// Another user's file, where a profile was to be replaced.
    #[error("it belongs to another user")]
    Foreign,
    /// Another user's link.
    #[error("it is a link of another user")]
    ForeignLink,
    /// Another user's pipe or socket.
    #[error("it is a pipe of another user")]
    ForeignPipe,
    /// A link that leads nowhere.
    #[error("it is a link to a file that does not exist")]
    DanglingLink,
    /// Another process has put another file there.
    #[error("another process has replaced it")]
    Replaced,
    /// What the system says otherwise.
    #[error("{0}")]
    System(String),
}

/// A file cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the profile {}: {why}", path.display())]
pub struct ClaimError {
    /// The path of the file.
    pub path: PathBuf,
    /// Why.
    pub why: ClaimRefusal,
}

impl ClaimError {
    pub(crate) fn of(path: &Path, error: io::Error) -> Self {
        let why = match error.kind() {
            ErrorKind::NotFound if !has_folder(path) => ClaimRefusal::NoFolder,
            _ => refusal(error),
        };
        let path = path.to_owned();
        Self { path, why }
    }

    /// The error for a user of `nthbyte run`: what to do, with its options.
    #[must_use]
    pub fn advice(&self) -> String {
        let path = self.path.display();
        match &self.why {
            ClaimRefusal::NoFolder => {
                format!("the folder of {path} does not exist; make it, or choose another with -o")
            }
            ClaimRefusal::Folder => {
                format!("{path} is a folder; choose the name of a file with -o")
            }
            ClaimRefusal::NotAllowed => {
                format!("not allowed to write {path}; choose another place with -o")
            }
            ClaimRefusal::NoSpace => {
                format!("no space left for {path}; choose another place with -o")
            }
            ClaimRefusal::NotAProfile => {
                format!(
                    "{path} exists and is not a profile: choose another name with -o, or remove it"
                )
            }
            ClaimRefusal::Foreign | ClaimRefusal::ForeignLink | ClaimRefusal::ForeignPipe => {
                let what = self.why.to_string();
                let what = what.trim_start_matches("it ");
                format!("{path} {what}: choose another name with -o")
            }
            ClaimRefusal::DanglingLink => format!(
                "{path} is a link to a file that does not exist: name the file itself with -o"
            ),
            ClaimRefusal::Replaced => format!("another process has replaced {path}; try again"),
            ClaimRefusal::System(why) => {
                format!("the file {path} cannot be made ({why}); choose another place with -o")
            }
        }
    }
}

impl From<ClaimError> for io::Error {
    fn from(error: ClaimError) -> Self {
        let kind = match error.why {
            ClaimRefusal::NoFolder | ClaimRefusal::DanglingLink => ErrorKind::NotFound,
            ClaimRefusal::Folder => ErrorKind::IsADirectory,
            ClaimRefusal::NoSpace => ErrorKind::StorageFull,
            ClaimRefusal::NotAProfile => ErrorKind::AlreadyExists,
            ClaimRefusal::NotAllowed
            | ClaimRefusal::Foreign
            | ClaimRefusal::ForeignLink
            | ClaimRefusal::ForeignPipe => ErrorKind::PermissionDenied,
            ClaimRefusal::Replaced | ClaimRefusal::System(_) => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Whether the folder of a path exists.
pub(super) fn has_folder(path: &Path) -> bool {
    path.parent()
        .is_some_and(|folder| folder.as_os_str().is_empty() || folder.is_dir())
}

/// What an error of the system says.
pub(super) fn refusal(error: io::Error) -> ClaimRefusal {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ClaimRefusal::NotAllowed,
        ErrorKind::StorageFull => ClaimRefusal::NoSpace,
        ErrorKind::IsADirectory => ClaimRefusal::Folder,
        ErrorKind::NotFound => ClaimRefusal::System("it cannot be made in its folder".to_owned()),
        // Without the number of the error.
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            ClaimRefusal::System(text.to_owned())
        }
    }
}
