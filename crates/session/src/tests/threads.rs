//! Tests with several recording threads, and with nested recordings in one thread.

use std::path::Path;

use nthbyte_profile::event::LostKind;

use super::{Profile, a_function, alone, an_allocation, one_at_a_time, start};
use crate::recording::Naming;
use crate::{PerEpoch, Session};

#[test]
fn what_two_threads_record_arrives_once() {
    let _lock = one_at_a_time();
    const SAMPLES: u64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threads");
    let session = start(&path, "every", 1);
    let record = |session: &Session, first: u64| {
        for number in first..first + SAMPLES {
            let record = || {
                let mut recording = session.record(LostKind::Other)?;
                // Both threads use some of the same functions.
                let stack = a_function(&mut recording, number % 700);
                an_allocation(&mut recording, stack, number)
            };
            // A thread that has lost its processor may prevent the other threads from recording.
            while record().is_none() {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| record(&session, 0));
        scope.spawn(|| record(&session, SAMPLES));
    });
    let outcome = session.finish(None);
    assert_eq!(outcome.samples, 2 * SAMPLES);
    let found = Profile::read(&path);
    assert_eq!((found.damage, found.end), (0, true));
    for sample in &found.allocations {
        let name = format!("function {}", sample.size % 700);
        assert_eq!(found.function(sample.stack), name);
    }
    let mut sizes: Vec<_> = found.allocations.iter().map(|sample| sample.size).collect();
    sizes.sort_unstable();
    assert!(sizes.into_iter().eq(0..2 * SAMPLES));
}

#[test]
fn a_thread_that_records_already_loses_an_event() {
    let (_alone, path) = alone("again");
    let session = start(&path, "exponential", 512);
    let mut recording = session.record(LostKind::Allocations).unwrap();
    assert!(session.record(LostKind::Allocations).is_none());
    assert!(session.record(LostKind::CpuSamples).is_none());
    let stack = a_function(&mut recording, 1);
    an_allocation(&mut recording, stack, 1).unwrap();
    drop(recording);
    assert!(session.record(LostKind::Allocations).is_some());
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (1, 2));
    assert_eq!(Profile::read(&path).lost, 2);
    // The session has ended: no event counts as lost.
    assert!(session.record(LostKind::Allocations).is_none());
    assert!(session.finish(None).path.is_none());
}

/// Signals belong to the program: the writer thread has all of them blocked, and the thread that starts it as before.
#[test]
fn the_writer_thread_takes_no_signal() {
    let _lock = one_at_a_time();
    let blocked = |status: &Path| {
        let text = std::fs::read_to_string(status).unwrap();
        let line = text.lines().find(|line| line.starts_with("SigBlk:"));
        u64::from_str_radix(line.unwrap()[7..].trim(), 16).unwrap()
    };
    let own = Path::new("/proc/thread-self/status");
    let before = blocked(own);
    let folder = tempfile::tempdir().unwrap();
    let session = start(&folder.path().join("signals"), "exponential", 512);
    assert_eq!(blocked(own), before);
    // All but those that cannot be blocked, and two that the C library keeps for itself.
    let unblockable = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
    let all = unblockable
        .iter()
        .fold(u64::MAX, |all, signal| all & !(1 << (signal - 1)));
    // The name is set when the thread begins to run.
    let writers = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let mut writers = threads.map(|thread| thread.unwrap().path());
        writers.find(|thread| {
            std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "nthbyte\n")
        })
    };
    let writer = loop {
        match writers() {
            Some(writer) => break writer,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(blocked(&writer.join("status")) & all, all);
    drop(session);
}

#[test]
fn an_address_that_is_used_again_has_another_name() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let session = start(&folder.path().join("forgotten"), "exponential", 512);
    let mut recording = session.record(LostKind::Other).unwrap();
    let first = a_function(&mut recording, 1);
    let other = a_function(&mut recording, 2);
    assert_eq!(a_function(&mut recording, 1), first);
    drop(recording);
    assert!(session.forget_function(1) && !session.forget_function(3));

    let mut recording = session.record(LostKind::Other).unwrap();
    assert_eq!(recording.function(1), None);
    let second = a_function(&mut recording, 1);
    assert_ne!(second, first);
    assert_eq!(a_function(&mut recording, 2), other);
    // Another thread is recording. The keys cannot be removed now, but are removed before the next recording.
    assert!(session.forget_function(1) && session.forget_type(7));
    drop(recording);
    let mut recording = session.record(LostKind::Other).unwrap();
    assert_eq!((recording.function(1), recording.function(2)), (None, None));
    assert_ne!(a_function(&mut recording, 1), second);
}

#[test]
fn each_session_has_an_epoch_of_its_own() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let mut state = PerEpoch::<u32>::default();
    for name in ["one", "two"] {
        let session = start(&folder.path().join(name), "exponential", 512);
        for turn in 0..3 {
            let recording = session.record(LostKind::Other).unwrap();
            let count = state.of(recording.epoch());
            assert_eq!(*count, turn);
            *count += 1;
        }
    }
}

#[test]
fn the_hosts_name_of_a_thread_replaces_the_systems() {
    let (_alone, path) = alone("threads");
    let session = start(&path, "every", 1);
    let mut recording = session.record(LostKind::Other).unwrap();
    let mut looks = Vec::new();
    for naming in [Naming::System, Naming::Host, Naming::System, Naming::Host] {
        recording.thread_named(1, naming, &mut || {
            looks.push(naming);
            Some(format!("{naming:?}"))
        });
        // Another thread is the last one then.
        recording.thread(2);
    }
    drop(recording);
    assert_eq!(looks, [Naming::System, Naming::Host]);
    session.finish(None);
    let profile = nthbyte_profile::Profile::load(&path).unwrap();
    let names: Vec<_> = profile
        .threads
        .iter()
        .map(|thread| &thread.name[..])
        .collect();
    assert_eq!(names, ["Host", ""]);
}
