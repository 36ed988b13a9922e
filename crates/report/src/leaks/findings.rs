//! From judged sites to findings: one for each leak, with its figures and its evidence.

use std::collections::{BTreeMap, HashMap};

use nthbyte_profile::Profile;
use nthbyte_profile::event::{Nanos, NodeId};
use nthbyte_profile::meta::Method;
use nthbyte_profile::model::{Fate, Weight};
use serde::Serialize;

use super::clock::{Clock, Clocks, Moment};
use super::discovery::{self, RATE, Test};
use super::growth::Growth;
use super::sites::{self, Level, Life, NEVER, Sites};
use super::survival::{self, Lifetime, Survival};
use super::verdict::{Evidence, SMALLEST, Verdict};
use crate::estimate::{Estimate, Estimator, Totals};

/// A line of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Qualified name of the function.
    pub function: String,
    /// Source file.
    pub file: String,
    /// The line that ran; where that is not recorded (PyPy), that of the function's definition.
    pub line: u32,
}

/// A part of what a finding keeps.
#[derive(Clone, Debug, Serialize)]
pub struct Share<T> {
    /// What it is.
    pub what: T,
    /// From 0 to 1.
    pub share: f64,
}

/// Something that leaks or may leak.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Whether it does.
    pub verdict: Verdict,
    /// The line of the user's own code that allocates most of what is kept.
    pub place: Place,
    /// All lines of that function that take part, largest first.
    pub lines: Vec<Share<Place>>,
    /// The types of what is kept, largest first.
    pub types: Vec<Share<String>>,
    /// Who called, in most cases: lines of own code, innermost first.
    pub callers: Vec<Place>,
    /// The line of a library where most of it is allocated, if it is in one.
    pub inner: Option<Place>,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Samples among them.
    pub samples: u64,
    /// Growth in bytes a minute.
    pub per_minute: Estimate,
    /// Bytes kept of each MiB that the program allocates.
    pub per_mib: f64,
    /// The share of what these lines allocate that is never freed, as far as was seen.
    pub kept: f64,
    /// Whether it was freed as the program ended; then `held` is from just before that.
    pub freed_at_end: bool,
    /// The mean position of the growth in the window: 0.5 if it is steady.
    pub mean_position: f64,
    /// Probability of so much growth by chance.
    pub p: f64,
    /// The same, adjusted for the number of tests.
    pub adjusted_p: f64,
    /// How many minutes more the program should run, if there is not enough data.
    pub more_minutes: Option<f64>,
    /// Estimated live bytes over the run, at equal distances in time.
    pub curve: Vec<f64>,
    /// The share of bytes whose objects live longer than an age.
    pub survival: Vec<Survival>,
    /// Other functions that allocate for the same leak: callers and callees at these lines.
    pub parts: Vec<Part>,
    #[serde(skip)]
    work: Vec<u32>,
}

/// Another function's part of a leak.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its line.
    pub place: Place,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Growth in bytes a minute.
    pub per_minute: Estimate,
}

/// A function that holds memory without leaking.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// Its line with most of it.
    pub place: Place,
    /// Why it is no leak.
    pub verdict: Verdict,
    /// Bytes alive at the end.
    pub held: Estimate,
    /// Estimated live bytes over the run, at equal distances in time.
    pub curve: Vec<f64>,
}

impl Finding {
    /// Whether this may be memory that is kept for reuse, or that another, larger leak holds. CPython
    /// does not free the blocks of some types but keeps a stock of them for the next objects of that
    /// type: who allocated a block and who keeps the object may differ, and the stock grows until it is
    /// full. So does it look where nearly all of what is allocated dies.
    pub(crate) fn may_be_reused(&self, findings: &[Self]) -> bool {
        let listed = self
            .types
            .iter()
            .filter(|kind| FREE_LISTS.contains(&kind.what.as_str()));
        let growth = self.per_minute.estimate;
        let beside = || {
            findings
                .iter()
                .any(|other| other.per_minute.estimate > 4.0 * growth)
        };
        listed.map(|kind| kind.share).sum::<f64>() > 0.5
            && self.kept < 0.05
            && (self.held.estimate < STOCK || beside())
    }

