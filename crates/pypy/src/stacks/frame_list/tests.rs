//! A replacement for PyPy's thread and for the handler of `_vmprof`.

use super::super::links::{KINDS, Link};
use super::super::record::JITTED_TAG;
use super::*;

/// PyPy's side: thread-local words, of which the third holds the list. The tests never free the elements of
/// the list.
struct Thread {
    words: Box<[usize; 4]>,
}

impl Thread {
    fn new() -> Self {
        Self {
            words: Box::new([3, usize::MAX - 7, 0, 0]),
        }
    }

    fn sought(&self) -> FrameList {
        let start = self.words.as_ptr() as usize;
        FrameList::sought(Some(start..start + size_of_val(&*self.words)))
    }

    fn call(&mut self, kind: usize, value: usize) {
        let link = Link {
            next: self.words[2],
            value,
            kind,
        };
        self.words[2] = std::ptr::from_ref(Box::leak(Box::new(link))) as usize;
    }

    fn interpret(&mut self, unique_id: usize) {
        self.call(CODE_TAG, unique_id);
    }

    fn run_compiled(&mut self, place: usize) {
        let stack = Box::leak(Box::new([place, 0]));
        self.call(JITTED_TAG, std::ptr::from_ref(&stack[1]) as usize);
    }
}

/// The frames that the handler finds in a list: at place `p` in machine code, `p % 4` frames.
fn handler(mut at: usize) -> Vec<RawFrame> {
    let mut frames = Vec::new();
    while at != 0 {
        // SAFETY: the tests make valid lists.
        let link = unsafe { &*(at as *const Link) };
        let (compiled, ids) = match link.kind {
            CODE_TAG => (false, vec![link.value as u64]),
            JITTED_TAG => {
                // SAFETY: as above.
                let place = unsafe { *((link.value - 8) as *const usize) };
                (
                    true,
                    (0..place as u64 % 4)
                        .map(|n| 1000 * place as u64 + n)
                        .collect(),
                )
            }
            _ => (false, Vec::new()),
        };
        frames.extend(ids.into_iter().map(|unique_id| RawFrame {
            compiled,
            unique_id,
        }));
        at = link.next;
    }
    frames
}

fn raise(substitute: Substitute, found: &mut Vec<RawFrame>) {
    found.extend(handler(substitute.list));
}

fn nothing(_: Substitute, _: &mut Vec<RawFrame>) {}

