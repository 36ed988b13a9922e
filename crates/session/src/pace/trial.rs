//! What sampling does to the program as a whole, found from outside of the samples.
//!
//! A sample may make the program pay where no clock of this crate looks: page faults, cold caches, a path of the allocator
//! that is slower from then on. So now and then there is a *trial*: for a moment the period of one kind of memory is [`LONGER`]
//! times as long. The CPU time for the same work before, meanwhile and after says what the samples cost that were not taken.
//!
//! ```text
//! decided period          LONGER times as long     decided period
//! ── before ────────────▶ ── longer ─────────────▶ ── after ────────────▶ rest
//!    CPU time / work = a     CPU time / work = b      counts with `before`
//! ```
//!
//! *Work* is what the program allocates, counted in samples that the decided periods would take of it: a sample whose
//! sample point was drawn under a longer period stands for several. If `m` fewer samples of the kind were taken for a unit of
//! work, and one costs `k`, then `a - b = k m`. A block that is many times as large as the period is sampled at both, so that
//! `m` is 0: then nothing can be said.
//!
//! The program itself changes between two moments, by far more than samples cost. So `(a - b) / (a + b)`, which no single
//! trial can move by more than 1, is compared with `m / (a + b)` over many trials, and counts only if the slope exceeds what the
//! clocks say by [`SURE`] standard errors: a cost that is a tenth of the program is found in some minutes, one that
//! doubles its time in some seconds. A cost found so raises the cost of that kind's samples, and fades.

use super::tally::Kind;

/// A trial's periods are so many times as long.
pub(super) const LONGER: u64 = 4;
/// The least samples of the kind before and after a trial, and during it.
const ENOUGH: f64 = 64.0;
const ENOUGH_LONGER: f64 = 16.0;
/// Trials older than so much work count for less.
const RECENT: f64 = 256.0;
/// A part of a trial takes no more time than this, in seconds.
const LONGEST_PART: f64 = 1.0;
/// No trial if the program waits for more than nine tenths of the time: then nobody notices.
const LEAST_CPU: f64 = 0.1;
/// CPU time between two trials, and before the first one, in nanoseconds: short programs have none.
const REST: f64 = 2.5e9;
const FIRST_REST: f64 = 1e9;
/// CPU time before the first trial of the interpreter's memory. Its samples rarely cost more than the clocks see, and a tenth of
/// a second with a period that is four times as long leaves a program of a second a fifth less of what its samples tell.
const FIRST_REST_OF_OWN: f64 = REST;
/// With a difference that is larger than chance makes it, and than this, the next trial comes at once.
const SUSPICIOUS: f64 = 0.02;
/// A trial that takes more than this part of the samples says nothing.
const SAME: f64 = 0.95;
/// If the work before and after differs more than by this factor in its cost, the program was not the same.
const UNSTEADY: f64 = 2.0;
/// A block of less than this part of a period is sampled by chance only.
const SMALL: u64 = 16;
/// Standard errors that are deducted from a mean; trials that a mean needs; trials that are remembered.
const SURE: f64 = 4.0;
const LEAST_TRIALS: f64 = 3.5;
const REMEMBERED: f64 = 128.0;
/// What was found is halved in this CPU time, in nanoseconds; in twice as much after each time that it was found again.
const HALF_LIFE: f64 = 120e9;
const LONGEST_HALF_LIFE: f64 = 32.0 * HALF_LIFE;
/// The least variance of a difference that is believed: programs are not that even.
const LEAST_CHANCE: f64 = 1e-4;

/// Of a stretch of time.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// CPU time in nanoseconds, and time in seconds.
    cpu: f64,
    seconds: f64,
    work: f64,
    /// Of each kind.
    samples: [f64; 2],
    /// The variance of `work` that chance alone gives it: which blocks are sampled.
    chance: f64,
}

impl Stretch {
    const NONE: Self = Self {
        cpu: 0.0,
        seconds: 0.0,
        work: 0.0,
        samples: [0.0; 2],
        chance: 0.0,
    };

    fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            seconds: self.seconds + other.seconds,
            work: self.work + other.work,
            samples: [0, 1].map(|at| self.samples[at] + other.samples[at]),
            chance: self.chance + other.chance,
        }
    }

    /// The variance of `work` as a part of its square.
    fn spread(self) -> f64 {
        self.chance / (self.work * self.work)
    }

    fn cpu_of_work(self) -> f64 {
        self.cpu / self.work
    }
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Before,
    Longer {
        kind: Kind,
        before: Stretch,
    },
    After {
        kind: Kind,
        before: Stretch,
        longer: Stretch,
    },
}