    /// Whether a line is among the finding's.
    pub(crate) fn names(&self, place: &Place) -> bool {
        let lines = self.lines.iter().map(|line| &line.what);
        let mut all = lines.chain(self.parts.iter().map(|part| &part.place));
        all.any(|one| one.file == place.file && one.function == place.function)
    }
}

/// Types whose blocks CPython keeps for reuse (`Include/internal/pycore_freelist_state.h` and, before
/// 3.13, the source of each type).
const FREE_LISTS: [&str; 8] = [
    "tuple",
    "list",
    "dict",
    "dict keys",
    "float",
    "slice",
    "method",
    "coroutine",
];

/// The most that such a stock holds in practice, in bytes: 2000 tuples of each of a few sizes.
const STOCK: f64 = 1_048_576.0;

/// Points of a curve.
const POINTS: usize = 48;

/// Callers that are named.
const CALLERS: usize = 4;

/// The share of what a function keeps that must pass a line for both to be one leak.
const TOGETHER: f64 = 0.8;

/// Lifetimes of which a survival curve is made at most.
const LIFETIMES: u64 = 1_000_000;

/// A site whose growth is tested.
#[derive(Debug)]
pub(crate) struct Candidate {
    site: usize,
    end: End,
    evidence: Evidence,
}

/// Where the run ends for a site.
#[derive(Clone, Copy, Debug)]
struct End {
    moment: Moment,
    /// Whether that is before the session's end, because what it holds was freed then.
    early: bool,
}

/// A profile, taken apart.
#[derive(Debug)]
pub(crate) struct Analysis<'a> {
    profile: &'a Profile,
    weights: Vec<Weight>,
    clocks: Clocks,
    closing: Nanos,
    sites: Sites,
    estimator: Estimator,
    allocated: f64,
    /// Whether it is recorded when an object is freed.
    pub(crate) knows_frees: bool,
    pub(crate) candidates: Vec<Candidate>,
}

/// The verdict on a candidate, and its adjusted probability.
type Judged = (Verdict, f64);

