//! What the collector reports: samples, the fates of sampled objects, and collections.

use crate::TypeId;

/// The number of a sample: 0, 1, 2, … in the order of the allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleId(pub u64);

/// A sampled allocation. Its type is not known yet: the header is written after the memory was taken (section 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledObject {
    /// Its number.
    pub id: SampleId,
    /// The bytes of the object, header included.
    pub size: usize,
    /// How many sample points lie in the object; at least 1.
    pub points: u32,
}

/// The kind of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapCollection {
    /// Of the nursery.
    Minor,
    /// Of everything.
    Major,
}

/// The state of the heap after a collection (section 3.6), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NurseryStatistics {
    /// Objects in the old space, large ones included: `total_memory_used`.
    pub used: usize,
    /// Memory of the old space: `total_size_of_arenas`.
    pub reserved: usize,
    /// All allocations since the heap was made.
    pub allocated: u64,
    /// What the last minor collection moved out of the nursery.
    pub tenured: usize,
}

/// Receives the reports of a heap. It belongs to the heap, so that it can be called from the middle of an allocation; it has no
/// way to the heap from there. So what it needs of the program, such as the stack, must lie in it.
pub trait Observer {
    /// An allocation is sampled. Now is the time to look at the stack.
    fn sampled(&mut self, sample: SampledObject) {
        let _ = sample;
    }

    /// The first minor collection after a sampled allocation is over: the object's type, and whether it survived. The calls
    /// are in the order of the samples, except for pinned objects, which stay young.
    fn settled(&mut self, id: SampleId, type_id: TypeId, survived: bool) {
        let _ = (id, type_id, survived);
    }

    /// A sampled object that had survived is freed.
    fn freed(&mut self, id: SampleId) {
        let _ = id;
    }

    /// A collection begins.
    fn begins(&mut self, collection: HeapCollection) {
        let _ = collection;
    }

    /// A collection has ended.
    fn ended(&mut self, collection: HeapCollection, statistics: NurseryStatistics) {
        let _ = (collection, statistics);
    }
}

/// Observes nothing.
impl Observer for () {}
