//! A model of the heap, slow and plain: objects that are never moved, and one sampler for the stream of allocated bytes. After
//! each action the heap must look like it.

use std::collections::{HashMap, HashSet};

use nthbyte_nursery::{
    Handle, HeapCollection, HeapSizes, Items, MovingHeap, NurseryStatistics, Observer, SampleId,
    SampledObject, Type, TypeId,
};
use nthbyte_sampling::{Distances, Period, Sampler};

#[derive(Clone, Debug)]
pub enum Action {
    Allocate {
        kind: u16,
        length: u32,
    },
    Garbage {
        kind: u16,
        count: usize,
    },
    Store {
        object: usize,
        slot: usize,
        value: usize,
    },
    StoreInteger {
        object: usize,
        slot: usize,
        value: i32,
    },
    Load {
        object: usize,
        slot: usize,
    },
    Fill {
        object: usize,
        byte: u8,
    },
    Drop {
        count: usize,
    },
    Pin {
        object: usize,
    },
    Unpin {
        object: usize,
    },
    CollectMinor,
    Collect,
    Start {
        period: u64,
        distances: Distances,
        seed: u64,
    },
    Stop,
}

fn types() -> Vec<Type> {
    let of = |name: &str, slots, bytes, items| Type {
        name: name.into(),
        slots,
        bytes,
        items,
    };
    vec![
        of("pair", 2, 0, Items::None),
        of("empty", 0, 0, Items::None),
        of("mixed", 3, 13, Items::None),
        of("vector", 1, 5, Items::Slots),
        of("string", 1, 0, Items::Bytes),
    ]
}

