//! The allocation samples of a profile, packed for tens of millions of them.
//!
//! A sample takes 33 bytes, and four more if any sample has labels, or if others were removed. Size, block, sample points and
//! sampling are interned together as a [`ShapeId`]: programs request few distinct sizes, so values
//! that depend only on the shape (the weight) are computed once for each shape instead of once for
//! each sample. The disadvantage: columns cannot be borrowed as slices of the public types. Call
//! [`Samples::get`] for a whole sample, or the accessors for one field.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::event::{LabelSetId, Nanos, NodeId, SampleId, ThreadId, TypeId};
use crate::model::SamplingId;

/// The lifetime of a sampled object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lifetime {
    /// Freed before, or by, the first collection of the youngest generation after its allocation. Native memory, which no
    /// collector looks at: freed before its process had allocated a mebibyte more, or twice its size.
    DiedYoung,
    /// Lived longer, and was freed at a known time.
    Freed,
    /// Survived that collection; later events were not recorded (PyPy).
    Survived,
    /// Alive when the session ended, or at the end of an incomplete profile.
    StillLive,
}

impl Lifetime {
    /// All lifetimes, in the order of their discriminants.
    pub const ALL: [Self; 4] = [
        Self::DiedYoung,
        Self::Freed,
        Self::Survived,
        Self::StillLive,
    ];
}

/// A [`Shape`]: its number in the order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub u32);

/// The size and sampling of a sampled object: all values that a sample's weight depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Requested bytes.
    pub size: u64,
    /// Bytes that the sampler counted.
    pub block: u64,
    /// Number of covered sample points.
    pub points: u32,
    /// The source with its period at that time: an index into
    /// [`Profile::samplings`](crate::Profile::samplings).
    pub sampling: SamplingId,
}

/// One sample with its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the allocation.
    pub time: Nanos,
    /// The thread that allocated.
    pub thread: ThreadId,
    /// The stack of the allocation.
    pub stack: NodeId,
    /// Size and sampling.
    pub shape: Shape,
    /// The type of the object.
    pub type_id: TypeId,
    /// The labels of the thread's work: an index into
    /// [`Profile::label_sets`](crate::Profile::label_sets).
    pub labels: LabelSetId,
    /// The lifetime of the object.
    pub lifetime: Lifetime,
    /// Time of the free; `None` if the object was not freed, or if that is not known.
    pub freed: Option<Nanos>,
}

/// The value for "not freed" in the column of times.
const NEVER: Nanos = Nanos(u64::MAX);

/// The allocation samples of a profile, in the order of their events.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    time: Vec<Nanos>,
    thread: Vec<ThreadId>,
    stack: Vec<NodeId>,
    shape: Vec<ShapeId>,
    type_id: Vec<TypeId>,
    /// This column is shorter than the others if the last samples have no labels.
    labels: Vec<LabelSetId>,
    lifetime: Vec<Lifetime>,
    freed: Vec<Nanos>,
    /// Of samples of which others were removed: their numbers before. Shorter than the other columns if none was.
    numbers: Vec<SampleId>,
    shapes: Vec<Shape>,
    shape_ids: HashMap<Shape, ShapeId, RandomState>,
}

