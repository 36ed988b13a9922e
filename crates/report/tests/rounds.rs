//! Jobs of one pass, containers that grow, blocks that are used again, and how small a leak may have gone unnoticed: on made-up
//! programs whose truth is known.

use crate::service::{MINUTE, Object, churn, even, leak, profile};
use nthbyte_profile::event::{Nanos, ThreadId};
use nthbyte_profile::meta::Meta;
use nthbyte_profile::model::{Profile, Sample};
use nthbyte_profile::synthetic;
use nthbyte_report::explain::{ExplainOptions, Topic};
use nthbyte_report::leaks::{Repeats, Verdict};
use nthbyte_report::{Explanation, Leaks};

/// The block of a container that holds `held` bytes at a moment, and grows by this factor.
fn container(factor: f64, held: impl Fn(f64) -> f64) -> Vec<Object> {
    let mut blocks: Vec<Object> = vec![(0.0, None, 64, 1)];
    for at in even(20_000) {
        let (_, death, size, kind) = blocks.last_mut().unwrap();
        if held(at) > *size as f64 {
            *death = Some(at);
            let block = (at, None, (*size as f64 * factor) as u64 + 16, *kind);
            blocks.push(block);
        }
    }
    blocks
}

fn judge(profile: Profile) -> Leaks {
    Leaks::of(&[("app.nthb".to_owned(), profile)], false)
}