/// What the trials of a kind say, the last ones above all: `(a - b) / (a + b) = k x`, where `x = m / (a + b)`, and so `k` is the
/// slope of a line through zero. Each trial counts by what chance leaves it of certainty.
#[derive(Clone, Copy, Debug)]
struct Evidence {
    trials: f64,
    /// Sums, weighted: of `x²`, of `x` times the difference, and of the squared difference.
    xx: f64,
    xy: f64,
    yy: f64,
    /// The variance of `xy` that chance would give it.
    chance: f64,
}

impl Evidence {
    const NONE: Self = Self {
        trials: 0.0,
        xx: 0.0,
        xy: 0.0,
        yy: 0.0,
        chance: 0.0,
    };

    /// `chance`: the variance that chance gives to the difference.
    fn add(&mut self, difference: f64, x: f64, chance: f64) {
        let keep = 1.0 - 1.0 / REMEMBERED;
        let weight = 1.0 / chance.max(LEAST_CHANCE);
        self.chance = self.chance * keep * keep + weight * x * x;
        for (sum, value) in [
            (&mut self.trials, 1.0),
            (&mut self.xx, weight * x * x),
            (&mut self.xy, weight * x * difference),
            (&mut self.yy, weight * difference * difference),
        ] {
            *sum = *sum * keep + value;
        }
    }

    /// The CPU time of a sample in nanoseconds, if it is sure that it is more than `measured`.
    fn cost_beyond(&self, measured: f64) -> Option<f64> {
        if self.trials < LEAST_TRIALS {
            return None;
        }
        let slope = self.xy / self.xx;
        // How much larger than by chance the squared distances from the line are.
        let excess = (self.yy - slope * self.xy) / (self.trials - 1.0);
        let error = (excess.max(1.0) * self.chance).sqrt() / self.xx;
        // The least one only says that there is a cost. Half way to the mean, chance does not make it too large.
        (slope - SURE * error > measured).then(|| slope - SURE / 2.0 * error)
    }
}

/// The trials of a kind.
#[derive(Clone, Copy, Debug)]
struct Found {
    evidence: Evidence,
    /// The cost of a sample that was found, in nanoseconds; 0 if it is less than what the clocks say.
    cost: f64,
    half_life: f64,
    is_news: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    part: Part,
    present: Stretch,
    /// CPU time until the next trial, in nanoseconds.
    rest: f64,
    /// CPU time until the first one of the interpreter's memory, in nanoseconds.
    rest_of_own: f64,
    /// The kind of the last trial.
    last: Kind,
    found: [Found; 2],
}

impl Trial {
    pub(super) const fn new() -> Self {
        Self {
            part: Part::Before,
            present: Stretch::NONE,
            rest: FIRST_REST,
            rest_of_own: FIRST_REST_OF_OWN,
            last: Kind::Native,
            found: [const {
                Found {
                    evidence: Evidence::NONE,
                    cost: 0.0,
                    half_life: HALF_LIFE / 2.0,
                    is_news: false,
                }
            }; 2],
        }
    }

    /// Counts a sample of a block of this many bytes, whose sample point was drawn under `period`, where `decided` is the
    /// decided one.
    #[inline]
    pub(super) fn sampled(&mut self, kind: Kind, block: u64, decided: u64, period: u64) {
        self.present.samples[kind as usize] += 1.0;
        let is_small = block.saturating_mul(SMALL) < period;
        let (work, missed) = match is_small && decided == period {
            true => (1.0, 1.0),
            false => work(block, decided, period),
        };
        self.present.work += work;
        self.present.chance += work * work * missed;
    }

    /// The cost of a sample of each kind in nanoseconds, of which the clocks have seen `measured`. `cpu`: CPU time since the
    /// last decision.
    pub(super) fn costs(&mut self, measured: f64, cpu: f64) -> [f64; 2] {
        [0, 1].map(|at| {
            let found = &mut self.found[at];
            if found.cost > 0.0 {
                found.cost *= (-cpu / found.half_life).exp2();
                if found.cost < measured {
                    found.cost = 0.0;
                }
            }
            measured.max(found.cost)
        })
    }

    /// The costs that were found beyond what the clocks say, and have not faded; 0 where there is none.
    #[cfg(test)]
    pub(super) fn found(&self) -> [f64; 2] {
        self.found.map(|found| found.cost)
    }

    /// A kind whose samples were found to be dear for the first time, once.
    pub(super) const fn take_news(&mut self) -> Option<Kind> {
        let [own, native] = &mut self.found;
        if std::mem::replace(&mut own.is_news, false) {
            Some(Kind::Own)
        } else if std::mem::replace(&mut native.is_news, false) {
            Some(Kind::Native)
        } else {
            None
        }
    }

