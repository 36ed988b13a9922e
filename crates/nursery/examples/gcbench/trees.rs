//! GCBench (John Ellis, Pete Kovac and Hans Boehm): trees of many sizes, built in two ways, beside data that lives long. It
//! stands for the program of a virtual machine: its objects are in the nursery, and all that it works on is a root.

use nthbyte_nursery::{Handle, Items, MovingHeap, Observer, Type, TypeId};

const NODE: TypeId = TypeId(0);
const VECTOR: TypeId = TypeId(1);

/// What the program allocates. A node is two references and two numbers that are never used.
pub fn types() -> Vec<Type> {
    vec![
        Type {
            name: "node".into(),
            slots: 2,
            bytes: 8,
            items: Items::None,
        },
        Type {
            name: "vector".into(),
            slots: 0,
            bytes: 0,
            items: Items::Slots,
        },
    ]
}

/// An observer that knows where the program is.
pub trait Stack: Observer {
    /// A function is called, which begins at a line.
    fn enter(&mut self, function: &'static str, first_line: u32);
    /// The innermost function is at this line.
    fn at(&mut self, line: u32);
    /// The innermost function returns.
    fn leave(&mut self);
}

/// Runs the program, with trees of a depth of 4, 6, … up to `deepest`. The result is 1000 squared.
pub fn run<O: Stack>(heap: &mut MovingHeap<O>, deepest: u32) -> Option<i64> {
    heap.observer_mut().enter("run", line!());
    let long_lived = heap.allocate(NODE);
    heap.observer_mut().at(line!());
    top_down(heap, deepest, long_lived);
    heap.observer_mut().at(line!());
    let table = heap.allocate_array(VECTOR, 500_000);
    for number in 0..250_000 {
        let square = heap.push_integer(number * number);
        heap.store(table, number as usize, square);
        heap.truncate(square);
    }
    for depth in (4..=deepest).step_by(2) {
        heap.observer_mut().at(line!());
        construct(heap, depth, 2 * size(deepest) / size(depth));
    }
    let found = heap.push_nothing();
    heap.load(table, 1000, found);
    let result = heap.integer(found);
    heap.truncate(long_lived);
    heap.observer_mut().leave();
    result
}

/// The number of nodes of a tree.
pub fn size(depth: u32) -> u64 {
    (1 << (depth + 1)) - 1
}

fn construct<O: Stack>(heap: &mut MovingHeap<O>, depth: u32, rounds: u64) {
    heap.observer_mut().enter("construct", line!());
    for _ in 0..rounds {
        heap.observer_mut().at(line!());
        let tree = heap.allocate(NODE);
        heap.observer_mut().at(line!());
        top_down(heap, depth, tree);
        heap.observer_mut().at(line!());
        bottom_up(heap, depth);
        heap.truncate(tree);
    }
    heap.observer_mut().leave();
}

/// Gives a node its children, and them theirs: old objects refer to young ones.
fn top_down<O: Stack>(heap: &mut MovingHeap<O>, depth: u32, tree: Handle) {
    if depth == 0 {
        return;
    }
    heap.observer_mut().enter("top_down", line!());
    for slot in 0..2 {
        heap.observer_mut().at(line!());
        let child = heap.allocate(NODE);
        heap.store(tree, slot, child);
        heap.truncate(child);
    }
    for slot in 0..2 {
        let child = heap.push_nothing();
        heap.load(tree, slot, child);
        heap.observer_mut().at(line!());
        top_down(heap, depth - 1, child);
        heap.truncate(child);
    }
    heap.observer_mut().leave();
}

/// Pushes a tree, whose nodes are younger than their children.
fn bottom_up<O: Stack>(heap: &mut MovingHeap<O>, depth: u32) -> Handle {
    heap.observer_mut().enter("bottom_up", line!());
    let mut child = || {
        heap.observer_mut().at(line!());
        match depth {
            0 => heap.push_nothing(),
            _ => bottom_up(heap, depth - 1),
        }
    };
    let (left, right) = (child(), child());
    heap.observer_mut().at(line!());
    let node = heap.allocate(NODE);
    heap.store(node, 0, left);
    heap.store(node, 1, right);
    heap.copy(node, left);
    heap.truncate(left.above(1));
    heap.observer_mut().leave();
    left
}
