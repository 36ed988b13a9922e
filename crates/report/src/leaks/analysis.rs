//! The analysis of a profile: its sites, the candidates whose growth is tested, and the verdicts.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use nthbyte_profile::event::{Nanos, NodeId, SampleId};
use nthbyte_profile::model::{Lifetime, Weight};
use nthbyte_profile::{LabelValues, Lifetimes, Profile};

use super::clock::{Clock, Clocks, Instant};
use super::containers::{self, Chain};
use super::findings::{LeakPlace, Share};
use super::growth::Growth;
use super::sites::{self, Life, NEVER, Sites};
use super::verdict::{Evidence, RATE, SMALLEST, Verdict};
use crate::estimate::{Estimate, Estimator, Totals};
use crate::periods;
use crate::statistics::discovery::Test;

/// Points of a curve.
const POINTS: usize = 48;

/// The largest number of callers in a finding.
const CALLERS: usize = 4;

/// A site whose growth is tested.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(super) site: usize,
    pub(super) end: End,
    /// [`Evidence::p`].
    pub(super) p: f64,
    /// The least that it could be.
    least_p: f64,
    /// Live bytes at the end.
    pub(super) held: f64,
    /// The verdict if the test does not pass, adjusted for the number of tests, and if it does. There may be as many candidates
    /// as samples, so they do not keep their evidence.
    verdicts: [Verdict; 2],
}

/// The end of the run for a site.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) moment: Instant,
    /// Whether that is before the session's end, because the site's objects were freed then.
    pub(super) early: bool,
}

/// Keys of labels that a finding has.
const MOST_KEYS: usize = 8;

/// The analysis of a profile.
#[derive(Debug)]
pub(crate) struct Analysis<'a> {
    pub(super) profile: &'a Profile,
    pub(super) weights: Vec<Weight>,
    /// What a sample stands for, by its shape.
    totals: Vec<Totals>,
    /// [`periods::longest`]: found once, since it looks at every shape.
    pub(super) longest_period: f64,
    pub(super) clocks: Clocks,
    pub(super) closing: Nanos,
    pub(super) sites: Sites,
    pub(super) estimator: Estimator,
    pub(super) allocated: f64,
    /// The containers that grow, by the sample of their last block.
    containers: HashMap<SampleId, Chain>,
    /// Whether the frees of objects are recorded.
    pub(crate) knows_frees: bool,
    pub(crate) candidates: Vec<Candidate>,
    /// The first keys of labels, with their values.
    pub(super) labels: Vec<(&'a str, LabelValues<'a>)>,
}

