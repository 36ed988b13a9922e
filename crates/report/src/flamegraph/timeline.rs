//! Memory over time, reduced to the points that a chart can show.

use nthbyte_profile::Profile;
use nthbyte_profile::event::Memory;

/// The largest number of moments: about one for each pixel of a wide screen.
const SLOTS: usize = 1024;
/// Parts of the session whose part of compiling is shown.
const COMPILING_PARTS: usize = 512;

/// Memory at some moments; `None` if it is unknown.
#[derive(Debug, Default, serde::Serialize)]
pub struct Timeline {
    /// Seconds since the session's start.
    pub time: Vec<f64>,
    /// Bytes of heap in use.
    pub heap_used: Vec<Option<u64>>,
    /// Bytes of heap taken from the operating system.
    pub heap_reserved: Vec<Option<u64>>,
    /// Resident set size in bytes.
    pub rss: Vec<Option<u64>>,
    /// The JIT compiler's work; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiling: Option<Compiling>,
}

/// How much of the time a JIT compiler took.
#[derive(Debug, PartialEq, serde::Serialize)]
pub struct Compiling {
    /// The part of each of some equal parts of the session, from 0 to 1.
    pub parts: Vec<f64>,
    /// The part of the whole session.
    pub whole: f64,
    /// The part of the first second; of the whole if that is shorter.
    pub first: f64,
}

impl Compiling {
    /// `None` if no process has such work. Of several processes that compile at a time, the part is at most 1.
    fn of(profile: &Profile) -> Option<Self> {
        let end = profile.end.0.max(1);
        let edge = |part: usize| (u128::from(end) * part as u128 / COMPILING_PARTS as u128) as u64;
        let part_of = |time: u64| {
            let part = u128::from(time) * COMPILING_PARTS as u128 / u128::from(end);
            (part as usize).min(COMPILING_PARTS - 1)
        };
        let mut nanos = vec![0_u64; COMPILING_PARTS];
        let (mut whole, mut first) = (0, 0);
        let second = end.min(1_000_000_000);
        let mut all = profile
            .processes
            .iter()
            .flat_map(|of| &of.compilations)
            .peekable();
        all.peek()?;
        for one in all {
            let (from, to) = (one.start.0.min(end), one.end().0.min(end));
            whole += to - from;
            first += to.min(second).saturating_sub(from);
            for (part, place) in nanos
                .iter_mut()
                .enumerate()
                .take(part_of(to) + 1)
                .skip(part_of(from))
            {
                *place += to.min(edge(part + 1)).saturating_sub(from.max(edge(part)));
            }
        }
        let share = |nanos: u64, of: u64| (nanos as f64 / of.max(1) as f64).min(1.0);
        let parts = nanos.iter().enumerate();
        Some(Self {
            parts: parts
                .map(|(part, &nanos)| share(nanos, edge(part + 1) - edge(part)))
                .collect(),
            whole: share(whole, end),
            first: share(first, second),
        })
    }
}

impl Timeline {
    /// The memory totals of a profile, at most one for each of [`SLOTS`] parts of time: the time of
    /// the last one and the highest value of each figure, so that no peak is lost.
    pub fn of(profile: &Profile) -> Self {
        let mut timeline = Self {
            compiling: Compiling::of(profile),
            ..Self::default()
        };
        let mut moments: Vec<&Memory> = profile.memory.iter().collect();
        moments.sort_by_key(|moment| moment.time);
        let slot = |moment: &Memory| {
            u128::from(moment.time.0) * SLOTS as u128 / (u128::from(profile.end.0) + 1)
        };
        for together in moments.chunk_by(|a, b| slot(a) == slot(b)) {
            let last = together[together.len() - 1];
            let most = |field: fn(&Memory) -> Option<u64>| {
                together.iter().filter_map(|moment| field(moment)).max()
            };
            timeline.time.push(last.time.0 as f64 / 1e9);
            timeline.heap_used.push(most(|moment| moment.heap_used));
            timeline
                .heap_reserved
                .push(most(|moment| moment.heap_reserved));
            timeline.rss.push(most(|moment| moment.rss));
        }
        timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nthbyte_profile::compilation::{Compilation, CompilationOutcome};
    use nthbyte_profile::event::{Nanos, ThreadId};

    #[test]
    fn compiling_is_divided_among_the_parts_of_time() {
        let mut profile = super::super::data::tests::small();
        assert_eq!(Compiling::of(&profile), None);
        let part = 10_000_000;
        profile.end = Nanos(part * COMPILING_PARTS as u64);
        let work = |start: u64, duration: u64| Compilation {
            start: Nanos(start),
            duration: Nanos(duration),
            optimizing: Nanos(0),
            assembling: Nanos(0),
            thread: ThreadId(0),
            outcome: CompilationOutcome::Loop,
        };
        // Half of a part, and from its middle to the middle of the second next one; and one beyond the end.
        profile.processes[0].compilations = vec![
            work(part, part / 2),
            work(3 * part + part / 2, 2 * part),
            work(profile.end.0 - part, 9 * part),
        ];
        let found = Compiling::of(&profile).unwrap();
        let expected = [0.0, 0.5, 0.0, 0.5, 1.0, 0.5, 0.0];
        assert_eq!(found.parts[..7], expected);
        assert_eq!(found.parts.last(), Some(&1.0));
        assert!((found.parts.iter().sum::<f64>() - 3.5).abs() < 1e-9);
        assert!((found.whole - 3.5 / COMPILING_PARTS as f64).abs() < 1e-9);
        assert!((found.first - 0.025).abs() < 1e-9);
    }

    #[test]
    fn reducing_a_long_session_keeps_its_peak() {
        let mut profile = super::super::data::tests::small();
        profile.end = Nanos(1_000_000);
        profile.memory = (0..100_000)
            .map(|i| Memory {
                time: Nanos(i * 10),
                heap_used: (i % 2 == 0).then_some(if i == 54_322 { 9_999 } else { i % 100 }),
                rss: Some(7),
                ..Memory::default()
            })
            .collect();
        let timeline = Timeline::of(&profile);
        assert!(timeline.time.len() <= SLOTS && timeline.time.len() > SLOTS / 2);
        assert_eq!(timeline.heap_used.iter().flatten().max(), Some(&9_999));
        assert!(timeline.heap_reserved.iter().all(Option::is_none));
        assert!(timeline.rss.iter().all(|&rss| rss == Some(7)));
    }
}
