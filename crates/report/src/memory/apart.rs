//! How far the compositions of a report are from the moment that was asked for.

use nthbyte_profile::event::Nanos;
use nthbyte_profile::{Part, Profile};

use super::distance;
use super::moment::{Observed, OfProcess};
use crate::selection::{self, At, Reading, peak_of_rss};
use crate::text;

/// The writer thread reads the resident set after a sixteenth of the session's time, within these limits in nanoseconds.
/// A composition that is no farther away is as good as one of the very moment.
const BETWEEN: (u64, u64) = (20_000_000, 100_000_000);
/// Sizes of the resident set differ noticeably by more than a 50th.
const NOTICEABLE: u64 = 50;

/// Says how far they are, if that matters; a sentence for the notes.
pub(super) fn note(profile: &Profile, at: At, moment: &Observed<'_>) -> Option<String> {
    match &moment.processes[..] {
        [one] => of_one(profile, at, one, moment.peak_rss),
        several => of_several(profile, at, several, moment.time),
    }
}

fn of_one(profile: &Profile, at: At, one: &OfProcess<'_>, peak_rss: Option<u64>) -> Option<String> {
    let read = one.composition.time;
    let shown = one.composition.get(Part::Resident).unwrap_or(0);
    let differs =
        |rss: Option<u64>| rss.is_some_and(|rss| rss.abs_diff(shown) > shown / NOTICEABLE);
    let (wanted, rss) = match at {
        At::Peak => {
            let Some(peak) = time_of_peak(profile, peak_rss) else {
                let peak = peak_rss.filter(|&rss| differs(Some(rss)))?;
                let peak = text::bytes(peak as f64);
                return Some(format!(
                    "RSS was {peak} for a moment, but what it was made of was not read then"
                ));
            };
            (peak, peak_rss)
        }
        At::End => (profile.end, rss_at(profile, profile.end)),
        At::Time(time) => (time, rss_at(profile, time)),
    };
    let far = distance(read, wanted);
    if far == 0 || !(differs(rss) || is_far(far, wanted)) {
        return None;
    }
    let when = text::duration(wanted.0);
    let size = rss.map(|rss| text::bytes(rss as f64));
    let what = match (at, size) {
        (At::Peak, Some(size)) => format!("the peak of RSS, {size}, was at {when}"),
        (At::Peak, None) => format!("the peak of RSS was at {when}"),
        (At::End, Some(size)) => format!("at the end, {when}, RSS was {size}"),
        (_, Some(size)) => format!("at {when}, RSS was {size}"),
        (_, None) => format!("the time is {when}"),
    };
    let side = if read < wanted { "earlier" } else { "later" };
    let far = text::duration(far);
    Some(format!("{what}; what it was made of was read {far} {side}"))
}

fn of_several(
    profile: &Profile,
    at: At,
    several: &[OfProcess<'_>],
    moment: Nanos,
) -> Option<String> {
    let far = |of: &OfProcess<'_>| {
        let wanted = match at {
            At::Peak => moment,
            At::End => profile.processes[of.process.index()].end,
            At::Time(time) => time,
        };
        let far = distance(of.composition.time, wanted);
        is_far(far, wanted).then_some(far)
    };
    let farthest = several.iter().filter_map(far).max()?;
    let farthest = text::duration(farthest);
    Some(format!(
        "what the processes' RSS was made of was read up to {farthest} before or after this moment"
    ))
}

/// When the resident set was largest, if it was read about then: the kernel knows the size of its peak, but not the time.
fn time_of_peak(profile: &Profile, peak_rss: Option<u64>) -> Option<Nanos> {
    let readings = Reading::all(&profile.memory);
    let largest = readings.iter().map(|reading| reading.rss).max()?;
    let is_near = peak_rss.is_none_or(|peak| peak - peak / NOTICEABLE <= largest);
    let peak = is_near.then(|| peak_of_rss(profile, &readings)).flatten();
    peak.and_then(selection::Moment::time)
}

fn is_far(distance: u64, wanted: Nanos) -> bool {
    distance > (wanted.0 / 16).clamp(BETWEEN.0, BETWEEN.1)
}

/// The last resident set that was read up to a time.
fn rss_at(profile: &Profile, time: Nanos) -> Option<u64> {
    let before = profile.memory.iter().filter(|of| of.time <= time);
    before.filter_map(|of| of.rss).next_back()
}
