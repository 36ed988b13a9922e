//! Minor and major collections.

use crate::object::{
    Address, FORWARDED, MARKED, OLD, PINNED, REMEMBERED, SAMPLED, Word, YOUNG_LARGE,
};
use crate::{HeapCollection, MovingHeap, Observer};

impl<O: Observer> MovingHeap<O> {
    /// A minor collection, and a major one after it if the old space has grown enough.
    pub(crate) fn collect_when_needed(&mut self) {
        self.collect_minor();
        if self.old.used() > self.major_at {
            self.collect_major();
        }
    }

    /// Collects everything.
    pub fn collect(&mut self) {
        self.collect_minor();
        self.collect_major();
    }

    /// A minor collection: live objects move from the nursery to the old space, but for pinned ones.
    pub fn collect_minor(&mut self) {
        self.observer.begins(HeapCollection::Minor);
        self.tenured = 0;
        let mut moved = Vec::new();
        for place in 0..self.roots.len() {
            self.roots[place] = self.tenure_word(self.roots[place], &mut moved);
        }
        let remembered = std::mem::take(&mut self.remembered);
        for object in remembered {
            object.clear(REMEMBERED);
            self.tenure_references(object, &mut moved);
        }
        let pinned = std::mem::take(&mut self.pinned);
        for &object in &pinned {
            self.tenure(object, &mut moved);
            if self.nursery.contains(object) {
                self.tenure_references(object, &mut moved);
            }
        }
        while let Some(object) = moved.pop() {
            self.tenure_references(object, &mut moved);
        }
        self.pinned = pinned;
        self.settle_samples();
        self.old
            .sweep_large(self.old_large_objects, |object| object.has(YOUNG_LARGE));
        self.old_large_objects = self.old.large_objects();
        let mut barriers: Vec<(usize, usize)> = self
            .pinned
            .iter()
            .filter(|&&object| self.nursery.contains(object))
            .map(|object| (object.0, object.0 + object.size(&self.types)))
            .collect();
        barriers.sort_unstable();
        self.nursery.reset(&barriers);
        let statistics = self.statistics();
        self.observer.ended(HeapCollection::Minor, statistics);
    }

    /// Tenures what an object refers to, and remembers the object if it is old and something pinned stays young.
    fn tenure_references(&mut self, object: Address, moved: &mut Vec<Address>) {
        let mut young = false;
        for place in object.slots(&self.types) {
            let word = self.tenure_word(object.read(place), moved);
            object.write(place, word);
            young |= word
                .as_object()
                .is_some_and(|object| self.nursery.contains(object));
        }
        if young && object.header() & (OLD | REMEMBERED) == OLD {
            object.set(REMEMBERED);
            self.remembered.push(object);
        }
    }

    fn tenure_word(&mut self, word: Word, moved: &mut Vec<Address>) -> Word {
        match word.as_object() {
            Some(object) => self.tenure(object, moved).word(),
            None => word,
        }
    }

    /// Makes a reachable object old, if it is not, and adds it to `moved` then. The result is where it is now.
    fn tenure(&mut self, object: Address, moved: &mut Vec<Address>) -> Address {
        if self.nursery.contains(object) {
            if object.has(FORWARDED) {
                return forwarded(object);
            }
            if object.has(PINNED) {
                return object;
            }
            let size = object.size(&self.types);
            let new = self.old.allocate(size);
            // SAFETY: both are `size` bytes, and the new memory is not in the nursery.
            unsafe {
                object
                    .at(0)
                    .cast::<u8>()
                    .copy_to_nonoverlapping(new.at(0).cast(), size)
            };
            new.set(OLD);
            object.set(FORWARDED);
            object.write(0, new.word());
            self.tenured += size;
            moved.push(new);
            return new;
        }
        if object.has(YOUNG_LARGE) {
            object.clear(YOUNG_LARGE);
            object.set(OLD);
            moved.push(object);
        }
        object
    }

    /// Section 3.5: which of the objects sampled since the last minor collection survive this one, and their types.
    fn settle_samples(&mut self) {
        let samples = std::mem::take(&mut self.young_samples);
        for (object, id) in samples {
            let in_nursery = self.nursery.contains(object);
            if in_nursery && object.has(PINNED) {
                self.young_samples.push((object, id));
                continue;
            }
            let survived = if in_nursery {
                object.has(FORWARDED).then(|| forwarded(object))
            } else {
                (!object.has(YOUNG_LARGE)).then_some(object)
            };
            if let Some(now) = survived {
                now.set(SAMPLED);
                self.old_samples.insert(now, id);
            }
            self.observer
                .settled(id, object.type_id(), survived.is_some());
        }
    }

    /// Marks and sweeps the old space. Comes after a minor collection: nothing but pinned objects is in the nursery.
    fn collect_major(&mut self) {
        self.observer.begins(HeapCollection::Major);
        let mut reached = Vec::new();
        for &word in self.roots.iter() {
            self.mark(word, &mut reached);
        }
        for &object in &self.pinned {
            if self.nursery.contains(object) {
                reached.push(object);
            } else {
                self.mark(object.word(), &mut reached);
            }
        }
        while let Some(object) = reached.pop() {
            for place in object.slots(&self.types) {
                self.mark(object.read(place), &mut reached);
            }
        }
        self.remembered.retain(|object| object.has(MARKED));
        self.old.sweep(&self.types, |object| {
            if object.has(SAMPLED)
                && let Some(id) = self.old_samples.remove(&object)
            {
                self.observer.freed(id);
            }
        });
        self.old_large_objects = self.old.large_objects();
        self.major_at = (self.old.used() / 50 * 91).max(self.settings.first_major);
        let statistics = self.statistics();
        self.observer.ended(HeapCollection::Major, statistics);
    }

    /// Marks an old object that was reached, and adds it to the list if it had no mark. Pinned objects in the nursery are roots,
    /// and have no marks.
    fn mark(&self, word: Word, reached: &mut Vec<Address>) {
        if let Some(object) = word.as_object()
            && !self.nursery.contains(object)
            && !object.has(MARKED)
        {
            object.set(MARKED);
            reached.push(object);
        }
    }
}

/// Where a moved object is now.
fn forwarded(object: Address) -> Address {
    Address(usize::try_from(object.read(0).0).expect("an address"))
}
