//! The samples that are alive, which the next file begins with.

use std::io;

use nthbyte_profile::event::{Allocation, SampleId};

/// A sample, with what a file must say of it.
#[derive(Clone, Copy)]
pub(super) struct Living {
    /// Its number in the session.
    pub(super) number: u32,
    /// Its number in the present file.
    pub(super) here: u32,
    /// The period that it was drawn with.
    pub(super) period: u64,
    /// With the session's numbers.
    pub(super) allocation: Allocation,
    is_alive: bool,
}

/// In the order of their numbers, with some that are gone between them.
#[derive(Default)]
pub(super) struct Live {
    all: Vec<Living>,
    gone: usize,
}

impl Live {
    /// Adds the newest sample.
    pub(super) fn push(
        &mut self,
        number: u32,
        here: u32,
        period: u64,
        allocation: Allocation,
    ) -> io::Result<()> {
        if self.all.len() == self.all.capacity() {
            self.compact();
            self.all.try_reserve(1)?;
        }
        self.all.push(Living {
            number,
            here,
            period,
            allocation,
            is_alive: true,
        });
        Ok(())
    }

    fn find(&self, sample: SampleId) -> Option<usize> {
        let found = self.all.binary_search_by_key(&sample.0, |one| one.number);
        found.ok().filter(|&at| self.all[at].is_alive)
    }

    /// Removes a sample, and returns its number in the present file.
    pub(super) fn remove(&mut self, sample: SampleId) -> Option<SampleId> {
        let at = self.find(sample)?;
        self.all[at].is_alive = false;
        self.gone += 1;
        Some(SampleId(self.all[at].here))
    }

    /// Its number in the present file, if it is alive.
    pub(super) fn here(&self, sample: SampleId) -> Option<SampleId> {
        Some(SampleId(self.all[self.find(sample)?].here))
    }

    /// The samples that are alive.
    pub(super) fn alive(&self) -> impl Iterator<Item = &Allocation> {
        let alive = self.all.iter().filter(|one| one.is_alive);
        alive.map(|one| &one.allocation)
    }

    /// Those that are alive, which get the first numbers of a new file.
    pub(super) fn begin_file(&mut self) -> &[Living] {
        self.drop_gone();
        for (here, one) in (0..).zip(&mut self.all) {
            one.here = here;
        }
        &self.all
    }

    /// Frees the memory of those that are gone, if they are a quarter.
    fn compact(&mut self) {
        if self.gone > self.all.len() / 4 {
            self.drop_gone();
        }
    }

    fn drop_gone(&mut self) {
        self.all.retain(|one| one.is_alive);
        self.gone = 0;
        if self.all.capacity() > 4 * self.all.len() + 1024 {
            self.all.shrink_to(2 * self.all.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use nthbyte_profile::event::{LabelSetId, Nanos, NodeId, SourceId, Survival, ThreadId, TypeId};
    use proptest::prelude::*;

    use super::*;

    fn allocation(size: u64) -> Allocation {
        Allocation {
            time: Nanos(0),
            thread: ThreadId(0),
            stack: NodeId::ROOT,
            size,
            block: size,
            points: 1,
            type_id: TypeId::UNKNOWN,
            labels: LabelSetId::NONE,
            source: SourceId::ALLOCATIONS,
            survival: Survival::Unsaid,
        }
    }

    proptest! {
        #[test]
        fn what_is_not_freed_is_carried(steps in proptest::collection::vec((any::<bool>(), 0_u32..64), 0..400)) {
            let (mut live, mut model) = (Live::default(), std::collections::BTreeMap::new());
            let mut next = 0;
            for (is_freed, number) in steps {
                if is_freed {
                    let number = number % (next + 1);
                    prop_assert_eq!(live.remove(SampleId(number)), model.remove(&number).map(SampleId));
                } else if number == 0 {
                    let carried: Vec<u32> = live.begin_file().iter().map(|one| one.number).collect();
                    prop_assert_eq!(&carried, &model.keys().copied().collect::<Vec<_>>());
                    model = (0..).zip(carried).map(|(here, number)| (number, here)).collect();
                } else {
                    live.push(next, next + 1000, 1, allocation(8)).unwrap();
                    model.insert(next, next + 1000);
                    next += 1;
                }
            }
        }
    }
}
