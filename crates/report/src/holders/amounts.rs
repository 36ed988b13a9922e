//! What each node holds, by the tree of dominators.
//!
//! Each sample that counts adds to the node that holds it; what a node dominates is the sum over all samples below it. Drawn
//! blocks have the weight of the snapshot's period. Large blocks and native memory, which it could not draw, have that of
//! the recording's samples.

use nthbyte_profile::Profile;
use nthbyte_profile::holders::{Held, Holder, Snapshot};

use super::Besides;
use crate::estimate::{Estimate, Moments, Totals};

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
    /// Samples that count.
    pub samples: u64,
    /// The weight of each sample.
    pub of_samples: Vec<Moments>,
    heaviest: f64,
}

impl Amounts {
    pub fn of(profile: &Profile, snapshot: &Snapshot) -> Self {
        let count = snapshot.nodes.len() + 1;
        let mut amounts = Self {
            below: vec![Moments::default(); count],
            children: vec![Vec::new(); count],
            all: Moments::default(),
            c_code: Moments::default(),
            garbage: Moments::default(),
            not_found: Moments::default(),
            samples: 0,
            of_samples: Vec::with_capacity(snapshot.samples.len()),
            heaviest: snapshot.period as f64,
        };
        for of in &snapshot.samples {
            let moments = of_sample(profile, snapshot, of);
            amounts.of_samples.push(moments);
            amounts.samples += u64::from(of.counts);
            amounts.all.add(&moments);
            match of.by {
                Holder::Node(node) => amounts.below[node as usize].add(&moments),
                Holder::Garbage => amounts.garbage.add(&moments),
                Holder::NotFound => amounts.not_found.add(&moments),
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
        }
    }

    /// The part of all that is alive.
    pub fn share(&self, moments: &Moments) -> f64 {
        moments.estimate / self.all.estimate.max(1.0)
    }
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
