//! Waits that must end although the awaited event does not come.

use std::time::Duration;

use nthbyte_profile::event::LostKind;

use super::{
    Profile, a_function, alone, an_allocation, in_child, one_at_a_time, record, small_pipe, start,
};

/// Every allocation is recorded, so samples wait for room, and there is no writer thread to make room.
#[test]
fn a_child_that_can_make_no_thread_loses_samples_and_goes_on() {
    let _lock = one_at_a_time();
    const SAMPLES: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("parent.nthb");
    let session = start(&path, "every", 1);
    session.with_writer(|writer| {
        let limits = writer.limits();
        // The child's first recording starts its thread, so this is set before the fork.
        (limits.longest_wait, limits.has_threads) = (Duration::from_millis(20), false);
    });
    assert!(in_child(|| {
        let recorded = record(&session, SAMPLES);
        assert!(recorded > 60_000 && recorded < SAMPLES, "{recorded}");
        let outcome = session.finish(None);
        assert_eq!(outcome.samples, recorded);
        assert_eq!(outcome.samples + outcome.lost, SAMPLES);
        let found = Profile::read(&outcome.path.unwrap());
        assert_eq!(found.allocations.len() as u64, recorded);
        assert_eq!((found.lost, found.end), (outcome.lost, true));
    }));
}

/// The session ends, and what the other program has left can be read.
#[test]
fn a_profile_that_another_program_truncates_ends_there() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    for keeps in [0, 2] {
        let path = folder.path().join(format!("{keeps}.nthb"));
        let session = start(&path, "exponential", 64);
        let mut recorded = 0;
        while std::fs::metadata(&path).unwrap().len() < 4000 {
            recorded += record(&session, 1000);
        }
        let other = std::fs::OpenOptions::new().write(true).open(&path);
        let left = std::fs::metadata(&path).unwrap().len() / 3 * keeps;
        other.unwrap().set_len(left).unwrap();
        let mut has_ended = false;
        while !has_ended {
            recorded += record(&session, 1000);
            session.with_writer(|writer| has_ended = writer.is_dead());
        }
        let outcome = session.finish(None);
        assert_eq!(outcome.samples + outcome.lost, recorded, "{outcome:?}");
        let [note] = &outcome.notes[..] else {
            panic!("{outcome:?}")
        };
        assert!(
            note.contains("has truncated the file; the profile ends"),
            "{note}"
        );
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            bytes.len() as u64 <= left + 200,
            "{} of {left}",
            bytes.len()
        );
        if keeps > 0 {
            assert!(!Profile::read(&path).allocations.is_empty());
        }
    }
}

/// There is no thread to wait for, and the next session uses the same slot.
#[test]
fn a_session_whose_writer_thread_has_panicked_ends_at_once_and_says_so() {
    let (_alone, path) = alone("profile.nthb");
    let session = start(&path, "exponential", 64);
    assert_eq!(record(&session, 10), 10);
    session.with_writer(|writer| writer.lose_drain());
    record(&session, 10);
    let outcome = session.finish(None);
    assert_eq!(outcome.path.as_deref(), Some(path.as_path()));
    assert_eq!(outcome.notes, [crate::outcome::INTERNAL_ERROR]);
    drop(session);
    let slots = crate::registry::slots().count();
    let next = start(&path, "exponential", 64);
    assert_eq!(record(&next, 10), 10);
    assert_eq!(next.finish(None).notes, [""; 0]);
    assert_eq!(crate::registry::slots().count(), slots);
}

/// The writer thread is in a write that does not end.
#[test]
fn nobody_waits_for_a_pipe_that_nobody_reads() {
    let (_alone, path) = alone("pipe.nthb");
    let reader = small_pipe(&path);
    let session = start(&path, "every", 1);
    session.with_writer(|writer| {
        writer.limits().longest_wait = Duration::from_millis(200);
    });
    // More samples than the pipe and the ring hold together.
    assert!(record(&session, 300_000) < 300_000);
    for _ in 0..3 {
        assert!(in_child(|| {
            assert_eq!(record(&session, 10), 10);
            assert_eq!(session.finish(None).samples, 10);
        }));
        // The parent continues, and still has its data. If the writer thread had no processor before, it makes room once.
        while record(&session, 10) > 0 {}
    }
    let outcome = session.finish(None);
    assert!(outcome.samples > 60_000);
    assert!(
        outcome
            .notes
            .iter()
            .any(|note| note.contains("took nothing")),
        "{:?}",
        outcome.notes
    );
    drop(reader);
}

/// A signal has interrupted a recording, and its handler has called `exit`.
#[test]
fn a_process_ends_in_the_middle_of_a_recording() {
    let (_alone, path) = alone("profile.nthb");
    // In a process of its own, which does not go on.
    assert!(in_child(|| {
        let session = start(&path, "exponential", 512);
        let mut recording = session.record(LostKind::Allocations).unwrap();
        let stack = a_function(&mut recording, 1);
        an_allocation(&mut recording, stack, 100).unwrap();
        // It is not used again, as if its thread had ended.
        std::mem::forget(recording);
        assert_eq!(session.finish(None).path, None);
        let outcome = session.finish_at_exit().unwrap();
        assert_eq!((outcome.samples, outcome.lost), (1, 0));
    }));
    let found = Profile::read(&path);
    assert_eq!((found.allocations.len(), found.end), (1, true));
}