impl Samples {
    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// All sample numbers in order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = SampleId> + use<> {
        // `push` keeps the length within u32.
        (0..self.len() as u32).map(SampleId)
    }

    /// All samples in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample> + '_ {
        self.ids().map(|id| self.get(id))
    }

    /// One sample.
    ///
    /// # Panics
    /// If there is no such sample. All accessors below panic in the same case.
    #[must_use]
    pub fn get(&self, id: SampleId) -> Sample {
        Sample {
            time: self.time(id),
            thread: self.thread(id),
            stack: self.stack(id),
            shape: self.shape(self.shape_id(id)),
            type_id: self.type_id(id),
            labels: self.labels(id),
            lifetime: self.lifetime(id),
            freed: self.freed(id),
        }
    }

    /// Time of the allocation.
    #[must_use]
    pub fn time(&self, id: SampleId) -> Nanos {
        self.time[id.index()]
    }

    /// The thread that allocated.
    #[must_use]
    pub fn thread(&self, id: SampleId) -> ThreadId {
        self.thread[id.index()]
    }

    /// The stack of the allocation.
    #[must_use]
    pub fn stack(&self, id: SampleId) -> NodeId {
        self.stack[id.index()]
    }

    /// The number of its shape, for tables by shape.
    #[must_use]
    pub fn shape_id(&self, id: SampleId) -> ShapeId {
        self.shape[id.index()]
    }

    /// A shape.
    #[must_use]
    pub fn shape(&self, shape: ShapeId) -> Shape {
        self.shapes[shape.0 as usize]
    }

    /// All shapes; a [`ShapeId`] is an index into this.
    #[must_use]
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// Requested bytes.
    #[must_use]
    pub fn size(&self, id: SampleId) -> u64 {
        self.shape(self.shape_id(id)).size
    }

    /// Bytes that the sampler counted.
    #[must_use]
    pub fn block(&self, id: SampleId) -> u64 {
        self.shape(self.shape_id(id)).block
    }

    /// Number of covered sample points.
    #[must_use]
    pub fn points(&self, id: SampleId) -> u32 {
        self.shape(self.shape_id(id)).points
    }

    /// The type of the object.
    #[must_use]
    pub fn type_id(&self, id: SampleId) -> TypeId {
        self.type_id[id.index()]
    }

    /// The labels of the thread's work.
    #[must_use]
    pub fn labels(&self, id: SampleId) -> LabelSetId {
        assert!(id.index() < self.len(), "no such sample");
        let labels = self.labels.get(id.index());
        labels.copied().unwrap_or(LabelSetId::NONE)
    }

    /// The lifetime of the object.
    #[must_use]
    pub fn lifetime(&self, id: SampleId) -> Lifetime {
        self.lifetime[id.index()]
    }

    /// Time of the free; `None` if the object was not freed, or if that is not known.
    #[must_use]
    pub fn freed(&self, id: SampleId) -> Option<Nanos> {
        Some(self.freed[id.index()]).filter(|&time| time != NEVER)
    }

    /// The number that it had before any other sample was removed.
    #[must_use]
    pub fn number(&self, id: SampleId) -> SampleId {
        self.numbers.get(id.index()).copied().unwrap_or(id)
    }

    /// Appends a sample and returns its number. Returns `None`, and appends nothing, if there are
    /// already 2^32 - 1 samples.
    pub fn push(&mut self, sample: Sample) -> Option<SampleId> {
        let id = u32::try_from(self.len()).ok().filter(|&id| id < u32::MAX)?;
        let shape = self.intern(sample.shape);
        if sample.labels != LabelSetId::NONE {
            self.labels.resize(self.time.len(), LabelSetId::NONE);
            self.labels.push(sample.labels);
        }
        self.time.push(sample.time);
        self.thread.push(sample.thread);
        self.stack.push(sample.stack);
        self.shape.push(shape);
        self.type_id.push(sample.type_id);
        self.lifetime.push(sample.lifetime);
        self.freed.push(sample.freed.unwrap_or(NEVER));
        Some(SampleId(id))
    }

    fn intern(&mut self, shape: Shape) -> ShapeId {
        *self.shape_ids.entry(shape).or_insert_with(|| {
            self.shapes.push(shape);
            // There are at most twice as many shapes as samples: a report may give each another one, once.
            ShapeId(self.shapes.len() as u32 - 1)
        })
    }

    /// Removes the samples for which `keep` returns false; `keep` may give a sample another shape. The table of shapes stays,
    /// so a profile without samples still knows how they were taken.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut Sample) -> bool) {
        if self.numbers.len() < self.len() {
            self.numbers = self.ids().map(|id| self.number(id)).collect();
        }
        let mut kept = 0;
        for id in self.ids() {
            let mut sample = self.get(id);
            let shape = sample.shape;
            if !keep(&mut sample) {
                continue;
            }
            let from = id.index();
            if sample.shape != shape {
                self.shape[from] = self.intern(sample.shape);
            }
            self.time[kept] = sample.time;
            self.thread[kept] = sample.thread;
            self.stack[kept] = sample.stack;
            self.shape[kept] = self.shape[from];
            self.type_id[kept] = sample.type_id;
            self.lifetime[kept] = sample.lifetime;
            self.freed[kept] = self.freed[from];
            self.numbers[kept] = self.numbers[from];
            // The column is shorter than the others, but not shorter than the samples with labels.
            if let Some(labels) = self.labels.get_mut(kept) {
                *labels = sample.labels;
            }
            kept += 1;
        }
        self.time.truncate(kept);
        self.thread.truncate(kept);
        self.stack.truncate(kept);
        self.shape.truncate(kept);
        self.type_id.truncate(kept);
        self.labels.truncate(kept);
        self.lifetime.truncate(kept);
        self.freed.truncate(kept);
        self.numbers.truncate(kept);
    }

    /// Changes the stack of a sample.
    pub(crate) fn set_stack(&mut self, id: SampleId, stack: NodeId) {
        self.stack[id.index()] = stack;
    }

    /// Sets the sampling of a sample.
    pub(crate) fn set_sampling(&mut self, id: SampleId, sampling: SamplingId) {
        let shape = self.shape(self.shape_id(id));
        self.shape[id.index()] = self.intern(Shape { sampling, ..shape });
    }

    /// Sets the lifetime of a sample.
    pub(crate) fn set_lifetime(&mut self, id: SampleId, lifetime: Lifetime, freed: Option<Nanos>) {
        self.lifetime[id.index()] = lifetime;
        self.freed[id.index()] = freed.unwrap_or(NEVER);
    }
}
