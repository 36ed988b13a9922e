//! What was alive at a moment, and when most was.
//!
//! An object is alive from the time of its allocation, including it, until the time of its free,
//! excluding it. What a process has not freed, it loses when it ends. An object that died young at an
//! unknown time was alive at no moment.

use std::ops::RangeInclusive;

use nthbyte_profile::event::{Nanos, SampleId, ThreadId};
use nthbyte_profile::model::{Lifetime, Sample, Samples, Sampling, Shape};
use nthbyte_profile::time_order::{Pass, TimeOrder};
use nthbyte_profile::{Halves, Halving, Lifetimes, Profile};

use super::ends::Ends;
use crate::estimate::{Estimator, Totals};

/// A moment at which objects are alive or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The end of the process that allocated the object.
    #[default]
    End,
    /// This time.
    Time(Nanos),
    /// This time, which the first half of the samples found: the second half says what was alive then. See
    /// [`nthbyte_profile::Halves`].
    Found(Nanos),
}

impl Moment {
    /// Its time; `None` for the end, of which each process has its own.
    pub(crate) const fn time(self) -> Option<Nanos> {
        match self {
            Self::End => None,
            Self::Time(time) | Self::Found(time) => Some(time),
        }
    }

    /// Whether half of the samples say what was alive.
    pub(crate) const fn is_found(self) -> bool {
        matches!(self, Self::Found(_))
    }
}

/// When sampled objects were alive. It does not refer to the profile, whose samples may be removed
/// meanwhile.
pub(crate) struct Lives {
    /// By thread: the end of its process, if others went on.
    ends: Vec<Option<Nanos>>,
}

impl Lives {
    pub(crate) fn of(profile: &Profile) -> Self {
        let threads = (0..profile.threads.len() as u32).map(ThreadId);
        let end = |thread: ThreadId| {
            let process = profile.processes.get(profile.process_of(thread).index())?;
            Some(process.end).filter(|&end| end < profile.end)
        };
        Self {
            ends: threads.map(end).collect(),
        }
    }

    /// The times of the allocation and of the free, if there was one. `None` if the object died at an
    /// unknown time. `thread` is asked only if the object was not freed.
    #[inline]
    fn life(
        &self,
        from: Nanos,
        freed: Option<Nanos>,
        lifetime: Lifetime,
        thread: impl FnOnce() -> ThreadId,
    ) -> Option<(Nanos, Option<Nanos>)> {
        match (freed, lifetime) {
            (Some(freed), _) => Some((from, Some(freed))),
            (None, Lifetime::StillLive) => {
                let end = self.ends.get(thread().index()).copied().flatten();
                Some((from, end.filter(|&end| from < end)))
            }
            (None, _) => None,
        }
    }

    /// The same, of a sample that is not taken apart: for passes over all samples.
    #[inline]
    pub(crate) fn life_of(
        &self,
        samples: &Samples,
        id: SampleId,
    ) -> Option<(Nanos, Option<Nanos>)> {
        let (from, freed, lifetime) = (samples.time(id), samples.freed(id), samples.lifetime(id));
        self.life(from, freed, lifetime, || samples.thread(id))
    }

    /// Whether the sampled object was alive.
    pub(crate) fn is_alive(&self, sample: &Sample, moment: Moment) -> bool {
        let life = || self.life(sample.time, sample.freed, sample.lifetime, || sample.thread);
        is_alive(moment, sample.lifetime, life)
    }

    /// The same, of a sample that is not taken apart.
    #[inline]
    pub(crate) fn has(&self, samples: &Samples, id: SampleId, moment: Moment) -> bool {
        is_alive(moment, samples.lifetime(id), || self.life_of(samples, id))
    }
}

/// Whether an object was alive. `life` is asked only for a time.
#[inline]
fn is_alive(
    moment: Moment,
    lifetime: Lifetime,
    life: impl FnOnce() -> Option<(Nanos, Option<Nanos>)>,
) -> bool {
    match moment.time() {
        None => lifetime == Lifetime::StillLive,
        Some(time) => {
            life().is_some_and(|(from, to)| from <= time && to.is_none_or(|to| to > time))
        }
    }
}

/// What each sample says of what was alive at a moment.
pub(crate) struct Alive<'a> {
    profile: &'a Profile,
    lives: Lives,
    moment: Moment,
    weights: Weights<Totals>,
}

