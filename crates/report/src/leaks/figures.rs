//! Makes findings from judged sites: one for each leak, with its values and its evidence.

use std::collections::{BTreeMap, HashMap, HashSet};

use nthbyte_profile::event::SampleId;
use nthbyte_profile::model::Lifetime;

use super::analysis::{Analysis, Candidate, End, Judged, alive_at};
use super::findings::{Container, Finding, LeakPlace, LeakShare, Named, Retainer, Share};
use super::reuse;
use super::rounds::MINUTE_FROM;
use super::sites::{Level, Life, NEVER};
use super::survival::{self, Observation};
use super::verdict::{Evidence, FEW, FEW_AT_ONCE, Verdict, needed};
use crate::estimate::{Estimate, Totals};
use crate::periods;

/// Two functions are one leak if at least this share of the kept bytes of one passes a line of the
/// other.
const TOGETHER: f64 = 0.8;

/// Values of each key of labels that a finding has.
const MOST_VALUES: usize = 4;

/// The largest number of lifetimes for a survival curve.
const LIFETIMES: u64 = 1_000_000;

impl Analysis<'_> {
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

    /// For the candidates of one function: the function if it is one of them, else its lines.
    fn most_specific(&self, numbers: &[usize]) -> Vec<usize> {
        let site = |number: usize| &self.sites.sites[self.candidates[number].site];
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
        // Lines with too few samples for a verdict of their own grow too.
        whole.map_or(chosen, |whole| vec![whole])
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
            .flat_map(|site| self.sites.members(site).iter().copied())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let first = sites.iter().fold([NEVER; 2], |first, site| {
            let of_site = self.sites.first(site, &self.clocks);
            [first[0].min(of_site[0]), first[1].min(of_site[1])]
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
        // The blocks of a container are counted by its content.
        let container = evidence
            .container
            .zip(self.container(&numbers, evidence.work.held()));
        let blocks: HashSet<SampleId> = container
            .iter()
            .flat_map(|(_, chain)| chain.blocks.iter().copied())
            .collect();
        let (mut held, mut gained, mut lost) =
            (Totals::default(), Totals::default(), Totals::default());
        let (mut kept, mut gone): (Vec<&Life>, Vec<&Life>) = (Vec::new(), Vec::new());
        for life in self.lives(&numbers) {
            let (birth, death) = (f64::from(life.birth[1]), f64::from(life.death[1]));
            let totals = self.totals(life.sample);
            let is_container = blocks.contains(&life.sample);
            if alive_at(life, end) {
                held.add(totals);
                if birth > start {
                    kept.push(life);
                    if !is_container {
                        gained.add(totals);
                    }
                }
            } else if birth <= start && death > start {
                gone.push(life);
                if !is_container {
                    lost.add(totals);
                }
            }
        }
        let mut grown = difference(&self.estimator.bytes(&gained), &self.estimator.bytes(&lost));
        if let Some((course, _)) = &container {
            let [low, estimate, high] = course.grown;
            if gained.samples + lost.samples == 0 {
                grown = Estimate::exact(0.0);
            }
            grown = Estimate {
                estimate: grown.estimate + estimate,
                low: grown.low + low,
                high: grown.high + high,
            };
        }
        let until = if end.early {
            self.closing
        } else {
            self.profile.end
        };
        let grown_nanos = (until.0 as f64 - self.clocks.nanos_of_work(start)).max(1.0) as u64;
        let lines = self.net_places(&kept, &gone, |life| Some(self.own(life)));
        let types = self.shares(&kept, |life| {
            let name = &self.profile.types[self.profile.samples.type_id(life.sample).index()].name;
            Some(if name.is_empty() {
                crate::summary::NO_TYPE
            } else {
                name
            })
        });
        let types = types.into_iter().map(|Share { what, share }| Share {
            what: what.to_owned(),
            share,
        });
        let types = types.collect();
        let inner = self.net_places(&kept, &[], |life| {
            let inner = self.profile.stacks[self.stack(life).index()].frame;
            (inner != self.own(life)).then_some(inner)
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
            labels: self.labels(&kept),
            callers: self.callers(&kept),
            inner,
            held: self.estimator.bytes(&held),
            samples: held.samples,
            grown,
            grown_nanos,
            per_minute: per_minute(&grown, grown_nanos),
            per_mib: grown.estimate
                / (self.allocated * (f64::from(end.moment[1]) - start) / 1_048_576.0).max(1e-9),
            kept: 1.0,
            kept_of_reused: None,
            freed_at_end: end.early,
            mean_position: evidence.work.mean_position(),
            p: best(&|number| self.candidates[number].p),
            adjusted_p: best(&|number| judged[number].1),
            more_minutes: more,
            curve: self.curve(&numbers),
            survival: Vec::new(),
            parts: Vec::new(),
            taken_over: Vec::new(),
            container: container.map(|(course, _)| Container {
                steps: course.steps,
                from: course.from,
                to: course.to,
            }),
            held_by: None,
            lives: numbers,
        }
    }

    /// The shares of the labels of some objects.
    fn labels(&self, lives: &[&Life]) -> Vec<Share<String>> {
        let mut labels = Vec::new();
        for (key, values) in &self.labels {
            let value = |life: &Life| values.of(self.profile.samples.labels(life.sample));
            let shares = self.shares(lives, value).into_iter().take(MOST_VALUES);
            labels.extend(shares.map(|Share { what, share }| Share {
                what: format!("{key}={}", values.values[what]),
                share,
            }));
        }
        labels
    }

    /// The number of minutes that the run must be longer, so that the apparent growth passes the
    /// test.
    fn more_minutes(&self, evidence: &Evidence, tests: usize) -> f64 {
        let growth = &evidence.work;
        let have = (growth.later.0 - growth.later.1).max(1.0);
        let by_count = needed(tests.max(1)) / have;
        // The first half of the site's window must be in the first half of the run.
        let by_age = 2.0 * growth.start;
        let factor = by_count.max(by_age).max(1.5);
        (factor - 1.0) * self.profile.end.0 as f64 / 60e9
    }

    /// The survival curves of all findings, in one pass over the samples.
    fn survivals(&self, findings: &mut [Finding]) {
        if findings.is_empty() {
            return;
        }
        let samples = &self.profile.samples;
        let mut of_line: HashMap<(String, String, u32), usize> = HashMap::new();
        for (number, finding) in findings.iter().enumerate() {
            for line in &finding.lines {
                let LeakPlace {
                    function,
                    file,
                    line,
                } = line.what.clone();
                of_line.insert((function, file, line), number);
            }
        }
        let of_frame: Vec<Option<usize>> = (0..self.profile.frames.len() as u32)
            .map(|frame| {
                let LeakPlace {
                    function,
                    file,
                    line,
                } = self.place(frame)?;
                of_line.get(&(function, file, line)).copied()
            })
            .collect();
        let own = self.sites.frames.own.iter();
        let own: Vec<Option<usize>> = own
            .map(|own| of_frame.get(own.frame as usize).copied().flatten())
            .collect();
        // By site: the finding, if it is of one.
        let of_site = samples.sites().iter().map(|site| own[site.stack.index()]);
        let of_site: Vec<Option<usize>> = of_site.collect();
        let mut counts = vec![0_u64; findings.len()];
        for id in samples.ids() {
            if let Some(finding) = of_site[samples.site_id(id).index()] {
                counts[finding] += 1;
            }
        }
        let types = self.profile.types.iter();
        let is_reused: Vec<bool> = types.map(|kind| reuse::is_reused(&kind.name)).collect();
        let mut of_reused = vec![[0.0; 2]; findings.len()];
        let mut lifetimes = vec![Vec::new(); findings.len()];
        let mut seen = vec![0_u64; findings.len()];
        for id in samples.ids() {
            let Some(finding) = of_site[samples.site_id(id).index()] else {
                continue;
            };
            if is_reused[samples.type_id(id).index()]
                && samples.time(id).0 * 2 <= self.profile.end.0
            {
                let stays = samples.lifetime(id) == Lifetime::StillLive
                    || samples.freed(id).is_some_and(|freed| {
                        findings[finding].freed_at_end && freed >= self.closing
                    });
                let weight = self.weights[samples.shape_id(id).0 as usize].bytes;
                of_reused[finding][usize::from(stays)] += weight;
            }
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
            let young = samples.lifetime(id) == Lifetime::DiedYoung;
            lifetimes[finding].push(Observation {
                age: match (freed, young) {
                    (Some(freed), _) => freed.0.saturating_sub(born),
                    (None, true) => 0,
                    (None, false) => end.0.saturating_sub(born),
                },
                ended: freed.is_some() || young && samples.freed(id).is_none(),
                weight: self.weights[samples.shape_id(id).0 as usize].bytes,
            });
        }
        for (finding, [gone, stays]) in findings.iter_mut().zip(of_reused) {
            finding.kept_of_reused = (gone + stays > 0.0).then(|| stays / (gone + stays));
        }
        for (finding, lifetimes) in findings.iter_mut().zip(lifetimes) {
            finding.survival = survival::curve(lifetimes);
            // Few objects are at risk at the greatest ages.
            let middle = finding.survival.get(finding.survival.len() / 2);
            finding.kept = middle.map_or(1.0, |point| point.share);
        }
    }

    /// Joins findings if one calls the other at the lines that leak.
    fn join(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut head: Vec<usize> = (0..findings.len()).collect();
        // By line: the first finding that has it.
        let mut of_line: HashMap<&LeakPlace, usize> = HashMap::new();
        for (number, finding) in findings.iter().enumerate() {
            for line in &finding.lines {
                of_line.entry(&line.what).or_insert(number);
            }
        }
        for (callee, finding) in findings.iter().enumerate() {
            let kept: Vec<&Life> = self.lives_of(finding);
            let callers = self.net_places(&kept, &[], |life| {
                let caller = self.sites.frames.caller(self.profile, self.stack(life))?;
                Some(caller.frame)
            });
            let Some(caller) = callers.first().filter(|caller| caller.share >= TOGETHER) else {
                continue;
            };
            if let Some(&other) = of_line.get(&caller.what).filter(|&&other| other != callee) {
                let (one, other) = (root(&mut head, callee), root(&mut head, other));
                // The largest come first.
                head[one.max(other)] = one.min(other);
            }
        }
        let roots: Vec<usize> = (0..findings.len())
            .map(|number| root(&mut head, number))
            .collect();
        let mut joined: BTreeMap<usize, Finding> = BTreeMap::new();
        for (root, finding) in roots.into_iter().zip(findings) {
            match joined.get_mut(&root) {
                None => {
                    joined.insert(root, finding);
                }
                Some(whole) => whole.parts.push(LeakShare {
                    place: finding.place,
                    held: finding.held,
                    grown: finding.grown,
                    per_minute: finding.per_minute,
                }),
            }
        }
        joined.into_values().collect()
    }

    fn lives_of(&self, finding: &Finding) -> Vec<&Life> {
        let lives = finding
            .lives
            .iter()
            .map(|&number| &self.sites.lives[number as usize]);
        lives
            .filter(|life| life.death[0] == NEVER || finding.freed_at_end)
            .collect()
    }

    /// Functions that hold memory and are in no finding, largest first, at most so many of them; and how many more there are.
    pub(crate) fn others(
        &self,
        judged: &[Judged],
        findings: &[Finding],
        undecided: &[Finding],
        most: usize,
    ) -> (Vec<Retainer>, usize) {
        let named = Named::of(findings.iter().chain(undecided));
        let mut others: Vec<(&Candidate, Verdict, Totals)> = Vec::new();
        for (candidate, &(verdict, _)) in self.candidates.iter().zip(judged) {
            let site = &self.sites.sites[candidate.site];
            let is_other = !matches!(
                verdict,
                Verdict::Leak | Verdict::Grew | Verdict::Suspect | Verdict::NotEnoughData
            );
            if site.level != Level::Function || !is_other {
                continue;
            }
            let mut totals = Totals::default();
            let mut first = None;
            let lives = self.lives(self.sites.members(site));
            for life in lives.filter(|life| alive_at(life, candidate.end)) {
                totals.add(self.totals(life.sample));
                first.get_or_insert(life);
            }
            // A site at this level has one function, or none.
            let place = first.and_then(|life| self.place(self.own(life)));
            let place = place.unwrap_or_else(|| self.unknown());
            if !named.has(&place) {
                others.push((candidate, verdict, totals));
            }
        }
        let held = |totals: &Totals| self.estimator.bytes(totals);
        others.sort_by(|one, other| other.2.bytes.estimate.total_cmp(&one.2.bytes.estimate));
        let more = others.len().saturating_sub(most);
        let period = periods::effective(self.profile);
        let others = others
            .into_iter()
            .take(most)
            .map(|(candidate, verdict, totals)| {
                let members = self.sites.members(&self.sites.sites[candidate.site]);
                let held = held(&totals);
                // A leak too has all its samples in the first fifth of a run by chance: one in five cases if there is one
                // sample, one in 25 if there are two. And a single sample always looks like a burst.
                let few = match verdict {
                    Verdict::LevelledOff | Verdict::Replaced => FEW,
                    Verdict::Burst => FEW_AT_ONCE,
                    Verdict::StartUp => 1.5,
                    _ => 0.0,
                };
                let live = self.lives(members);
                let live: Vec<&Life> = live.filter(|life| alive_at(life, candidate.end)).collect();
                let lines = self.net_places(&live, &[], |life| Some(self.own(life)));
                let line = lines.into_iter().next().map(|line| line.what);
                Retainer {
                    place: line.unwrap_or_else(|| self.unknown()),
                    verdict: match held.estimate < few * period {
                        true => Verdict::TooFew,
                        false => verdict,
                    },
                    held,
                    freed_at_end: candidate.end.early,
                    curve: self.curve(members),
                }
            });
        (others.collect(), more)
    }

    /// The frame of own code of an object's stack.
    fn own(&self, life: &Life) -> u32 {
        self.sites.frames.own[self.stack(life).index()].frame
    }
}

/// Growth a minute. Less than most of a minute says nothing of one.
fn per_minute(grown: &Estimate, nanos: u64) -> Option<Estimate> {
    let minutes = nanos as f64 / 60e9;
    (nanos >= MINUTE_FROM).then(|| Estimate {
        estimate: grown.estimate / minutes,
        low: grown.low / minutes,
        high: grown.high / minutes,
    })
}

/// The first of those that are joined. It shortens the way to it for the next time.
fn root(head: &mut [usize], mut number: usize) -> usize {
    while head[number] != number {
        head[number] = head[head[number]];
        number = head[number];
    }
    number
}

/// The interval of a difference of two independent estimates: "MOVER", Zou and Donner, Statistics in
/// Medicine 27 (2008).
pub(super) fn difference(one: &Estimate, other: &Estimate) -> Estimate {
    let estimate = one.estimate - other.estimate;
    Estimate {
        estimate,
        low: estimate - (one.estimate - one.low).hypot(other.high - other.estimate),
        high: estimate + (one.high - one.estimate).hypot(other.estimate - other.low),
    }
}
