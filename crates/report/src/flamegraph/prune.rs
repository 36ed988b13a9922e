//! Leaves out what cannot be seen: calls that have a tiny share of every view of the page.
//!
//! A pruned call, with all that it calls, becomes a part of its caller's box of [`SMALL`]. The sums of all other boxes stay
//! complete. A call's score is its largest share in any view: of all objects, of those that died young, survived, or
//! are alive at the end, by bytes and by allocations; of what was allocated in any of [`PARTS`] parts of the session, and of
//! its part alive at the end; of the live memory at the peak; and of time. A caller's score is no less than the score of
//! what it calls, so the calls with the highest scores are a tree.

use std::borrow::Cow;

use nthbyte_profile::Profile;
use nthbyte_profile::event::{FrameKind, Nanos, NodeId};
use nthbyte_profile::model::{Frame, Function, Lifetime, StackNode};
use serde::Serialize;

use crate::selection::{Alive, Moment};

/// The name of a box that holds pruned calls.
pub const SMALL: &str = "small calls";

/// A call that has a large share of this part of the session can be seen when the part is selected.
const PARTS: usize = 16;

/// What was pruned, as the page's header has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pruned {
    /// Distinct stacks of the profile.
    pub stacks: usize,
    /// How many of them are kept.
    pub kept: usize,
    /// The largest score of a stack that is not.
    pub share: f64,
    /// The share of the samples whose stacks are not kept.
    pub samples: f64,
}

/// The stacks of a page, and what they refer to.
#[derive(Debug)]
pub struct Stacks<'a> {
    /// The stack tree; pruned calls are replaced by boxes of small calls.
    pub nodes: Cow<'a, [StackNode]>,
    /// Frames.
    pub frames: Cow<'a, [Frame]>,
    /// Functions.
    pub functions: Cow<'a, [Function]>,
    /// By the profile's stack, the page's; `None` if they are the same.
    new: Option<Vec<u32>>,
    /// Whether the outermost frames are groups, which are kept.
    grouped: bool,
    /// What was pruned.
    pub pruned: Option<Pruned>,
}

impl<'a> Stacks<'a> {
    /// All stacks of a profile.
    pub fn all(profile: &'a Profile) -> Self {
        Self {
            nodes: Cow::Borrowed(&profile.stacks),
            frames: Cow::Borrowed(&profile.frames),
            functions: Cow::Borrowed(&profile.functions),
            new: None,
            grouped: false,
            pruned: None,
        }
    }

    /// The same; `grouped`: the outermost frames are groups.
    pub fn grouped(self, grouped: bool) -> Self {
        Self { grouped, ..self }
    }

    /// Whether a stack is kept, however small it is.
    pub fn is_group(&self, stack: usize) -> bool {
        stack == 0 || (self.grouped && self.nodes[stack].parent == NodeId::ROOT)
    }

    /// The stacks with the highest scores. It has the tables of the first profile.
    pub fn highest(sides: &[&'a Profile], grouped: bool, scores: &Scores, most: usize) -> Self {
        let mut stacks = Self::all(sides[0]).grouped(grouped);
        if scores.order.len() <= most {
            return stacks;
        }
        let all = sides[0].stacks.len();
        let mut kept: Vec<bool> = (0..all).map(|stack| stacks.is_group(stack)).collect();
        for &node in &scores.order[..most] {
            kept[node as usize] = true;
        }
        let frame = stacks.frames.len() as u32;
        stacks.frames.to_mut().push(Frame {
            function: stacks.functions.len() as u32,
            line: 0,
            kind: FrameKind::Note,
        });
        stacks.functions.to_mut().push(Function {
            name: SMALL.into(),
            file: String::new(),
            first_line: 0,
        });
        let mut new: Vec<u32> = (0..all as u32).collect();
        // By kept stack, the box of small calls below it; 0 if there is none yet.
        let mut small = vec![0; all];
        for node in 1..all {
            let parent = sides[0].stacks[node].parent.index();
            if kept[node] {
                continue;
            }
            // A pruned caller comes first, and is already in a box.
            new[node] = if kept[parent] {
                if small[parent] == 0 {
                    small[parent] = stacks.nodes.len() as u32;
                    stacks.nodes.to_mut().push(StackNode {
                        parent: NodeId(parent as u32),
                        frame,
                    });
                }
                small[parent]
            } else {
                new[parent]
            };
        }
        let samples: usize = sides
            .iter()
            .map(|side| side.samples.len() + side.cpu.len())
            .sum();
        let merged = sides.iter().flat_map(|side| {
            let allocations = side.samples.ids().map(|id| side.samples.stack(id));
            allocations.chain(side.cpu.iter().map(|sample| sample.stack))
        });
        let merged = merged.filter(|stack| !kept[stack.index()]).count();
        stacks.new = Some(new);
        stacks.pruned = Some(Pruned {
            stacks: scores.order.len(),
            kept: most,
            share: scores.of[scores.order[most] as usize].into(),
            samples: merged as f64 / samples.max(1) as f64,
        });
        stacks
    }

    /// The number of distinct stacks that are written.
    pub fn written(&self) -> usize {
        self.pruned
            .map_or(self.nodes.len(), |pruned| pruned.kept * 3 / 2)
    }

    /// The page's stack of a profile's stack.
    pub fn of(&self, stack: NodeId) -> u32 {
        self.new.as_ref().map_or(stack.0, |new| new[stack.index()])
    }
}

/// The scores of all stacks that occur.
#[derive(Debug)]
pub struct Scores {
    of: Vec<f32>,
    /// The stacks with a score above 0, the highest first; a caller comes before what it calls.
    order: Vec<u32>,
}

impl Scores {
    /// The scores in profiles that have the same stacks: the two sides of a difference, or one profile. `peak`: when most was alive.
    pub fn of(sides: &[&Profile], peak: Option<Nanos>) -> Self {
        let mut scores = Self {
            of: vec![0.0; sides[0].stacks.len()],
            order: Vec::new(),
        };
        for side in sides {
            scores.add(side);
        }
        if let Some(peak) = peak {
            scores.add_peak(sides[0], peak);
        }
        let parents = &sides[0].stacks;
        for node in (1..scores.of.len()).rev() {
            // Rounding must not put a call before its caller.
            let parent = parents[node].parent.index();
            scores.of[parent] = scores.of[parent].max(scores.of[node]);
        }
        let of = &scores.of;
        let mut order: Vec<u32> = (1..of.len() as u32)
            .filter(|&node| of[node as usize] > 0.0)
            .collect();
        order.sort_by(|&a, &b| of[b as usize].total_cmp(&of[a as usize]).then(a.cmp(&b)));
        scores.order = order;
        scores
    }