/// The text on one line.
fn words(leaks: &Leaks) -> String {
    let text = leaks.render(100);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn explained(profile: &Profile) -> Explanation {
    let asked = ExplainOptions {
        words: vec!["app.nthb".to_owned()],
        more_processes: 0,
        repeated: false,
    };
    Explanation::of(profile, &asked)
}

#[test]
fn a_job_of_one_pass_is_not_called_a_leak() {
    let service = profile(&[churn(), leak(8 << 20)], MINUTE, 1);
    let mut job = service.clone();
    for (number, reading) in (0..).zip(&mut job.processes[0].activity) {
        // Busy: on a machine that has a processor for it half of the time.
        reading.used = Nanos(MINUTE / 64 * number / 2);
        reading.ready = Nanos(MINUTE / 64 * number * 49 / 100);
    }
    let said = judge(service.clone());
    assert!(said.leaks && said.profiles[0].repeats == Repeats::Rounds);
    let said = judge(job.clone());
    let report = &said.profiles[0];
    assert!(!said.leaks && report.findings.is_empty());
    assert_eq!(
        (report.repeats, report.undecided[0].verdict),
        (Repeats::OnePass, Verdict::Grew)
    );
    assert_eq!(report.undecided[0].place.function, "function_1");
    let text = words(&said);
    assert!(
        text.contains("one pass cannot tell a leak from a result that is being built"),
        "{text}"
    );
    assert!(text.contains("Grew while it ran:"), "{text}");
    // Unless someone who knows says that the work is repeated.
    assert!(Leaks::of(&[("app.nthb".to_owned(), job.clone())], true).leaks);
    let topics = |profile: &Profile| -> Vec<Topic> {
        explained(profile)
            .answers
            .iter()
            .map(|answer| answer.topic)
            .collect()
    };
    assert_eq!(topics(&service)[0], Topic::Leak);
    assert!(topics(&job).contains(&Topic::MayLeak) && !topics(&job).contains(&Topic::Leak));
}

/// It waits for each part of its result, as a service for its requests.
#[test]
fn a_job_that_collects_its_result_is_not_called_a_leak() {
    let collects = |functions: &[Vec<Object>]| {
        let said = judge(profile(functions, MINUTE, 5));
        let report = &said.profiles[0];
        assert_eq!(report.findings.is_empty(), !said.leaks);
        if !said.leaks {
            assert_eq!(report.undecided[0].verdict, Verdict::Grew);
            assert!(words(&said).contains("keeps much of what it allocates"));
        }
        report.repeats == Repeats::Collects
    };
    let parts = |count: u32| -> Vec<Object> {
        even(count)
            .map(|at| (at, Some(at + 1e-5), 2000, 1))
            .collect()
    };
    // Kept: three fifths of all that is allocated, and two fifths.
    assert!(collects(&[parts(8000), leak(24_000_000)]));
    assert!(!collects(&[parts(12_000), leak(16_000_000)]));
    // In one call, as far as is seen: three tenths, and a tenth. Or the function has returned.
    let both = |kept: u64, count: u32| [parts(count), leak(kept)].concat();
    assert!(collects(&[both(12_000_000, 14_000)]));
    assert!(!collects(&[both(8_000_000, 36_000)]));
    assert!(!collects(&[both(12_000_000, 14_000), parts(1000)]));
    // One buffer: the blocks that it has outgrown are not the work of a service.
    let buffer = || container(1.125, |at| 40e6 * at);
    assert!(collects(&[parts(8000), buffer()]));
    assert!(!collects(&[parts(40_000), buffer()]));
}

#[test]
fn a_short_run_has_no_verdict_and_no_rate() {
    for (nanos, is_judged) in [
        (111_000_000, false),
        (19_000_000_000, false),
        (21_000_000_000, true),
    ] {
        let short = profile(&[churn(), leak(16 << 20)], nanos, 2);
        let explanation = explained(&short);
        let said = judge(short);
        assert_eq!(said.leaks, is_judged, "{nanos}");
        let report = &said.profiles[0];
        let found = report
            .findings
            .iter()
            .chain(&report.undecided)
            .next()
            .unwrap();
        assert!(found.per_minute.is_none() && report.unnoticed_per_minute.is_none());
        assert!(found.grown.low < 14.4 * 1_048_576.0 && 14.4 * 1_048_576.0 < found.grown.high);
        assert!(!said.render(100).contains("a minute"));
        let sentences = explanation
            .answers
            .iter()
            .flat_map(|answer| &answer.sentences);
        assert!(
            sentences
                .clone()
                .all(|sentence| !sentence.contains("a minute"))
        );
        let needs = sentences
            .filter(|sentence| sentence.contains("it needs 20.0 s of a program"))
            .count();
        assert_eq!(needs, usize::from(!is_judged));
    }
}

#[test]
fn a_container_that_grows_is_a_leak_and_a_full_one_is_none() {
    const SIZE: f64 = 6.0 * 1_048_576.0;
    for seed in 0..20 {
        for factor in [1.0625, 1.125, 2.0] {
            let growing = container(factor, |at| SIZE * at);
            let said = judge(profile(&[churn(), growing], MINUTE, seed));
            let report = &said.profiles[0];
            assert!(said.leaks, "{factor} {seed}: {:?}", report.others);
            let finding = &report.findings[0];
            assert_eq!(finding.place.function, "function_1");
            assert!(finding.container.is_some());
            let growth = finding.per_minute.unwrap();
            assert!(
                growth.low < SIZE && SIZE < growth.high,
                "{factor} {seed}: {growth:?}"
            );
            for full in [
                container(factor, |at| SIZE * at.min(0.4)),
                container(factor, |at| SIZE * (1.0 - (-8.0 * at).exp())),
            ] {
                let said = judge(profile(&[churn(), full], MINUTE, seed));
                assert!(!said.leaks, "{factor} {seed}");
            }
        }
    }
}

/// A buffer that is filled and dropped, again and again, has a chain of blocks too.
#[test]
fn a_buffer_that_is_filled_anew_is_no_leak() {
    for seed in 0..20 {
        let mut blocks = Vec::new();
        for round in even(40) {
            let filled = container(1.125, |at| 3e6 * at);
            let at = |moment: f64| round - 0.0125 + moment / 40.0;
            blocks.extend(filled.iter().map(|&(birth, death, size, kind)| {
                let death = at(death.unwrap_or(1.0));
                (at(birth), (death < 0.999).then_some(death), size, kind)
            }));
        }
        assert!(
            !judge(profile(&[churn(), blocks], MINUTE, seed)).leaks,
            "{seed}"
        );
    }
}

/// Dictionaries of a line that drops them are used again by one that keeps them: half of its growth seems to be there.
#[test]
fn what_changed_hands_is_counted_where_it_is_kept() {
    let mib = 1_048_576.0;
    let mut within = 0;
    for seed in 0..40 {
        let kept: Vec<Object> = even(15_000).map(|at| (at, None, 232, 2)).collect();
        let mut dropped: Vec<Object> = even(15_000).map(|at| (at, None, 232, 2)).collect();
        dropped.extend(even(400_000).map(|at| (at, Some((at + 0.003).min(1.0)), 232, 2)));
        let said = judge(profile(&[churn(), kept, dropped], MINUTE, seed));
        let report = &said.profiles[0];
        let named: Vec<&str> = report
            .findings
            .iter()
            .map(|finding| &finding.place.function[..])
            .collect();
        assert_eq!(named, ["function_1"], "{seed}");
        assert_eq!(
            report.findings[0].taken_over[0].place.function,
            "function_2"
        );
        let (growth, truth) = (report.findings[0].grown, 0.9 * 30_000.0 * 232.0);
        within += u32::from(growth.low <= truth && truth <= growth.high);
        assert!((growth.estimate - truth).abs() < 2.5 * mib, "{growth:?}");
        assert!(words(&said).contains("CPython uses such blocks again"));
    }
    assert!(within >= 36, "{within} of 40");
}

#[test]
fn a_leak_that_goes_unnoticed_is_below_the_bound() {
    let (mut missed, mut beyond, mut found) = (0, 0, 0);
    for kib in [200, 400, 700, 1000, 1500, 2500, 4000] {
        for seed in 0..40 {
            // Beside a cache that is full, in the same function, or alone.
            let mut objects = leak(kib << 10);
            if seed % 2 == 1 {
                objects.extend(even(4000).map(|at| (at, (at < 0.8).then_some(at + 0.2), 2000, 1)));
            }
            let said = judge(profile(&[churn(), objects], MINUTE, seed * 7 + kib));
            let report = &said.profiles[0];
            if report.findings.is_empty() {
                missed += 1;
                beyond += u32::from(report.unnoticed_per_minute.unwrap() < (kib << 10) as f64);
            } else {
                found += 1;
            }
        }
    }
    assert!(missed > 60 && found > 60, "{missed} {found}");
    assert!(beyond * 20 <= missed, "{beyond} of {missed}");
}

#[test]
fn the_interval_of_the_growth_holds() {
    let (mut held, mut all) = (0, 0);
    for seed in 0..300 {
        let said = judge(profile(&[churn(), leak(6 << 20)], MINUTE, seed));
        for finding in &said.profiles[0].findings {
            let growth = finding.per_minute.unwrap();
            all += 1;
            held += u32::from(growth.low <= 6.0 * 1_048_576.0 && 6.0 * 1_048_576.0 <= growth.high);
        }
    }
    assert!(all >= 290 && held * 100 >= all * 93, "{held} of {all}");
}

#[test]
fn workers_that_leak_at_one_line_have_one_leak() {
    let mut family = profile(&[churn(), leak(8 << 20)], MINUTE, 3);
    let samples: Vec<Sample> = family.samples.iter().collect();
    family.samples = nthbyte_profile::model::Samples::default();
    let mut number = 0;
    for sample in samples {
        number += 1;
        family.samples.push(Sample {
            thread: ThreadId(number % 3),
            ..sample
        });
    }
    family.threads = vec![nthbyte_profile::model::ThreadNames::default(); 3];
    family.thread_processes = (0..3).map(nthbyte_profile::model::ProcessId).collect();
    family.processes = (0..3)
        .map(|number| {
            let meta = Meta {
                pid: 10 + number,
                ..family.meta.clone()
            };
            let mut process = nthbyte_profile::model::Process::new(meta, Nanos(0));
            (process.end, process.complete) = (family.end, true);
            process
        })
        .collect();
    synthetic::wait_between_rounds(&mut family);
    let said = Leaks::of_one("app.nthb", &family, false);
    assert_eq!(said.findings.len(), 1);
    let mut processes = said.findings[0].processes.clone();
    processes.sort_unstable();
    assert_eq!(processes, [10, 11, 12]);
    let growth = said.findings[0].per_minute.unwrap();
    assert!(
        growth.low < 8.0 * 1_048_576.0 && 8.0 * 1_048_576.0 < growth.high,
        "{growth:?}"
    );
    let explanation = explained(&family);
    let leak = explanation
        .answers
        .iter()
        .find(|answer| answer.topic == Topic::Leak)
        .unwrap();
    assert!(
        leak.sentences[0].starts_with("In 3 processes ("),
        "{leak:?}"
    );
    assert_eq!(leak.places.len(), 1);
    let text = said.render(100);
    assert!(text.starts_with("One leak in 3 of 3 processes"), "{text}");
    assert_eq!(
        text.matches("no sign of levelling off").count(),
        1,
        "{text}"
    );
}
