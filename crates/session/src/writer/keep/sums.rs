//! What was allocated while a file was the present one, by function and by type.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;

use foldhash::fast::FixedState;

use nthbyte_profile::Distances;
use nthbyte_profile::event::{Allocation, CodeId, Nanos};
use nthbyte_profile::model::Weight;
use nthbyte_profile::segment::{PartSum, Sums};

use super::definitions::Definitions;

/// So many functions and types are named.
const MOST_FUNCTIONS: usize = 200;
const MOST_TYPES: usize = 100;

type ByNumber = HashMap<u32, PartSum, FixedState>;

/// By the session's numbers of functions and types.
#[derive(Default)]
pub(super) struct Counter {
    all: PartSum,
    functions: ByNumber,
    types: ByNumber,
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

    /// The numbers of the functions, and of the types, that have sums.
    pub(super) fn numbers(&self) -> [impl Iterator<Item = u32>; 2] {
        [&self.functions, &self.types].map(|sums| sums.keys().copied())
    }

    /// Leaves those with most bytes, of many; more than are named, because some have one name.
    pub(super) fn shrink(&mut self) {
        for (sums, most) in [
            (&mut self.functions, MOST_FUNCTIONS),
            (&mut self.types, MOST_TYPES),
        ] {
            if sums.len() > 8 * most {
                let all = std::mem::take(sums).into_iter();
                sums.extend(largest(all, 4 * most));
            }
        }
    }

    /// The sums, those with most bytes by name. A new count begins.
    pub(super) fn finish(&mut self, since: Nanos, until: Nanos, names: &Definitions) -> Sums {
        let mut functions = HashMap::new();
        for (code, sum) in self.functions.drain() {
            // A function may have had several numbers.
            let all: &mut PartSum = functions.entry(names.names_of_code(code)).or_default();
            all.add(&sum);
        }
        let mut types = HashMap::new();
        for (number, sum) in self.types.drain() {
            let all: &mut PartSum = types.entry(names.name_of_type(number)).or_default();
            all.add(&sum);
        }
        let functions = largest(functions, MOST_FUNCTIONS)
            .into_iter()
            .map(|((name, file), sum)| (name.to_owned(), file.to_owned(), sum));
        let types = largest(types, MOST_TYPES)
            .into_iter()
            .map(|(name, sum)| (name.to_owned(), sum));
        Sums {
            since,
            until,
            all: std::mem::take(&mut self.all),
            functions: functions.collect(),
            types: types.collect(),
        }
    }
}

fn at(sums: &mut ByNumber, number: u32) -> io::Result<&mut PartSum> {
    sums.try_reserve(1)?;
    Ok(sums.entry(number).or_default())
}

/// The largest of them; the largest first, and of the same size in the order of their keys.
fn largest<K: Ord>(sums: impl IntoIterator<Item = (K, PartSum)>, most: usize) -> Vec<(K, PartSum)> {
    let mut all: Vec<(K, PartSum)> = sums.into_iter().collect();
    all.sort_unstable_by(|(a, one), (b, other)| {
        let bytes = |sum: &PartSum| Reverse(sum.bytes as u64);
        bytes(one).cmp(&bytes(other)).then_with(|| a.cmp(b))
    });
    all.truncate(most);
    all
}
