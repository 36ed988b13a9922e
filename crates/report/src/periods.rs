//! What reports say of the periods of a profile. By default, with `--every auto`, the period changes during the session.

use nthbyte_profile::Profile;
use nthbyte_profile::event::SourceId;
use nthbyte_profile::meta::Distances;
use nthbyte_profile::model::Sampling;

use crate::text;

/// The longest period of the allocation samples, in bytes; at least 1. It says what may have been missed, so a period
/// under which no sample was taken counts too. Where samples were lost, it is longer in proportion.
pub(crate) fn longest(profile: &Profile) -> f64 {
    let used = profile.allocation_samplings();
    longest_of(profile, |source| {
        used.iter().any(|used| used.source == source)
    })
}

/// The same of some sources.
pub(crate) fn longest_of(profile: &Profile, is_one: impl Fn(SourceId) -> bool) -> f64 {
    let sampled = |of: &&Sampling| is_one(of.source) && of.distances != Distances::Every;
    let periods = profile.samplings.iter().filter(sampled);
    let weights = periods.map(|of| of.period.max(1) as f64 * of.taken());
    weights.fold(1.0, f64::max)
}

/// The one period with which the intervals of large sums would be as wide as they are, in bytes: the period, if there is
/// only one. Otherwise it is what a sample stands for, averaged over the bytes of objects that were rather missed than
/// sampled.
pub(crate) fn effective(profile: &Profile) -> f64 {
    if let [period] = profile.periods()[..] {
        return period.max(1) as f64;
    }
    let weights = profile.shape_weights();
    let (mut bytes, mut squares) = (0.0, 0.0);
    for id in profile.samples.ids() {
        let weight = &weights[profile.samples.shape_id(id).0 as usize];
        if weight.probability < 0.5 {
            bytes += weight.bytes;
            squares += weight.bytes * weight.bytes;
        }
    }
    if bytes > 0.0 {
        (squares / bytes).max(1.0)
    } else {
        longest(profile)
    }
}

/// The periods in words, to follow `one every`: `512 KiB on average`, or `16 KiB at first, 512 KiB at the end`.
pub(crate) fn described(profile: &Profile) -> String {
    let all = profile.periods();
    let size = |period: u64| text::bytes(period as f64);
    let Some((first, last)) = first_and_last(profile) else {
        let all: Vec<String> = all.into_iter().map(size).collect();
        return format!("{} on average", all.join(" or "));
    };
    if first == last || profile.processes.len() > 1 {
        let longest = all.last().copied().unwrap_or(last);
        return format!("{} to {}", size(all[0]), size(longest));
    }
    format!("{} at first, {} at the end", size(first), size(last))
}

/// The periods of several runs in words, to follow `one every`.
pub(crate) fn described_together(profiles: &[Profile]) -> String {
    if let [profile] = profiles {
        return described(profile);
    }
    let all = || profiles.iter().flat_map(Profile::periods);
    let size = |period: u64| text::bytes(period as f64);
    let (shortest, longest) = (all().min().unwrap_or(1), all().max().unwrap_or(1));
    if shortest == longest {
        return format!("{} on average", size(shortest));
    }
    format!("{} to {}", size(shortest), size(longest))
}

