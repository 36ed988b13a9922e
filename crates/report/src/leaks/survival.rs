//! The share of the objects of a site that survive a given age: the estimate of Kaplan and Meier
//! (JASA 53, 1958), in which each sample counts by its weight.
//!
//! An object that is alive at the end has an age, but its lifetime is not known: it is *censored*.
//! It is among the objects at risk up to its age, and not after it.

use serde::Serialize;

/// A lifetime, or the part of it that was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Nanoseconds.
    pub(crate) age: u64,
    /// Whether the lifetime ended; else it is censored.
    pub(crate) ended: bool,
    /// Bytes that the sample stands for.
    pub(crate) weight: f64,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SurvivalPoint {
    /// Age in nanoseconds.
    pub age_nanos: u64,
    /// The share of bytes whose objects live longer.
    pub share: f64,
}

/// Points that are kept of a curve.
const POINTS: usize = 24;

/// The curve, at ages that divide the longest one seen.
pub(crate) fn curve(mut lifetimes: Vec<Observation>) -> Vec<SurvivalPoint> {
    // At the same age, lifetimes that ended come before censored ones, which are still at risk.
    lifetimes.sort_by_key(|life| (life.age, !life.ended));
    let longest = lifetimes.last().map_or(0, |life| life.age);
    let mut at_risk: f64 = lifetimes.iter().map(|life| life.weight).sum();
    let mut share = 1.0;
    let mut curve = Vec::with_capacity(POINTS);
    let mut next = lifetimes.iter().peekable();
    for point in 1..=POINTS as u64 {
        let age = (u128::from(longest) * u128::from(point) / POINTS as u128) as u64;
        while let Some(life) = next.next_if(|life| life.age <= age) {
            if life.ended && at_risk > 0.0 {
                share *= (1.0 - life.weight / at_risk).max(0.0);
            }
            at_risk -= life.weight;
        }
        curve.push(SurvivalPoint {
            age_nanos: age,
            share,
        });
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(age: u64, ended: bool) -> Observation {
        Observation {
            age,
            ended,
            weight: 3.0,
        }
    }

    #[test]
    fn as_kaplan_and_meier_do() {
        // The example in section 1.4 of the paper: ends at 0.8, 3.1, 5.4, 9.2; losses at 1.0, 2.7,
        // 7.0, 12.1.
        let lives = vec![
            life(80, true),
            life(100, false),
            life(270, false),
            life(310, true),
            life(540, true),
            life(700, false),
            life(920, true),
            life(1210, false),
        ];
        let curve = curve(lives);
        let at = |age: u64| {
            curve
                .iter()
                .rev()
                .find(|point| point.age_nanos <= age)
                .map_or(1.0, |point| point.share)
        };
        assert!((at(300) - 7.0 / 8.0).abs() < 1e-9);
        assert!((at(500) - 7.0 / 8.0 * 4.0 / 5.0).abs() < 1e-9);
        assert!((at(900) - 7.0 / 8.0 * 4.0 / 5.0 * 3.0 / 4.0).abs() < 1e-9);
        assert!((at(1210) - 7.0 / 8.0 * 4.0 / 5.0 * 3.0 / 4.0 / 2.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_nothing() {
        assert!(curve(Vec::new()).iter().all(|point| point.share == 1.0));
    }
}
