//! What a profile says of requests.

use std::path::Path;

use nthbyte_profile::Profile;
use nthbyte_profile::model::Lifetime;

/// Samples of one function with one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    pub samples: u64,
    /// How many of these are freed.
    pub freed: u64,
    /// Events that were lost in the session: a thread waits for another one's sample for a bounded time only, which may
    /// not suffice on a busy machine.
    pub lost: u64,
    /// The bytes for which the samples stand.
    pub bytes: f64,
}

/// Reads a profile, which must be whole.
pub fn read(path: &Path) -> Profile {
    let profile = Profile::load(path).unwrap();
    assert!(profile.complete, "{}", path.display());
    profile
}

impl Found {
    /// Checks that there are so many samples, of which so many are freed, but for those that are lost.
    #[track_caller]
    pub fn check(&self, samples: u64, freed: u64) {
        let near = |exact: u64, found| (exact.saturating_sub(self.lost)..=exact).contains(&found);
        let is_right = near(samples, self.samples) && near(freed, self.freed);
        assert!(is_right, "{self:?} instead of {samples} and {freed}");
    }
}

/// The samples of a function with a size.
pub fn of(profile: &Profile, function: &str, size: usize) -> Found {
    let mut found = Found {
        lost: profile.lost.iter().map(|&(_, events)| events).sum(),
        ..Found::default()
    };
    for (id, sample) in profile.samples.ids().zip(profile.samples.iter()) {
        let name = &profile.types[sample.type_id.0 as usize].name;
        if name == function && sample.shape.size == size as u64 {
            found.samples += 1;
            found.freed += u64::from(sample.lifetime == Lifetime::Freed);
            found.bytes += profile.weight(id).bytes;
        }
    }
    found
}
