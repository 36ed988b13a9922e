//! Selections against the same choices made sample by sample.

use crate::halves;
use nthbyte_profile::event::{Memory, Nanos, ThreadId};
use nthbyte_profile::model::{Lifetime, Profile, Sample};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Method};
use nthbyte_report::summary::NO_LABEL;
use nthbyte_report::{
    At, By, Bytes, LabelKey, LabelQuery, Selection, SelectionError, Sort, Summary,
};
use proptest::prelude::*;

fn profile(samples: u32, seed: u64) -> Profile {
    made(Synthetic {
        samples,
        seed,
        ..Synthetic::default()
    })
}

fn made(setup: Synthetic) -> Profile {
    Profile::read(&setup.bytes()[..]).expect("a profile")
}

fn applied(profile: &Profile, selection: &Selection) -> Profile {
    let mut selected = profile.clone();
    selection.apply(&mut selected).expect("it can be made");
    selected
}

fn bytes(profile: &Profile) -> f64 {
    let estimate = Summary::of(profile, By::Function).all.bytes;
    assert!(estimate.low <= estimate.estimate && estimate.estimate <= estimate.high);
    estimate.estimate
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * one.abs().max(other.abs()).max(1.0)
}

/// The bytes of the samples that are chosen.
fn slowly(profile: &Profile, chosen: impl Fn(&Sample) -> bool) -> f64 {
    let ids = profile.samples.ids();
    let chosen = ids.filter(|&id| chosen(&profile.samples.get(id)));
    chosen.map(|id| profile.weight(id).bytes).sum()
}

fn alive_at(profile: &Profile, time: Nanos) -> f64 {
    let allocated = slowly(profile, |sample| sample.time <= time);
    let freed = |sample: &Sample| sample.freed.is_some_and(|freed| freed <= time);
    allocated - slowly(profile, |sample| sample.time <= time && freed(sample))
}

fn at(at: At) -> Selection {
    Selection {
        at: Some(at),
        ..Selection::default()
    }
}

fn range(since: Option<Nanos>, until: Option<Nanos>) -> Selection {
    Selection {
        since,
        until,
        ..Selection::default()
    }
}

