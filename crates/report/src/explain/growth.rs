//! What grows, by the verdicts of [`crate::leaks`].

use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::Estimate;
use crate::holders::HeldBy;
use crate::leaks::{Finding, LeakPlace, Leaks, Repeats, Report, Verdict, name};
use crate::text;

/// Findings that have a sentence each.
const FINDINGS: usize = 2;

/// With fewer samples, that nothing leaks says nothing.
const FEWEST_SAMPLES: u64 = 100;

pub(super) fn answers(facts: &Facts<'_>, leaks: &Leaks) -> Vec<Answer> {
    let several = leaks.profiles.len() > 1;
    let mut answers = Vec::new();
    answers.extend(leak(facts, leaks, several));
    answers.extend(heap(facts, leaks, several));
    if answers.is_empty() {
        let answer = no_verdict(facts, leaks, several)
            .or_else(|| may_leak(facts, leaks, several))
            .or_else(|| no_leak(facts, leaks));
        answers.extend(answer);
    }
    answers
}

fn command(facts: &Facts<'_>) -> &'static [&'static str] {
    if facts.asked.repeated {
        &["leaks", "--repeated"]
    } else {
        &["leaks"]
    }
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
    // A leak of several processes is one.
    let first = leaks.findings.first()?;
    let mut answer = facts.answer(Topic::Leak, weight::LEAK, command(facts));
    for together in leaks.findings.iter().take(FINDINGS) {
        let pid = together.processes.first();
        let report = leaks
            .profiles
            .iter()
            .find(|report| Some(&report.pid) == pid);
        let finding = report.and_then(|report| {
            report
                .findings
                .iter()
                .find(|one| one.place == together.place)
        });
        let (Some(report), Some(finding)) = (report, finding) else {
            continue;
        };
        let number = together.processes.len();
        let (processes, all, it) = if number > 1 {
            let numbers = together.numbers();
            (
                format!("In {number} processes ({numbers}), "),
                " together",
                "They",
            )
        } else {
            (of_process(report, several), "", "It")
        };
        let verb = match (finding.freed_at_end, number > 1) {
            (true, _) => "held",
            (false, true) => "hold",
            (false, false) => "holds",
        };
        let until = if finding.freed_at_end {
            " until the program's end"
        } else {
            ""
        };
        let growth = match &together.per_minute {
            Some(growth) => format!("+{} a minute", of_bytes(growth)),
            None => format!(
                "+{} in {}",
                of_bytes(&together.grown),
                text::duration(finding.grown_nanos)
            ),
        };
        let place = name(&finding.place);
        let accused = !finding.may_be_of_others();
        let something = if processes.is_empty() {
            "Something"
        } else {
            "something"
        };
        answer.say(if accused {
            format!(
                "{processes}{place} accumulates {growth}{all}, with no sign of levelling off."
            )
        } else {
            format!(
                "{processes}{something} accumulates {growth}{all}, with no sign of levelling off, in blocks that were made for \
                 objects of {place}. Those objects die; CPython uses their blocks again, for what another line keeps."
            )
        });
        answer.places.push(finding.place.clone());
        if !accused && let Some(keeper) = keeper(report, finding) {
            answer.say(format!("It may be {}, whose objects stay.", name(keeper)));
            answer.places.push(keeper.clone());
        }
        answer.say(format!(
            "{it} {verb} {}{until}: {} of every MiB that the program allocates.",
            of_bytes(&together.held),
            text::bytes(finding.per_mib),
        ));
        if let Some(held) = &finding.held_by {
            answer.say(sentence(held));
        }
    }
    if leaks.findings.len() > FINDINGS {
        answer.say(format!(
            "{} more accumulate.",
            leaks.findings.len() - FINDINGS
        ));
    }
    answer.figure("findings", Estimate::exact(leaks.findings.len() as f64));
    if let Some(per_minute) = first.per_minute {
        answer.figure("per_minute", per_minute);
    }
    answer.figure("grown", first.grown);
    answer.figure("held", first.held);
    Some(answer)
}

/// Who holds a finding: `It is held by registry._entries, dict of 4,000 Session.`
fn sentence(held: &HeldBy) -> String {
    let line = held.line();
    match line.starts_with("held by") {
        true => format!("It is {line}."),
        false => format!("Of it, {line}."),
    }
}

/// The line that holds most, of the lines that may keep the objects in such a finding's blocks.
fn keeper<'a>(report: &'a Report, finding: &Finding) -> Option<&'a LeakPlace> {
    let undecided = report.undecided.iter();
    let undecided = undecided.filter(|one| one.may_keep_blocks_of(finding));
    let undecided = undecided.map(|one| (&one.place, one.held.estimate));
    // A line that takes all its objects' blocks from CPython's stock has few samples of its own.
    let few = report.others.iter();
    let few = few.filter(|one| {
        one.verdict == Verdict::TooFew && one.place.of_function() != finding.place.of_function()
    });
    let few = few.map(|one| (&one.place, one.held.estimate));
    let largest = undecided
        .chain(few)
        .max_by(|one, other| one.1.total_cmp(&other.1));
    largest.map(|(place, _)| place)
}

