//! What takes the time, as far as there are time samples.

use super::places::{self, By, is_clear};
use super::{Answer, Facts, Topic, weight};
use crate::leaks::name;
use crate::text;
use crate::time::{self, Clock};

pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let clock = Clock::of(facts.profile);
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
    let of = match clock.hz {
        Some(_) => format!("the {} of CPU time", clock.figure(clock.whole())),
        None => format!("{} time samples", clock.figure(clock.whole())),
    };
    answer.say(format!(
        "Of {of}, {} were spent in {} itself, {}{most}.",
        clock.show(&first.figure, true),
        name(&place),
        text::percent(share.min(1.0)),
    ));
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
