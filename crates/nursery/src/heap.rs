//! The heap: allocation (listings 1, 2, 4 and 5 of the paper), pinning, and the switch of sampling.

use std::collections::HashMap;

use nthbyte_sampling::Sampler;

use crate::nursery::Nursery;
use crate::object::{Address, PINNED, Type, YOUNG_LARGE, header};
use crate::old::Old;
use crate::roots::Roots;
use crate::{Handle, NurseryStatistics, Observer, SampleId, SampledObject, TypeId};

/// The sizes of a heap, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapSizes {
    /// The nursery. PyPy's has 4 MiB.
    pub nursery: usize,
    /// Larger objects are allocated outside of the nursery. At most half of the nursery.
    pub largest_young: usize,
    /// The first major collection begins at this size of the old space; later ones when it has grown by 82 %, as in PyPy.
    pub first_major: usize,
}

impl Default for HeapSizes {
    fn default() -> Self {
        Self {
            nursery: 4 << 20,
            largest_young: 64 << 10,
            first_major: 16 << 20,
        }
    }
}

/// A heap with its roots, and the observer that it reports to.
#[derive(Debug)]
pub struct MovingHeap<O: Observer> {
    pub(crate) nursery: Nursery,
    pub(crate) roots: Roots,
    pub(crate) types: Box<[Type]>,
    pub(crate) old: Old,
    /// Old objects that may refer to young ones.
    pub(crate) remembered: Vec<Address>,
    pub(crate) pinned: Vec<Address>,
    /// The large objects after these many are young.
    pub(crate) old_large_objects: usize,
    /// Sampled since the last minor collection, and pinned ones: the list of section 3.5.
    pub(crate) young_samples: Vec<(Address, SampleId)>,
    pub(crate) old_samples: HashMap<Address, SampleId>,
    next_sample: u64,
    /// Bytes that the last minor collection tenured.
    pub(crate) tenured: usize,
    /// A major collection begins when the old space has more bytes than this.
    pub(crate) major_at: usize,
    pub(crate) settings: HeapSizes,
    pub(crate) observer: O,
}

impl<O: Observer> MovingHeap<O> {
    /// An empty heap for objects of these types. A [`TypeId`] is a place in the list.
    ///
    /// # Panics
    /// If there are more than 65,536 types.
    pub fn new(mut settings: HeapSizes, types: Vec<Type>, observer: O) -> Self {
        assert!(types.len() <= 1 << 16, "type numbers have 16 bits");
        settings.nursery = settings.nursery.max(1 << 10);
        settings.largest_young = settings.largest_young.min(settings.nursery / 2);
        Self {
            nursery: Nursery::new(settings.nursery),
            roots: Roots::default(),
            types: types.into_boxed_slice(),
            old: Old::default(),
            remembered: Vec::new(),
            pinned: Vec::new(),
            old_large_objects: 0,
            young_samples: Vec::new(),
            old_samples: HashMap::new(),
            next_sample: 0,
            tenured: 0,
            major_at: settings.first_major,
            settings,
            observer,
        }
    }

    /// Allocates an object without items, and pushes it. Its slots hold nothing, its bytes are zero.
    ///
    /// # Panics
    /// If there is no such type.
    #[inline]
    pub fn allocate(&mut self, type_id: TypeId) -> Handle {
        self.allocate_array(type_id, 0)
    }

    /// Allocates an object with `length` items, and pushes it. See [`allocate`](Self::allocate).
    ///
    /// # Panics
    /// If there is no such type.
    #[inline]
    pub fn allocate_array(&mut self, type_id: TypeId, length: u32) -> Handle {
        let size = self.types[usize::from(type_id.0)].size(length);
        let object = if size <= self.settings.largest_young {
            self.allocate_young(size, header(type_id, length))
        } else {
            self.allocate_outside(size, header(type_id, length))
        };
        self.roots.push(object.word())
    }

    /// What a compiler emits for an allocation of a known type, whose objects have `size` bytes (header included, and no items):
    /// the object's address. It is not pushed.
    ///
    /// # Safety
    /// There is such a type and that is its size, a multiple of 8 from 16 to [`HeapSizes::largest_young`]. The address is not used
    /// after the next allocation, and the slots get nothing but values of this heap.
    #[inline(always)]
    pub unsafe fn allocate_unrooted(&mut self, type_id: TypeId, size: usize) -> *mut u64 {
        self.allocate_young(size, header(type_id, 0)).at(0)
    }

