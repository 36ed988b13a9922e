//! Who allocates, how much of it dies young, and which process allocates most.

use nthbyte_profile::event::{FrameKind, NodeId, SampleId};
use nthbyte_profile::model::Lifetime;

use super::places::{self, By, Ranked, is_clear, types_text};
use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::{Estimate, Totals};
use crate::fold;
use crate::leaks::name;
use crate::text;
use crate::youth;

/// Below this share of all bytes, what dies young is not worth a sentence.
const LEAST_YOUNG: f64 = 0.05;

/// The line of the program's own code that leads to most; the line that allocates most itself, if that is another one;
/// what dies young.
pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let mut answer = facts.answer(Topic::Churn, weight::CHURN, &["summary", "--by", "line"]);
    let own = largest(facts, By::OwnLine);
    let lines = largest(facts, By::Line);
    let (first, itself) = (own.first()?, lines.first()?);
    let (place, innermost) = (
        facts.places.place(first.key),
        facts.places.place(itself.key),
    );
    let is_one = place == innermost;
    let noun = places::noun(first.key);
    let does = if is_one { "allocates" } else { "leads to" };
    answer.say(format!(
        "{} {does} {}, {} of all bytes{}.",
        name(&place),
        of_bytes(&first.figure),
        facts.share(first.figure.estimate),
        rank(&own, noun, !is_one)
    ));
    answer.figure("bytes", first.figure);
    answer.places.push(place);
    if !is_one {
        answer.say(format!(
            "The innermost {noun} with most{} is {}: {}, {}.",
            if is_clear(&lines) {
                ""
            } else {
                ", among others,"
            },
            name(&innermost),
            of_bytes(&itself.figure),
            facts.share(itself.figure.estimate)
        ));
        answer.places.push(innermost);
        answer.figure("line_bytes", itself.figure);
    }
    young(facts, &mut answer);
    if let Some(sentence) = native_code(facts, itself) {
        answer.say(sentence);
    }
    answer.say_next(facts, &own, facts.estimate, of_bytes);
    Some(answer)
}

/// A sentence about the first of these: `, more than any other line`. `is_own`: they are of the program's own code.
fn rank(all: &[Ranked], noun: &str, is_own: bool) -> String {
    let of_your_code = if is_own { " of your code" } else { "" };
    match all.len() {
        1 => String::new(),
        _ if is_clear(all) => format!(", more than any other {noun}{of_your_code}"),
        _ => ", about as much as the next ones".to_owned(),
    }
}

/// Places by their own bytes.
pub(super) fn largest(facts: &Facts<'_>, by: By) -> Vec<Ranked> {
    let aggregate = &facts.aggregate;
    let stacks = aggregate.stacks.iter();
    let stacks = stacks.map(|(node, by_lifetime)| (node, by_lifetime.all));
    let all = facts.places.group_each(stacks, by).into_iter();
    places::ranked(all.map(|(key, sum)| (key, aggregate.estimator.bytes(&sum))))
}

/// What dies young in large numbers, and the line that makes most of these objects.
fn young(facts: &Facts<'_>, answer: &mut Answer) {
    let aggregate = &facts.aggregate;
    let samples = &facts.profile.samples;
    let places = &facts.places;
    let is_young = |id: SampleId| samples.lifetime(id) == Lifetime::DiedYoung;
    let stacks = places.sums(|id| is_young(id).then(|| places.totals(id)));
    let mut young = Totals::default();
    stacks.iter().for_each(|(_, sum)| young.add(sum));
    let bytes = aggregate.estimator.bytes(&young);
    let share = bytes.estimate / facts.estimate.max(1.0);
    if young.samples == 0 || share < LEAST_YOUNG {
        return;
    }
    let few = youth::few_collections(facts.profile);
    if few == Some(0) {
        // Nothing is known of what would have died before one.
        return;
    }
    let objects = aggregate.estimator.allocations(&young);
    answer.figure("young_bytes", bytes);
    answer.figure("young_objects", objects);
    let lines = facts.places.group(&stacks, By::Line).into_iter();
    let mut lines =
        places::ranked(lines.map(|(key, sum)| (key, aggregate.estimator.allocations(&sum))));
    let clear = is_clear(&lines);
    // A single sample of a small object stands for very many objects: the certain part of a line decides.
    lines.sort_by(|one, other| other.figure.low.total_cmp(&one.figure.low));
    let Some(first) = lines.first() else {
        return;
    };
    let at = places.at(first.key, By::Line);
    let here = |id: SampleId| {
        let is_here = is_young(id) && at[samples.site_id(id).index()];
        is_here.then(|| places.totals(id))
    };
    let place = facts.places.place(first.key);
    let there = match answer.places.last() == Some(&place) {
        true => format!("That {}", places::noun(first.key)),
        false => name(&place),
    };
    let dies = match few {
        None => "die young",
        Some(_) => "are freed before the next garbage collection",
    };
    answer.say(format!(
        "{} of all bytes {dies}: {} objects.",
        facts.share(bytes.estimate),
        facts.count(&objects),
    ));
    let types = types_text(&facts.places.types(here));
    let than = match clear {
        true => format!(", more than any other {}", places::noun(first.key)),
        false => String::new(),
    };
    answer.say(format!(
        "{there} makes {} of them{than}; of their bytes, {types}.",
        facts.count(&first.figure)
    ));
    if let Some(few) = few {
        answer.say(format!(
            "{}: these objects may live long.",
            youth::how_few(few)
        ));
    }
    answer.places.push(place);
    answer.figure("young_line_objects", first.figure);
}