/// A time of the session.
fn part(profile: &Profile, part: f64) -> Nanos {
    Nanos((profile.end.0 as f64 * part) as u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn time_ranges_divide_everything(samples in 1_u32..800, seed: u64, one in 0.01_f64..0.99, two in 0.01_f64..0.99) {
        let profile = profile(samples, seed);
        let (first, second) = (part(&profile, one.min(two)), part(&profile, one.max(two)));
        prop_assume!(Nanos(0) < first && first < second);
        let parts = [
            range(None, Some(first)),
            range(Some(first), Some(second)),
            range(Some(second), None),
        ];
        let parts = parts.map(|of| applied(&profile, &of));
        prop_assert!(close(parts.iter().map(bytes).sum(), bytes(&profile)));
        let count = |of: &dyn Fn(&Profile) -> usize| parts.iter().map(of).sum::<usize>();
        prop_assert_eq!(count(&|of| of.samples.len()), profile.samples.len());
        prop_assert_eq!(count(&|of| of.cpu.len()), profile.cpu.len());
        prop_assert_eq!(count(&|of| of.collections.len()), profile.collections.len());
        prop_assert_eq!(count(&|of| of.memory.len()), profile.memory.len());
        let between = |sample: &Sample| first <= sample.time && sample.time < second;
        prop_assert!(close(bytes(&parts[1]), slowly(&profile, between)));
    }

    #[test]
    fn what_is_alive_is_what_was_allocated_less_what_was_freed(samples in 1_u32..800, seed: u64, when in 0.0_f64..1.0) {
        let profile = profile(samples, seed);
        let time = part(&profile, when);
        let alive = applied(&profile, &at(At::Time(time)));
        prop_assert!(close(bytes(&alive), alive_at(&profile, time)));
        prop_assert!(alive.cpu.is_empty());
        let end = applied(&profile, &at(At::End));
        let freed = slowly(&profile, |sample| sample.freed.is_some());
        prop_assert!(close(bytes(&end), bytes(&profile) - freed));
        // The column of a summary is the same.
        let mut narrowed = profile.clone();
        let selected = at(At::Time(time)).narrow(&mut narrowed).expect("it can be made");
        let summary = Summary::of_selected(&narrowed, By::Function, selected);
        prop_assert!(close(summary.all.bytes.estimate, bytes(&profile)));
        let column: f64 = summary.rows.iter().map(|row| row.figures.alive.expect("known").estimate).sum();
        prop_assert!(close(column, bytes(&alive)));
        prop_assert!(close(column, summary.all.alive.expect("known").estimate));
    }

    /// The first half of the samples finds the peak, and the second one says what was alive: the rows of a summary and a
    /// profile of what was alive then agree. If everything is recorded, nothing is above the peak.
    #[test]
    fn one_half_of_the_samples_finds_the_peak_and_the_other_one_says_what_was_alive(
        samples in 1_u32..300,
        seed: u64,
        distances in proptest::sample::select(vec![Distances::Exponential, Distances::Fixed, Distances::Every]),
        from in 0.0_f64..0.9,
        length in 0.01_f64..1.0,
    ) {
        let period = if distances == Distances::Every { 1 } else { 64 << 10 };
        let profile = made(Synthetic { samples, seed, distances, period, ..Synthetic::default() });
        let times: Vec<Nanos> = profile.samples.iter().map(|sample| sample.time).collect();
        let peak_of = |selection: &Selection| {
            let mut narrowed = profile.clone();
            let selected = selection.narrow(&mut narrowed).ok()?;
            let json = serde_json::to_value(&selected).expect("JSON");
            let peak = Nanos(json["at_nanos"].as_u64().expect("a time"));
            Some((peak, Summary::of_selected(&narrowed, By::Function, selected)))
        };
        let (peak, summary) = peak_of(&at(At::Peak)).expect("there are samples");
        let (_, most) = halves::found(&profile, times.iter().copied());
        prop_assert!(close(halves::first(&profile, peak), most), "{} {}", peak.0, most);
        let alive = bytes(&applied(&profile, &at(At::Peak)));
        prop_assert!(close(alive, halves::second(&profile, peak)), "{} {}", peak.0, alive);
        let column: f64 = summary.rows.iter().map(|row| row.figures.alive.expect("known").estimate).sum();
        prop_assert!(close(column, alive));
        prop_assert!(close(column, summary.all.alive.expect("known").estimate));
        prop_assert!(close(summary.all.bytes.estimate, bytes(&profile)));
        if distances == Distances::Every {
            let most = times.iter().map(|&time| alive_at(&profile, time)).fold(0.0, f64::max);
            prop_assert!(close(alive, most), "{} {}", alive, most);
        }
        // Within a range: of all that was alive then, what was allocated in it.
        let (since, until) = (part(&profile, from), part(&profile, from + length));
        prop_assume!(since < until);
        let selection = Selection { since: Some(since), until: Some(until), at: Some(At::Peak), ..Selection::default() };
        let Some((peak, _)) = peak_of(&selection) else {
            prop_assert!(times.iter().all(|&time| until <= time));
            return Ok(());
        };
        prop_assert!(since <= peak && peak < until);
        let inside = times.iter().filter(|&&time| since <= time && time < until).chain([&since]);
        let (_, most) = halves::found(&profile, inside.copied());
        prop_assert!(close(halves::first(&profile, peak), most));
    }

    #[test]
    fn places_and_threads_are_those_of_the_stack(samples in 1_u32..800, seed: u64) {
        let profile = profile(samples, seed);
        let file = profile.functions[0].file.clone();
        let in_file = |sample: &Sample| {
            profile.stack(sample.stack).any(|frame| profile.functions[frame.function as usize].file == file)
        };
        let selection = Selection { places: vec![file.clone()], ..Selection::default() };
        let selected = applied(&profile, &selection);
        prop_assert!(close(bytes(&selected), slowly(&profile, in_file)));
        let mut sum = 0;
        let mut names: Vec<String> = profile.threads.iter().map(|thread| thread.name.clone()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let selection = Selection { threads: vec![name.clone()], ..Selection::default() };
            let selected = applied(&profile, &selection);
            let by = |thread: ThreadId| profile.threads[thread.index()].name == name;
            prop_assert!(selected.samples.iter().all(|sample| by(sample.thread)));
            prop_assert!(selected.cpu.iter().all(|sample| by(sample.thread)));
            sum += selected.samples.len();
        }
        prop_assert_eq!(sum, profile.samples.len());
    }

    #[test]
    fn labels_are_those_of_the_sample(samples in 1_u32..500, seed: u64) {
        let profile = made(Synthetic { samples, seed, hostile: true, ..Synthetic::default() });
        for key in profile.label_keys() {
            let value_of = |sample: &Sample| {
                let labels = profile.labels(sample.labels);
                labels.into_iter().find(|(of, _)| *of == key).map_or(NO_LABEL, |(_, value)| value).to_owned()
            };
            let summary = Summary::of(&profile, By::Label(LabelKey::new(key)));
            for row in &summary.rows {
                let of_row = |sample: &Sample| value_of(sample) == row.name;
                prop_assert!(close(row.figures.self_bytes.estimate, slowly(&profile, of_row)));
                let label = LabelQuery { key: key.to_owned(), value: Some(row.name.clone()) };
                let selected = applied(&profile, &Selection { labels: vec![label], ..Selection::default() });
                prop_assert!(selected.samples.iter().all(|sample| value_of(&sample) == row.name));
                prop_assert_eq!(selected.samples.len() as u64, row.samples);
                let cpu = profile.cpu.iter().filter(|sample| {
                    let labels = profile.labels(sample.labels);
                    labels.iter().find(|(of, _)| *of == key).map_or(NO_LABEL, |(_, value)| value) == row.name
                });
                prop_assert_eq!(selected.cpu.len(), cpu.count());
            }
            prop_assert_eq!(summary.rows.iter().map(|row| row.samples).sum::<u64>(), profile.samples.len() as u64);
            let any = LabelQuery::parse(key).filter(|label| label.value.is_none());
            if let Some(any) = any {
                let selected = applied(&profile, &Selection { labels: vec![any], ..Selection::default() });
                prop_assert!(selected.samples.iter().all(|sample| value_of(&sample) != NO_LABEL));
            }
            let mut rooted = profile.clone();
            rooted.root_by_label(key, NO_LABEL);
            for (before, after) in profile.samples.iter().zip(rooted.samples.iter()) {
                let frames: Vec<_> = rooted.stack(after.stack).copied().collect();
                let (root, rest) = frames.split_last().expect("a root");
                prop_assert_eq!(rest, &profile.stack(before.stack).copied().collect::<Vec<_>>()[..]);
                let name = &rooted.functions[root.function as usize].name;
                let value = value_of(&before);
                let expected = if value == NO_LABEL { value } else { format!("{key}={value}") };
                prop_assert_eq!(name, &expected);
            }
        }
        let missing = LabelQuery { key: "none".to_owned(), value: None };
        let selection = Selection { labels: vec![missing], ..Selection::default() };
        let error = selection.apply(&mut profile.clone());
        prop_assert!(matches!(error, Err(SelectionError::NoLabel { .. })), "{error:?}");
    }

    #[test]
    fn temporary_objects_are_freed_soon(samples in 1_u32..300, seed: u64, most in 1_u64..1_000_000) {
        let profile = made(Synthetic { samples, seed, distances: Distances::Every, ..Synthetic::default() });
        let selected = |most| applied(&profile, &Selection { temporary: Some(most), ..Selection::default() });
        // Each allocation is recorded, so the bytes until the free are known.
        let is_temporary = |sample: &Sample| {
            let Some(freed) = sample.freed else { return false };
            let between = |other: &Sample| sample.time < other.time && other.time <= freed;
            slowly(&profile, between) <= most as f64
        };
        prop_assert!(close(bytes(&selected(most)), slowly(&profile, is_temporary)));
        let freed = slowly(&profile, |sample| sample.freed.is_some());
        prop_assert!(close(bytes(&selected(u64::MAX)), freed));
    }
}

#[test]
fn temporary_is_about_right_from_samples() {
    // One in many is recorded: between two samples lies a period on average.
    let profile = profile(5000, 3);
    let period = profile.periods()[0];
    let mut last = 0.0;
    for periods in [0, 1, 2, 8, 64, 512, 1 << 20] {
        let selection = Selection {
            temporary: Some(periods * period),
            ..Selection::default()
        };
        let now = bytes(&applied(&profile, &selection));
        assert!(now >= last, "{periods}: {now} {last}");
        last = now;
    }
    assert!(close(last, slowly(&profile, |of| of.freed.is_some())));
}

#[test]
fn conditions_are_all_kept_and_noted() {
    let profile = profile(4000, 5);
    let place = profile.functions[3].file.clone();
    let thread = profile.threads[0].name.clone();
    let (since, until) = (part(&profile, 0.2), part(&profile, 0.8));
    let selection = Selection {
        domain: None,
        since: Some(since),
        until: Some(until),
        threads: vec![thread.clone()],
        places: vec![place.clone()],
        labels: Vec::new(),
        temporary: Some(64 << 20),
        at: Some(At::Peak),
    };
    let selected = applied(&profile, &selection);
    for sample in selected.samples.iter() {
        assert!(since <= sample.time && sample.time < until);
        assert_eq!(profile.threads[sample.thread.index()].name, thread);
        assert!(sample.freed.is_some());
    }
    let note = selected.meta.notes.last().expect("a note");
    for said in [
        "only what was allocated from ",
        "by thread ",
        &place,
        "freed within 64.0 MiB",
        "alive at the peak, ",
    ] {
        assert!(note.contains(said), "{said}: {note}");
    }
    assert_eq!(selected.allocated, None);
    let everything = applied(&profile, &Selection::default());
    assert_eq!(everything.allocated, profile.allocated);
    assert_eq!(everything.meta.notes, profile.meta.notes);
}

#[test]
fn a_summary_says_what_is_selected() {
    let mut profile = profile(2000, 5);
    let all = Summary::of(&profile, By::Function);
    let selection = Selection {
        since: Some(part(&profile, 0.5)),
        at: Some(At::Peak),
        ..Selection::default()
    };
    let selected = selection.narrow(&mut profile).expect("it can be made");
    let mut summary = Summary::of_selected(&profile, By::Type, selected);
    summary.sort(Sort::Alive);
    let text = summary.render::<Bytes>(120);
    assert!(text.contains("only what was allocated from "), "{text}");
    assert!(text.contains("\nalive at the peak, "), "{text}");
    // It would be a part of the memory compared with all of it.
    assert!(!text.contains("the profile covers"), "{text}");
    let json = serde_json::to_value(&summary).expect("JSON");
    assert_eq!(json["selection"]["at"], "peak");
    assert!(json["selection"]["since_nanos"].is_u64());
    assert!(json["selection"].get("until_nanos").is_none());
    let json = serde_json::to_value(&all).expect("JSON");
    assert_eq!(json["selection"], serde_json::json!({ "at": "end" }));
}

#[test]
fn a_peak_of_rss_from_before_is_not_one_of_the_range() {
    let whole = profile(500, 3);
    let reading = |tenth: u64, rss, peak_rss| Memory {
        time: Nanos(whole.end.0 / 10 * tenth),
        rss: Some(rss),
        peak_rss: Some(peak_rss),
        ..Memory::default()
    };
    let mut whole = whole.clone();
    whole.memory = vec![
        reading(1, 100, 900),
        reading(4, 200, 900),
        reading(6, 300, 900),
        reading(8, 400, 1000),
    ];
    whole.processes[0].memory = whole.memory.clone();
    let peak = |since: u64, until: u64| {
        let time = |tenth| Some(Nanos(whole.end.0 / 10 * tenth));
        let left = applied(&whole, &range(time(since), time(until)));
        let summary = Summary::of(&left, By::Process);
        let json = serde_json::to_value(&summary).expect("JSON");
        assert_eq!(json["processes"][0]["peak_rss"], json["peak_rss"]);
        summary.peak_rss
    };
    assert_eq!(peak(0, 5), Some(900));
    assert_eq!(peak(2, 7), Some(300));
    assert_eq!(peak(2, 9), Some(1000));
}

#[test]
fn what_is_not_there_is_an_error() {
    let profile = profile(500, 1);
    let error = |selection: Selection| {
        let mut profile = profile.clone();
        let error = selection.apply(&mut profile).expect_err("an error");
        assert!(!error.to_string().contains('\n'));
        error
    };
    let after = Nanos(profile.end.0 + 1);
    assert!(matches!(
        error(range(Some(Nanos(5)), Some(Nanos(5)))),
        SelectionError::EmptyRange { .. }
    ));
    assert_eq!(
        error(range(None, Some(Nanos(0)))),
        SelectionError::NothingBefore
    );
    assert!(matches!(
        error(range(Some(after), None)),
        SelectionError::AfterTheEnd {
            option: "--since",
            ..
        }
    ));
    assert!(matches!(
        error(at(At::Time(after))),
        SelectionError::AfterTheEnd { option: "--at", .. }
    ));
    assert!(matches!(
        error(Selection {
            at: Some(At::Time(Nanos(4))),
            ..range(Some(Nanos(5)), None)
        }),
        SelectionError::MomentBeforeRange { .. }
    ));
    let thread = Selection {
        threads: vec!["nobody".to_owned()],
        ..Selection::default()
    };
    assert!(
        error(thread.clone())
            .to_string()
            .contains(&profile.threads[0].name)
    );
    let place = Selection {
        places: vec!["nowhere.py".to_owned()],
        ..Selection::default()
    };
    assert_eq!(
        error(place),
        SelectionError::NoPlace("nowhere.py".to_owned())
    );
    let mut none = made(Synthetic {
        samples: 0,
        ..Synthetic::default()
    });
    none.threads.clear();
    let nobody = thread
        .apply(&mut none.clone())
        .expect_err("nobody is there");
    assert!(nobody.to_string().ends_with("; there are: none"));
    let peak = at(At::Peak).apply(&mut none.clone());
    assert_eq!(peak, Err(SelectionError::NoPeak));
}

#[test]
fn without_the_ends_of_objects_no_moment_is_known() {
    let mut pypy = profile(500, 1);
    for source in &mut pypy.sources {
        source.method = Method::NurseryLimit.name().to_owned();
    }
    let moment = at(At::End).apply(&mut pypy.clone());
    assert_eq!(moment, Err(SelectionError::NoLifetimes));
    let summary = Summary::of(&pypy, By::Function);
    assert!(!summary.knows_what_is_alive());
    assert!(summary.rows.iter().all(|row| row.figures.alive.is_none()));
    let text = summary.render::<Bytes>(120);
    let headings = text.lines().find(|line| line.contains("own bytes"));
    let headings = headings.expect("headings");
    assert!(!headings.contains("alive") && headings.contains("survived"));
}

#[test]
fn an_object_that_died_young_on_pypy_is_temporary() {
    let mut pypy = profile(2000, 4);
    let young = pypy
        .samples
        .iter()
        .filter(|of| of.lifetime == Lifetime::DiedYoung);
    let young = young.count();
    assert!(young > 100);
    // PyPy's profiles have no times of frees.
    let mut without_times = Profile::empty(pypy.meta.clone());
    std::mem::swap(&mut without_times.threads, &mut pypy.threads);
    std::mem::swap(&mut without_times.stacks, &mut pypy.stacks);
    std::mem::swap(&mut without_times.frames, &mut pypy.frames);
    std::mem::swap(&mut without_times.functions, &mut pypy.functions);
    std::mem::swap(&mut without_times.types, &mut pypy.types);
    std::mem::swap(&mut without_times.collections, &mut pypy.collections);
    for mut sample in pypy.samples.iter() {
        sample.freed = None;
        if sample.lifetime != Lifetime::DiedYoung {
            sample.lifetime = Lifetime::Survived;
        }
        without_times.samples.push(sample);
    }
    let selection = Selection {
        temporary: Some(u64::MAX),
        ..Selection::default()
    };
    selection.apply(&mut without_times).expect("it can be made");
    let kept = without_times.samples.len();
    let last = without_times
        .samples
        .iter()
        .all(|of| of.lifetime == Lifetime::DiedYoung);
    assert!(
        last && kept > young / 2 && kept <= young,
        "{kept} of {young}"
    );
}
