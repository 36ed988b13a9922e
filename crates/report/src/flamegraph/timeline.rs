//! Memory over time, reduced to the points that a chart can show.

use nthbyte_profile::Profile;
use nthbyte_profile::event::Memory;

/// The largest number of moments: about one for each pixel of a wide screen.
const SLOTS: usize = 1024;

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
}

impl Timeline {
    /// The memory totals of a profile, at most one for each of [`SLOTS`] parts of time: the time of
    /// the last one and the highest value of each figure, so that no peak is lost.
    pub fn of(profile: &Profile) -> Self {
        let mut timeline = Self::default();
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
    use nthbyte_profile::event::Nanos;

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
