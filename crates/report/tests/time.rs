//! Time samples in summaries and trees, and sentences on allocations where little is known.

use std::collections::{HashMap, HashSet};

use nthbyte_profile::Profile;
use nthbyte_profile::event::{LostKind, Nanos};
use nthbyte_profile::model::Samples;
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_report::summary::Unit;
use nthbyte_report::{By, Bytes, Selection, Summary, Time, Tree};

fn profile() -> Profile {
    Profile::read(&Synthetic::default().bytes()[..]).expect("a profile")
}

/// As a file from VMProf: time samples and nothing else.
fn of_time_only() -> Profile {
    let mut profile = profile();
    profile.samples = Samples::default();
    profile.allocated = None;
    profile
}

#[test]
fn times_are_those_counted_sample_by_sample() {
    let profile = profile();
    assert!(profile.cpu.len() > 200, "{}", profile.cpu.len());
    let hz = profile.time_hz().expect("times are in seconds");
    let mut counted: HashMap<(String, String), (u64, u64)> = HashMap::new();
    for sample in &profile.cpu {
        let label = |frame: &nthbyte_profile::model::Frame| {
            let function = &profile.functions[frame.function as usize];
            (function.name.clone(), function.file.clone())
        };
        let labels: Vec<_> = profile.stack(sample.stack).map(label).collect();
        counted.entry(labels[0].clone()).or_default().0 += 1;
        for label in labels.into_iter().collect::<HashSet<_>>() {
            counted.entry(label).or_default().1 += 1;
        }
    }
    let summary = Summary::of(&profile, By::Function);
    let time = &summary.time;
    assert_eq!(
        (time.samples, time.unit),
        (profile.cpu.len() as u64, Unit::Seconds)
    );
    assert!(
        time.rows
            .is_sorted_by(|one, other| one.samples >= other.samples)
    );
    for row in &time.rows {
        let label = (row.name.clone(), row.file.clone());
        let (own, total) = counted.remove(&label).expect("a row of the profile");
        assert_eq!(
            (row.samples, row.figures.total_samples),
            (own, total),
            "{label:?}"
        );
        assert!((row.figures.self_time.estimate - own as f64 / hz).abs() < 1e-9);
        assert!((row.figures.total_time.estimate - total as f64 / hz).abs() < 1e-9);
        for time in [row.figures.self_time, row.figures.total_time] {
            assert!(time.low <= time.estimate && time.estimate <= time.high);
            assert!(time.low < time.high);
        }
    }
    assert!(counted.is_empty(), "{counted:?} are missing");
    let share: f64 = time.rows.iter().map(|row| row.figures.share).sum();
    assert!((share - 1.0).abs() < 1e-9);
}

#[test]
fn bytes_and_time_are_shown_if_both_were_sampled() {
    let profile = profile();
    let summary = Summary::of(&profile, By::Function);
    assert!(!summary.is_of_time_only());
    let allocations = summary.render::<Bytes>(100);
    assert!(allocations.contains("own bytes"), "{allocations}");
    assert!(allocations.contains("time samples, 100 a second (--time"));
    let time = summary.render::<Time>(200);
    assert!(time.contains("own time") && !time.contains("allocated"));
    // The heaviest function has its line, with its time.
    let mut table = time.lines().skip_while(|line| !line.contains("own time"));
    let first = table.nth(1).expect("a row");
    assert!(first.contains(&summary.time.rows[0].name), "{first}");
    assert!(Summary::of(&profile, By::Type).time.rows.is_empty());
}