/// The verdict on a candidate, and its adjusted probability.
pub(super) type Judged = (Verdict, f64);
impl<'a> Analysis<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let clocks = Clocks::of(profile);
        let lifetimes = profile.lifetimes();
        let knows_frees = lifetimes == Lifetimes::All;
        let sites = Sites::of(profile, &clocks);
        let totals = Totals::of_shapes(profile);
        let all = Totals::of_all(profile, &totals);
        let closing = clocks.closing();
        let chains = containers::chains(profile, &sites.frames, &clocks, closing);
        let keys = profile.label_keys().into_iter().take(MOST_KEYS);
        let mut analysis = Self {
            profile,
            weights: profile.shape_weights(),
            totals,
            longest_period: periods::longest(profile),
            closing,
            containers: chains
                .into_iter()
                .map(|chain| (chain.blocks[0], chain))
                .collect(),
            estimator: Estimator::new(profile, &all),
            allocated: all.bytes.estimate,
            clocks,
            sites,
            knows_frees,
            candidates: Vec::new(),
            labels: keys.map(|key| (key, profile.label_values(key))).collect(),
        };
        if lifetimes > Lifetimes::None {
            let distinct = analysis.sites.distinct().into_iter();
            analysis.candidates = distinct
                .filter_map(|site| analysis.candidate(site))
                .collect();
        }
        analysis
    }

    /// The test of each candidate.
    pub(crate) fn tests(&self) -> Vec<Test> {
        let candidates = self.candidates.iter();
        let test = |candidate: &Candidate| Test {
            p: candidate.p,
            least: candidate.least_p,
        };
        candidates.map(test).collect()
    }

    /// The verdicts on all candidates.
    pub(crate) fn judge(&self, rates: &[f64]) -> Vec<Judged> {
        let judge = |(candidate, &rate): (&Candidate, &f64)| {
            let verdict = match candidate.verdicts[usize::from(rate <= RATE)] {
                Verdict::Leak if !self.knows_frees => Verdict::Suspect,
                verdict => verdict,
            };
            (verdict, rate)
        };
        self.candidates.iter().zip(rates).map(judge).collect()
    }

    /// Bytes alive at the end.
    pub(crate) fn live(&self) -> Estimate {
        let samples = &self.profile.samples;
        let live = samples.ids().filter(|&id| {
            matches!(
                samples.lifetime(id),
                Lifetime::StillLive | Lifetime::Survived
            )
        });
        let mut totals = Totals::default();
        for id in live {
            totals.add(self.totals(id));
        }
        self.estimator.bytes(&totals)
    }

    /// What a sample stands for.
    pub(super) fn totals(&self, sample: SampleId) -> &Totals {
        &self.totals[self.profile.samples.shape_id(sample).0 as usize]
    }

    pub(super) fn weight(&self, life: &Life) -> f64 {
        self.weights[self.profile.samples.shape_id(life.sample).0 as usize].bytes
    }

    pub(super) fn lives<'s>(
        &'s self,
        numbers: &'s [u32],
    ) -> impl Iterator<Item = &'s Life> + Clone {
        numbers
            .iter()
            .map(|&number| &self.sites.lives[number as usize])
    }

    pub(super) fn candidate(&self, site: usize) -> Option<Candidate> {
        let of = &self.sites.sites[site];
        let lives = self.sites.members(of);
        let end = self.end(lives)?;
        let evidence = self.evidence(lives, self.sites.first(of, &self.clocks), end);
        Some(Candidate {
            site,
            end,
            p: evidence.p(),
            least_p: evidence.least_p(),
            held: evidence.work.held(),
            verdicts: [false, true].map(|passes| evidence.judge(passes)),
        })
    }

    /// The end of the run for these objects; `None` if almost nothing is alive there.
    pub(super) fn end(&self, numbers: &[u32]) -> Option<End> {
        let closing = self.clocks.moment(self.closing);
        let (mut now, mut then) = (0.0, 0.0);
        for &number in numbers {
            let life = &self.sites.lives[number as usize];
            let weight = self.weight(life);
            if life.death[0] == NEVER {
                now += weight;
            }
            if life.death[0] > closing[0] && life.birth[0] <= closing[0] {
                then += weight;
            }
        }
        let early = then > 2.0 * now;
        (f64::max(now, then) >= SMALLEST).then_some(End {
            moment: if early { closing } else { [1.0; 2] },
            early,
        })
    }

    pub(super) fn evidence(&self, numbers: &[u32], first: Instant, end: End) -> Evidence {
        let lives = || {
            numbers
                .iter()
                .map(|&number| &self.sites.lives[number as usize])
        };
        let growth = |clock: Clock| {
            let at = clock as usize;
            let (first, end) = (f64::from(first[at]), f64::from(end.moment[at]));
            Growth::of(self, lives(), first, end, clock)
        };
        let mut born: Vec<(f32, f64)> = lives()
            .filter(|life| alive_at(life, end))
            .map(|life| (life.birth[Clock::Work as usize], self.weight(life)))
            .collect();
        born.sort_by(|one, other| one.0.total_cmp(&other.0));
        let held: f64 = born.iter().map(|(_, weight)| weight).sum();
        let quantile = |part: f64| {
            let mut sum = 0.0;
            let found = born.iter().find(|(_, weight)| {
                sum += weight;
                sum >= part * held
            });
            found.map_or(0.0, |&(birth, _)| f64::from(birth))
        };
        let (work, time) = (growth(Clock::Work), growth(Clock::Time));
        let start = [time.start as f32, work.start as f32];
        let container = self.container(numbers, work.held());
        let container = container.and_then(|chain| chain.course(start, end.moment));
        Evidence {
            work,
            time,
            container,
            born: (quantile(0.1), quantile(0.9)),
            import: self.sites.is_import(self.profile, numbers),
        }
    }

    /// The container among these objects that makes up at least half of the held bytes.
    pub(super) fn container(&self, numbers: &[u32], held: f64) -> Option<&Chain> {
        if self.containers.is_empty() {
            return None;
        }
        let last = self.lives(numbers).filter_map(|life| {
            let chain = self.containers.get(&life.sample)?;
            Some((self.weight(life), chain))
        });
        let largest = last.max_by(|one, other| one.0.total_cmp(&other.0))?;
        (largest.0 >= held / 2.0).then_some(largest.1)
    }

    pub(super) fn stack(&self, life: &Life) -> NodeId {
        self.profile.samples.stack(life.sample)
    }

    pub(super) fn place(&self, frame: u32) -> Option<LeakPlace> {
        let frame = self.profile.frames.get(frame as usize)?;
        let function = &self.profile.functions[frame.function as usize];
        Some(LeakPlace {
            function: sites::folded(&function.name).to_owned(),
            file: function.file.clone(),
            line: if frame.line == 0 {
                function.first_line
            } else {
                frame.line
            },
        })
    }

    pub(super) fn unknown(&self) -> LeakPlace {
        LeakPlace {
            function: crate::summary::NO_STACK.to_owned(),
            file: String::new(),
            line: 0,
        }
    }

    /// The shares of the weight of some objects, grouped by the result of `of`; largest first.
    pub(super) fn shares<T: Ord>(
        &self,
        lives: &[&Life],
        of: impl Fn(&Life) -> Option<T>,
    ) -> Vec<Share<T>> {
        self.net_shares(lives, &[], of)
    }

    /// The same for what was gained less what was lost; groups that have lost more are left out.
    fn net_shares<T: Ord>(
        &self,
        gained: &[&Life],
        lost: &[&Life],
        of: impl Fn(&Life) -> Option<T>,
    ) -> Vec<Share<T>> {
        let mut sums: BTreeMap<T, f64> = BTreeMap::new();
        let mut whole = 0.0;
        for (lives, sign) in [(gained, 1.0), (lost, -1.0)] {
            for life in lives {
                let weight = sign * self.weight(life);
                whole += weight;
                if let Some(what) = of(life) {
                    *sums.entry(what).or_default() += weight;
                }
            }
        }
        shares_of(sums, whole)
    }

    /// The shares of the places of frames, as [`net_shares`](Self::net_shares). Places are found for frames, not for objects: there
    /// may be a million of these.
    pub(super) fn net_places(
        &self,
        gained: &[&Life],
        lost: &[&Life],
        of: impl Fn(&Life) -> Option<u32>,
    ) -> Vec<Share<LeakPlace>> {
        let frames = &self.profile.frames;
        // Frames of one group of functions and one line are one place.
        let key = |frame: u32| {
            let frame = frames.get(frame as usize)?;
            let function = &self.profile.functions[frame.function as usize];
            let line = match frame.line {
                0 => function.first_line,
                line => line,
            };
            Some((self.sites.frames.group[frame.function as usize], line))
        };
        let mut first: HashMap<(u32, u32), u32, RandomState> = HashMap::default();
        let mut frame_of = |frame| Some(*first.entry(key(frame)?).or_insert(frame));
        let mut sums: HashMap<u32, f64, RandomState> = HashMap::default();
        let mut whole = 0.0;
        for (lives, sign) in [(gained, 1.0), (lost, -1.0)] {
            for life in lives {
                let weight = sign * self.weight(life);
                whole += weight;
                if let Some(frame) = of(life).and_then(&mut frame_of) {
                    *sums.entry(frame).or_default() += weight;
                }
            }
        }
        let sums = sums.into_iter();
        let sums = sums.filter_map(|(frame, sum)| Some((self.place(frame)?, sum)));
        shares_of(sums.collect(), whole)
    }

    /// The callers on the stack with most of the weight.
    pub(super) fn callers(&self, lives: &[&Life]) -> Vec<LeakPlace> {
        let stacks = self.shares(lives, |life| Some(self.stack(life)));
        let mut callers = Vec::new();
        let Some(stack) = stacks.first() else {
            return callers;
        };
        let mut at = stack.what;
        while let Some(caller) = self.sites.frames.caller(self.profile, at) {
            if callers.len() == CALLERS {
                break;
            }
            callers.extend(self.place(caller.frame));
            at = caller.node;
        }
        callers
    }

    pub(super) fn curve(&self, numbers: &[u32]) -> Vec<f64> {
        let mut changes = vec![0.0; POINTS + 1];
        let cell = |at: f32| (f64::from(at) * POINTS as f64) as usize;
        for life in self.lives(numbers) {
            changes[cell(life.birth[0]).min(POINTS)] += self.weight(life);
            if life.death[0] != NEVER {
                changes[cell(life.death[0]).min(POINTS)] -= self.weight(life);
            }
        }
        let mut level = 0.0;
        let levels = changes.into_iter().take(POINTS).map(|change| {
            level += change;
            f64::max(level, 0.0)
        });
        levels.collect()
    }
}

/// The shares of sums that are more than nothing, largest first.
fn shares_of<T: Ord>(sums: BTreeMap<T, f64>, whole: f64) -> Vec<Share<T>> {
    let positive: f64 = sums.values().filter(|sum| **sum > 0.0).sum();
    let whole = whole.max(positive).max(f64::MIN_POSITIVE);
    let grown = sums.into_iter().filter(|(_, sum)| *sum > 0.0);
    let share = |(what, sum): (T, f64)| Share {
        what,
        share: sum / whole,
    };
    let mut shares: Vec<Share<T>> = grown.map(share).collect();
    shares.sort_by(|one, other| other.share.total_cmp(&one.share));
    shares
}

/// Whether an object is alive at the end of the run for its site.
pub(super) fn alive_at(life: &Life, end: End) -> bool {
    life.birth[0] <= end.moment[0] && (life.death[0] == NEVER || life.death[0] > end.moment[0])
}