    fn add(&mut self, profile: &Profile) {
        let samples = &profile.samples;
        let weights: Vec<[f64; 2]> = samples
            .shapes()
            .iter()
            .map(|&shape| {
                let totals = crate::estimate::Totals::of_sample(profile, shape);
                [totals.bytes.estimate, totals.allocations.estimate]
            })
            .collect();
        let part = |time: Nanos| {
            let part = u128::from(time.0) * PARTS as u128 / u128::from(profile.end.0.max(1));
            (part as usize).min(PARTS - 1)
        };
        let views: [fn(Lifetime) -> bool; 4] = [
            |_| true,
            |lifetime| lifetime == Lifetime::DiedYoung,
            |lifetime| lifetime != Lifetime::DiedYoung,
            |lifetime| lifetime == Lifetime::StillLive,
        ];
        for (view, counts) in views.iter().enumerate() {
            for quantity in [0, 1] {
                let chosen = samples.ids().filter(|&id| counts(samples.lifetime(id)));
                let weigh = |id| {
                    (
                        samples.stack(id),
                        weights[samples.shape_id(id).0 as usize][quantity],
                    )
                };
                // Of the two that need no fate to be long, parts of time are looked at too.
                if view == 0 || view == 3 {
                    self.view(
                        profile,
                        PARTS,
                        chosen.map(|id| (part(samples.time(id)), weigh(id))),
                    );
                }
                let chosen = samples.ids().filter(|&id| counts(samples.lifetime(id)));
                self.view(profile, 1, chosen.map(|id| (0, weigh(id))));
            }
        }
        let ticks = || profile.cpu.iter();
        self.view(
            profile,
            PARTS,
            ticks().map(|tick| (part(tick.time), (tick.stack, 1.0))),
        );
        self.view(profile, 1, ticks().map(|tick| (0, (tick.stack, 1.0))));
    }

    /// Takes into account what was alive at the peak.
    fn add_peak(&mut self, profile: &Profile, peak: Nanos) {
        let alive = Alive::at(profile, Moment::Found(peak));
        let samples = profile.samples.ids().filter_map(|id| {
            let bytes = alive.totals(id)?.bytes.estimate;
            Some((0, (profile.samples.stack(id), bytes)))
        });
        self.view(profile, 1, samples);
    }

    /// Takes into account the shares in some views: `samples` has the view, the stack and the weight of each sample.
    fn view(
        &mut self,
        profile: &Profile,
        views: usize,
        samples: impl Iterator<Item = (usize, (NodeId, f64))>,
    ) {
        let mut sums = vec![0.0_f64; views * self.of.len()];
        for (view, (stack, weight)) in samples {
            sums[views * stack.index() + view] += weight;
        }
        for node in (1..self.of.len()).rev() {
            let parent = profile.stacks[node].parent.index();
            for view in 0..views {
                sums[views * parent + view] += sums[views * node + view];
            }
        }
        for node in 1..self.of.len() {
            for view in 0..views {
                let (sum, all) = (sums[views * node + view], sums[view]);
                if all > 0.0 {
                    self.of[node] = self.of[node].max((sum / all) as f32);
                }
            }
        }
    }
}