/// The first and the last period of the interpreter's memory, or of native memory if there is nothing else; `None` if it did
/// not change. Native memory may have another one than the interpreter's.
fn first_and_last(profile: &Profile) -> Option<(u64, u64)> {
    let sampling =
        |id| profile.sampling(profile.samples.shape(profile.samples.shape_id(id)).sampling);
    let is_native = |sampling: &Sampling| profile.sources[sampling.source.index()].is_native();
    let only_native = profile.allocation_samplings().iter().all(is_native);
    let mut periods = profile
        .samples
        .ids()
        .map(sampling)
        .filter(|of| only_native || !is_native(of));
    let first = periods.next()?;
    let mut last = first;
    let mut has_changed = false;
    for of in periods {
        has_changed |= of.period != first.period && of.source == first.source;
        last = of;
    }
    has_changed.then_some((first.period, last.period))
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::event::{Nanos, SourceId};
    use nthbyte_profile::meta::{Meta, Method, Source, SourceKind, Unit};
    use nthbyte_profile::model::SamplingId;
    use nthbyte_profile::synthetic;

    use super::*;
    use crate::estimate::{Estimator, Totals};
    use crate::{Bytes, Explanation, Summary, summary::By};

    const PERIODS: [u64; 3] = [16 << 10, 64 << 10, 1 << 20];

    /// A profile whose samples have these periods, by number. The last two numbers are native memory's.
    fn profile(of_samples: &[u32]) -> Profile {
        let source = |kind| {
            Source::allocations(
                kind,
                Method::CutFreeLists,
                Distances::Exponential,
                PERIODS[0],
            )
        };
        let mut profile = Profile::empty(Meta {
            sources: vec![source(SourceKind::ObjectHeap), source(SourceKind::Native)],
            ..Meta::default()
        });
        let sampling = |source, period| Sampling {
            source: SourceId(source),
            unit: Unit::Bytes,
            distances: Distances::Exponential,
            period,
            lost: 0,
        };
        profile.samplings = PERIODS.map(|period| sampling(0, period)).to_vec();
        profile.samplings.push(sampling(1, 256 << 10));
        profile.samplings.push(sampling(1, 4 << 20));
        for (number, &sampling) in of_samples.iter().enumerate() {
            let made = synthetic::sample(Nanos(number as u64), 48, SamplingId(sampling));
            profile.samples.push(made);
        }
        profile
    }

    #[test]
    fn the_first_and_the_last_period_are_said() {
        for (samples, said) in [
            (&[0, 0, 0][..], "16.0 KiB on average"),
            (&[0, 1, 2, 2], "16.0 KiB at first, 1.00 MiB at the end"),
            (&[1, 0, 0], "64.0 KiB at first, 16.0 KiB at the end"),
            (&[0, 2, 0], "16.0 KiB to 1.00 MiB"),
            // Another source's period is no change.
            (&[0, 3, 0], "16.0 KiB or 256 KiB on average"),
            (&[3, 0, 1, 3], "16.0 KiB at first, 64.0 KiB at the end"),
            (&[3, 3, 4], "256 KiB at first, 4.00 MiB at the end"),
        ] {
            assert_eq!(described(&profile(samples)), said, "{samples:?}");
        }
        let changed = profile(&[0, 1, 2, 2]);
        let shown = Summary::of(&changed, By::Function).render::<Bytes>(100);
        assert!(
            shown.contains("4 samples, one every 16.0 KiB at first, 1.00 MiB at"),
            "{shown}"
        );
        let asked = crate::explain::ExplainOptions {
            words: Vec::new(),
            more_processes: 0,
            repeated: false,
        };
        let explained = Explanation::of(&changed, &asked);
        assert!(
            (8 << 16..1 << 20).contains(&explained.period),
            "{}",
            explained.period
        );
    }

    #[test]
    fn the_periods_of_several_runs_are_a_range() {
        let (one, same, other) = (profile(&[1; 3]), profile(&[1; 5]), profile(&[0, 2]));
        for (runs, said) in [
            (
                vec![other.clone()],
                "16.0 KiB at first, 1.00 MiB at the end",
            ),
            (vec![one.clone(), same.clone()], "64.0 KiB on average"),
            (vec![one, other, same], "16.0 KiB to 1.00 MiB"),
        ] {
            assert_eq!(described_together(&runs), said);
        }
    }

    #[test]
    fn the_effective_period_gives_the_same_interval() {
        let one = profile(&[1; 100]);
        assert_eq!(effective(&one), 65_536.0);
        // 1600 samples of 16 KiB and 25 of 1 MiB stand for as many bytes each.
        let samples: Vec<u32> = [0].repeat(1600).into_iter().chain([2].repeat(25)).collect();
        let mixed = profile(&samples);
        let period = effective(&mixed);
        let mut all = Totals::default();
        for id in mixed.samples.ids() {
            let shape = mixed.samples.shape(mixed.samples.shape_id(id));
            all.add(&Totals::of_sample(&mixed, shape));
        }
        let (bytes, variance) = (all.bytes.estimate, all.bytes.variance);
        // A Poisson count of bytes / period samples, each of a period.
        assert!((variance / (bytes * period) - 1.0).abs() < 0.01);
        assert_eq!(longest(&mixed), (1 << 20) as f64);
    }

    /// What was allocated under the longest period may have been missed, also where nothing was sampled under it.
    #[test]
    fn a_period_without_a_sample_counts_for_what_has_none() {
        let never_sampled = profile(&[0; 50]);
        let estimator = Estimator::new(&never_sampled, &Totals::default());
        let most = estimator.bytes(&Totals::default()).high;
        assert!((most / (1 << 20) as f64 - 3.0).abs() < 0.01, "{most}");
    }
}
