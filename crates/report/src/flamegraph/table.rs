//! What one sample of each class adds, as columns.
//!
//! A class of equal samples at random distances is a size and a probability, from which all its moments follow
//! ([`crate::estimate`]): ten bytes instead of 64. A class of merged shapes, and one of fixed distances, has all of its moments.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::pack::Columns;
use crate::estimate::{Moments, Totals};

type Quantity = ([&'static str; 4], fn(&Totals) -> &Moments);

/// A quantity that is estimated, and the columns that its estimates need.
const QUANTITIES: [Quantity; 2] = [
    (
        [
            "shape.bytes.estimate",
            "shape.bytes.seen",
            "shape.bytes.variance",
            "shape.bytes.third",
        ],
        |totals| &totals.bytes,
    ),
    (
        [
            "shape.allocations.estimate",
            "shape.allocations.seen",
            "shape.allocations.variance",
            "shape.allocations.third",
        ],
        |totals| &totals.allocations,
    ),
];

/// Moments that differ by no more than this part belong to one size and one probability: figures have three digits.
const NEAR: f64 = 1e-9;

/// The classes of a side of a page. Equal ones are one.
#[derive(Debug)]
pub struct Table {
    /// The number of runs that figures are the mean of.
    runs: f64,
    /// By class: what one sample adds.
    each: Vec<[Moments; 2]>,
    numbers: HashMap<[u64; 6], u32, RandomState>,
}

/// The written table: by class, its number in the columns.
pub struct Written(Vec<u32>);

impl Written {
    /// A class as the columns number it.
    pub fn number(&self, class: u32) -> u32 {
        self.0[class as usize]
    }
}

impl Table {
    pub fn new(runs: u32) -> Self {
        Self {
            runs: f64::from(runs.max(1)),
            each: Vec::new(),
            numbers: HashMap::default(),
        }
    }

    /// The number of the class with this mean; `sum` is over its samples. A class without samples adds nothing.
    pub fn class(&mut self, sum: &Totals) -> u32 {
        let samples = sum.samples.max(1) as f64;
        let each = QUANTITIES.map(|(_, of)| {
            let moments = of(sum);
            let mean = |value: f64, power: i32| value / samples / self.runs.powi(power);
            Moments {
                estimate: mean(moments.estimate, 1),
                seen: mean(moments.seen, 1),
                variance: mean(moments.variance, 2),
                third: mean(moments.third, 3),
            }
        });
        let [bytes, allocations] = &each;
        let key = [
            bytes.estimate,
            bytes.seen,
            bytes.variance,
            bytes.third,
            allocations.estimate,
            allocations.variance,
        ]
        .map(f64::to_bits);
        let next = self.each.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.each.push(each);
        }
        number
    }

    /// The bytes that a sample of a class stands for.
    #[cfg(test)]
    pub fn bytes(&self, class: u32) -> f64 {
        self.each[class as usize][0].estimate
    }

    /// Writes the columns: the classes that are a size and a probability, then the others.
    pub fn write(&self, prefix: &str, columns: &mut Columns) -> Written {
        let simple: Vec<Option<(u32, f64)>> = self.each.iter().map(simple).collect();
        let mut numbers = vec![0; simple.len()];
        let (first, others): (Vec<usize>, Vec<usize>) =
            (0..simple.len()).partition(|&at| simple[at].is_some());
        for (new, &at) in first.iter().chain(&others).enumerate() {
            numbers[at] = new as u32;
        }
        let of_simple = || first.iter().filter_map(|&at| simple[at]);
        columns.plain(&format!("{prefix}shape.size"), of_simple().map(|of| of.0));
        columns.real(
            &format!("{prefix}shape.probability"),
            of_simple().map(|of| of.1),
        );
        for (at, (names, _)) in QUANTITIES.iter().enumerate() {
            let fields: [fn(&Moments) -> f64; 4] = [
                |of| of.estimate,
                |of| of.seen,
                |of| of.variance,
                |of| of.third,
            ];
            for (name, field) in names.iter().zip(fields) {
                let moments = others.iter().map(|&class| field(&self.each[class][at]));
                columns.real(&format!("{prefix}{name}"), moments);
            }
        }
        Written(numbers)
    }
}

/// The size and the probability that make these moments, if any do.
fn simple([bytes, allocations]: &[Moments; 2]) -> Option<(u32, f64)> {
    let weight = allocations.estimate;
    let size = bytes.seen;
    let is_one = allocations.seen == 1.0 && weight >= 1.0 && size.fract() == 0.0;
    if !is_one || size > f64::from(u32::MAX) {
        return None;
    }
    let p = 1.0 / weight;
    let near = |found: f64, made: f64, scale: f64| (found - made).abs() <= NEAR * scale;
    let fits = |of: &Moments, value: f64| {
        let each = value * weight;
        let variance = each * each * (1.0 - p);
        near(of.estimate, each, each)
            && near(of.variance, variance, each * each)
            && near(of.third, variance * each * (2.0 - p), each * each * each)
    };
    (fits(bytes, size) && fits(allocations, 1.0)).then_some((size as u32, p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nthbyte_profile::Distances;
    use nthbyte_profile::model::{Sampling, SamplingId, Shape};

    fn shape(size: u64) -> Shape {
        Shape {
            size,
            block: size.next_multiple_of(16),
            points: 1,
            sampling: SamplingId(0),
        }
    }

    /// Samples at random distances are; merged ones are not, and neither are large ones at fixed distances.
    #[test]
    fn a_class_of_equal_samples_is_a_size_and_a_probability() {
        let mut sampling = super::super::data::tests::small().sampling(SamplingId(0));
        let found = |sampling: &Sampling, size: u64| {
            let totals = Totals::of(sampling, shape(size));
            simple(&[totals.bytes, totals.allocations]).map(|of| of.0)
        };
        for distances in [Distances::Exponential, Distances::Every] {
            sampling = Sampling {
                distances,
                ..sampling
            };
            for size in [1, 40, 3000, 1 << 20] {
                assert_eq!(found(&sampling, size), Some(size as u32), "{distances:?}");
            }
        }
        sampling.distances = Distances::Fixed;
        assert_eq!(found(&sampling, (1 << 20) + 2048), None);
        let sampling = Sampling {
            distances: Distances::Exponential,
            ..sampling
        };
        let mut table = Table::new(1);
        let mut merged = Totals::of(&sampling, shape(40));
        let alone = table.class(&merged);
        assert_eq!(table.class(&Totals::of(&sampling, shape(40))), alone);
        merged.add(&Totals::of(&sampling, shape(4000)));
        let together = table.class(&merged);
        let mut columns = Columns::default();
        let written = table.write("", &mut columns);
        assert_eq!((written.number(alone), written.number(together)), (0, 1));
    }
}
