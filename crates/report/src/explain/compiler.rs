//! How long a JIT compiler takes, of the whole run and of its first second, and what comes of it.

use nthbyte_profile::Profile;
use nthbyte_profile::compilation::{Compilation, CompilationOutcome};
use nthbyte_profile::event::Nanos;

use super::{Answer, Facts, Topic, weight};
use crate::estimate::Estimate;
use crate::text;

/// From this part of the run on, it is one of the first answers.
const LARGE: f64 = 0.2;
/// The beginning of a run, in which most is compiled.
const FIRST: Nanos = Nanos(1_000_000_000);

pub(super) fn answer(facts: &Facts<'_>) -> Option<Answer> {
    let profile = facts.profile;
    let all = || profile.processes.iter().flat_map(|of| &of.compilations);
    all().next()?;
    let nanos: u64 = all().map(|one| one.duration.0).fold(0, u64::saturating_add);
    let part = facts.part_of_time(nanos);
    let weight = match part {
        part if part >= LARGE => weight::COMPILER_IS_LARGE,
        _ => weight::COMPILER,
    };
    let mut answer = facts.answer(Topic::Compiler, weight, &["view"]);
    let whose = match profile.processes.len() {
        1 => "of the run",
        _ => "that the processes ran",
    };
    let count = |outcome: CompilationOutcome| all().filter(|one| one.outcome == outcome).count();
    let (loops, bridges, aborted) = (
        count(CompilationOutcome::Loop),
        count(CompilationOutcome::Bridge),
        count(CompilationOutcome::Aborted),
    );
    let first = of_first_second(profile);
    let of_first = first.map_or(String::new(), |part| {
        format!(" and {} of its first second", text::percent(part))
    });
    answer.say(format!(
        "The JIT compiler takes {} of the time {whose}{of_first}, {}: it compiled {} and {}.",
        text::percent(part),
        text::duration(nanos),
        counted(loops, "loop"),
        counted(bridges, "bridge"),
    ));
    answer.figure("seconds", Estimate::exact(nanos as f64 / 1e9));
    answer.figure("share", Estimate::exact(part));
    answer.figure("loops", Estimate::exact(loops as f64));
    answer.figure("bridges", Estimate::exact(bridges as f64));
    answer.figure("aborted", Estimate::exact(aborted as f64));
    if aborted > 0 {
        let lost = all().filter(|one| one.outcome == CompilationOutcome::Aborted);
        let lost: u64 = lost.map(|one| one.duration.0).fold(0, u64::saturating_add);
        answer.say(format!(
            "{} given up, which took {}.",
            match aborted {
                1 => "1 trace was".to_owned(),
                several => format!("{} traces were", text::grouped(several as u64)),
            },
            text::duration(lost)
        ));
    }
    if let Some(first) = first {
        answer.figure("share of the first second", Estimate::exact(first));
    }
    Some(answer)
}

/// The compiler's part of the first second of the only process. `None` if it did not run for so long.
fn of_first_second(profile: &Profile) -> Option<f64> {
    let [process] = &profile.processes[..] else {
        return None;
    };
    (process.duration().0 >= FIRST.0).then_some(())?;
    let start = process.start;
    let end = start.0.saturating_add(FIRST.0);
    let within = |one: &Compilation| {
        let from = one.start.0.max(start.0);
        one.end().0.min(end).saturating_sub(from)
    };
    let nanos: u64 = process.compilations.iter().map(within).sum();
    Some(nanos as f64 / FIRST.0 as f64)
}

fn counted(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        several => format!("{} {what}s", text::grouped(several as u64)),
    }
}
