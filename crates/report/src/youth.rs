//! What "died young" rests on.
//!
//! An object of an interpreter died young if it was freed before the next collection. Where the collector hardly ran, that
//! is nearly any object, however long it lived: CPython's collector runs after so many new containers, so a program that
//! fills one list with large blocks never starts it.

use nthbyte_profile::Profile;
use nthbyte_profile::model::Lifetime;

/// Up to so many collections of a process, "young" says little of how long an object lived.
const FEW: usize = 3;

/// How many collections ended the youth of objects, if they are few; `None` if they are enough, or if no object of an
/// interpreter died young. Native memory is young until so many bytes have been allocated, whatever the collector does.
pub(crate) fn few_collections(profile: &Profile) -> Option<usize> {
    let collections = profile.collections.iter();
    let ended = collections.filter(|of| of.kind.ends_youth()).count();
    if ended > FEW * profile.processes.len().max(1) {
        return None;
    }
    let mut samples = profile.samples.ids();
    let is_any = samples.any(|id| {
        profile.samples.lifetime(id) == Lifetime::DiedYoung && profile.knowledge(id).is_collected
    });
    is_any.then_some(ended)
}

/// "There were only 2 collections".
pub(crate) fn how_few(collections: usize) -> String {
    match collections {
        0 => "There was no collection".to_owned(),
        1 => "There was only 1 collection".to_owned(),
        several => format!("There were only {several} collections"),
    }
}

/// A note on objects that seem to have died young.
pub(crate) fn note(collections: usize) -> String {
    format!(
        "young means freed before the next garbage collection. {}: what died young may have lived long",
        how_few(collections)
    )
}
