//! What a comparison says of two sides that were not recorded in the same way.

use std::slice;

use nthbyte_profile::event::Nanos;
use nthbyte_profile::meta::SourceKind;
use nthbyte_profile::model::SamplingId;
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_profile::{Domain, Profile};
use nthbyte_report::By;
use nthbyte_report::diff::{Diff, DiffOptions};

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
            &DiffOptions::default(),
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

/// The row of the function that moved in the new profile; `None` if it was not found again there.
fn moved(old: &Profile, new: &Profile, by: By) -> Option<Vec<(u32, u32)>> {
    let options = DiffOptions {
        by,
        ..DiffOptions::default()
    };
    let sides = [old, new].map(std::slice::from_ref);
    let diff = Diff::of(sides[0], sides[1], &options);
    let rows = diff.rows.iter().filter(|row| row.file == "/elsewhere.py");
    let lines = rows.map(|row| Some((row.old_place.as_ref()?.line, row.line)));
    lines.collect()
}

#[test]
fn a_function_in_another_file_is_known_by_its_name_and_the_lines_that_ran() {
    let old = Profile::read(&Synthetic::default().bytes()[..]).expect("a profile");
    let names = |name: &str| old.functions.iter().filter(|of| of.name == name).count();
    let ran = |function: usize| {
        let frames = old.frames.iter();
        frames
            .filter(|frame| frame.function as usize == function)
            .count()
    };
    let number = (0..old.functions.len()).find(|&number| {
        let of = &old.functions[number];
        of.first_line > 0 && !of.name.ends_with('>') && names(&of.name) == 1 && ran(number) > 1
    });
    let number = number.expect("a name that is there once");
    let mut new = old.clone();
    new.functions[number].file = "/elsewhere.py".to_owned();
    new.functions[number].first_line += 1000;
    for frame in &mut new.frames {
        if frame.function as usize == number && frame.line > 0 {
            frame.line += 1000;
        }
    }
    let found = moved(&old, &new, By::Function).expect("it is found");
    let first = old.functions[number].first_line;
    assert_eq!(found, [(first, first + 1000)]);
    let lines = moved(&old, &new, By::Line).expect("its lines are found");
    assert!(lines.iter().all(|(old, new)| old + 1000 == *new) && lines.len() > 1);
    // The same name with other lines is another function.
    for frame in &mut new.frames {
        if frame.function as usize == number {
            frame.line += 500;
        }
    }
    assert_eq!(moved(&old, &new, By::Function), None);
}
