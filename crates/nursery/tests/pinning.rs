//! An old object that refers to a pinned one keeps it alive after the pin, when nothing else refers to it.

use nthbyte_nursery::{HeapSizes, Items, MovingHeap, Type, TypeId};

#[test]
fn an_old_object_keeps_what_was_pinned() {
    let pair = Type {
        name: "pair".into(),
        slots: 2,
        bytes: 0,
        items: Items::None,
    };
    let settings = HeapSizes {
        nursery: 1 << 10,
        ..HeapSizes::default()
    };
    let mut heap = MovingHeap::new(settings, vec![pair], ());
    let holder = heap.allocate(TypeId(0));
    let number = heap.push_integer(42);
    let pinned = heap.allocate(TypeId(0));
    heap.store(pinned, 1, number);
    heap.store(holder, 0, pinned);
    assert!(heap.pin(pinned));
    // The holder becomes old in the first; the pinned object stays in the nursery in both.
    heap.collect_minor();
    heap.collect_minor();
    assert!(heap.unpin(pinned));
    heap.truncate(number);
    for _ in 0..200 {
        let garbage = heap.allocate(TypeId(0));
        heap.store(garbage, 1, garbage);
        heap.truncate(garbage);
    }
    let found = heap.push_nothing();
    heap.load(holder, 0, found);
    heap.load(found, 1, found);
    assert_eq!(heap.integer(found), Some(42));
}
