//! Tests of the lock. The models in `crates/session/tests/models` try all orders of execution.

use std::sync::atomic::AtomicUsize;

use nthbyte_host::lock::{Lock, LockHolder};

#[test]
fn the_same_thread_gets_it_once_and_another_waits() {
    static LOCK: Lock = Lock::new(AtomicUsize::new(0));
    assert!(LOCK.acquire());
    assert!(!LOCK.acquire());
    assert!(!LOCK.acquire_for_fork());
    let other = std::thread::spawn(|| LOCK.acquire().then(|| LOCK.release()));
    assert_eq!(other.join().unwrap(), None, "nobody waits for ever");
    LOCK.release();
    assert!(LOCK.acquire_for_fork());
    assert!(!LOCK.acquire());
    LOCK.release_in_parent();
    assert!(LOCK.acquire());
    assert_eq!(LOCK.release_in_child(), LockHolder::Caller);
    LOCK.release();
    assert!(LOCK.acquire_for_fork());
    assert_eq!(LOCK.release_in_child(), LockHolder::Nobody);
}

#[test]
fn a_lock_of_a_thread_that_is_gone_is_free_in_a_child() {
    static LOCK: Lock = Lock::new(AtomicUsize::new(0));
    std::thread::spawn(|| assert!(LOCK.acquire()))
        .join()
        .unwrap();
    assert_eq!(LOCK.release_in_child(), LockHolder::Other);
    assert!(LOCK.acquire());
}