impl<'a> Alive<'a> {
    pub(crate) fn at(profile: &'a Profile, moment: Moment) -> Self {
        Self {
            profile,
            lives: Lives::of(profile),
            moment,
            weights: Weights::of(profile, moment.is_found(), Totals::of),
        }
    }

    /// Whether the sampled object was alive, whatever half it is of.
    #[inline]
    pub(crate) fn has(&self, id: SampleId) -> bool {
        self.lives.has(&self.profile.samples, id, self.moment)
    }

    /// What a sample stands for of what was alive; `None` if it says nothing of it.
    #[inline]
    pub(crate) fn totals(&self, id: SampleId) -> Option<&Totals> {
        self.has(id)
            .then(|| self.weights.get(self.profile, id, |halves| halves.second))
            .flatten()
    }

    /// The sums over all samples.
    pub(crate) fn sum(&self) -> Totals {
        let mut sum = Totals::default();
        let ids = self.profile.samples.ids();
        ids.filter_map(|id| self.totals(id))
            .for_each(|totals| sum.add(totals));
        sum
    }

    /// The estimator for the sums, made of that for sums over all samples.
    pub(crate) fn estimator(&self, of_all: &Estimator) -> Estimator {
        match self.moment.is_found() {
            true => of_all.of_half(),
            false => *of_all,
        }
    }
}

/// What samples stand for: all of them, or one half.
enum Weights<T> {
    /// By shape.
    All(Vec<T>),
    /// By shape, for half of its sample points, rounded down and up; and which half a sample is of.
    Half(Vec<[T; 2]>, Halving),
}

impl<T> Weights<T> {
    fn of(profile: &Profile, is_half: bool, weight: impl Fn(&Sampling, Shape) -> T) -> Self {
        let shapes = profile.samples.shapes().iter();
        if !is_half {
            let of = |&shape: &Shape| weight(&profile.sampling(shape.sampling), shape);
            return Self::All(shapes.map(of).collect());
        }
        let of = |shape: &Shape| {
            let sampling = profile.sampling(shape.sampling).of_half();
            let half = shape.points / 2;
            [half, shape.points - half].map(|points| weight(&sampling, Shape { points, ..*shape }))
        };
        Self::Half(shapes.map(of).collect(), Halving::of(profile))
    }

    /// The number of what a sample stands for; `None` if it is not in the half, of which `half` gives the sample points.
    #[inline]
    fn number(&self, profile: &Profile, id: SampleId, half: fn(Halves) -> u32) -> Option<u32> {
        let shape = profile.samples.shape_id(id).0;
        match self {
            Self::All(_) => Some(shape),
            Self::Half(_, halving) => {
                let points = half(halving.halves(profile, id));
                let is_more = points > profile.samples.points(id) / 2;
                // More than 2^31 shapes do not fit into memory.
                (points > 0).then_some(shape << 1 | u32::from(is_more))
            }
        }
    }

    /// What a number stands for.
    #[inline]
    fn numbered(&self, number: u32) -> &T {
        match self {
            Self::All(weights) => &weights[number as usize],
            Self::Half(weights, _) => &weights[(number >> 1) as usize][(number & 1) as usize],
        }
    }

    /// What a sample stands for; `None` if it is not in the half.
    #[inline]
    fn get(&self, profile: &Profile, id: SampleId, half: fn(Halves) -> u32) -> Option<&T> {
        let number = self.number(profile, id, half)?;
        Some(self.numbered(number))
    }
}

/// The first time at which most was alive, by the first half of the samples; `None` if the times of frees are not
/// known, or without a sample.
pub(crate) fn peak_of_all(profile: &Profile) -> Option<Nanos> {
    lifetimes_are_known(profile)
        .then(|| most_alive(profile, [Nanos(0)..=Nanos(u64::MAX)]))
        .flatten()
}

