//! The writer thread: stopped for forks, finished, and asked by a signal handler to complete the profile.

use std::time::Duration;

use loom::sync::Arc;
use loom::thread::JoinHandle;
use nthbyte_profile::event::Nanos;

use crate::outcome::SessionOutcome;
use crate::pace::Spent;
use crate::ring::Lost;
use crate::sync::{AtomicBool, FutexWord};
use crate::threads::Sleeper;
use crate::writer::LastWords;
use crate::writer::drain::{Content, Drain, Ends};
use crate::writer::handle::{Limits, Writer};
use crate::{model, spawn, termination};

const END: LastWords = LastWords {
    time: Nanos(1),
    counted: None,
};

/// A session with a running writer thread.
fn start() -> (Arc<Ends>, Writer) {
    let ends = Ends::new();
    let lost = Box::leak(Box::new(Lost::default()));
    let sleeper = Box::leak(Box::new(Sleeper::new(FutexWord::new(0))));
    let is_abandoned = Box::leak(Box::new(AtomicBool::new(false)));
    let writer = Writer::start(lost, &Spent, sleeper, is_abandoned, Drain::of(&ends)).unwrap();
    (ends, writer)
}

/// Finishes the profile, and checks that it has all records, each once.
fn finish(ends: &Ends, writer: Writer, records: &[u32]) {
    let outcome = writer.finish(END, SessionOutcome::default());
    let content = ends.content();
    assert_eq!(content.records, records);
    assert!(content.is_ended);
    assert_eq!(outcome.notes, [""; 0]);
    assert_eq!(outcome.samples, records.len() as u64);
}

#[test]
fn a_fork_finds_all_records_in_the_file_and_no_thread() {
    model(2, || {
        let (ends, mut writer) = start();
        ends.push(1);
        writer.wake();
        ends.push(2);
        writer.stop_for_fork();
        // loom panics if the thread still writes.
        assert_eq!(ends.content().records, [1, 2]);
        ends.push(3);
        writer.wake();
        finish(&ends, writer, &[1, 2, 3]);
    });
}

/// The fork does not wait, and the thread stops late or not at all.
#[test]
fn a_fork_that_did_not_wait_loses_nothing() {
    model(2, || {
        let (ends, mut writer) = start();
        ends.push(1);
        let patient = *writer.limits();
        writer.limits().longest_wait = Duration::ZERO;
        writer.stop_for_fork();
        ends.push(2);
        writer.wake();
        *writer.limits() = patient;
        finish(&ends, writer, &[1, 2]);
    });
}

/// A signal handler in another thread waits until the profile is complete.
#[test]
fn a_signal_waits_for_the_whole_profile() {
    model(2, || {
        let (ends, writer) = start();
        ends.push(1);
        let handler = handle_signal(&ends, true);
        handler.join().unwrap();
        finish(&ends, writer, &[1]);
    });
}

/// The session ends while a signal handler asks for the same.
#[test]
fn a_signal_beside_the_end_changes_nothing() {
    model(2, || {
        let (ends, writer) = start();
        ends.push(1);
        let handler = handle_signal(&ends, true);
        finish(&ends, writer, &[1]);
        handler.join().unwrap();
    });
}

/// A fork stops the thread while a signal handler asks it to complete the profile.
#[test]
fn a_signal_beside_a_fork_loses_nothing() {
    // The handler's wait has many orders.
    model(1, || {
        let (ends, mut writer) = start();
        ends.push(1);
        let handler = handle_signal(&ends, false);
        writer.stop_for_fork();
        writer.wake();
        handler.join().unwrap();
        finish(&ends, writer, &[1]);
    });
}

/// A fork has stopped the thread, which comes back while a signal handler waits.
#[test]
fn a_signal_waits_for_a_thread_that_is_away() {
    model(2, || {
        let (ends, mut writer) = start();
        writer.stop_for_fork();
        ends.push(1);
        let handler = handle_signal(&ends, true);
        writer.wake();
        handler.join().unwrap();
        finish(&ends, writer, &[1]);
    });
}

fn handle_signal(ends: &Arc<Ends>, is_last: bool) -> JoinHandle<()> {
    let ends = Arc::clone(ends);
    spawn(2, move || {
        termination::complete();
        if is_last {
            // No thread writes any more.
            let content = ends.content();
            assert_eq!((content.records, content.is_ended), (vec![1], true));
        }
    })
}