    /// Ends a stretch at a decision: of so much CPU time and time. `has_changed`: whether the decided periods have. Returns the
    /// kind whose period is [`LONGER`] times as long from now on.
    #[unsafe(link_section = "nthbyte_hot")]
    pub(super) fn next(
        &mut self,
        cpu: f64,
        seconds: f64,
        measured: f64,
        has_changed: bool,
    ) -> Option<Kind> {
        self.present.cpu += cpu;
        self.present.seconds += seconds;
        self.rest = (self.rest - cpu).max(0.0);
        self.rest_of_own = (self.rest_of_own - cpu).max(0.0);
        if has_changed {
            let rest = if matches!(self.part, Part::Before) {
                self.rest
            } else {
                REST
            };
            return self.end(rest);
        }
        let present = self.present;
        let has = |kind: Kind, enough| present.samples[kind as usize] >= enough;
        match self.part {
            Part::Before => {
                let is_busy = present.cpu > LEAST_CPU * 1e9 * present.seconds;
                let kinds = [self.last.other(), self.last];
                let is_early = |kind: Kind| kind == Kind::Own && self.rest_of_own > 0.0;
                let able = |&kind: &Kind| has(kind, ENOUGH) && !is_early(kind);
                let kind = kinds.into_iter().find(able);
                if let Some(kind) = kind
                    && self.rest == 0.0
                    && is_busy
                {
                    return self.begin(kind, present);
                }
                if present.work >= RECENT || present.seconds > LONGEST_PART {
                    self.present = Stretch::NONE;
                }
                None
            }
            Part::Longer { kind, before } if has(kind, ENOUGH_LONGER) => {
                self.part = Part::After {
                    kind,
                    before,
                    longer: present,
                };
                self.present = Stretch::NONE;
                None
            }
            Part::After {
                kind,
                before,
                longer,
            } if has(kind, ENOUGH) => {
                if self.compare(kind, before, longer, present, measured) {
                    return self.begin(kind, present);
                }
                self.end(REST)
            }
            _ if present.seconds > LONGEST_PART => self.end(REST),
            Part::Longer { kind, .. } => Some(kind),
            Part::After { .. } => None,
        }
    }

    fn begin(&mut self, kind: Kind, before: Stretch) -> Option<Kind> {
        self.part = Part::Longer { kind, before };
        self.last = kind;
        self.present = Stretch::NONE;
        Some(kind)
    }

    fn end(&mut self, rest: f64) -> Option<Kind> {
        self.part = Part::Before;
        self.present = Stretch::NONE;
        self.rest = rest;
        None
    }

    /// Returns whether the next trial is to come at once.
    fn compare(
        &mut self,
        kind: Kind,
        before: Stretch,
        longer: Stretch,
        after: Stretch,
        measured: f64,
    ) -> bool {
        let at = kind as usize;
        let change = before.cpu_of_work() / after.cpu_of_work();
        let both = before.and(after);
        let [usual, less] = [both, longer].map(|of| of.samples[at] / of.work);
        if !(1.0 / UNSTEADY..=UNSTEADY).contains(&change) || less > SAME * usual {
            return false;
        }
        let (a, b) = (both.cpu_of_work(), longer.cpu_of_work());
        let difference = (a - b) / (a + b);
        let chance = 0.25 * (both.spread() + longer.spread());
        let found = &mut self.found[at];
        found
            .evidence
            .add(difference, (usual - less) / (a + b), chance);
        if let Some(cost) = found.evidence.cost_beyond(measured.max(found.cost)) {
            found.cost = cost;
            // Until then, it has its first value.
            found.is_news |= found.half_life < HALF_LIFE;
            found.half_life = (found.half_life * 2.0).min(LONGEST_HALF_LIFE);
            found.evidence = Evidence::NONE;
        }
        difference > SUSPICIOUS + 2.0 * chance.sqrt()
    }
}

/// How many samples the decided period would take of what one sample of a block of this many bytes stands for: the ratio of the
/// probabilities that it is sampled. And the probability that it is not.
#[cold]
#[unsafe(link_section = "nthbyte_hot")]
fn work(block: u64, decided: u64, period: u64) -> (f64, f64) {
    let missed = |period: u64| (-(block.max(1) as f64) / period.max(1) as f64).exp();
    let now = missed(period);
    (
        (1.0 - missed(decided)) / (1.0 - now).max(f64::MIN_POSITIVE),
        now,
    )
}