/// The first time of the windows at which most was alive, by the first half of the samples; `None` if nothing was allocated
/// before the end of the last one. If that half has no sample so early, it is the end of the last window: also that does not depend
/// on the second half. Windows include both ends. None begins or ends before the one before it.
pub(super) fn most_alive(
    profile: &Profile,
    windows: impl IntoIterator<Item = RangeInclusive<Nanos>>,
) -> Option<Nanos> {
    let mut windows = windows.into_iter().peekable();
    let order = TimeOrder::of(&profile.samples);
    let mut steps = Steps::of(profile, &order).peekable();
    let mut most: Option<(f64, Nanos)> = None;
    let mut last = None;
    while let Some((from, alive)) = steps.next() {
        let next = steps.peek().map(|&(next, _)| next);
        let is_over = |time: Nanos| next.is_none_or(|next| time < next);
        while let Some(window) = windows.peek() {
            let (start, end) = (*window.start(), *window.end());
            if is_over(start) && from <= end && most.is_none_or(|(most, _)| alive > most) {
                most = Some((alive, from.max(start)));
            }
            if !is_over(end) {
                break;
            }
            last = Some(end);
            windows.next();
        }
        if windows.peek().is_none() {
            break;
        }
    }
    most.map(|(_, time)| time).or_else(|| {
        let last = windows.last().map(|window| *window.end()).or(last)?;
        let mut ids = profile.samples.ids();
        ids.any(|id| profile.samples.time(id) <= last)
            .then(|| last.min(profile.end))
    })
}

/// The times at which objects of the first half of the samples were allocated or freed, in order, each with the estimate of
/// the bytes that were alive from then on, less its standard deviation. Where all samples have one weight, the order of the
/// moments is their estimates'. Where weights differ, it is not the moment of one heavy sample that counts as the peak, but
/// one for which many samples speak: whoever chooses the largest of many uncertain figures chooses an uncertain one.
struct Steps<'a> {
    profile: &'a Profile,
    lives: Lives,
    weights: Weights<Live>,
    /// The samples that are not looked at yet, in the order of their times.
    pass: Pass<'a>,
    /// The next one of the half, if it is known: when it was allocated and freed, and its weight.
    born: Option<(Nanos, Option<Nanos>, SampleId, u32)>,
    /// The ends of those that are alive, with their weights.
    dead: Ends,
    alive: Live,
}

/// An estimate of live bytes, and its variance.
#[derive(Clone, Copy, Default)]
struct Live {
    bytes: f64,
    variance: f64,
}

impl<'a> Steps<'a> {
    fn of(profile: &'a Profile, order: &'a TimeOrder) -> Self {
        let weight = |sampling: &Sampling, shape: Shape| {
            let weight = sampling.weight(&shape);
            Live {
                bytes: weight.bytes,
                variance: weight.bytes * weight.bytes * (1.0 - weight.probability),
            }
        };
        Self {
            profile,
            lives: Lives::of(profile),
            weights: Weights::of(profile, true, weight),
            pass: order.pass(&profile.samples),
            born: None,
            dead: Ends::new(),
            alive: Live::default(),
        }
    }

    /// When the next object of the half is allocated.
    fn next_born(&mut self) -> Option<Nanos> {
        let samples = &self.profile.samples;
        while self.born.is_none()
            && let Some((time, id)) = self.pass.next()
        {
            let (freed, lifetime) = (samples.freed(id), samples.lifetime(id));
            let life = self
                .lives
                .life(time, freed, lifetime, || samples.thread(id));
            if let Some((from, to)) = life {
                let of = self.weights.number(self.profile, id, |halves| halves.first);
                self.born = of.map(|of| (from, to, id, of));
            }
        }
        self.born.map(|(from, ..)| from)
    }
}

impl Iterator for Steps<'_> {
    type Item = (Nanos, f64);

    fn next(&mut self) -> Option<Self::Item> {
        let dead = self.dead.first();
        let now = self.next_born().into_iter().chain(dead).min()?;
        while self.next_born().is_some_and(|from| from <= now) {
            if let Some((_, to, id, number)) = self.born.take() {
                let of = self.weights.numbered(number);
                self.alive.bytes += of.bytes;
                self.alive.variance += of.variance;
                if let Some(time) = to {
                    self.dead.push((time, id, number));
                }
            }
        }
        while let Some((.., number)) = self.dead.pop_until(now) {
            let of = self.weights.numbered(number);
            self.alive.bytes -= of.bytes;
            self.alive.variance -= of.variance;
        }
        let Live { bytes, variance } = self.alive;
        Some((now, bytes - variance.max(0.0).sqrt()))
    }
}

/// Whether the profile says of everything in it when it was freed.
pub(crate) fn lifetimes_are_known(profile: &Profile) -> bool {
    profile.lifetimes() == Lifetimes::All
}
