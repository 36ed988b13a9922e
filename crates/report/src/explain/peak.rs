//! What was alive when most was.

use nthbyte_profile::event::Nanos;

use super::places::{self, By, types_text};
use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::Estimate;
use crate::leaks::name;
use crate::selection::{Alive, Moment};
use crate::text;

/// From this share on, a part is all.
const ALL: f64 = 0.995;
/// The live memory at the peak comes before who allocates from this many bytes on …
const LARGE: f64 = (64 << 20) as f64;
/// … if it is this part of all that was allocated.
const LARGE_PART: f64 = 0.1;

pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    match facts.peak {
        Some(time) => alive(facts, time),
        None => largest_heap(facts),
    }
}

/// What was alive at the peak, of which the moment was found.
fn alive(facts: &Facts<'_>, time: Nanos) -> Option<Answer> {
    let profile = facts.profile;
    let alive = Alive::at(profile, Moment::Found(time));
    let sum = alive.sum();
    // The peak is at least the live memory at the end, which all samples tell, not half of them.
    let at_end = facts.aggregate.all.alive.estimate;
    let is_end = profile.processes.len() < 2 && at_end >= sum.bytes.estimate;
    let (alive, sum, time, at, which) = if is_end {
        let alive = Alive::at(profile, Moment::End);
        let sum = alive.sum();
        (alive, sum, profile.end, "end", "which is the end, ")
    } else {
        (alive, sum, time, "peak", "")
    };
    let mut answer = facts.answer(Topic::Peak, weight::PEAK, &["flamegraph", "--at", at]);
    let of_alive = |id| alive.totals(id);
    let sums = facts.places.sums(of_alive);
    let estimator = alive.estimator(&facts.aggregate.estimator);
    let bytes = estimator.bytes(&sum);
    answer.figure("bytes", bytes);
    answer.figure("at_nanos", Estimate::exact(time.0 as f64));
    let lines = facts.places.group(&sums, By::OwnLine).into_iter();
    let lines = places::ranked(lines.map(|(key, sum)| (key, estimator.bytes(&sum))));
    let named = lines.iter().take(3);
    answer.places = named.map(|one| facts.places.place(one.key)).collect();
    let first = lines.first()?;
    answer.figure("line_bytes", first.figure);
    let part = match first.figure.estimate {
        whole if whole >= ALL * bytes.estimate => "all of it was".to_owned(),
        _ => format!("{} of it were", of_bytes(&first.figure)),
    };
    answer.say(format!(
        "{} were alive at the peak, {which}after {}; {part} allocated for {}.",
        of_bytes(&bytes),
        text::duration(time.0),
        name(&answer.places[0]),
    ));
    let types = facts.places.types(of_alive);
    let text = types_text(&types);
    if !text.is_empty() {
        answer.say(format!("The types: {text}."));
    }
    let share = |figure: &Estimate| {
        let share = figure.estimate / bytes.estimate.max(1.0);
        text::percent(share.min(1.0))
    };
    answer.say_next(facts, &lines, bytes.estimate, share);
    if bytes.estimate >= LARGE.max(LARGE_PART * facts.estimate) {
        answer.weight = weight::PEAK_IS_LARGE;
    }
    for sentence in inner_allocators(&types, bytes.estimate) {
        answer.say(sentence);
    }
    Some(answer)
}

/// When the heap was largest, where nobody knows what was alive.
fn largest_heap(facts: &Facts<'_>) -> Option<Answer> {
    let profile = facts.profile;
    let mut answer = facts.answer(Topic::Peak, weight::PEAK, &["flamegraph"]);
    let memory = profile.memory.iter();
    let used = memory.filter_map(|memory| Some((memory.heap_used?, memory.time)));
    let (used, time) = used.max_by_key(|&(used, time)| (used, std::cmp::Reverse(time)))?;
    let used_bytes = Estimate::exact(used as f64);
    answer.figure("heap_bytes", used_bytes);
    answer.figure("at_nanos", Estimate::exact(time.0 as f64));
    let unknown = if profile.samples.is_empty() {
        ""
    } else {
        " What it was made of then is not known: the profile does not say when old objects are freed."
    };
    answer.say(format!(
        "The heap was largest after {}: {}.{unknown}",
        text::duration(time.0),
        text::bytes(used as f64)
    ));
    Some(answer)
}

/// Libraries' allocators are named if they hold this part of what was alive.
const MUCH_MAPPED: f64 = 0.05;
/// The start of the types of mappings that an installed library makes (`nthbyte_session::libraries`).
const MAPPED_BY: &str = "mmap by ";

/// What makes the allocator of a library take its memory from `malloc`.
fn remedy(library: &str) -> Option<&'static str> {
    match library {
        "libarrow" => Some("ARROW_DEFAULT_MEMORY_POOL=system"),
        _ => None,
    }
}

/// A sentence for each library that gives parts of its own mappings out itself, so that a line has what it made the library
/// map, and not what it uses. `types`: shares of the bytes, by type.
fn inner_allocators(types: &[(String, f64)], bytes: f64) -> Vec<String> {
    let mapped = types.iter().filter(|(_, share)| *share >= MUCH_MAPPED);
    let sentences = mapped.filter_map(|(name, share)| {
        let library = text::fit(name.strip_prefix(MAPPED_BY)?, 40, text::Cut::End);
        let more = remedy(&library).map_or(String::new(), |remedy| {
            format!("; run with {remedy} to see each of its blocks")
        });
        Some(format!(
            "{} of it are mappings of {library}'s own allocator: they count for the lines that made it map more, not for \
             those that use them{more}.",
            text::bytes(share * bytes)
        ))
    });
    sentences.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_maps_much_is_named_with_what_helps() {
        let types: Vec<(String, f64)> = [
            ("mmap by libarrow", 0.5),
            ("bytes", 0.3),
            ("mmap by _polars", 0.1),
            ("mmap by libsmall", 0.04),
            ("mmap", 0.06),
        ]
        .map(|(name, share)| (name.to_owned(), share))
        .to_vec();
        let sentences = inner_allocators(&types, (200 << 20) as f64);
        assert_eq!(
            sentences,
            [
                "100 MiB of it are mappings of libarrow's own allocator: they count for the lines that made it map more, \
                 not for those that use them; run with ARROW_DEFAULT_MEMORY_POOL=system to see each of its blocks.",
                "20.0 MiB of it are mappings of _polars's own allocator: they count for the lines that made it map more, \
                 not for those that use them.",
            ]
        );
    }
}
