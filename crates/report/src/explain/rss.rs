//! What the resident set was made of at its peak, and who holds the free memory in it at the end.

use nthbyte_profile::Profile;

use super::{Answer, Facts, Topic, of_bytes, weight};
use crate::estimate::Estimate;
use crate::leaks::name;
use crate::memory::MemoryReport;
use crate::parallel::both;
use crate::selection::At;
use crate::text;

/// Groups of rows that are named: those with at least this part of the resident set.
const WORTH_NAMING: f64 = 0.05;
/// Free blocks that survivors hold at the end are named from this part of the resident set on …
const MUCH_HELD: f64 = 0.2;
/// … and from this many bytes on.
const WORTH_HEADING: f64 = (16 << 20) as f64;
/// They are one of the first answers from this part on …
const MOSTLY_FREE: f64 = 0.4;
/// … and from this many bytes on.
const LARGE: f64 = (64 << 20) as f64;
/// The unknown rest has a sentence from this part of the resident set on.
const MUCH_UNKNOWN: f64 = 0.2;
/// A composition of at least this part of the largest resident set is the peak's.
const AT_THE_PEAK: f64 = 0.97;

/// What the resident set was made of, of a whole profile; as far as that was recorded.
#[derive(Clone, Debug)]
pub struct Resident {
    peak: Option<MemoryReport>,
    end: Option<MemoryReport>,
}

impl Resident {
    /// Reads the compositions of a profile from which no samples were removed.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let at = |at| move || MemoryReport::of(profile, at).ok();
        let (peak, end) = both(at(At::Peak), at(At::End));
        Self { peak, end }
    }
}

/// The largest resident set, and what it was made of; at the end, who holds the free memory. Of several processes nothing
/// is said: they share memory.
pub(super) fn answer(facts: &Facts<'_>, resident: &Resident) -> Option<Answer> {
    let profile = facts.profile;
    let readings = profile.memory.iter();
    let largest = readings
        .filter_map(|memory| memory.peak_rss.max(memory.rss))
        .max();
    let largest = largest.filter(|_| profile.processes.len() < 2)?;
    let mut answer = facts.answer(Topic::Rss, weight::RSS, &["memory"]);
    answer.figure("rss_bytes", Estimate::exact(largest as f64));
    if let Some(end) = &resident.end {
        held(end, &mut answer);
    }
    match &resident.peak {
        Some(memory) => made_of(memory, largest as f64, &mut answer),
        None => answer.say(format!("RSS was {} at most.", text::bytes(largest as f64))),
    }
    Some(answer)
}

/// Who holds the free memory at the end, if that is much.
fn held(end: &MemoryReport, answer: &mut Answer) {
    let whole = (end.rss as f64).max(1.0);
    let Some(holders) = &end.holders else {
        return;
    };
    let free = holders.free as f64;
    if free < WORTH_HEADING.max(MUCH_HELD * whole) {
        return;
    }
    let live = of_group(&end.groups(), "Python, live");
    // The command shows the peak, if it is not told otherwise.
    answer.more.extend(["--at", "end"].map(str::to_owned));
    let mut said = format!(
        "RSS is {} at the end, and live Python objects {} of it: {} are free blocks in pages that live blocks hold",
        text::bytes(whole),
        text::bytes(live),
        text::bytes(free)
    );
    if let Some(first) = holders.holders.first() {
        let (place, held) = (name(&first.place), of_bytes(&first.free));
        said.push_str(&format!("; those of {place} hold {held}"));
        answer.places.push(first.place.clone());
    }
    said.push('.');
    answer.say(said);
    answer.figure("held_free_bytes", Estimate::exact(free));
    if free >= LARGE.max(MOSTLY_FREE * whole) {
        answer.weight = weight::RSS_IS_FREE;
    }
}

fn of_group(groups: &[(&'static str, f64)], wanted: &str) -> f64 {
    let group = groups.iter().find(|(name, _)| *name == wanted);
    group.map_or(0.0, |(_, bytes)| bytes.max(0.0))
}

fn made_of(memory: &MemoryReport, largest: f64, answer: &mut Answer) {
    let whole = (memory.rss as f64).max(1.0);
    let groups = memory.groups();
    let largest_text = text::bytes(largest);
    let unknown = of_group(&groups, "unknown");
    let before = if answer.sentences.is_empty() {
        "RSS"
    } else {
        "Before that, it"
    };
    answer.say(if memory.is_apart && whole < AT_THE_PEAK * largest {
        format!(
            "{before} was {largest_text} at most, and {} after {}: {}.",
            text::bytes(whole),
            text::duration(memory.at_nanos),
            named(&groups, whole)
        )
    } else {
        format!("RSS was {largest_text} at most: {}.", named(&groups, whole))
    });
    if unknown >= MUCH_UNKNOWN * whole {
        answer.say(
            "What is unknown is neither Python's nor what malloc or mmap gave while the program ran: such as what \
             libraries' own allocators keep."
                .to_owned(),
        );
    }
    for (group, figure) in [
        ("Python, live", "rss_python_live_bytes"),
        ("Python, free", "rss_python_free_bytes"),
        ("native", "rss_native_bytes"),
        ("unknown", "rss_unknown_bytes"),
    ] {
        answer.figure(figure, Estimate::exact(of_group(&groups, group)));
    }
}

/// The groups that are worth it, largest first: `native 61 %; program 20 %`.
fn named(groups: &[(&'static str, f64)], whole: f64) -> String {
    let mut named = groups.to_vec();
    named.retain(|(_, bytes)| *bytes >= WORTH_NAMING * whole);
    named.sort_by(|one, other| other.1.total_cmp(&one.1));
    let named: Vec<String> = named
        .iter()
        .map(|(group, bytes)| format!("{group} {}", text::percent(bytes / whole)))
        .collect();
    named.join("; ")
}