#[test]
fn a_profile_of_time_only_has_no_bytes_to_show() {
    let mut profile = of_time_only();
    let summary = Summary::of(&profile, By::Line);
    assert!(summary.is_of_time_only());
    assert!(summary.rows.is_empty() && !summary.time.rows.is_empty());
    let tree = Tree::<Time>::of(&profile, 30).render(100);
    let (first, second) = tree.split_once('\n').expect("several lines");
    assert!(first.contains("100 %") && first.contains("the whole program"));
    assert!(!tree.contains(" B "), "{tree}");
    let heaviest = Summary::of(&profile, By::Function).time.rows;
    let heaviest = heaviest.iter().max_by_key(|row| row.figures.total_samples);
    assert!(second.contains(&heaviest.expect("a row").name), "{tree}");
    // Where the rate is not known, figures are numbers of samples.
    profile.samplings[1].period = 0;
    let summary = Summary::of(&profile, By::File);
    assert_eq!(summary.time.unit, Unit::Samples);
    assert_eq!(summary.time.whole, profile.cpu.len() as f64);
    let shown = summary.render::<Time>(100);
    assert!(!shown.contains("a second"), "{shown}");
}

#[test]
fn a_selected_time_is_said_to_have_run() {
    let mut profile = profile();
    profile.lost = vec![(LostKind::CpuSamples, 7)];
    let until = Selection {
        until: Some(Nanos(profile.end.0 / 2)),
        ..Selection::default()
    };
    let selected = until.narrow(&mut profile).expect("it can be made");
    let summary = Summary::of_selected(&profile, By::Function, selected);
    let shown = summary.render::<Time>(100);
    assert!(shown.contains("\nonly what ran until "), "{shown}");
    let all = profile.cpu.len() + 7;
    let lost =
        format!("! 7 time samples were lost, of {all}: all times are too short by that part\n");
    assert!(shown.contains(&lost), "{shown}");
}

#[test]
fn a_part_without_time_samples_has_no_table_and_no_legend() {
    let mut profile = profile();
    profile.cpu.clear();
    let text = Summary::of(&profile, By::Function).render::<Time>(100);
    assert!(text.contains("\n0 time samples"), "{text}");
    assert!(
        !text.contains("own time") && !text.contains("Intervals"),
        "{text}"
    );
}

#[test]
fn lost_time_samples_do_not_count_as_lost_allocations() {
    let mut profile = profile();
    profile.lost = vec![(LostKind::CpuSamples, 7)];
    let summary = Summary::of(&profile, By::Function);
    assert_eq!((summary.lost_other, summary.time.lost), (7, 7));
    assert!(!summary.render::<Bytes>(100).contains("lost"));
    assert!(
        summary
            .render::<Time>(100)
            .contains("7 time samples were lost")
    );
}

#[test]
fn the_allocations_of_a_killed_program_are_estimated() {
    let mut profile = profile();
    profile.complete = false;
    profile.allocated = None;
    let summary = Summary::of(&profile, By::Function);
    assert!(!summary.bytes_counted);
    assert_eq!(summary.bytes_allocated, summary.all.bytes.estimate as u64);
    assert!(!summary.render::<Bytes>(100).contains("\n0 B"));
}

#[test]
fn a_time_sample_stands_for_the_period_that_was_in_force() {
    use nthbyte_profile::model::{Sampling, SamplingId};
    let mut profile = profile();
    let changed = SamplingId(profile.samplings.len() as u32);
    profile.samplings.push(Sampling {
        period: 1_000_000,
        ..profile.samplings[1]
    });
    let middle = profile.cpu.len() / 2;
    for sample in &mut profile.cpu[middle..] {
        sample.sampling = changed;
    }
    let expected = |at: usize| if at < middle { 0.01 } else { 0.001 };
    let whole: f64 = (0..profile.cpu.len()).map(expected).sum();
    let summary = Summary::of(&profile, By::Function);
    assert!((summary.time.whole - whole).abs() < 1e-9);
    let rows: f64 = summary
        .time
        .rows
        .iter()
        .map(|row| row.figures.self_time.estimate)
        .sum();
    assert!((rows - whole).abs() < 1e-9);
    // Most samples stand for little, so the intervals are wider than their number says.
    let equal = Summary::of(&self::profile(), By::Function);
    let width = |summary: &Summary| {
        let row = &summary.time.rows[0];
        (row.figures.self_time.high - row.figures.self_time.low) / summary.time.whole
    };
    assert!(width(&summary) > 1.1 * width(&equal));
}
