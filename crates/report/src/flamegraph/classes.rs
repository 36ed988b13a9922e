//! Classes of shapes: what one sample of a class adds to the sums.
//!
//! An exact class has one shape. A coarse class has all shapes of nearly the same size, within a
//! 32nd of an octave (about 2 %), and each counts as their mean. Sums over the whole profile do not
//! change. The error of a sum over `n` samples is at most 2 %, mostly below 2 % / √n. The sampling
//! error is 100 % / √n, which is much larger.
//!
//! A mean class has groups of samples (of one stack, type and lifetime) whose means are nearly the same. So the sum over
//! a group is right within 2 %, but within a group all sizes count as their mean.

use std::collections::HashMap;

use nthbyte_profile::Profile;
use nthbyte_profile::model::{SamplingId, Shape, ShapeId};

use crate::estimate::Totals;

/// Shapes up to this size in bytes have an exact class. Most shapes are small.
const EXACT_UP_TO: u64 = 1024;

/// Coarse classes in an octave of sizes.
const IN_AN_OCTAVE: f64 = 32.0;

/// The properties that all shapes of a coarse class have in common.
type Key = (SamplingId, u32, u64, u64);

/// The numbers of mean classes, by the logarithms of their means.
pub type MeanNumbers = HashMap<[i32; 4], u32>;

/// Classes of shapes.
#[derive(Debug)]
pub struct Classes {
    of_shape: Vec<u32>,
    /// By class: sums over samples, and their number in `samples`. Their quotient is the mean.
    pub totals: Vec<Totals>,
    /// The sizes that are merged, in words.
    pub merged: Option<&'static str>,
}

/// What the page says of coarse classes, and of mean classes.
const COARSE: &str = "sizes above 1 KiB that differ by less than 2 %";
const MEAN: &str = "the sizes of objects of the same stack, type and fate";

impl Classes {
    /// A class for each shape.
    pub fn exact(profile: &Profile) -> Self {
        let shapes = profile.samples.shapes();
        Self {
            of_shape: (0..shapes.len() as u32).collect(),
            totals: Totals::of_shapes(profile),
            merged: None,
        }
    }

    /// Classes of shapes of nearly the same size.
    pub fn coarse(profile: &Profile) -> Self {
        let exact = Self::exact(profile);
        let mut numbers: HashMap<Key, u32> = HashMap::new();
        let of_shape: Vec<u32> = profile
            .samples
            .shapes()
            .iter()
            .map(|&shape| {
                let next = numbers.len() as u32;
                *numbers.entry(key(shape)).or_insert(next)
            })
            .collect();
        let mut totals = vec![Totals::default(); numbers.len()];
        for id in profile.samples.ids() {
            let shape = profile.samples.shape_id(id).0 as usize;
            totals[of_shape[shape] as usize].add(&exact.totals[shape]);
        }
        Self {
            of_shape,
            totals,
            merged: Some(COARSE),
        }
    }

    /// Begins classes of groups whose means are nearly the same. They have no shapes.
    pub fn means() -> (Self, MeanNumbers) {
        let classes = Self {
            of_shape: Vec::new(),
            totals: Vec::new(),
            merged: Some(MEAN),
        };
        (classes, MeanNumbers::default())
    }

    /// The mean class of a group, given the sum over it.
    pub fn add_mean(&mut self, numbers: &mut MeanNumbers, sum: &Totals) -> u32 {
        let each = |total: f64| {
            let mean = (total / sum.samples as f64).max(f64::MIN_POSITIVE);
            (mean.log2() * IN_AN_OCTAVE) as i32
        };
        let key = [
            sum.bytes.estimate,
            sum.bytes.seen,
            sum.allocations.estimate,
            sum.bytes.variance,
        ]
        .map(each);
        let next = self.totals.len() as u32;
        let number = *numbers.entry(key).or_insert(next);
        if number == next {
            self.totals.push(Totals::default());
        }
        self.totals[number as usize].add(sum);
        number
    }

    /// The class of a shape.
    pub fn of(&self, shape: ShapeId) -> u32 {
        self.of_shape[shape.0 as usize]
    }
}

fn key(shape: Shape) -> Key {
    let step = |bytes: u64| {
        if bytes <= EXACT_UP_TO {
            bytes
        } else {
            // At least 320, for 1024 bytes; so an offset separates the two kinds.
            EXACT_UP_TO + ((bytes as f64).log2() * IN_AN_OCTAVE) as u64
        }
    };
    (
        shape.sampling,
        shape.points,
        step(shape.size),
        step(shape.block),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_classes_have_the_documented_width_and_keep_all_sums() {
        let shape = |size| Shape {
            size,
            block: size,
            points: 1,
            sampling: SamplingId::default(),
        };
        for size in [1, 40, 1024] {
            assert_ne!(key(shape(size)), key(shape(size + 1)));
        }
        for size in [1025_u64, 5_000, 123_456, 1 << 40] {
            assert_ne!(key(shape(size)), key(shape(size + size / 40)));
        }
        let mut profile = super::super::data::tests::small();
        for (at, size) in (2_000..9_000).enumerate() {
            let mut sample = profile.samples.iter().next().expect("there are samples");
            sample.shape = shape(size);
            sample.time.0 = at as u64 % 1000;
            profile.samples.push(sample).expect("there is room");
        }
        let (exact, coarse) = (Classes::exact(&profile), Classes::coarse(&profile));
        assert!(coarse.totals.len() < exact.totals.len() / 20);
        let sum = |classes: &Classes| -> f64 {
            let ids = profile.samples.ids();
            ids.map(|id| {
                let totals = &classes.totals[classes.of(profile.samples.shape_id(id)) as usize];
                totals.bytes.estimate / totals.samples as f64
            })
            .sum()
        };
        let (exact, coarse) = (sum(&exact), sum(&coarse));
        assert!((exact - coarse).abs() < 1e-9 * exact, "{exact} {coarse}");
    }
}
