//! The allocation samples of a profile, packed for tens of millions of them.
//!
//! A sample takes 19 bytes, and four more if others were removed. Programs have few distinct places of allocation and
//! request few distinct sizes, so both are interned: thread, stack, type and labels together as a [`SiteId`]; size, block,
//! sample points and sampling as a [`ShapeId`]. What depends only on the shape (the weight) is computed once for each shape
//! instead of once for each sample, and sums by stack, type or process are sums by site first. The disadvantage: columns
//! cannot be borrowed as slices of the public types. Call [`Samples::get`] for a whole sample, or the accessors for one field.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::event::{LabelSetId, Nanos, NodeId, SampleId, ThreadId, TypeId};
use crate::times::Times;

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

/// A [`Site`]: its number in the order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

impl SiteId {
    /// The number, as an index into a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where an object was allocated, and what it is. Two sites may be equal if stacks were replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The thread that allocated.
    pub thread: ThreadId,
    /// The stack of the allocation.
    pub stack: NodeId,
    /// The type of the object.
    pub type_id: TypeId,
    /// The labels of the thread's work: an index into
    /// [`Profile::label_sets`](crate::Profile::label_sets).
    pub labels: LabelSetId,
}

/// A [`Sampling`](crate::model::Sampling): an index into [`Profile::samplings`](crate::Profile::samplings).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SamplingId(pub u32);

impl SamplingId {
    /// The number, as an index into a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
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

/// The sites of a stack that are compared before the table of all is asked.
const SITES_LOOKED_AT: usize = 6;

/// The number of shapes that are compared before the table of all is asked, one of them each time.
const LAST_SHAPES: usize = 1 << 12;

/// The value for "not freed" in the column of times.
const NEVER: Nanos = Nanos(u64::MAX);

/// Counts rows of a table that somebody is about to pass over: so a test can see a pass inside of a loop.
#[cfg(any(test, feature = "synthetic"))]
fn looked_at(rows: usize) {
    LOOKED_AT.fetch_add(rows as u64, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(not(any(test, feature = "synthetic")))]
#[inline]
fn looked_at(_: usize) {}

#[cfg(any(test, feature = "synthetic"))]
static LOOKED_AT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The rows of all tables of samples, sites and shapes that were passed over in this process until now.
#[cfg(any(test, feature = "synthetic"))]
#[must_use]
pub fn rows_looked_at() -> u64 {
    LOOKED_AT.load(std::sync::atomic::Ordering::Relaxed)
}

/// The allocation samples of a profile, in the order of their events.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    time: Times,
    site: Vec<SiteId>,
    shape: Vec<ShapeId>,
    lifetime: Vec<Lifetime>,
    freed: Times,
    /// Of samples of which others were removed: their numbers before. Shorter than the other columns if none was.
    numbers: Vec<SampleId>,
    sites: Vec<Site>,
    site_ids: HashMap<Site, SiteId, RandomState>,
    /// By stack: its newest site. Shorter than the table of stacks.
    newest: Vec<u32>,
    /// By site: the next older one of its stack. A stack has few sites, so these are faster to look through than `site_ids`.
    older: Vec<u32>,
    shapes: Vec<Shape>,
    shape_ids: HashMap<Shape, ShapeId, RandomState>,
    /// By the lowest bits of a size, in units of 8 bytes: the last shape.
    last_shapes: Vec<ShapeId>,
}

impl Samples {
    /// The number of samples.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.site.len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.site.is_empty()
    }

    /// All sample numbers in order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = SampleId> + use<> {
        looked_at(self.len());
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
    #[inline]
    pub fn get(&self, id: SampleId) -> Sample {
        let Site {
            thread,
            stack,
            type_id,
            labels,
        } = self.site(self.site_id(id));
        Sample {
            time: self.time(id),
            thread,
            stack,
            shape: self.shape(self.shape_id(id)),
            type_id,
            labels,
            lifetime: self.lifetime(id),
            freed: self.freed(id),
        }
    }

    /// Time of the allocation.
    #[must_use]
    #[inline]
    pub fn time(&self, id: SampleId) -> Nanos {
        self.time.get(id.index())
    }

    /// The thread that allocated.
    #[must_use]
    #[inline]
    pub fn thread(&self, id: SampleId) -> ThreadId {
        self.site(self.site_id(id)).thread
    }