impl<'a> Analysis<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let clocks = Clocks::of(profile);
        let knows_frees = profile.meta.method() == Method::CutFreeLists.name();
        let sites = Sites::of(profile, &clocks);
        let mut all = Totals::default();
        for id in profile.samples.ids() {
            let shape = profile.samples.shape(profile.samples.shape_id(id));
            all.add(&Totals::of_sample(profile, shape));
        }
        let mut analysis = Self {
            profile,
            weights: profile.shape_weights(),
            closing: clocks.closing(),
            estimator: Estimator::new(profile, &all),
            allocated: all.bytes.estimate,
            clocks,
            sites,
            knows_frees,
            candidates: Vec::new(),
        };
        if knows_frees || profile.meta.method() == Method::NurseryLimit.name() {
            let distinct = analysis.sites.distinct().into_iter();
            analysis.candidates = distinct
                .filter_map(|site| analysis.candidate(site))
                .collect();
        }
        analysis
    }

    /// What is tested of each candidate.
    pub(crate) fn tests(&self) -> Vec<Test> {
        let candidates = self.candidates.iter();
        let test = |candidate: &Candidate| Test {
            p: candidate.evidence.p(),
            least: candidate.evidence.work.least_p(),
        };
        candidates.map(test).collect()
    }

    /// The verdicts on all candidates.
    pub(crate) fn judge(&self, rates: &[f64]) -> Vec<Judged> {
        let judge = |(candidate, &rate): (&Candidate, &f64)| {
            let verdict = match candidate.evidence.judge(rate <= RATE) {
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
        let live = samples
            .ids()
            .filter(|&id| matches!(samples.fate(id), Fate::StillLive | Fate::Survived));
        let mut totals = Totals::default();
        for id in live {
            totals.add(&Totals::of_sample(
                self.profile,
                samples.shape(samples.shape_id(id)),
            ));
        }
        self.estimator.bytes(&totals)
    }

    fn weight(&self, life: &Life) -> f64 {
        self.weights[self.profile.samples.shape_id(life.sample).0 as usize].bytes
    }

    fn lives<'s>(&'s self, numbers: &'s [u32]) -> impl Iterator<Item = &'s Life> + Clone {
        numbers
            .iter()
            .map(|&number| &self.sites.lives[number as usize])
    }

    fn candidate(&self, site: usize) -> Option<Candidate> {
        let of = &self.sites.sites[site];
        let end = self.end(&of.lives)?;
        let evidence = self.evidence(&of.lives, of.first, end);
        Some(Candidate {
            site,
            end,
            evidence,
        })
    }

    /// Where the run ends for these; `None` if they hold next to nothing there.
    fn end(&self, numbers: &[u32]) -> Option<End> {
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

    fn evidence(&self, numbers: &[u32], first: Moment, end: End) -> Evidence {
        let lives = || {
            numbers
                .iter()
                .map(|&number| &self.sites.lives[number as usize])
        };
        let growth = |clock: Clock| {
            let at = clock as usize;
            let (first, end) = (f64::from(first[at]), f64::from(end.moment[at]));
            Growth::of(self.profile, &self.weights, lives(), first, end, clock)
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
        Evidence {
            work: growth(Clock::Work),
            time: growth(Clock::Time),
            born: (quantile(0.1), quantile(0.9)),
            import: self.sites.is_import(self.profile, numbers),
        }
    }

    /// Findings from the candidates with a verdict, largest first.
    pub(crate) fn findings(
        &self,
        judged: &[Judged],
        verdict: Verdict,
        tests: usize,
    ) -> Vec<Finding> {
        let mut functions: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, candidate) in self.candidates.iter().enumerate() {
            if judged[number].0 == verdict {
                let function = self.sites.sites[candidate.site].function;
                functions.entry(function).or_default().push(number);
            }
        }
        let found = functions.into_values();
        let found = found
            .map(|numbers| self.finding(&self.most_specific(&numbers), judged, verdict, tests));
        let mut findings: Vec<Finding> = found.collect();
        findings.sort_by(|one, other| other.held.estimate.total_cmp(&one.held.estimate));
        self.survivals(&mut findings);
        self.join(findings)
    }

    /// Of the candidates of one function: its lines if they are most of it, else itself.
    fn most_specific(&self, numbers: &[usize]) -> Vec<usize> {
        let site = |number: usize| &self.sites.sites[self.candidates[number].site];
        let held = |number: usize| self.candidates[number].evidence.work.held();
        let mut lines: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for &number in numbers {
            if site(number).level != Level::Function {
                lines.entry(site(number).line).or_default().push(number);
            }
        }
        let mut chosen: Vec<usize> = Vec::new();
        for of_line in lines.values() {
            let whole = of_line
                .iter()
                .copied()
                .filter(|&number| site(number).level == Level::Line);
            match whole.clone().next() {
                Some(line) => chosen.push(line),
                None => chosen.extend(of_line),
            }
        }
        let whole = numbers
            .iter()
            .copied()
            .find(|&number| site(number).level == Level::Function);
        match whole {
            Some(whole)
                if chosen.iter().map(|&line| held(line)).sum::<f64>() < 0.5 * held(whole) =>
            {
                vec![whole]
            }
            _ => chosen,
        }
    }

    fn finding(
        &self,
        chosen: &[usize],
        judged: &[Judged],
        verdict: Verdict,
        tests: usize,
    ) -> Finding {
        let sites: Vec<_> = chosen
            .iter()
            .map(|&number| &self.sites.sites[self.candidates[number].site])
            .collect();
        let mut numbers: Vec<u32> = sites
            .iter()
            .flat_map(|site| site.lives.iter().copied())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let first = sites.iter().fold([NEVER; 2], |first, site| {
            [first[0].min(site.first[0]), first[1].min(site.first[1])]
        });
        let ends = chosen.iter().map(|&number| self.candidates[number].end);
        let end = ends.min_by_key(|end| !end.early).unwrap_or(End {
            moment: [1.0; 2],
            early: false,
        });
        let evidence = self.evidence(&numbers, first, end);
        let best = |value: &dyn Fn(usize) -> f64| {
            chosen
                .iter()
                .map(|&number| value(number))
                .fold(1.0, f64::min)
        };
        let start = evidence.work.start;
        let (mut held, mut gained, mut lost) =
            (Totals::default(), Totals::default(), Totals::default());
        let mut kept: Vec<&Life> = Vec::new();
        for life in self.lives(&numbers) {
            let (birth, death) = (f64::from(life.birth[1]), f64::from(life.death[1]));
            let samples = &self.profile.samples;
            let totals =
                Totals::of_sample(self.profile, samples.shape(samples.shape_id(life.sample)));
            if alive_at(life, end) {
                held.add(&totals);
                if birth > start {
                    gained.add(&totals);
                    kept.push(life);
                }
            } else if birth <= start && death > start {
                lost.add(&totals);
            }
        }
        let grown = difference(&self.estimator.bytes(&gained), &self.estimator.bytes(&lost));
        let until = if end.early {
            self.closing
        } else {
            self.profile.end
        };
        let minutes = (until.0 as f64 - self.clocks.nanos_of_work(start)) / 60e9;
        let minutes = minutes.max(1e-9);
        let lines = self.shares(&kept, |life| {
            let own = self.sites.frames.own[self.stack(life).index()];
            self.place(own.frame)
        });
        let types = self.shares(&kept, |life| {
            let name = &self.profile.types[self.profile.samples.type_id(life.sample).index()].name;
            Some(if name.is_empty() {
                crate::summary::NO_TYPE.to_owned()
            } else {
                name.clone()
            })
        });
        let inner = self.shares(&kept, |life| {
            let inner = self.profile.stacks[self.stack(life).index()].frame;
            (inner != self.sites.frames.own[self.stack(life).index()].frame)
                .then(|| self.place(inner))?
        });
        let inner = inner
            .into_iter()
            .next()
            .filter(|inner| inner.share > 0.5)
            .map(|inner| inner.what);
        let place = lines.first().map(|line| line.what.clone());
        let more = (verdict == Verdict::NotEnoughData).then(|| self.more_minutes(&evidence, tests));
        Finding {
            verdict,
            place: place.unwrap_or_else(|| self.unknown()),
            lines,
            types,
            callers: self.callers(&kept),
            inner,
            held: self.estimator.bytes(&held),
            samples: held.samples,
            per_minute: Estimate {
                estimate: grown.estimate / minutes,
                low: grown.low / minutes,
                high: grown.high / minutes,
            },
            per_mib: grown.estimate
                / (self.allocated * (f64::from(end.moment[1]) - start) / 1_048_576.0).max(1e-9),
            kept: 1.0,
            freed_at_end: end.early,
            mean_position: evidence.work.mean_position(),
            p: best(&|number| self.candidates[number].evidence.p()),
            adjusted_p: best(&|number| judged[number].1),
            more_minutes: more,
            curve: self.curve(&numbers),
            survival: Vec::new(),
            parts: Vec::new(),
            work: numbers,
        }
    }

    /// How long the run should go on for the growth that there seems to be to pass.
    fn more_minutes(&self, evidence: &Evidence, tests: usize) -> f64 {
        let growth = &evidence.work;
        let have = (growth.later.0 - growth.later.1).max(1.0);
        let by_count = discovery::needed(tests.max(1)) / have;
        // The site's first half of a window must lie in the first half of the run.
        let by_age = 2.0 * growth.start;
        let factor = by_count.max(by_age).max(1.5);
        (factor - 1.0) * self.profile.end.0 as f64 / 60e9
    }

    fn stack(&self, life: &Life) -> NodeId {
        self.profile.samples.stack(life.sample)
    }

    fn place(&self, frame: u32) -> Option<Place> {
        let frame = self.profile.frames.get(frame as usize)?;
        let function = &self.profile.functions[frame.function as usize];
        Some(Place {
            function: sites::folded(&function.name).to_owned(),
            file: function.file.clone(),
            line: if frame.line == 0 {
                function.first_line
            } else {
                frame.line
            },
        })
    }

    fn unknown(&self) -> Place {
        Place {
            function: crate::summary::NO_STACK.to_owned(),
            file: String::new(),
            line: 0,
        }
    }

    /// Parts of the weight of some objects, by what `of` says of each; largest first.
    fn shares<T: Ord>(&self, lives: &[&Life], of: impl Fn(&Life) -> Option<T>) -> Vec<Share<T>> {
        let mut sums: BTreeMap<T, f64> = BTreeMap::new();
        for life in lives {
            if let Some(what) = of(life) {
                *sums.entry(what).or_default() += self.weight(life);
            }
        }
        let whole: f64 = lives.iter().map(|life| self.weight(life)).sum();
        let share = |(what, sum): (T, f64)| Share {
            what,
            share: sum / whole.max(f64::MIN_POSITIVE),
        };
        let mut shares: Vec<Share<T>> = sums.into_iter().map(share).collect();
        shares.sort_by(|one, other| other.share.total_cmp(&one.share));
        shares
    }

    /// The callers on the stack with most of the weight.
    fn callers(&self, lives: &[&Life]) -> Vec<Place> {
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

    fn curve(&self, numbers: &[u32]) -> Vec<f64> {
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

    /// The survival curves of all findings, in one pass over the samples.
    fn survivals(&self, findings: &mut [Finding]) {
        let samples = &self.profile.samples;
        let mut of_line: HashMap<(String, String, u32), usize> = HashMap::new();
        for (number, finding) in findings.iter().enumerate() {
            for line in &finding.lines {
                let Place {
                    function,
                    file,
                    line,
                } = line.what.clone();
                of_line.insert((function, file, line), number);
            }
        }
        let of_frame: Vec<Option<usize>> = (0..self.profile.frames.len() as u32)
            .map(|frame| {
                let Place {
                    function,
                    file,
                    line,
                } = self.place(frame)?;
                of_line.get(&(function, file, line)).copied()
            })
            .collect();
        let own = self.sites.frames.own.iter();
        let of_node: Vec<Option<usize>> = own
            .map(|own| of_frame.get(own.frame as usize).copied().flatten())
            .collect();
        let mut counts = vec![0_u64; findings.len()];
        for id in samples.ids() {
            if let Some(finding) = of_node[samples.stack(id).index()] {
                counts[finding] += 1;
            }
        }
        let mut lifetimes = vec![Vec::new(); findings.len()];
        let mut seen = vec![0_u64; findings.len()];
        for id in samples.ids() {
            let Some(finding) = of_node[samples.stack(id).index()] else {
                continue;
            };
            seen[finding] += 1;
            if !seen[finding].is_multiple_of(counts[finding].div_ceil(LIFETIMES).max(1)) {
                continue;
            }
            let end = if findings[finding].freed_at_end {
                self.closing
            } else {
                self.profile.end
            };
            let born = samples.time(id).0;
            let freed = samples.freed(id).filter(|&freed| freed < end);
            let young = samples.fate(id) == Fate::DiedYoung;
            lifetimes[finding].push(Lifetime {
                age: match (freed, young) {
                    (Some(freed), _) => freed.0.saturating_sub(born),
                    (None, true) => 0,
                    (None, false) => end.0.saturating_sub(born),
                },
                ended: freed.is_some() || young && samples.freed(id).is_none(),
                weight: self.weights[samples.shape_id(id).0 as usize].bytes,
            });
        }
        for (finding, lifetimes) in findings.iter_mut().zip(lifetimes) {
            finding.survival = survival::curve(lifetimes);
            // Few are at risk at the greatest ages.
            let middle = finding.survival.get(finding.survival.len() / 2);
            finding.kept = middle.map_or(1.0, |point| point.share);
        }
    }

    /// Makes one of findings of which one calls the other at the lines that leak.
    fn join(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut head: Vec<usize> = (0..findings.len()).collect();
        for (callee, finding) in findings.iter().enumerate() {
            let kept: Vec<&Life> = self.lives_of(finding);
            let callers = self.shares(&kept, |life| {
                let caller = self.sites.frames.caller(self.profile, self.stack(life))?;
                self.place(caller.frame)
            });
            let Some(caller) = callers.first().filter(|caller| caller.share >= TOGETHER) else {
                continue;
            };
            let is_caller =
                |other: &Finding| other.lines.iter().any(|line| line.what == caller.what);
            if let Some(other) = findings
                .iter()
                .position(is_caller)
                .filter(|&other| other != callee)
            {
                let (one, other) = (root(&head, callee), root(&head, other));
                // The largest come first.
                head[one.max(other)] = one.min(other);
            }
        }
        let roots: Vec<usize> = (0..findings.len())
            .map(|number| root(&head, number))
            .collect();
        let mut joined: BTreeMap<usize, Finding> = BTreeMap::new();
        for (root, finding) in roots.into_iter().zip(findings) {
            match joined.get_mut(&root) {
                None => {
                    joined.insert(root, finding);
                }
                Some(whole) => whole.parts.push(Part {
                    place: finding.place,
                    held: finding.held,
                    per_minute: finding.per_minute,
                }),
            }
        }
        joined.into_values().collect()
    }

    fn lives_of(&self, finding: &Finding) -> Vec<&Life> {
        let lives = finding
            .work
            .iter()
            .map(|&number| &self.sites.lives[number as usize]);
        lives
            .filter(|life| life.death[0] == NEVER || finding.freed_at_end)
            .collect()
    }

    /// Functions that hold memory and are in no finding, largest first.
    pub(crate) fn others(
        &self,
        judged: &[Judged],
        findings: &[Finding],
        undecided: &[Finding],
    ) -> Vec<Holder> {
        let mut others = Vec::new();
        for (candidate, &(verdict, _)) in self.candidates.iter().zip(judged) {
            let site = &self.sites.sites[candidate.site];
            if site.level != Level::Function {
                continue;
            }
            let mut totals = Totals::default();
            let mut live: Vec<&Life> = Vec::new();
            for life in self
                .lives(&site.lives)
                .filter(|life| alive_at(life, candidate.end))
            {
                let samples = &self.profile.samples;
                let shape = samples.shape(samples.shape_id(life.sample));
                totals.add(&Totals::of_sample(self.profile, shape));
                live.push(life);
            }
            let lines = self.shares(&live, |life| {
                let own = self.sites.frames.own[self.stack(life).index()];
                self.place(own.frame)
            });
            let place = lines
                .into_iter()
                .next()
                .map_or_else(|| self.unknown(), |line| line.what);
            let elsewhere = findings
                .iter()
                .chain(undecided)
                .any(|finding| finding.names(&place));
            if elsewhere
                || matches!(
                    verdict,
                    Verdict::Leak | Verdict::Suspect | Verdict::NotEnoughData
                )
            {
                continue;
            }
            others.push(Holder {
                place,
                verdict,
                held: self.estimator.bytes(&totals),
                curve: self.curve(&site.lives),
            });
        }
        others.sort_by(|one, other| other.held.estimate.total_cmp(&one.held.estimate));
        others
    }
}

fn root(head: &[usize], mut number: usize) -> usize {
    while head[number] != number {
        number = head[number];
    }
    number
}

fn alive_at(life: &Life, end: End) -> bool {
    life.birth[0] <= end.moment[0] && (life.death[0] == NEVER || life.death[0] > end.moment[0])
}

/// The interval of a difference of two independent estimates: "MOVER", Zou and Donner, Statistics in
/// Medicine 27 (2008).
fn difference(one: &Estimate, other: &Estimate) -> Estimate {
    let estimate = one.estimate - other.estimate;
    Estimate {
        estimate,
        low: estimate - (one.estimate - one.low).hypot(other.high - other.estimate),
        high: estimate + (one.high - one.estimate).hypot(other.estimate - other.low),
    }
}
