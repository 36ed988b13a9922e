//! Who allocates, and in which process.

use super::places::{self, By, Ranked, is_clear};
use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::{Estimate, Totals};
use crate::leaks::name;
use crate::text;

/// The functions with the most own bytes; and the line of the program's own code that leads to most, if that is another
/// place.
pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let functions = largest(facts, By::Function);
    let first = functions.first()?;
    let mut answer = facts.answer(Topic::Allocators, weight::ALLOCATORS, &["summary"]);
    let place = facts.places.place(first.key);
    let share = facts.share(first.figure.estimate);
    let (shown, figure) = (name(&place), of_bytes(&first.figure));
    let mut next = functions[1..].iter().take(2).peekable();
    let mut text = format!("{shown} allocates {figure} itself, {share} of all bytes");
    if is_clear(&functions) {
        text.push_str(if functions.len() > 1 {
            ", more than any other function."
        } else {
            "."
        });
    } else {
        text.push_str(
            ", among the functions that allocate most: the order of the first is not certain.",
        );
    }
    answer.say(text);
    answer.places.push(place);
    answer.figure("bytes", first.figure);
    let lines = largest(facts, By::OwnLine);
    if let Some(line) = lines.first() {
        let own = facts.places.place(line.key);
        if own.function != answer.places[0].function || own.file != answer.places[0].file {
            let most = if is_clear(&lines) {
                "leads to most of it"
            } else {
                "is among the lines that lead to most of it"
            };
            answer.say(format!(
                "Of the program's own code, {} {most}: {}, {}.",
                name(&own),
                of_bytes(&line.figure),
                facts.share(line.figure.estimate)
            ));
            answer.places.push(own);
            answer.figure("own_line_bytes", line.figure);
        }
    }
    if next.peek().is_some() {
        let next: Vec<String> = next
            .map(|one| {
                let place = facts.places.place(one.key);
                format!("{} {}", name(&place), of_bytes(&one.figure))
            })
            .collect();
        answer.say(format!("Next: {}.", next.join("; ")));
    }
    Some(answer)
}

/// Places by their own bytes.
pub(super) fn largest(facts: &Facts<'_>, by: By) -> Vec<Ranked> {
    let aggregate = &facts.aggregate;
    let all = facts.places.group(&aggregate.stacks, by).into_iter();
    places::ranked(all.map(|(key, split)| (key, aggregate.estimator.bytes(&split.all))))
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
