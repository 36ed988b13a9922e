//! What a profile knows of lifetimes is asked of its sources, not guessed from names.

use nthbyte_profile::event::Nanos;
use nthbyte_profile::model::{Lifetime, Profile, Sample, SamplingId};
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_profile::{Distances, Domain, Lifetimes, Meta, Method, Source, SourceKind};
use nthbyte_report::{At, By, Leaks, Selection, SelectionError, Summary};

const END: u64 = 60_000_000_000;

fn source(kind: SourceKind, method: Method) -> Source {
    Source::allocations(kind, method, Distances::Exponential, 1 << 20)
}

/// Objects of a collector that tells what survived, beside native blocks whose ends are known. The interpreter's name says
/// nothing.
fn mixed() -> Profile {
    let mut profile = Profile::empty(Meta {
        interpreter: "Another 1.0".to_owned(),
        sources: vec![
            source(SourceKind::Nursery, Method::NurseryLimit),
            source(SourceKind::Native, Method::Preload),
        ],
        ..Synthetic::default().meta()
    });
    profile.end = Nanos(END);
    profile.complete = true;
    for number in 0..400_u64 {
        let is_native = number % 2 == 1;
        let time = Nanos(END / 400 * number);
        let freed = (is_native && number % 4 == 1).then(|| Nanos(time.0 + 1000));
        profile.samples.push(Sample {
            lifetime: match (is_native, freed) {
                (false, _) => Lifetime::Survived,
                (true, None) => Lifetime::StillLive,
                (true, Some(_)) => Lifetime::Freed,
            },
            freed,
            ..synthetic::sample(time, 1 << 20, SamplingId(u32::from(is_native)))
        });
    }
    profile
}

fn only(domain: Domain) -> Selection {
    Selection {
        domain: Some(domain),
        ..Selection::default()
    }
}

#[test]
fn the_least_that_a_source_of_the_samples_tells_is_known() {
    assert_eq!(mixed().lifetimes(), Lifetimes::FirstCollection);
    for (domain, known) in [
        (Domain::Native, Lifetimes::All),
        (Domain::Python, Lifetimes::FirstCollection),
    ] {
        let mut profile = mixed();
        only(domain).apply(&mut profile).expect("a selection");
        assert_eq!(profile.lifetimes(), known, "{domain:?}");
        let alive = Summary::of(&profile, By::Function).knows_what_is_alive();
        assert_eq!(alive, known == Lifetimes::All);
    }
}

#[test]
fn each_method_tells_what_it_follows() {
    let empty = |kind, method| {
        Profile::empty(Meta {
            sources: vec![source(kind, method)],
            ..Synthetic::default().meta()
        })
    };
    for (kind, method, lifetimes, is_collected) in [
        (
            SourceKind::ObjectHeap,
            Method::CutFreeLists,
            Lifetimes::All,
            true,
        ),
        (
            SourceKind::Nursery,
            Method::NurseryLimit,
            Lifetimes::FirstCollection,
            true,
        ),
        (SourceKind::Nursery, Method::GcHooks, Lifetimes::None, true),
        (SourceKind::Native, Method::Preload, Lifetimes::All, false),
        (SourceKind::Mapping, Method::Preload, Lifetimes::All, false),
        (
            SourceKind::Native,
            Method::GlobalAllocator,
            Lifetimes::All,
            false,
        ),
        (
            SourceKind::Imported,
            Method::Imported,
            Lifetimes::None,
            false,
        ),
    ] {
        let mut profile = empty(kind, method);
        assert_eq!(profile.lifetimes(), lifetimes, "{method:?}");
        profile
            .samples
            .push(synthetic::sample(Nanos(1), 64, SamplingId(0)));
        let id = profile.samples.ids().next().expect("a sample");
        let known = profile.knowledge(id);
        assert_eq!(
            (known.lifetimes, known.is_collected),
            (lifetimes, is_collected)
        );
    }
    let later = Source {
        method: "of-a-later-version".to_owned(),
        ..source(SourceKind::ObjectHeap, Method::CutFreeLists)
    };
    assert_eq!(later.knowledge().lifetimes, Lifetimes::None);
}

#[test]
fn the_peak_of_native_memory_is_known_beside_objects_whose_ends_are_not() {
    let at_peak = Selection {
        at: Some(At::Peak),
        ..Selection::default()
    };
    let found = at_peak.apply(&mut mixed());
    assert_eq!(found, Err(SelectionError::NoLifetimes));
    let of_native = Selection {
        domain: Some(Domain::Native),
        ..at_peak
    };
    let mut profile = mixed();
    of_native.apply(&mut profile).expect("it is known");
    assert!(!profile.samples.is_empty());
}

#[test]
fn leaks_says_what_is_not_known_of_the_samples_it_has() {
    let limits = |profile: Profile| {
        let leaks = Leaks::of(&[("app.nthb".to_owned(), profile)], true);
        leaks.profiles[0].limits.join(" ")
    };
    let all = limits(mixed());
    assert!(
        all.contains("PyPy does not say") && all.contains("--domain native"),
        "{all}"
    );
    let mut native = mixed();
    only(Domain::Native)
        .apply(&mut native)
        .expect("a selection");
    assert!(!limits(native).contains("PyPy"));
}
