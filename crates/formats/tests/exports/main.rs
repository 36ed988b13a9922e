//! What the exports say, read back: by tools where a crate has them, else as their formats say.

mod collapsed;
mod firefox;
mod firefox_tables;
mod firefox_tracks;
mod pprof;
mod processes;
mod speedscope;

use std::collections::BTreeMap;

use nthbyte_profile::Profile;
use nthbyte_profile::synthetic::Synthetic;

/// A made-up profile; hostile ones have names that are meant to break what reads them.
fn profile(samples: u32, hostile: bool) -> Profile {
    let setup = Synthetic {
        samples,
        hostile,
        ..Synthetic::default()
    };
    Profile::read(setup.bytes().as_slice()).unwrap()
}

/// Estimated bytes of all samples.
fn total(profile: &Profile) -> f64 {
    let samples = profile.samples.ids();
    samples.map(|id| profile.weight(id).bytes).sum()
}

/// Estimated bytes by the function on top of the stack, which is how `nthbyte summary` counts.
fn by_function(profile: &Profile) -> BTreeMap<String, f64> {
    let mut bytes = BTreeMap::new();
    for id in profile.samples.ids() {
        let top = profile.stack(profile.samples.stack(id)).next();
        let name = top.map_or("", |frame| &profile.functions[frame.function as usize].name);
        *bytes.entry(name.to_owned()).or_default() += profile.weight(id).bytes;
    }
    bytes
}

/// Whether two sums of bytes are equal but for rounding.
fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * one.abs().max(other.abs()) + 1_000.0
}

#[test]
fn progress_only_grows_and_ends_at_its_total() {
    let profile = profile(2_000, false);
    type Write =
        fn(&Profile, &mut dyn std::io::Write, nthbyte_formats::Progress<'_>) -> std::io::Result<()>;
    let writers: [Write; 4] = [
        nthbyte_formats::firefox::write,
        nthbyte_formats::pprof::write,
        nthbyte_formats::speedscope::write,
        nthbyte_formats::collapsed::write,
    ];
    for write in writers {
        let mut steps = Vec::new();
        write(&profile, &mut std::io::sink(), &mut |done, total| {
            steps.push((done, total))
        })
        .unwrap();
        assert!(steps.is_sorted());
        let &(done, total) = steps.last().unwrap();
        assert_eq!(done, total);
        assert!(steps.iter().all(|step| step.1 == total));
    }
}
