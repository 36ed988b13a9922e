//! What grows, by the verdicts of [`crate::leaks`].

use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::Estimate;
use crate::leaks::{Finding, Leaks, Report, Verdict, name};
use crate::text;

/// Findings that have a sentence each.
const FINDINGS: usize = 2;

/// With fewer samples, that nothing leaks says nothing.
const FEWEST_SAMPLES: u64 = 100;

pub(super) fn answers(facts: &Facts<'_>) -> Vec<Answer> {
    let leaks = Leaks::of_one("", facts.profile);
    let several = leaks.profiles.len() > 1;
    let mut answers = Vec::new();
    answers.extend(leak(facts, &leaks, several));
    answers.extend(heap(facts, &leaks, several));
    if answers.is_empty() {
        answers.extend(may_leak(facts, &leaks, several).or_else(|| no_leak(facts, &leaks)));
    }
    answers
}

/// `In process 1235, `, if there are several.
fn of_process(report: &Report, several: bool) -> String {
    if several {
        format!("In process {}, ", report.pid)
    } else {
        String::new()
    }
}

/// All findings, the one that holds most first.
fn largest<'a>(
    leaks: &'a Leaks,
    of: impl Fn(&'a Report) -> Vec<&'a Finding>,
) -> Vec<(&'a Report, &'a Finding)> {
    let reports = leaks.profiles.iter();
    let mut all: Vec<(&Report, &Finding)> = reports
        .flat_map(|report| of(report).into_iter().map(move |finding| (report, finding)))
        .collect();
    all.sort_by(|one, other| other.1.held.estimate.total_cmp(&one.1.held.estimate));
    all
}

fn leak(facts: &Facts<'_>, leaks: &Leaks, several: bool) -> Option<Answer> {
    let found = largest(leaks, |report| report.findings.iter().collect());
    let first = found.first()?;
    let mut answer = facts.answer(Topic::Leak, weight::LEAK, &["leaks"]);
    for (report, finding) in found.iter().take(FINDINGS) {
        let holds = if finding.freed_at_end {
            "it held, until the program's end,"
        } else {
            "it holds"
        };
        answer.say(format!(
            "{}{} accumulates: it keeps {} of every MiB that the program allocates, +{} a minute, with no sign of \
             levelling off; {holds} {}.",
            of_process(report, several),
            name(&finding.place),
            text::bytes(finding.per_mib),
            of_bytes(&finding.per_minute),
            of_bytes(&finding.held),
        ));
        answer.places.push(finding.place.clone());
    }
    if found.len() > FINDINGS {
        answer.say(format!("{} more accumulate.", found.len() - FINDINGS));
    }
    answer.figure("findings", Estimate::exact(found.len() as f64));
    answer.figure("per_minute", first.1.per_minute);
    answer.figure("held", first.1.held);
    Some(answer)
}

/// PyPy: whether the heap as a whole grows.
fn heap(facts: &Facts<'_>, leaks: &Leaks, several: bool) -> Option<Answer> {
    let growing = leaks.profiles.iter().filter_map(|report| {
        let heap = report.heap.as_ref();
        Some((report, heap.filter(|heap| heap.grows == Some(true))?))
    });
    let (report, heap) = growing.max_by(|one, other| {
        let (one, other) = (one.1.bytes_per_minute, other.1.bytes_per_minute);
        one.total_cmp(&other)
    })?;
    let (first, last) = (
        heap.after_collections.first()?,
        heap.after_collections.last()?,
    );
    let mut answer = facts.answer(Topic::Leak, weight::LEAK, &["leaks"]);
    answer.say(format!(
        "{}the heap grows from one major collection to the next, from {} to {}: +{} a minute.",
        of_process(report, several),
        text::bytes(first.1 as f64),
        text::bytes(last.1 as f64),
        text::bytes(heap.bytes_per_minute)
    ));
    if !several {
        let sentence = &mut answer.sentences[0];
        *sentence = format!("T{}", &sentence[1..]);
    }
    answer.figure("per_minute", Estimate::exact(heap.bytes_per_minute));
    answer.figure("held", Estimate::exact(last.1 as f64));
    if let Some(suspect) = report.undecided.first() {
        answer.say(format!(
            "PyPy does not say what is alive. Of the objects that survive, steadily until the end, most are allocated by {}.",
            name(&suspect.place)
        ));
        answer.places.push(suspect.place.clone());
    }
    Some(answer)
}

fn may_leak(facts: &Facts<'_>, leaks: &Leaks, several: bool) -> Option<Answer> {
    let unsure = |finding: &&Finding| finding.verdict == Verdict::NotEnoughData;
    let found = largest(leaks, |report| {
        report.undecided.iter().filter(unsure).collect()
    });
    let (report, finding) = found.first()?;
    let mut answer = facts.answer(Topic::MayLeak, weight::MAY_LEAK, &["leaks"]);
    let more = match finding.more_minutes {
        Some(minutes) => {
            let longer = text::duration((minutes * 60e9) as u64);
            answer.figure("more_minutes", Estimate::exact(minutes));
            format!(" A run that is about {longer} longer would make it certain.")
        }
        None => String::new(),
    };
    answer.say(format!(
        "{}{} may accumulate; there is too little data to be sure: it holds {}.{more}",
        of_process(report, several),
        name(&finding.place),
        of_bytes(&finding.held)
    ));
    answer.places.push(finding.place.clone());
    answer.figure("held", finding.held);
    Some(answer)
}

fn no_leak(facts: &Facts<'_>, leaks: &Leaks) -> Option<Answer> {
    let mut answer = facts.answer(Topic::NoLeak, weight::NO_LEAK, &["leaks"]);
    let enough = |report: &&Report| report.samples >= FEWEST_SAMPLES;
    let reports = || leaks.profiles.iter().filter(enough);
    reports().next()?;
    let on_pypy = reports().any(|report| report.heap.is_some());
    if on_pypy {
        let grows = |report: &Report| report.heap.as_ref().and_then(|heap| heap.grows);
        if reports().any(|report| grows(report) != Some(false)) {
            return None;
        }
        answer.say("The heap does not keep growing.".to_owned());
        return Some(answer);
    }
    let unnoticed = reports().map(|report| report.unnoticed_per_minute);
    let unnoticed = unnoticed.fold(0.0, f64::max);
    answer.say(format!(
        "No leak was found. One of less than {} a minute may have gone unnoticed; a longer run or a smaller --every finds \
         smaller ones.",
        text::bytes(unnoticed)
    ));
    answer.figure("unnoticed_per_minute", Estimate::exact(unnoticed));
    Some(answer)
}
