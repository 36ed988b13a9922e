//! What takes the time, as far as there are time samples.

use nthbyte_profile::Profile;
use nthbyte_profile::event::LostKind;

use super::places::{self, By, is_clear};
use super::state::FEW;
use super::{Answer, Facts, Topic, weight};
use crate::estimate::Estimate;
use crate::leaks::name;
use crate::text;
use crate::time::{self, Time};

pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let clock = Time::new(facts.profile);
    if clock.samples == 0 {
        return None;
    }
    let stacks = time::stacks(facts.profile);
    let functions = facts.places.group(&stacks, By::Function).into_iter();
    let functions = places::ranked(functions.map(|(key, sum)| (key, clock.time(sum.time))));
    let first = functions.first()?;
    let mut answer = facts.answer(Topic::Time, weight::TIME, &["summary", "--time"]);
    let place = facts.places.place(first.key);
    let most = if is_clear(&functions) && functions.len() > 1 {
        ", more than in any other function"
    } else {
        ""
    };
    let share = first.figure.estimate / clock.whole().max(f64::MIN_POSITIVE);
    let unseen = unseen(facts.profile, clock.samples);
    let seen = match unseen {
        Some(_) => " that were seen",
        None => "",
    };
    let of = match clock.hz {
        Some(_) => format!("the {} of CPU time{seen}", clock.shown_alone(clock.whole())),
        None => format!("{} time samples{seen}", clock.shown_alone(clock.whole())),
    };
    answer.say(format!(
        "Of {of}, {} were spent in {} itself, {}{most}.",
        clock.show(&first.figure, true),
        name(&place),
        text::percent(share.min(1.0)),
    ));
    if let Some(unseen) = unseen {
        answer.say(format!(
            "{} of the time was not seen, for example while signals were blocked: shares are of what was.",
            text::percent(unseen),
        ));
        answer.figure("unseen", Estimate::exact(unseen));
    }
    answer.places.push(place);
    answer.figure(
        if clock.hz.is_some() {
            "seconds"
        } else {
            "time_samples"
        },
        first.figure,
    );
    Some(answer)
}

/// The part of the time samples that were lost; `None` if it is too small to change the answer.
fn unseen(profile: &Profile, samples: u64) -> Option<f64> {
    let lost = profile.lost.iter();
    let lost = lost.filter(|(kind, _)| *kind == LostKind::CpuSamples);
    let lost = lost.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    (lost > samples / FEW).then(|| lost as f64 / (lost as f64 + samples as f64))
}
