//! What was allocated while a file was the present one, by function and by type.

use std::cmp::Reverse;
use std::io;

use nthbyte_profile::Distances;
use nthbyte_profile::event::{Allocation, CodeId, Nanos};
use nthbyte_profile::model::Weight;
use nthbyte_profile::segment::{PartSum, Sums};

use super::definitions::Definitions;

/// So many functions and types are named.
const MOST_FUNCTIONS: usize = 200;
const MOST_TYPES: usize = 100;

/// By the session's numbers of functions and types.
#[derive(Default)]
pub(super) struct Counter {
    all: PartSum,
    functions: Vec<PartSum>,
    types: Vec<PartSum>,
}

impl Counter {
    /// Adds a sample.
    pub(super) fn add(
        &mut self,
        of: &Allocation,
        function: Option<CodeId>,
        distances: Option<Distances>,
        period: u64,
    ) -> io::Result<()> {
        let Some(distances) = distances else {
            return Ok(());
        };
        let weight = Weight::of(distances, period, of.size, of.block, of.points);
        let sum = PartSum {
            bytes: weight.bytes,
            objects: weight.allocations,
            samples: 1,
        };
        self.all.add(&sum);
        if let Some(function) = function {
            at(&mut self.functions, function.0)?.add(&sum);
        }
        at(&mut self.types, of.type_id.0)?.add(&sum);
        Ok(())
    }

    /// The sums, those with most bytes by name. A new count begins.
    pub(super) fn finish(&mut self, since: Nanos, until: Nanos, names: &Definitions) -> Sums {
        let functions = largest(&self.functions, MOST_FUNCTIONS).map(|(code, sum)| {
            let (name, file) = names.names_of_code(code);
            (name.to_owned(), file.to_owned(), sum)
        });
        let types = largest(&self.types, MOST_TYPES)
            .map(|(number, sum)| (names.name_of_type(number).to_owned(), sum));
        let sums = Sums {
            since,
            until,
            all: self.all,
            functions: functions.collect(),
            types: types.collect(),
        };
        self.all = PartSum::default();
        self.functions.fill(PartSum::default());
        self.types.fill(PartSum::default());
        sums
    }
}

fn at(sums: &mut Vec<PartSum>, number: u32) -> io::Result<&mut PartSum> {
    let at = number as usize;
    if sums.len() <= at {
        sums.try_reserve(at + 1 - sums.len())?;
        sums.resize(at + 1, PartSum::default());
    }
    Ok(&mut sums[at])
}

/// The largest of them with their numbers; the largest first.
fn largest(sums: &[PartSum], most: usize) -> impl Iterator<Item = (u32, PartSum)> {
    let mut all: Vec<(u32, PartSum)> = (0..).zip(sums.iter().copied()).collect();
    all.retain(|(_, sum)| sum.samples > 0);
    all.sort_by_key(|(_, sum)| Reverse(sum.bytes as u64));
    all.truncate(most);
    all.into_iter()
}
