//! Samples that wait for their stacks.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_profile::event::{LostKind, NodeId};

use super::{Profile, a_function, alone, an_allocation, in_child, of_size, one_at_a_time, start};
use crate::native::UnfinishedStack;
use crate::native::unfinished::{add, are_waiting, complete, freed, give_up, has_room};
use crate::ticks::{TICKS, TickSamples};
use crate::{Recording, Session};

/// A stack of one function, which is not known before it is completed. The last one is never known.
struct Stack(u64);

const NEVER: u64 = 99;

/// Stacks of larger numbers are not ready.
static READY: AtomicU64 = AtomicU64::new(u64::MAX);

impl UnfinishedStack for Stack {
    fn is_ready(&self, _: &mut Recording<'_>) -> bool {
        self.0 <= READY.load(Relaxed)
    }

    fn bytes(&self) -> usize {
        self.0 as usize
    }

    fn stack(self: Box<Self>, recording: &mut Recording<'_>) -> Option<NodeId> {
        (self.0 != NEVER).then(|| a_function(recording, self.0))
    }
}

/// Keeps a sample of this size, with the function of this number. Returns its place.
fn wait(session: &Session, number: u64) -> u32 {
    let mut recording = session.record(LostKind::Allocations).unwrap();
    assert!(has_room(&mut recording));
    let allocation = of_size(&mut recording, NodeId::ROOT, number).unwrap();
    let period = recording.period();
    add(&mut recording, allocation, period, Box::new(Stack(number)))
}

fn with<T>(session: &Session, work: impl FnOnce(&mut Recording<'_>) -> T) -> T {
    work(&mut session.record(LostKind::Other).unwrap())
}

#[test]
fn a_sample_is_recorded_when_its_stack_is_known() {
    let (_alone, path) = alone("waiting.nthb");
    let session = start(&path, "exponential", 512);
    let first = wait(&session, 1);
    let lost = wait(&session, NEVER);
    // Others are recorded meanwhile.
    with(&session, |recording| {
        let stack = a_function(recording, 2);
        an_allocation(recording, stack, 2).unwrap();
    });
    let second = wait(&session, 3);
    // The first is freed before its stack is known.
    with(&session, |recording| {
        let now = recording.now();
        freed(recording, first, now);
        assert!(are_waiting(recording));
        complete(recording);
        assert!(!are_waiting(recording));
        // A loss has no free, and places that there are not do no harm.
        freed(recording, lost, now);
        freed(recording, 1000, now);
    });
    // The second is freed afterwards.
    with(&session, |recording| {
        let now = recording.now();
        freed(recording, second, now);
    });
    let never = wait(&session, 4);
    with(&session, |recording| {
        give_up(recording);
        assert!(!are_waiting(recording));
        let now = recording.now();
        freed(recording, never, now);
        complete(recording);
    });
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (3, 2));
    let found = Profile::read(&path);
    let sizes: Vec<_> = found.allocations.iter().map(|one| one.size).collect();
    assert_eq!(sizes, [2, 1, 3]);
    for sample in &found.allocations {
        assert_eq!(
            found.function(sample.stack),
            format!("function {}", sample.size)
        );
    }
    let freed: Vec<_> = found
        .freed
        .iter()
        .map(|sample| sizes[sample.0 as usize])
        .collect();
    assert_eq!(freed, [1, 3]);
}

#[test]
fn a_time_sample_is_recorded_when_its_stack_is_known() {
    let (_alone, path) = alone("waiting.nthb");
    let session = start(&path, "exponential", 512);
    TICKS.begin(true).unwrap();
    let keep = |number| {
        TICKS.store(number, b"");
        with(&session, |recording| {
            let read = recording.ticks(9, |recording, tick| {
                let place = TickSamples {
                    samples: 3,
                    ..TickSamples::of(NodeId::ROOT)
                };
                recording.keep(tick, place, Box::new(Stack(tick.word)))
            });
            assert_eq!(read, 1);
        });
    };
    keep(5);
    keep(NEVER);
    // One that is not kept is recorded at once.
    TICKS.store(6, b"");
    with(&session, |recording| {
        recording.ticks(9, |recording, tick| {
            Some(TickSamples::of(a_function(recording, tick.word)))
        });
        assert!(are_waiting(recording));
        complete(recording);
        assert!(!are_waiting(recording));
    });
    keep(7);
    with(&session, give_up);
    TICKS.end();
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (0, 3 + 3));
    let found = Profile::read(&path);
    let functions: Vec<_> = found
        .cpu
        .iter()
        .map(|one| found.function(one.stack))
        .collect();
    let five = "function 5";
    assert_eq!(functions, ["function 6", five, five, five]);
}

#[test]
fn what_waits_at_a_fork_belongs_to_the_parent() {
    let (_alone, path) = alone("waiting.nthb");
    let session = start(&path, "exponential", 512);
    READY.store(0, Relaxed);
    wait(&session, 1);
    assert!(with(&session, complete));
    assert!(with(&session, are_waiting));
    READY.store(u64::MAX, Relaxed);
    assert!(in_child(|| {
        with(&session, |recording| {
            assert!(!are_waiting(recording));
            complete(recording);
        });
        assert_eq!(wait(&session, 2), 0);
        with(&session, complete);
        let outcome = session.finish(None);
        assert_eq!((outcome.samples, outcome.lost), (1, 0));
    }));
    with(&session, complete);
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (1, 0));
    assert_eq!(Profile::read(&path).allocations[0].size, 1);
}

#[test]
fn not_more_wait_than_there_is_room_for() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let session = start(&folder.path().join("waiting.nthb"), "exponential", 512);
    let mut waiting = 0;
    // By their number, and by the bytes kept for them.
    for (bytes, least, most) in [(1, 100, 10_000), (1 << 20, 1, 100)] {
        let before = waiting;
        while with(&session, has_room) {
            wait(&session, bytes);
            waiting += 1;
        }
        let count = waiting - before;
        assert!((least..most).contains(&count), "{count}");
        complete_all(&session);
    }
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (waiting, 0));
}

fn complete_all(session: &Session) {
    // The ring may have less room than that: the writer thread makes more.
    while with(session, |recording| {
        let had_room = complete(recording);
        recording.wake_writer();
        assert!(!had_room || !are_waiting(recording));
        are_waiting(recording)
    }) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