    /// Listing 1, and the object's header.
    #[inline(always)]
    fn allocate_young(&mut self, size: usize, header: u64) -> Address {
        match self.nursery.allocate(size) {
            Some(object) => {
                object.set_header(header);
                object
            }
            None => self.collect_and_reserve(size, header),
        }
    }

    /// Listing 4: the limit was the sample point, or the nursery's end.
    #[cold]
    #[inline(never)]
    fn collect_and_reserve(&mut self, size: usize, header: u64) -> Address {
        let found = self.nursery.reserved_at_sample_point(size);
        let Some((object, points)) = found.or_else(|| self.reserve_after_collection(size)) else {
            return self.allocate_outside(size, header);
        };
        object.set_header(header);
        self.sample(object, size, points);
        object
    }

    /// Listing 2, with gaps: the next gap between pinned objects that has room, if need be after a minor collection. `None` if
    /// pinned objects leave no room for the object.
    fn reserve_after_collection(&mut self, size: usize) -> Option<(Address, u32)> {
        while self.nursery.next_gap() {
            if let Some(found) = self.nursery.reserve(size) {
                return Some(found);
            }
        }
        self.collect_when_needed();
        loop {
            if let Some(found) = self.nursery.reserve(size) {
                return Some(found);
            }
            if !self.nursery.next_gap() {
                return None;
            }
        }
    }

    /// Listing 5: an object that has no place in the nursery.
    #[cold]
    #[inline(never)]
    fn allocate_outside(&mut self, size: usize, header: u64) -> Address {
        if self.old.used().saturating_add(size) > self.major_at {
            self.collect();
            // A single object that is larger than what may be used must not bring a collection each time.
            self.major_at = self.major_at.max(self.old.used().saturating_add(size));
        }
        let points = self.nursery.allocated_outside(size);
        let object = self.old.allocate_large(size);
        object.set_header(header | YOUNG_LARGE);
        self.sample(object, size, points);
        object
    }

    /// Reports an allocation with sample points, if there are any.
    fn sample(&mut self, object: Address, size: usize, points: u32) {
        if points == 0 {
            return;
        }
        let id = SampleId(self.next_sample);
        self.next_sample += 1;
        self.young_samples.push((object, id));
        self.observer.sampled(SampledObject { id, size, points });
    }

    /// Switches sampling on: this sampler decides from the next byte on. It replaces another one.
    pub fn start_sampling(&mut self, sampler: Sampler) {
        self.nursery.set_sampler(Some(sampler));
    }

    /// Switches sampling off. Sampled objects are still followed.
    pub fn stop_sampling(&mut self) {
        self.nursery.set_sampler(None);
    }

    /// Keeps an object alive and where it is, until [`unpin`](Self::unpin). `false` if it is pinned already.
    ///
    /// # Panics
    /// If the place holds no object.
    pub fn pin(&mut self, object: Handle) -> bool {
        let object = self.object(object);
        if object.has(PINNED) {
            return false;
        }
        object.set(PINNED);
        self.pinned.push(object);
        true
    }

    /// Undoes [`pin`](Self::pin). `false` if the object is not pinned.
    ///
    /// # Panics
    /// If the place holds no object.
    pub fn unpin(&mut self, object: Handle) -> bool {
        let object = self.object(object);
        if !object.has(PINNED) {
            return false;
        }
        object.clear(PINNED);
        self.pinned.retain(|&one| one != object);
        true
    }

    /// Whether a minor collection may move or free the object.
    pub(crate) fn is_young(&self, object: Address) -> bool {
        self.nursery.contains(object) || object.has(YOUNG_LARGE)
    }

    /// The state of the heap.
    #[must_use]
    pub fn statistics(&self) -> NurseryStatistics {
        NurseryStatistics {
            used: self.old.used(),
            reserved: self.old.reserved(),
            allocated: self.nursery.allocated(),
            tenured: self.tenured,
        }
    }

    /// The types.
    #[must_use]
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// The observer.
    #[must_use]
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, which outlives the heap.
    #[must_use]
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// The observer.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
}
