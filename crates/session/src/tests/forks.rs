//! Forks at different moments.

use std::path::Path;
use std::sync::mpsc::channel;

use nthbyte_host::process::ProcessIdentity;
use nthbyte_profile::event::LostKind;

use super::{Profile, a_function, alone, an_allocation, in_child, one_at_a_time, start};
use crate::{PerEpoch, Session};

/// Records a sample of this size, with the function of this number.
fn record(session: &Session, number: u64) {
    let mut recording = session.record(LostKind::Allocations).unwrap();
    let stack = a_function(&mut recording, number);
    an_allocation(&mut recording, stack, number).unwrap();
}

fn sizes(path: &Path) -> Vec<u64> {
    let found = Profile::read(path);
    assert!(found.damage == 0 && found.end);
    let sample = |size: u64| {
        let sample = found.allocations.iter().find(|one| one.size == size);
        found.function(sample.unwrap().stack)
    };
    let sizes: Vec<_> = found.allocations.iter().map(|one| one.size).collect();
    for &size in &sizes {
        assert_eq!(sample(size), format!("function {size}"));
    }
    sizes
}

#[test]
fn a_child_has_a_profile_of_its_own() {
    let (alone, path) = alone("parent.nthb");
    let session = start(&path, "exponential", 512);
    let mut state = PerEpoch::<u32>::default();
    record(&session, 1);
    record(&session, 2);
    session.lost(LostKind::Other, 5);
    *state.of(session.record(LostKind::Other).unwrap().epoch()) = 1;
    let parent = std::process::id();
    assert!(in_child(|| {
        assert_eq!(
            *state.of(session.record(LostKind::Other).unwrap().epoch()),
            0
        );
        record(&session, 3);
        record(&session, 1);
        let outcome = session.finish(None);
        assert_eq!((outcome.samples, outcome.lost), (2, 0));
        let own = alone
            .folder
            .path()
            .join(format!("parent.{}.nthb", std::process::id()));
        assert_eq!(outcome.path.as_deref(), Some(own.as_path()));
        assert_eq!(sizes(&own), [3, 1]);
        assert_ne!(std::process::id(), parent);
    }));
    assert_eq!(
        *state.of(session.record(LostKind::Other).unwrap().epoch()),
        1
    );
    record(&session, 4);
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (3, 5));
    assert_eq!(sizes(&path), [1, 2, 4]);
}

#[test]
fn a_child_that_records_nothing_has_no_profile() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let session = start(&folder.path().join("parent.nthb"), "exponential", 512);
    record(&session, 1);
    assert!(in_child(|| {
        assert!(in_child(|| record(&session, 2)), "a child of the child");
        assert!(session.finish(None).path.is_none());
    }));
}

/// The recording thread does not exist in the child.
#[test]
fn another_thread_may_be_recording_at_a_fork() {
    let (_alone, path) = alone("parent.nthb");
    let session = start(&path, "exponential", 512);
    record(&session, 1);
    let (begun, wait) = channel();
    let (done, hold) = channel::<()>();
    std::thread::scope(|scope| {
        let session = &session;
        scope.spawn(move || {
            let mut recording = session.record(LostKind::Other).unwrap();
            begun.send(()).unwrap();
            hold.recv().unwrap();
            let stack = a_function(&mut recording, 2);
            an_allocation(&mut recording, stack, 2).unwrap();
        });
        wait.recv().unwrap();
        assert!(in_child(|| {
            record(session, 3);
            let outcome = session.finish(None);
            assert_eq!(sizes(&outcome.path.unwrap()), [3]);
        }));
        // The lock is in the same state as before.
        assert!(session.record(LostKind::Other).is_none());
        done.send(()).unwrap();
    });
    record(&session, 4);
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (3, 1));
    assert_eq!(sizes(&path), [1, 2, 4]);
}

/// A signal handler may fork in the middle of a recording.
#[test]
fn a_thread_may_fork_while_it_records() {
    let (alone, path) = alone("parent.nthb");
    let session = start(&path, "exponential", 512);
    let mut recording = session.record(LostKind::Allocations).unwrap();
    let stack = a_function(&mut recording, 1);
    // SAFETY: the child ends below without running anything else of this process.
    let child = unsafe { libc::fork() };
    an_allocation(&mut recording, stack, 1).unwrap();
    drop(recording);
    if child == 0 {
        let finish = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            record(&session, 2);
            assert_eq!(session.finish(None).samples, 1);
        }));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(finish.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    let own = alone.folder.path().join(format!("parent.{child}.nthb"));
    assert_eq!(sizes(&own), [2]);
    assert_eq!(session.finish(None).samples, 1);
    assert_eq!(sizes(&path), [1]);
}

#[test]
fn a_child_replaces_no_file() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let session = start(&folder.path().join("parent.nthb"), "exponential", 512);
    record(&session, 1);
    assert!(in_child(|| {
        let child = |end| {
            let name = format!("parent.{}{end}.nthb", std::process::id());
            folder.path().join(name)
        };
        for end in ["", "-2"] {
            std::fs::write(child(end), "the only copy").unwrap();
        }
        record(&session, 2);
        assert!(in_child(|| {
            record(&session, 3);
            assert_eq!(session.finish(None).path.unwrap(), child(""));
        }));
        let path = session.finish(None).path.unwrap();
        assert_eq!(path, child("-3"));
        assert_eq!(sizes(&path), [2]);
        for end in ["", "-2"] {
            assert_eq!(std::fs::read(child(end)).unwrap(), b"the only copy");
        }
    }));
    assert_eq!(session.finish(None).samples, 1);
}

/// Nothing tells the session of such a child (`clone`, `_Fork`).
#[test]
fn a_child_that_is_not_known_waits_for_nobody() {
    let (_alone, path) = alone("parent.nthb");
    let session = start(&path, "exponential", 512);
    record(&session, 1);
    // SAFETY: the child ends below; before that, it allocates nothing.
    let child = unsafe { libc::syscall(libc::SYS_fork) };
    if child == 0 {
        let outcome = session.finish(None);
        let is_well = outcome.path.is_none() && outcome.notes.is_empty();
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(session.finish(None).samples, 1);
    assert_eq!(sizes(&path), [1]);
}

/// Even with its parent's number: a child may be in a PID namespace of its own.
#[test]
fn a_child_is_another_process_than_its_parent() {
    let _lock = one_at_a_time();
    let parent = ProcessIdentity::of_this();
    assert!(in_child(|| {
        let child = ProcessIdentity::of_this();
        assert_ne!(child.generation(), parent.generation());
        assert!(in_child(|| {
            let grandchild = ProcessIdentity::of_this();
            assert_ne!(grandchild.generation(), child.generation());
        }));
        assert_eq!(ProcessIdentity::of_this(), child);
    }));
    // Nothing tells the session of this one (`clone`, `_Fork`).
    // SAFETY: the child ends below; before that, it allocates nothing.
    let unknown = unsafe { libc::syscall(libc::SYS_fork) };
    if unknown == 0 {
        let is_taken_for_its_parent = ProcessIdentity::of_this() == parent;
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(is_taken_for_its_parent)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(unknown as libc::pid_t, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(ProcessIdentity::of_this(), parent);
}
