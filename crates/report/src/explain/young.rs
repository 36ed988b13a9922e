//! What dies young in large numbers, and from which line.

use nthbyte_profile::event::SampleId;
use nthbyte_profile::model::Lifetime;

use super::places::{self, By, is_clear, types_text};
use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::Totals;
use crate::fold;
use crate::leaks::name;
use crate::youth;

/// From this share on, it is one of the first answers.
const MOST: f64 = 0.5;

/// Below this share it is no answer.
const LEAST: f64 = 0.05;

pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let aggregate = &facts.aggregate;
    let samples = &facts.profile.samples;
    let places = &facts.places;
    let is_young = |id: SampleId| samples.lifetime(id) == Lifetime::DiedYoung;
    let stacks = places.sums(|id| is_young(id).then(|| places.totals(id)));
    let mut young = Totals::default();
    stacks.iter().for_each(|(_, sum)| young.add(sum));
    let bytes = aggregate.estimator.bytes(&young);
    let share = bytes.estimate / facts.estimate.max(1.0);
    if young.samples == 0 || share < LEAST {
        return None;
    }
    let few = youth::few_collections(facts.profile);
    let weight = if share >= MOST && few.is_none() {
        weight::MOST_DIES_YOUNG
    } else {
        weight::SOME_DIES_YOUNG
    };
    let mut answer = facts.answer(Topic::Young, weight, &["summary", "--by", "line"]);
    let objects = aggregate.estimator.allocations(&young);
    answer.figure("bytes", bytes);
    answer.figure("objects", objects);
    let lines = facts.places.group(&stacks, By::Line).into_iter();
    let mut lines =
        places::ranked(lines.map(|(key, sum)| (key, aggregate.estimator.allocations(&sum))));
    let clear = is_clear(&lines);
    // A single sample of a small object stands for very many objects: what is certain of a line decides.
    lines.sort_by(|one, other| other.figure.low.total_cmp(&one.figure.low));
    let first = lines.first()?;
    let at = places.at(first.key, By::Line);
    let here = |id: SampleId| {
        let is_here = is_young(id) && at[samples.site_id(id).index()];
        is_here.then(|| places.totals(id))
    };
    let place = facts.places.place(first.key);
    let most = if clear {
        "most from"
    } else {
        "among the places that make most of them is"
    };
    let dies = match few {
        None => "dies young",
        Some(_) => "is freed before the next garbage collection",
    };
    answer.say(format!(
        "{} of what is allocated {dies}: {}, {} objects; {most} {}.",
        facts.share(bytes.estimate),
        of_bytes(&bytes),
        facts.count(&objects),
        name(&place)
    ));
    let types = types_text(&facts.places.types(here));
    let subject = fold::stands_for(&place.file).unwrap_or("That line");
    answer.say(format!(
        "{subject} makes {} of them: {types}.",
        facts.count(&first.figure)
    ));
    if let Some(few) = few {
        answer.say(format!(
            "{}: these objects may live long.",
            youth::how_few(few)
        ));
    }
    answer.places.push(place);
    answer.figure("line_objects", first.figure);
    Some(answer)
}