/// PyPy: whether the heap as a whole grows.
fn heap(facts: &Facts<'_>, leaks: &Leaks, several: bool) -> Option<Answer> {
    let growing = leaks.profiles.iter().filter_map(|report| {
        let heap = report.heap.as_ref();
        let repeats = report.repeats == Repeats::Rounds;
        Some((
            report,
            heap.filter(|heap| heap.grows == Some(true) && repeats)?,
        ))
    });
    let (report, heap) = growing.max_by(|one, other| {
        let (one, other) = (one.1.bytes_per_minute, other.1.bytes_per_minute);
        one.total_cmp(&other)
    })?;
    let (first, last) = (
        heap.after_collections.first()?,
        heap.after_collections.last()?,
    );
    let mut answer = facts.answer(Topic::Leak, weight::LEAK, command(facts));
    answer.say(format!(
        "{}the heap grows from one major collection to the next, from {} to {}: {}.",
        of_process(report, several),
        text::bytes(first.1 as f64),
        text::bytes(last.1 as f64),
        heap.growth()
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

/// No process was seen to repeat its work, so nothing is called a leak.
fn no_verdict(facts: &Facts<'_>, leaks: &Leaks, several: bool) -> Option<Answer> {
    let reports = || leaks.profiles.iter();
    if reports().any(|report| report.repeats == Repeats::Rounds) {
        return None;
    }
    // Of several processes, the one that ran longest.
    let longest = reports().max_by_key(|report| report.duration_nanos)?;
    let grew = |report: &&Report| report.repeats != Repeats::TooShort;
    let found = reports().filter(grew).flat_map(|report| {
        let grew = report
            .undecided
            .iter()
            .filter(|one| one.verdict == Verdict::Grew);
        grew.map(move |finding| (report, finding))
    });
    let largest = found.max_by(|one, other| one.1.held.estimate.total_cmp(&other.1.held.estimate));
    let Some((report, finding)) = largest else {
        let mut answer = facts.answer(Topic::NoLeak, weight::NO_LEAK, command(facts));
        answer.say(longest.no_verdict()?);
        return Some(answer);
    };
    let mut answer = facts.answer(Topic::MayLeak, weight::MAY_LEAK, command(facts));
    answer.say(format!(
        "{}{} grew while it ran, by {} in {}: one pass cannot tell a leak from a result that is being built.",
        of_process(report, several),
        name(&finding.place),
        of_bytes(&finding.grown),
        text::duration(finding.grown_nanos)
    ));
    answer.places.push(finding.place.clone());
    answer.figure("grown", finding.grown);
    answer.figure("held", finding.held);
    if let Some(held) = &finding.held_by {
        answer.say(sentence(held));
    }
    Some(answer)
}

fn may_leak(facts: &Facts<'_>, leaks: &Leaks, several: bool) -> Option<Answer> {
    let unsure = |finding: &&Finding| finding.verdict == Verdict::NotEnoughData;
    let found = largest(leaks, |report| {
        report.undecided.iter().filter(unsure).collect()
    });
    let (report, finding) = found.first()?;
    let mut answer = facts.answer(Topic::MayLeak, weight::MAY_LEAK, command(facts));
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
    if let Some(held) = &finding.held_by {
        answer.say(sentence(held));
    }
    answer.places.push(finding.place.clone());
    answer.figure("held", finding.held);
    Some(answer)
}

fn no_leak(facts: &Facts<'_>, leaks: &Leaks) -> Option<Answer> {
    let mut answer = facts.answer(Topic::NoLeak, weight::NO_LEAK, command(facts));
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
    let judged = reports().filter(|report| report.repeats == Repeats::Rounds);
    let report = judged.max_by(|one, other| {
        let rate = |report: &Report| report.unnoticed / report.duration_nanos.max(1) as f64;
        rate(one).total_cmp(&rate(other))
    })?;
    answer.say(format!(
        "No leak was found. One of less than {} may have gone unnoticed; a longer run or a smaller --every finds \
         smaller ones.",
        report.unnoticed()
    ));
    answer.figure("unnoticed", Estimate::exact(report.unnoticed));
    if let Some(bytes) = report.unnoticed_per_minute {
        answer.figure("unnoticed_per_minute", Estimate::exact(bytes));
    }
    Some(answer)
}
