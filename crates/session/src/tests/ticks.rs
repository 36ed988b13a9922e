//! Ticks are stored, read, and lost.

use std::sync::atomic::Ordering::Relaxed;

use super::{a_function, alone, in_child, start_counted};
use crate::ticks::{
    HEADER, LARGEST_BACKLOG, LARGEST_WITH_MEMORY, LONGEST_MEMORY, LONGEST_STACK, TICKS,
    TickSamples, Ticks, Walked,
};
use crate::{record_now, wait_for_room};

const fn walked(word: u64, length: usize) -> Walked {
    Walked {
        word,
        length,
        memory: 0..0,
    }
}

#[test]
fn what_is_stored_is_read_in_order() {
    let ticks = Ticks::new();
    ticks.store(1, b"nobody wants it");
    ticks.begin(true).unwrap();
    ticks.store(7, b"first");
    ticks.store(8, b"");
    ticks.store(9, &[1; LONGEST_STACK + 1]);
    let mut buffer = Vec::new();
    let first = ticks.next(&mut buffer).unwrap();
    assert_eq!((first.word, first.stack), (7, &b"first"[..]));
    let time = first.monotonic_nanos;
    let second = ticks.next(&mut buffer).unwrap();
    assert_eq!((second.word, second.stack), (8, &b""[..]));
    assert!(second.monotonic_nanos >= time);
    assert_eq!(ticks.next(&mut buffer), None);
    assert_eq!(ticks.lost.load(Relaxed), 1);

    // A tick that interrupts another one is counted; a child neither writes to its parent's file nor reads it.
    assert!(ticks.lock.acquire());
    ticks.store(1, b"interrupted");
    ticks.store_walked(3, |_| Some(walked(1, 0)));
    assert_eq!(ticks.lost.load(Relaxed), 2 + 3);
    ticks.lock.release();
    ticks.store(1, b"the parent's");
    ticks.before_fork();
    ticks.after_fork_in_child();
    ticks.store(1, b"the child's");
    assert!(!ticks.are_waiting());
    assert_eq!(
        (ticks.next(&mut buffer), ticks.lost.load(Relaxed)),
        (None, 0)
    );
    ticks.begin(true).unwrap();
    ticks.store(2, b"the child's");
    assert_eq!(ticks.next(&mut buffer).map(|tick| tick.word), Some(2));
    ticks.end();
}

#[test]
fn a_walk_is_stored_or_lost_as_a_whole() {
    let ticks = Ticks::new();
    ticks.store_walked(5, |_| unreachable!("nobody wants it"));
    ticks.begin(true).unwrap();
    assert!(!ticks.are_waiting());
    ticks.store_walked(2, |room| {
        room[..3].copy_from_slice(b"one");
        Some(walked(4, 3))
    });
    ticks.store_walked(5, |_| None);
    assert!(ticks.are_waiting());
    assert_eq!(ticks.lost.load(Relaxed), 5);
    let mut buffer = Vec::new();
    let tick = ticks.next(&mut buffer).unwrap();
    assert_eq!((tick.word, tick.stack), (4, &b"one"[..]));
    assert!(!ticks.are_waiting());
    ticks.end();
    ticks.store_walked(5, |_| unreachable!("it has ended"));
}

#[test]
fn a_backlog_has_a_limit() {
    let ticks = Ticks::new();
    ticks.begin(true).unwrap();
    let size = (HEADER + LONGEST_STACK) as i64;
    let room = LARGEST_BACKLOG / size + 1;
    for _ in 0..room {
        ticks.store(0, &[0; LONGEST_STACK]);
    }
    assert_eq!(ticks.lost.load(Relaxed), 0);
    ticks.store(0, b"");
    assert_eq!(ticks.lost.load(Relaxed), 1);
    ticks.read.store(size, Relaxed);
    ticks.store(0, b"");
    assert_eq!(ticks.lost.load(Relaxed), 1);
    ticks.end();
}

#[test]
fn memory_is_copied_beside_the_stack() {
    let ticks = Ticks::new();
    ticks.begin(true).unwrap();
    let content: Vec<u8> = (0..LONGEST_MEMORY).map(|at| at as u8).collect();
    let start = content.as_ptr() as usize;
    let store = |length| {
        ticks.store_walked(1, |room| {
            room[..3].copy_from_slice(b"one");
            Some(Walked {
                word: 4,
                length: 3,
                memory: start..start + length,
            })
        });
    };
    let mut buffer = Vec::new();
    // Ticks with more and with less follow each other in one place.
    for length in [LONGEST_MEMORY, 100, 0] {
        store(length);
        let tick = ticks.next(&mut buffer).unwrap();
        assert_eq!((tick.word, tick.stack), (4, &b"one"[..]));
        assert_eq!(tick.memory, &content[..length]);
        assert!(!ticks.are_waiting());
    }
    // More is not copied.
    store(LONGEST_MEMORY + 1);
    assert_eq!(ticks.next(&mut buffer).unwrap().memory, b"");
    // With a large backlog, ticks are kept, without memory.
    let size = (HEADER + LONGEST_MEMORY) as i64;
    for _ in 0..LARGEST_WITH_MEMORY / size + 10 {
        store(LONGEST_MEMORY);
    }
    let mut copied = Vec::new();
    while let Some(tick) = ticks.next(&mut buffer) {
        copied.push(tick.memory.len());
    }
    let with_memory = copied.iter().filter(|&&length| length == LONGEST_MEMORY);
    assert_eq!(with_memory.count() as i64, LARGEST_WITH_MEMORY / size + 1);
    assert_eq!(copied.iter().filter(|&&length| length == 0).count(), 9);
    assert_eq!(ticks.lost.load(Relaxed), 0);
    ticks.end();
}

/// More ticks than the ring holds, and the host has kept the writer thread away since a fork.
#[test]
fn ticks_wait_for_room() {
    const TICKS_STORED: usize = 3 * 2048;
    let (_alone, path) = alone("ticks");
    // A process of its own, because the host's function stays.
    assert!(in_child(|| {
        let session = start_counted(&path, 512 << 10);
        TICKS.begin(true).unwrap();
        assert!(in_child(|| {}));
        for _ in 0..TICKS_STORED {
            TICKS.store(0, &[0]);
        }
        let record = || {
            let mut recording = record_now().unwrap();
            recording.ticks(16, |recording, _| {
                Some(TickSamples::of(a_function(recording, 1)))
            });
        };
        // Nobody makes room, so nobody waits.
        while wait_for_room(512) {
            record();
        }
        assert!(TICKS.are_waiting());
        crate::let_writer_run();
        while TICKS.are_waiting() {
            assert!(wait_for_room(512));
            record();
        }
        TICKS.end();
        let outcome = session.finish(None);
        let recorded = (outcome.time_samples, outcome.lost);
        assert_eq!(recorded, (TICKS_STORED as u64, 0));
    }));
}