#[test]
fn the_list_is_found_and_read_as_the_handler_reads_it() {
    let mut thread = Thread::new();
    let mut frame_list = thread.sought();
    let mut steps = Vec::new();
    // Too few frames show nothing.
    thread.interpret(5);
    frame_list.learn(&handler(thread.words[2]), raise);
    (6..9).for_each(|unique_id| thread.interpret(unique_id));
    thread.call(KINDS - 1, 77);
    assert!(matches!(frame_list.state, State::Sought { .. }));
    frame_list.learn(&handler(thread.words[2]), raise);
    assert!(matches!(frame_list.state, State::Found(_)));
    assert!(
        !frame_list.walk(&mut steps),
        "not held against a record yet"
    );
    frame_list.learn(&handler(thread.words[2]), raise);

    for place in [4002, 4003, 4000, 4002] {
        thread.run_compiled(place);
        thread.interpret(place + 1);
    }
    for _ in 0..CHECK_EVERY {
        assert!(frame_list.walk(&mut steps));
        assert_eq!(
            frame_list.frames(&steps, raise).unwrap(),
            handler(thread.words[2])
        );
        steps.clear();
    }
    assert!(
        !frame_list.walk(&mut steps),
        "the next is held against a record"
    );
    frame_list.learn(&handler(thread.words[2]), raise);
    assert!(frame_list.walk(&mut steps));
    assert_eq!(steps[0], Step::frame(handler(thread.words[2])[0]));
    assert_eq!(steps[1], Step::place(4002));

    // Machine code was freed, but none at these places.
    assert!(!frame_list.renew(nothing));
    for place in 5000..5300 {
        assert!(frame_list.inlined(place, &[], raise).is_some());
    }
    (0..MINORS - 1).for_each(|_| frame_list.collected());
    assert!(!frame_list.renew(nothing));
    frame_list.distrust();
    assert!(!frame_list.renew(raise) && !frame_list.renew(nothing));
    assert_eq!(frame_list.inlined(4002, &[], nothing).unwrap().len(), 2);

    // One place stands for other code now.
    (0..MINORS).for_each(|_| frame_list.collected());
    let other = |substitute, found: &mut Vec<RawFrame>| {
        raise(substitute, found);
        let at = found.iter().position(|frame| frame.unique_id == 5_299_001);
        at.map(|at| found.remove(at));
    };
    assert!(frame_list.renew(other) && !frame_list.renew(nothing));
    // It is corrected, and the others are still known: none is looked up again.
    for place in (5000..5300).chain([4000, 4002, 4003]) {
        let frames = frame_list.inlined(place, &[], nothing).unwrap().len();
        assert_eq!(frames, place % 4 - usize::from(place == 5299));
    }
    // There is not always enough time to look up many places.
    for place in [4002, 4003] {
        assert!(frame_list.inlined(place, &[], raise).is_some());
    }
    frame_list.distrust();
    assert!(frame_list.renew(raise) && frame_list.places.is_empty());

    // The handler has no record. So the frames of the place must be forgotten, but not by a thread whose list is
    // not known.
    assert!(frame_list.inlined(4002, &[], nothing).is_none());
    let never = |_: Substitute, _: &mut Vec<RawFrame>| panic!("another thread's list");
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| frame_list.renew(never)).join();
        assert_eq!(elsewhere.ok(), Some(false));
    });
    assert!(frame_list.renew(nothing) && !frame_list.renew(nothing));
    assert_eq!(frame_list.inlined(4002, &[], raise).unwrap().len(), 2);
    assert_eq!(frame_list.inlined(4000, &[], raise).unwrap().len(), 0);
}

#[test]
fn new_places_of_a_stack_are_looked_up_together() {
    let mut thread = Thread::new();
    let mut frame_list = thread.sought();
    (5..9).for_each(|unique_id| thread.interpret(unique_id));
    frame_list.learn(&handler(thread.words[2]), raise);
    frame_list.learn(&handler(thread.words[2]), raise);
    let steps: Vec<Step> = (6000..6200).map(Step::place).collect();
    let mut calls = 0;
    // The record has no room for more.
    let cut = |substitute, found: &mut Vec<RawFrame>| {
        calls += 1;
        raise(substitute, found);
        found.truncate(60);
    };
    let mut cut = cut;
    for (at, &step) in steps.iter().enumerate().rev() {
        let StepKind::Place(place) = step.kind() else {
            continue;
        };
        let frames = frame_list.inlined(place, &steps[..at], &mut cut).unwrap();
        assert_eq!(frames.len(), place % 4);
        assert!(
            frames
                .iter()
                .all(|frame| frame.unique_id / 1000 == place as u64)
        );
    }
    assert!((8..=12).contains(&calls), "{calls}");
}

#[test]
fn another_list_than_the_handlers_is_not_read() {
    let mut thread = Thread::new();
    let mut frame_list = thread.sought();
    (5..9).for_each(|unique_id| thread.interpret(unique_id));
    frame_list.learn(&handler(thread.words[2]), raise);
    frame_list.learn(&handler(thread.words[2]), raise);
    assert!(frame_list.walk(&mut Vec::new()) && !frame_list.is_broken());
    frame_list.until_check = 0;
    let mut other = handler(thread.words[2]);
    other[1].unique_id = 1;
    frame_list.learn(&other, raise);
    assert!(frame_list.is_broken() && !frame_list.walk(&mut Vec::new()));

    // No word fits: the search has ended.
    let mut frame_list = thread.sought();
    frame_list.learn(&other, raise);
    assert!(matches!(frame_list.state, State::None));
}
