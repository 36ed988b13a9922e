//! What each node holds, by the tree of dominators.
//!
//! Each sample that counts adds to the node that holds it; what a node dominates is the sum over all samples below it. Drawn
//! blocks have the weight of the snapshot's period. Large blocks and native memory, which it could not draw, have the
//! recording's.

use std::collections::BTreeMap;

use nthbyte_profile::event::SourceId;
use nthbyte_profile::holders::{Held, Holder, Snapshot};
use nthbyte_profile::{Domain, Profile};

use super::{Besides, Native, SMALLEST};
use crate::estimate::{Estimate, Moments, Totals};
use crate::periods;

/// Amounts by node. Number 0 is above all roots.
pub struct Amounts {
    /// What would be freed without a node.
    pub below: Vec<Moments>,
    /// The nodes that each node dominates directly.
    pub children: Vec<Vec<u32>>,
    pub all: Moments,
    pub c_code: Moments,
    pub garbage: Moments,
    pub not_found: Moments,
    /// Native memory of which no object has the address, by its type: the function, and the library that called it.
    native: BTreeMap<String, Moments>,
    /// Samples that count.
    pub samples: u64,
    /// The weight of each sample.
    pub of_samples: Vec<Moments>,
    heaviest: f64,
}

impl Amounts {
    pub fn of(profile: &Profile, snapshot: &Snapshot) -> Self {
        let heaviest = periods::longest_of(profile, large_sources(profile, snapshot));
        Self::weighed(
            profile,
            snapshot,
            heaviest.max(snapshot.period as f64),
            |of| of_sample(profile, snapshot, of),
        )
    }

    /// With other weights. `heaviest`: the largest one that a sample can have.
    pub fn weighed(
        profile: &Profile,
        snapshot: &Snapshot,
        heaviest: f64,
        weigh: impl Fn(&Held) -> Moments,
    ) -> Self {
        let count = snapshot.nodes.len() + 1;
        let mut amounts = Self {
            below: vec![Moments::default(); count],
            children: vec![Vec::new(); count],
            all: Moments::default(),
            c_code: Moments::default(),
            garbage: Moments::default(),
            not_found: Moments::default(),
            native: BTreeMap::new(),
            samples: 0,
            of_samples: Vec::with_capacity(snapshot.samples.len()),
            heaviest,
        };
        for of in &snapshot.samples {
            let moments = weigh(of);
            amounts.of_samples.push(moments);
            amounts.samples += u64::from(moments.estimate > 0.0);
            amounts.all.add(&moments);
            match of.by {
                Holder::Node(node) => amounts.below[node as usize].add(&moments),
                Holder::Garbage => amounts.garbage.add(&moments),
                Holder::NotFound => match native_type(profile, of) {
                    Some(name) => {
                        let native = amounts.native.entry(name.to_owned()).or_default();
                        native.add(&moments);
                    }
                    None => amounts.not_found.add(&moments),
                },
            }
        }
        // Dominators have smaller numbers.
        for number in (1..count as u32).rev() {
            let node = snapshot.node(number);
            let moments = amounts.below[number as usize];
            if node.held_by_c {
                amounts.c_code.add(&moments);
            }
            amounts.below[node.dominator as usize].add(&moments);
            amounts.children[node.dominator as usize].push(number);
        }
        amounts
    }

    /// A sum with its interval.
    pub fn estimate(&self, moments: &Moments) -> Estimate {
        moments.interval(self.heaviest)
    }

    /// What no object is known to hold.
    pub fn besides(&self) -> Besides {
        Besides {
            c_code: self.estimate(&self.c_code),
            garbage: self.estimate(&self.garbage),
            not_found: self.estimate(&self.not_found),
            native: self.native(),
        }
    }

    /// All native memory without a holder.
    pub fn all_native(&self) -> Moments {
        let mut all = Moments::default();
        self.native.values().for_each(|moments| all.add(moments));
        all
    }

    /// The types of native memory without a holder, the most first. Small ones are the last row.
    pub fn native(&self) -> Vec<Native> {
        let mut rest = Moments::default();
        let mut native = Vec::new();
        for (name, moments) in &self.native {
            match self.share(moments) >= SMALLEST {
                true => native.push(Native {
                    name: name.clone(),
                    bytes: self.estimate(moments),
                }),
                false => rest.add(moments),
            }
        }
        native.sort_by(|one, other| other.bytes.estimate.total_cmp(&one.bytes.estimate));
        if rest.estimate > 0.0 {
            let name = if native.is_empty() { "all" } else { "others" };
            native.push(Native {
                name: name.to_owned(),
                bytes: self.estimate(&rest),
            });
        }
        native
    }

    /// The part of all that is alive.
    pub fn share(&self, moments: &Moments) -> f64 {
        moments.estimate / self.all.estimate.max(1.0)
    }
}

/// The sources of the large blocks of Python that the recording has sampled: others may be there, of which it has no sample.
fn large_sources(profile: &Profile, snapshot: &Snapshot) -> impl Fn(SourceId) -> bool {
    let large = snapshot
        .samples
        .iter()
        .filter(|of| of.counts && !of.is_drawn)
        .filter_map(|of| of.recorded)
        .filter(|&sample| profile.domain(sample) != Domain::Native);
    let source = |sample| {
        let shape = profile.samples.shape(profile.samples.shape_id(sample));
        profile.sampling(shape.sampling).source
    };
    let mut sources: Vec<SourceId> = large.map(source).collect();
    sources.sort_unstable();
    sources.dedup();
    move |source| sources.contains(&source)
}

/// The type of a sample of native memory, which the recording has: [`Amounts::native`] has those that no node holds.
pub fn native_type<'a>(profile: &'a Profile, of: &Held) -> Option<&'a str> {
    let sample = of.recorded.filter(|_| of.counts && !of.is_drawn)?;
    (profile.domain(sample) == Domain::Native).then(|| {
        let of_type = profile.types.get(profile.samples.type_id(sample).index());
        of_type.map_or("", |of| of.name.as_str())
    })
}

fn of_sample(profile: &Profile, snapshot: &Snapshot, of: &Held) -> Moments {
    match (of.counts, of.is_drawn, of.recorded) {
        (true, true, _) => {
            let weight = snapshot.weight(of);
            Moments::of_sample(of.size as f64, weight.bytes, weight.probability)
        }
        (true, false, Some(sample)) => {
            let shape = profile.samples.shape(profile.samples.shape_id(sample));
            Totals::of_sample(profile, shape).bytes
        }
        _ => Moments::default(),
    }
}
