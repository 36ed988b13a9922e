//! Whether the profile is whole, and whether there are more processes.

use nthbyte_profile::event::LostKind;

use super::{Answer, Facts, Killed, Topic, weight};
use crate::estimate::Estimate;
use crate::text::{self, Cut};

/// Lost time samples are named if they are more than one in this many.
pub(super) const FEW: u64 = 100;

/// Why a process was killed.
pub(super) fn killed(facts: &Facts<'_>, killed: Option<&Killed>) -> Option<Answer> {
    let killed = killed?;
    let mut answer = facts.answer(
        Topic::Killed,
        weight::KILLED,
        &["flamegraph", "--at", "end"],
    );
    for sentence in killed.sentences() {
        answer.say(sentence);
    }
    answer.figure("limit", Estimate::exact(killed.most as f64));
    answer.figure("used", Estimate::exact(killed.used as f64));
    if let Some(rss) = killed.rss {
        answer.figure("rss", Estimate::exact(rss as f64));
    }
    if let Some(growth) = &killed.growth {
        answer.figure("grown", growth.bytes);
        answer.figure("line_bytes", growth.of_place);
        answer.places.push(growth.place.clone());
    }
    Some(answer)
}

/// The gaps in the profile. `killed` is said already.
pub(super) fn incomplete(facts: &Facts<'_>, killed: Option<&Killed>) -> Option<Answer> {
    let profile = facts.profile;
    let mut answer = facts.answer(Topic::Incomplete, weight::STATE, &["summary"]);
    let number = profile.processes.len();
    if !profile.complete && (killed.is_none() || number > 1) {
        let broken = profile.processes.iter().filter(|process| !process.complete);
        answer.say(if number > 1 {
            format!(
                "{} of the {number} profiles are incomplete: their processes were killed, or are still running.",
                broken.count()
            )
        } else {
            "The profile is incomplete: the program was killed, or is still running.".to_owned()
        });
    }
    if let Some(damage) = profile.damage.first() {
        let what = text::fit(damage.what.trim_end_matches('.'), 100, Cut::End);
        answer.say(format!(
            "The file is damaged at byte {}: {what}. The answers are about what could be read.",
            damage.offset
        ));
    }
    if let Some(clause) = profile.before() {
        answer.say(format!("The program ran before: {clause}."));
    }
    for clause in profile.missing() {
        answer.say(format!("Not in these answers: {clause}."));
    }
    let mut total = 0_u64;
    for kind in [LostKind::Allocations, LostKind::Other, LostKind::CpuSamples] {
        let counts = profile.lost.iter().filter(|(of, _)| *of == kind);
        let lost = counts.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let taken = profile.cpu.len() as u64;
        let (noun, effect) = match kind {
            LostKind::Allocations => (
                "sample",
                "those beside them stand for them, and intervals are wider",
            ),
            LostKind::Other => ("event", "freed objects may seem to be alive"),
            // A few time samples among thousands change no answer.
            LostKind::CpuSamples if lost <= taken / FEW => continue,
            LostKind::CpuSamples => ("time sample", "times are too low"),
        };
        if lost > 0 {
            answer.say(format!("{}: {effect}.", text::lost(lost, noun)));
        }
        total = total.saturating_add(lost);
    }
    if total > 0 {
        answer.figure("lost", Estimate::exact(total as f64));
    }
    (!answer.sentences.is_empty()).then_some(answer)
}

/// Profiles of other processes that are not read.
pub(super) fn family(facts: &Facts<'_>) -> Option<Answer> {
    let more = facts.asked.more_processes;
    if more == 0 {
        return None;
    }
    let mut answer = facts.answer(Topic::Family, weight::STATE, &["explain"]);
    answer.more.retain(|word| word != "--alone");
    answer.say(format!(
        "This is one process of the program; {more} more {} beside it, which these answers leave out.",
        if more == 1 {
            "profile is"
        } else {
            "profiles are"
        }
    ));
    answer.figure("profiles", Estimate::exact(more as f64));
    Some(answer)
}
