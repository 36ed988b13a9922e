//! The claim of a profile's file for a session that is about to begin, for launchers in another language: they hold none
//! of Rust's values, and there is one at a time.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, TryLockError};

use nthbyte_profile::claim::{Claim, Replaced};
use serde::Deserialize;

/// The claim whose session has not begun.
static HELD: Mutex<Option<Claim>> = Mutex::new(None);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    path: PathBuf,
    force: bool,
    #[serde(default)]
    kept: Vec<PathBuf>,
}

/// Claims a file, and returns its path: see [`Claim::new`]. The session that begins next has it as
/// [`Config::output`](crate::Config::output), with [`Config::claimed`](crate::Config::claimed); then [`settle`] is called.
///
/// `request` is a JSON object: `path` is the wanted path, `force` says whether a profile is replaced, and `kept` are the
/// real paths of files that stay.
///
/// # Errors
/// One line that says why not, and what to do.
pub fn claim(request: &str) -> Result<String, String> {
    let request: Request =
        serde_json::from_str(request).map_err(|error| format!("bad request: {error}"))?;
    let replaced = if request.force {
        Replaced::Profile
    } else {
        Replaced::Empty
    };
    let claim =
        Claim::new(&request.path, replaced, &request.kept).map_err(|refusal| refusal.advice())?;
    let path = claim.path().to_string_lossy().into_owned();
    if let Some(mut held) = held() {
        *held = Some(claim);
    }
    Ok(path)
}

/// Ends the claim: what it replaced is removed if the session has begun, and is back if it has not.
pub fn settle(has_begun: bool) {
    match held().and_then(|mut held| held.take()) {
        Some(claim) if has_begun => claim.confirm(),
        Some(claim) => claim.withdraw(),
        None => {}
    }
}

/// `None` if another thread has it: the child of a fork does not wait for a thread that does not exist any more.
fn held() -> Option<MutexGuard<'static, Option<Claim>>> {
    match HELD.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
