//! Whether the period was small enough for such questions.

use super::churn::largest;
use super::places::By;
use super::{Answer, Facts, Topic, weight};
use crate::estimate::Estimate;
use crate::{periods, text};

/// With so many samples an interval is ±36 %, and two functions of which one allocates twice as much are told apart in nine
/// of ten cases. Below, the order of functions is mostly chance.
const ENOUGH: f64 = 30.0;

/// So many functions are to be told apart …
const FUNCTIONS: usize = 5;

/// … or those that have this part of all bytes together.
const PART: f64 = 0.5;

/// The largest number of samples that a smaller period may lead to.
const MANY: f64 = 1e6;

/// The smallest period that is proposed: a smaller one costs more time than it tells.
const SMALLEST: f64 = 1024.0;

pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let only_time = facts.profile.samples.is_empty() && !facts.profile.cpu.is_empty();
    if facts.exact || only_time {
        return None;
    }
    let samples = facts.profile.samples.len();
    let period = facts.period as f64;
    let least = ENOUGH * period;
    let functions = largest(facts, By::Function);
    let figures = || functions.iter().map(|function| function.figure.estimate);
    let whole: f64 = figures().sum();
    let large = figures().filter(|&bytes| bytes >= least);
    let (number, bytes) = large.fold((0, 0.0), |sum, bytes| (sum.0 + 1, sum.1 + bytes));
    let fine =
        number >= FUNCTIONS.min(functions.len().max(1)) || bytes >= PART * whole && samples > 0;
    let weight = match samples {
        _ if fine => weight::FINE,
        0 => weight::NO_SAMPLES,
        _ => weight::COARSE,
    };
    let mut answer = facts.answer(Topic::Period, weight, &["summary"]);
    answer.figure("rankable_bytes", Estimate::exact(least));
    answer.figure("functions", Estimate::exact(functions.len() as f64));
    answer.figure(
        "rankable_functions",
        Estimate::exact(f64::from(number as u32)),
    );
    let threshold = text::bytes(least);
    if fine {
        answer.say(format!(
            "{} samples, one every {}: enough to rank functions that allocate {threshold} or more, {number} of {}.",
            text::grouped(samples as u64),
            periods::described(facts.profile).trim_end_matches(" on average"),
            functions.len()
        ));
        answer.more.clear();
        return Some(answer);
    }
    // A period that was in force already, for a part of the run, is no advice.
    let shortest = facts
        .profile
        .periods()
        .first()
        .map_or(period, |&of| of as f64);
    let proposed = proposed(facts, &figures().collect::<Vec<_>>());
    let proposed = proposed.filter(|&of| (of as f64) < shortest);
    let number = match number {
        0 => "no function allocates".to_owned(),
        1 => format!("1 function of {} allocates", functions.len()),
        number => format!("{number} functions of {} allocate", functions.len()),
    };
    let took = text::duration(facts.profile.end.0);
    let every = text::bytes(period);
    let sentence = match samples {
        0 => format!(
            "There is no sample: the program allocated {} in {took}, and one sample is taken every {every}.",
            text::bytes(facts.allocated)
        ),
        _ => format!(
            "One sample every {every} is too coarse for {took}: only functions that allocate {threshold} (30 samples) or \
             more can be ranked, and {number} that much."
        ),
    };
    match proposed {
        Some(proposed) => {
            let option = option(proposed);
            answer.say(format!(
                "{sentence} Run it again with --every {option}, or for longer."
            ));
            answer.figure("proposed_period", Estimate::exact(proposed as f64));
            answer.profiles = 0..0;
            answer.more = ["nthbyte", "run", "--every", &option, "PROGRAM"]
                .map(str::to_owned)
                .to_vec();
        }
        None => answer.say(format!("{sentence} Run it for longer.")),
    }
    Some(answer)
}

/// A power of two that gives enough samples to [`FUNCTIONS`] functions, or to those that allocate [`PART`] of all bytes.
fn proposed(facts: &Facts<'_>, bytes: &[f64]) -> Option<u64> {
    let whole: f64 = bytes.iter().sum();
    let mut sum = 0.0;
    let mut last = facts.allocated;
    for &of_function in bytes.iter().take(FUNCTIONS) {
        sum += of_function;
        last = of_function;
        if sum >= PART * whole {
            break;
        }
    }
    let wanted = (last / ENOUGH).max(facts.allocated / MANY).max(SMALLEST);
    let proposed = 1_u64 << (wanted.log2().floor() as u32).min(40);
    (proposed < facts.period).then_some(proposed)
}

/// A size as the option `--every` takes it.
fn option(bytes: u64) -> String {
    match bytes {
        0..1024 => bytes.to_string(),
        1024..1_048_576 => format!("{}KiB", bytes >> 10),
        _ => format!("{}MiB", bytes >> 20),
    }
}
