//! Tests of the fork state.

use std::sync::atomic::AtomicU64;

use nthbyte_host::lock::LockHolder;

use crate::fork_state::{ForkState, State, ToDo, WRITER_AWAY};

const fn child(is_whole: bool, has_forked: bool) -> State {
    State::Child {
        is_whole,
        has_forked,
    }
}

#[test]
fn a_word_holds_each_state() {
    for state in [
        State::Undisturbed,
        State::Forked,
        State::WriterAway(0),
        State::WriterAway(1 << 60),
        child(true, false),
        child(false, false),
        child(true, true),
        child(false, true),
    ] {
        assert_eq!(State::of_word(state.word()), state);
    }
}

#[test]
fn a_parent_waits_and_a_child_begins_anew_once() {
    let state = ForkState::new(AtomicU64::new(0));
    assert_eq!(state.notice(5), ToDo::Nothing);
    state.forked();
    assert_eq!(state.notice(10), ToDo::Nothing);
    assert_eq!(state.get(), State::WriterAway(10 + WRITER_AWAY));
    assert_eq!(state.notice(9 + WRITER_AWAY), ToDo::Nothing);
    assert!(!state.is_undisturbed());
    assert_eq!(state.notice(10 + WRITER_AWAY), ToDo::StartWriter);
    assert!(state.is_undisturbed());
    assert_eq!(state.notice(10 + WRITER_AWAY), ToDo::Nothing);

    state.become_child(LockHolder::Nobody);
    assert_eq!(state.notice(0), ToDo::BeginAnew { is_whole: true });
    assert_eq!(state.notice(0), ToDo::Nothing);

    // Another thread of the parent was recording at the fork, and the child forks again before it records.
    state.become_child(LockHolder::Other);
    state.forked();
    state.become_child(LockHolder::Nobody);
    assert_eq!(state.notice(0), ToDo::BeginAnew { is_whole: false });
}

/// Whether a recording has noticed the fork or not.
#[test]
fn the_next_recording_starts_a_writer_that_may_run() {
    for records_before in [false, true] {
        let state = ForkState::new(AtomicU64::new(0));
        assert!(!state.let_writer_run());
        state.forked();
        if records_before {
            assert_eq!(state.notice(10), ToDo::Nothing);
        }
        assert!(state.let_writer_run());
        assert!(state.lets_writer_run(11));
        assert_eq!(state.notice(11), ToDo::StartWriter);
        assert!(state.is_undisturbed());
    }
    let state = ForkState::new(AtomicU64::new(0));
    state.become_child(LockHolder::Nobody);
    state.forked();
    assert!(!state.let_writer_run());
    assert_eq!(state.get(), child(true, false));
}

/// The interpreter counts its threads right after a fork, and allocates for that.
#[test]
fn the_writer_of_a_child_that_has_forked_stays_away() {
    let state = ForkState::new(AtomicU64::new(0));
    state.become_child(LockHolder::Nobody);
    state.forked();
    assert!(state.is_child());
    assert_eq!(state.notice(10), ToDo::BeginAnew { is_whole: true });
    assert_eq!(state.get(), State::WriterAway(10 + WRITER_AWAY));
    assert!(!state.lets_writer_run(9 + WRITER_AWAY));
    // Its own child has not forked.
    state.become_child(LockHolder::Nobody);
    assert_eq!(state.get(), child(true, false));
}
