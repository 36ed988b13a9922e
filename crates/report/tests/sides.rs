//! What a comparison says of two sides that were not recorded in the same way.

use std::slice;

use nthbyte_profile::event::Nanos;
use nthbyte_profile::meta::SourceKind;
use nthbyte_profile::model::SamplingId;
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_profile::{Domain, Profile};
use nthbyte_report::diff::{Diff, Options};

/// A profile with one sample, from a source of this kind.
fn of_source(kind: SourceKind) -> Profile {
    let mut profile = Profile::empty(Synthetic::default().meta());
    profile.complete = true;
    profile.sources[0].kind = kind.name().to_owned();
    let made = synthetic::sample(Nanos::default(), 48, SamplingId::default());
    profile.samples.push(made);
    profile
}

#[test]
fn native_memory_of_one_side_only_is_said() {
    let python = of_source(SourceKind::ObjectHeap);
    let native = of_source(SourceKind::Native);
    let said = |old: &Profile, new: &Profile| {
        let diff = Diff::of(
            slice::from_ref(old),
            slice::from_ref(new),
            &Options::default(),
        );
        let about = |note: &&String| note.contains("native memory");
        diff.notes.iter().find(about).cloned()
    };
    let expected = |side, shown| {
        Some(format!(
            "native memory was recorded on the {side} side only: what it allocated is shown as {shown}"
        ))
    };
    assert_eq!(said(&python, &native), expected("new", "new"));
    assert_eq!(said(&native, &python), expected("old", "gone"));
    assert_eq!(said(&python, &python), None);
    assert_eq!(said(&native, &native), None);
    // It was recorded, but no sample is of it by chance.
    let mut none = native.clone();
    none.keep_domain(Some(Domain::Python));
    assert_eq!(said(&native, &none), None);
    assert_eq!(said(&none, &python), expected("old", "gone"));
}