    /// The stack of the allocation.
    #[must_use]
    #[inline]
    pub fn stack(&self, id: SampleId) -> NodeId {
        self.site(self.site_id(id)).stack
    }

    /// The number of its site, for tables by site.
    #[must_use]
    #[inline]
    pub fn site_id(&self, id: SampleId) -> SiteId {
        self.site[id.index()]
    }

    /// A site.
    #[must_use]
    #[inline]
    pub fn site(&self, site: SiteId) -> Site {
        self.sites[site.index()]
    }

    /// All sites; a [`SiteId`] is an index into this. A site may have no sample that is left.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        looked_at(self.sites.len());
        &self.sites
    }

    /// The number of its shape, for tables by shape.
    #[must_use]
    #[inline]
    pub fn shape_id(&self, id: SampleId) -> ShapeId {
        self.shape[id.index()]
    }

    /// A shape.
    #[must_use]
    #[inline]
    pub fn shape(&self, shape: ShapeId) -> Shape {
        self.shapes[shape.0 as usize]
    }

    /// All shapes; a [`ShapeId`] is an index into this.
    #[must_use]
    pub fn shapes(&self) -> &[Shape] {
        looked_at(self.shapes.len());
        &self.shapes
    }

    /// Requested bytes.
    #[must_use]
    #[inline]
    pub fn size(&self, id: SampleId) -> u64 {
        self.shape(self.shape_id(id)).size
    }

    /// Bytes that the sampler counted.
    #[must_use]
    #[inline]
    pub fn block(&self, id: SampleId) -> u64 {
        self.shape(self.shape_id(id)).block
    }

    /// Number of covered sample points.
    #[must_use]
    #[inline]
    pub fn points(&self, id: SampleId) -> u32 {
        self.shape(self.shape_id(id)).points
    }

    /// The type of the object.
    #[must_use]
    #[inline]
    pub fn type_id(&self, id: SampleId) -> TypeId {
        self.site(self.site_id(id)).type_id
    }

    /// The labels of the thread's work.
    #[must_use]
    #[inline]
    pub fn labels(&self, id: SampleId) -> LabelSetId {
        self.site(self.site_id(id)).labels
    }

    /// The lifetime of the object.
    #[must_use]
    #[inline]
    pub fn lifetime(&self, id: SampleId) -> Lifetime {
        self.lifetime[id.index()]
    }

    /// Time of the free; `None` if the object was not freed, or if that is not known.
    #[must_use]
    #[inline]
    pub fn freed(&self, id: SampleId) -> Option<Nanos> {
        Some(self.freed.get(id.index())).filter(|&time| time != NEVER)
    }

    /// The number that it had before any other sample was removed.
    #[must_use]
    #[inline]
    pub fn number(&self, id: SampleId) -> SampleId {
        self.numbers.get(id.index()).copied().unwrap_or(id)
    }

    /// Appends a sample and returns its number. Returns `None`, and appends nothing, if there are
    /// already 2^32 - 1 samples.
    pub fn push(&mut self, sample: Sample) -> Option<SampleId> {
        let site = self.intern_site(Site {
            thread: sample.thread,
            stack: sample.stack,
            type_id: sample.type_id,
            labels: sample.labels,
        });
        let shape = self.shape_of(sample.shape);
        let freed = sample.freed.unwrap_or(NEVER);
        self.push_row(sample.time, site, shape, sample.lifetime, freed)
    }

    /// Appends a sample that is not freed, of a site that has a number. `last` is the shape of the site's last sample, and
    /// becomes the shape of this one.
    #[inline]
    pub(crate) fn push_at(
        &mut self,
        time: Nanos,
        site: SiteId,
        shape: Shape,
        last: &mut ShapeId,
        lifetime: Lifetime,
    ) -> Option<SampleId> {
        if self.shapes.get(last.0 as usize) != Some(&shape) {
            *last = self.shape_of(shape);
        }
        self.push_row(time, site, *last, lifetime, NEVER)
    }

    #[inline]
    fn push_row(
        &mut self,
        time: Nanos,
        site: SiteId,
        shape: ShapeId,
        lifetime: Lifetime,
        freed: Nanos,
    ) -> Option<SampleId> {
        let id = u32::try_from(self.len()).ok().filter(|&id| id < u32::MAX)?;
        self.time.push(time);
        self.site.push(site);
        self.shape.push(shape);
        self.lifetime.push(lifetime);
        self.freed.push(freed);
        Some(SampleId(id))
    }

    /// The number of a site.
    pub(crate) fn intern_site(&mut self, site: Site) -> SiteId {
        let stack = site.stack.index();
        let mut at = self.newest.get(stack).copied().unwrap_or(u32::MAX);
        for _ in 0..SITES_LOOKED_AT {
            match self.sites.get(at as usize) {
                Some(known) if *known == site => return SiteId(at),
                Some(_) => at = self.older[at as usize],
                None => break,
            }
        }
        // There are no more sites than samples.
        let next = SiteId(self.sites.len() as u32);
        let id = *self.site_ids.entry(site).or_insert(next);
        if id == next {
            if self.newest.len() <= stack {
                self.newest.resize(stack + 1, u32::MAX);
            }
            self.sites.push(site);
            self.older
                .push(std::mem::replace(&mut self.newest[stack], id.0));
        }
        id
    }

    fn shape_of(&mut self, shape: Shape) -> ShapeId {
        self.last_shapes.resize(LAST_SHAPES, ShapeId(u32::MAX));
        let at = (shape.size / 8) as usize % LAST_SHAPES;
        let last = self.last_shapes[at];
        if self.shapes.get(last.0 as usize) == Some(&shape) {
            return last;
        }
        let id = self.intern(shape);
        self.last_shapes[at] = id;
        id
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
    pub(crate) fn retain(&mut self, keep: impl FnMut(&mut Sample) -> bool) {
        if self.numbers.len() < self.len() {
            self.numbers = self.ids().map(|id| self.number(id)).collect();
        }
        self.retain_from(0, keep);
    }

    /// The same from this sample on, in a time that does not depend on how many are before it. If none was removed in another
    /// way, those that are left are all that there are: they get numbers anew.
    pub(crate) fn retain_from(&mut self, first: u32, mut keep: impl FnMut(&mut Sample) -> bool) {
        let mut kept = first as usize;
        let ids = first..self.len() as u32;
        looked_at(ids.len());
        for id in ids.map(SampleId) {
            let mut sample = self.get(id);
            let shape = sample.shape;
            if !keep(&mut sample) {
                continue;
            }
            let from = id.index();
            if sample.shape != shape {
                self.shape[from] = self.intern(sample.shape);
            }
            self.time.copy(from, kept);
            self.site[kept] = self.site[from];
            self.shape[kept] = self.shape[from];
            self.lifetime[kept] = self.lifetime[from];
            self.freed.copy(from, kept);
            if let Some(&number) = self.numbers.get(from) {
                self.numbers[kept] = number;
            }
            kept += 1;
        }
        self.time.truncate(kept);
        self.site.truncate(kept);
        self.shape.truncate(kept);
        self.lifetime.truncate(kept);
        self.freed.truncate(kept);
        self.numbers.truncate(kept);
    }

    /// Gives all samples other stacks: `new` says which, from the thread and the stack.
    pub(crate) fn move_stacks(&mut self, mut new: impl FnMut(&Site) -> NodeId) {
        self.site_ids.clear();
        self.newest.clear();
        for (number, site) in (0..).map(SiteId).zip(&mut self.sites) {
            site.stack = new(site);
            self.site_ids.entry(*site).or_insert(number);
        }
    }

    /// Changes the thread or the labels of all samples.
    pub(crate) fn move_sites(&mut self, mut change: impl FnMut(&mut Site)) {
        self.site_ids.clear();
        self.newest.clear();
        for (number, site) in (0..).map(SiteId).zip(&mut self.sites) {
            change(site);
            self.site_ids.entry(*site).or_insert(number);
        }
    }

    pub(crate) fn set_sampling(&mut self, id: SampleId, sampling: SamplingId) {
        let shape = self.shape(self.shape_id(id));
        self.shape[id.index()] = self.intern(Shape { sampling, ..shape });
    }

    pub(crate) fn set_lifetime(&mut self, id: SampleId, lifetime: Lifetime, freed: Option<Nanos>) {
        self.lifetime[id.index()] = lifetime;
        self.freed.set(id.index(), freed.unwrap_or(NEVER));
    }
}
