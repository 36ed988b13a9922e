//! Whether the profile is whole, and whether there are more processes.

use super::{Answer, Facts, Topic, weight};
use crate::estimate::Estimate;
use crate::text::{self, Cut};

/// What is missing in the profile.
pub(super) fn incomplete(facts: &Facts<'_>) -> Option<Answer> {
    let profile = facts.profile;
    let mut answer = facts.answer(Topic::Incomplete, weight::STATE, &["summary"]);
    let number = profile.processes.len();
    if !profile.complete {
        let broken = profile.processes.iter().filter(|process| !process.complete);
        answer.say(if number > 1 {
            format!(
                "{} of the {number} processes' profiles break off: they were killed, or still run.",
                broken.count()
            )
        } else {
            "The profile breaks off: the program was killed, or still runs.".to_owned()
        });
    }
    if let Some(damage) = profile.damage.first() {
        let what = text::fit(damage.what.trim_end_matches('.'), 100, Cut::End);
        answer.say(format!(
            "The file is damaged at byte {}: {what}. The answers are about what could be read.",
            damage.offset
        ));
    }
    let lost = profile.lost.iter().map(|(_, count)| *count);
    let lost = lost.fold(0_u64, u64::saturating_add);
    if lost > 0 {
        answer.say(format!(
            "{} events were lost: figures are too low, and objects may seem to live that were freed.",
            text::grouped(lost)
        ));
        answer.figure("lost", Estimate::exact(lost as f64));
    }
    (!answer.sentences.is_empty()).then_some(answer)
}

/// Profiles of other processes that are not read.
pub(super) fn family(facts: &Facts<'_>) -> Option<Answer> {
    let more = facts.asked.more_processes;
    if more == 0 {
        return None;
    }
    let mut answer = facts.answer(Topic::Family, weight::STATE, &["explain", "--all"]);
    answer.say(format!(
        "This is one process of the program; {more} more {} beside it, and not in these answers.",
        if more == 1 {
            "profile is"
        } else {
            "profiles are"
        }
    ));
    answer.figure("profiles", Estimate::exact(more as f64));
    Some(answer)
}