/// From this share of all bytes on, a line may be a whole program of native code.
const MOST: f64 = 0.5;
/// So many types are made by no single line of Python, nor by a parser of JSON.
const MANY_TYPES: usize = 12;
/// What a type must have of the line's bytes, to count.
const WORTH_COUNTING: f64 = 0.002;
/// From this share of all bytes on, what compiled modules make while they are imported is worth a sentence.
const MUCH: f64 = 0.2;
/// The function of the machinery of imports that calls the functions which make and begin a compiled module.
const BEGINS_MODULES: &str = "_call_with_frames_removed";

/// What native code makes that has no frames, such as modules of mypyc and Cython, if it is much.
fn native_code(facts: &Facts<'_>, first: &Ranked) -> Option<String> {
    const HOW: &str = "nthbyte run --native-frames shows their functions";
    let profile = facts.profile;
    let is_native = |frame: &nthbyte_profile::model::Frame| frame.kind == FrameKind::Native;
    if !crate::selection::lifetimes_are_known(profile) || profile.frames.iter().any(is_native) {
        return None;
    }
    let begins = |stack: u32| {
        let frame = profile.stack(NodeId(stack)).next();
        let function = frame.map(|frame| &profile.functions[frame.function as usize]);
        function.is_some_and(|of| of.name == BEGINS_MODULES && fold::stands_for(&of.file).is_some())
    };
    let mut imported = Totals::default();
    for (stack, split) in facts.aggregate.stacks.iter() {
        if split.all.samples > 0 && begins(stack) {
            imported.add(&split.all);
        }
    }
    let share = imported.bytes.estimate / facts.estimate.max(1.0);
    if share >= MUCH {
        return Some(format!(
            "Compiled modules make {} of all bytes while they are imported: {HOW}.",
            text::percent(share.min(1.0))
        ));
    }
    if first.figure.estimate < MOST * facts.estimate {
        return None;
    }
    let at = facts.places.at(first.key, By::Line);
    let here = |id| at[profile.samples.site_id(id).index()].then(|| facts.places.totals(id));
    let types = facts.places.types(here);
    let many = types.iter().filter(|(_, share)| *share >= WORTH_COUNTING);
    (many.count() >= MANY_TYPES)
        .then(|| format!("Functions of native code make objects of many types there: {HOW}."))
}

/// Which process allocates most, if there are several.
pub(super) fn processes(facts: &Facts<'_>) -> Option<Answer> {
    let profile = facts.profile;
    let number = profile.processes.len();
    if number < 2 {
        return None;
    }
    let mut sums = vec![Totals::default(); number];
    for id in profile.samples.ids() {
        let process = profile.process_of(profile.samples.thread(id));
        sums[process.index()].add(facts.places.totals(id));
    }
    let estimates = sums.iter().map(|sum| facts.aggregate.estimator.bytes(sum));
    let mut all: Vec<(usize, Estimate)> = estimates.enumerate().collect();
    all.sort_by(|one, other| other.1.estimate.total_cmp(&one.1.estimate));
    let (most, bytes) = all[0];
    let label = profile.processes[most].label();
    let mut answer = facts.answer(
        Topic::Processes,
        weight::PROCESSES,
        &["summary", "--by", "process"],
    );
    let is_clear = all[1..].iter().all(|(_, other)| other.high < bytes.low);
    let least = all[all.len() - 1].1;
    let figure = of_bytes(&bytes);
    let share = facts.share(bytes.estimate);
    answer.say(if is_clear {
        format!("Of {number} processes, most is allocated by {label}: {figure}, {share}.")
    } else {
        format!(
            "{number} processes allocate between {} and {figure} each; which of them most is not certain.",
            text::bytes(least.estimate)
        )
    });
    answer.figure("bytes", bytes);
    Some(answer)
}