/// The documented size of an object.
fn size(kind: u16, length: u32) -> usize {
    let length = length as usize;
    match kind {
        0 => 8 + 16,
        1 => 8 + 8, // the smallest body is a word
        2 => 8 + 24 + 16,
        3 => 8 + 8 + 8 + 8 * length,
        _ => 8 + 8 + length.div_ceil(8) * 8,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Nothing,
    Integer(i64),
    Object(usize),
}

#[derive(Debug)]
struct Object {
    kind: u16,
    length: u32,
    slots: Vec<Value>,
    bytes: Vec<u8>,
    pinned: bool,
    sample: Option<u64>,
}

#[derive(Default)]
struct Log {
    samples: Vec<SampledObject>,
    young: HashSet<SampleId>,
    old: HashSet<SampleId>,
    types: HashMap<SampleId, TypeId>,
    running: Vec<HeapCollection>,
    last: Option<NurseryStatistics>,
}

impl Observer for Log {
    fn sampled(&mut self, sample: SampledObject) {
        assert!(self.running.is_empty(), "no allocation during a collection");
        self.young.insert(sample.id);
        self.samples.push(sample);
    }

    fn settled(&mut self, id: SampleId, type_id: TypeId, survived: bool) {
        assert_eq!(self.running, [HeapCollection::Minor]);
        assert!(self.young.remove(&id), "settled once");
        self.types.insert(id, type_id);
        if survived {
            self.old.insert(id);
        }
    }

    fn freed(&mut self, id: SampleId) {
        assert_eq!(self.running, [HeapCollection::Major]);
        assert!(self.old.remove(&id), "freed once, after it survived");
    }

    fn begins(&mut self, collection: HeapCollection) {
        assert!(self.running.is_empty());
        self.running.push(collection);
    }

    fn ended(&mut self, collection: HeapCollection, statistics: NurseryStatistics) {
        assert_eq!(self.running.pop(), Some(collection));
        self.last = Some(statistics);
    }
}

pub struct Model {
    heap: MovingHeap<Log>,
    /// The handle of the first root.
    bottom: Handle,
    objects: Vec<Object>,
    roots: Vec<Value>,
    sampler: Option<Sampler>,
    samples: u64,
    allocated: u64,
}

impl Model {
    pub fn new(settings: HeapSizes) -> Self {
        let heap = MovingHeap::new(settings, types(), Log::default());
        Self {
            bottom: heap.depth(),
            heap,
            objects: Vec::new(),
            roots: Vec::new(),
            sampler: None,
            samples: 0,
            allocated: 0,
        }
    }

    pub fn run(&mut self, action: &Action) {
        match *action {
            Action::Allocate { kind, length } => self.allocate(kind, length),
            Action::Garbage { kind, count } => {
                for _ in 0..count {
                    self.allocate(kind, 0);
                    self.drop_roots(1);
                }
            }
            Action::Drop { count } => self.drop_roots(count),
            Action::CollectMinor => self.heap.collect_minor(),
            Action::Collect => {
                self.heap.collect();
                self.check_fates();
            }
            Action::Start {
                period,
                distances,
                seed,
            } => {
                let period = Period::new(period).expect("a period");
                let sampler = Sampler::new(period, distances, seed);
                self.heap.start_sampling(sampler.clone());
                self.sampler = Some(sampler);
            }
            Action::Stop => {
                self.heap.stop_sampling();
                self.sampler = None;
            }
            Action::Store {
                object,
                slot,
                value,
            } => self.store(object, slot, value),
            Action::StoreInteger {
                object,
                slot,
                value,
            } => {
                self.heap.push_integer(value.into());
                self.roots.push(Value::Integer(value.into()));
                self.store(object, slot, self.roots.len() - 1);
                self.drop_roots(1);
            }
            Action::Load { object, slot } => {
                if let Some((handle, object)) = self.pick(object)
                    && !self.objects[object].slots.is_empty()
                {
                    let slot = slot % self.objects[object].slots.len();
                    let to = self.heap.push_nothing();
                    self.heap.load(handle, slot, to);
                    self.roots.push(self.objects[object].slots[slot]);
                }
            }
            Action::Fill { object, byte } => {
                if let Some((handle, object)) = self.pick(object) {
                    self.heap.bytes_mut(handle).fill(byte);
                    self.objects[object].bytes.fill(byte);
                }
            }
            Action::Pin { object } => {
                if let Some((handle, object)) = self.pick(object) {
                    let pinned = std::mem::replace(&mut self.objects[object].pinned, true);
                    assert_eq!(self.heap.pin(handle), !pinned);
                }
            }
            Action::Unpin { object } => {
                if let Some((handle, object)) = self.pick(object) {
                    let pinned = std::mem::replace(&mut self.objects[object].pinned, false);
                    assert_eq!(self.heap.unpin(handle), pinned);
                }
            }
        }
        assert_eq!(self.heap.statistics().allocated, self.allocated);
    }

    /// Checks everything that is left, and that it can be freed.
    pub fn finish(mut self) {
        self.check_content();
        self.heap.collect();
        self.check_content();
        self.check_fates();
        self.heap.truncate(self.handle(0));
        self.roots.clear();
        for object in &mut self.objects {
            object.pinned = false;
        }
    }

    fn allocate(&mut self, kind: u16, length: u32) {
        let bytes = size(kind, length);
        self.allocated += bytes as u64;
        let points = self
            .sampler
            .as_mut()
            .map_or(0, |sampler| sampler.advance(bytes as u64));
        self.heap.allocate_array(TypeId(kind), length);
        let sample = (points > 0).then_some(self.samples);
        if points > 0 {
            self.samples += 1;
            let id = SampleId(self.samples - 1);
            let expected = SampledObject {
                id,
                size: bytes,
                points,
            };
            assert_eq!(self.heap.observer().samples.last(), Some(&expected));
        }
        assert_eq!(self.heap.observer().samples.len() as u64, self.samples);
        let (slots, raw) = match kind {
            0 => (2, 0),
            1 => (0, 0),
            2 => (3, 13),
            3 => (1 + length as usize, 5),
            _ => (1, length as usize),
        };
        self.roots.push(Value::Object(self.objects.len()));
        self.objects.push(Object {
            kind,
            length,
            slots: vec![Value::Nothing; slots],
            bytes: vec![0; raw],
            pinned: false,
            sample,
        });
    }

    fn store(&mut self, object: usize, slot: usize, value: usize) {
        if let Some((handle, object)) = self.pick(object)
            && !self.objects[object].slots.is_empty()
        {
            let slot = slot % self.objects[object].slots.len();
            let value = value % self.roots.len();
            self.heap.store(handle, slot, self.handle(value));
            self.objects[object].slots[slot] = self.roots[value];
        }
    }

    fn drop_roots(&mut self, count: usize) {
        let left = self.roots.len().saturating_sub(count);
        self.roots.truncate(left);
        self.heap.truncate(self.handle(left));
    }

    /// A place with an object.
    fn pick(&self, number: usize) -> Option<(Handle, usize)> {
        let places: Vec<_> = (0..self.roots.len())
            .filter_map(|place| match self.roots[place] {
                Value::Object(object) => Some((place, object)),
                _ => None,
            })
            .collect();
        let &(place, object) = places.get(number % places.len().max(1))?;
        Some((self.handle(place), object))
    }

    /// The handle of the n-th root.
    fn handle(&self, place: usize) -> Handle {
        self.bottom.above(place)
    }

    /// Compares everything that can be reached from the roots.
    fn check_content(&mut self) {
        let mut seen = HashSet::new();
        let depth = self.heap.depth();
        let mut stack = Vec::new();
        for place in 0..self.roots.len() {
            stack.push((self.heap.push_copy(self.handle(place)), self.roots[place]));
        }
        while let Some((handle, value)) = stack.pop() {
            match value {
                Value::Nothing => assert!(self.heap.is_nothing(handle)),
                Value::Integer(value) => assert_eq!(self.heap.integer(handle), Some(value)),
                Value::Object(number) => {
                    let object = &self.objects[number];
                    assert_eq!(self.heap.type_of(handle), Some(TypeId(object.kind)));
                    assert_eq!(self.heap.length(handle), object.length);
                    assert_eq!(self.heap.bytes(handle), object.bytes);
                    if seen.insert(number) {
                        for (slot, &value) in object.slots.iter().enumerate() {
                            let to = self.heap.push_nothing();
                            self.heap.load(handle, slot, to);
                            stack.push((to, value));
                        }
                    }
                }
            }
        }
        self.heap.truncate(depth);
    }

    /// After a collection of everything, the sampled objects that are alive are those that can be reached.
    fn check_fates(&self) {
        let mut reached = HashSet::new();
        let pinned = (0..self.objects.len()).filter(|&one| self.objects[one].pinned);
        let mut stack: Vec<_> = self
            .roots
            .iter()
            .copied()
            .chain(pinned.map(Value::Object))
            .collect();
        while let Some(value) = stack.pop() {
            if let Value::Object(object) = value
                && reached.insert(object)
            {
                stack.extend(&self.objects[object].slots);
            }
        }
        let log = self.heap.observer();
        let alive: HashSet<_> = log.young.union(&log.old).copied().collect();
        let expected: HashSet<_> = reached
            .iter()
            .filter_map(|&object| self.objects[object].sample)
            .map(SampleId)
            .collect();
        assert_eq!(alive, expected);
        for object in &self.objects {
            if let Some(sample) = object.sample
                && let Some(&type_id) = log.types.get(&SampleId(sample))
            {
                assert_eq!(type_id, TypeId(object.kind));
            }
        }
        let bytes = reached
            .iter()
            .map(|&one| size(self.objects[one].kind, self.objects[one].length));
        let used = log.last.expect("a collection has ended").used;
        assert!(
            used <= bytes.sum::<usize>(),
            "{used} bytes are used by what can be reached"
        );
    }
}
