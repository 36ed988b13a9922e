//! SIGTERM while a session ends.

use std::io::Read;
use std::time::Duration;

use super::{in_child, one_at_a_time, record, small_pipe, start};

fn has_handler() -> bool {
    // SAFETY: zeroes are a valid `sigaction`, which the call fills.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(
            libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut action),
            0
        );
        action
    };
    action.sa_sigaction != libc::SIG_DFL
}

/// `Pool.terminate()` sends SIGTERM to workers that are about to end by themselves.
#[test]
fn the_handler_stays_until_the_profile_is_complete() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.nthb");
    // A process of its own, because the handler is the process's.
    assert!(in_child(|| {
        let mut pipe = small_pipe(&path);
        assert!(!has_handler());
        let session = start(&path, "every", 1);
        assert!(has_handler());
        let wait_for_room =
            |limit| session.with_writer(|writer| writer.limits().longest_wait = limit);
        wait_for_room(Duration::from_millis(1));
        record(&session, 200_000);
        wait_for_room(Duration::from_secs(600));
        let slot = session.slot();
        let seen = std::thread::spawn(move || {
            while slot.is_running() {
                std::thread::yield_now();
            }
            // The profile cannot be completed before the pipe is read.
            std::thread::sleep(Duration::from_millis(50));
            let seen = has_handler();
            let mut part = vec![0; 1 << 16];
            loop {
                match pipe.read(&mut part) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(_) => std::thread::yield_now(),
                }
            }
            seen
        });
        session.finish(None);
        assert!(!has_handler());
        assert!(
            seen.join().unwrap(),
            "SIGTERM would end the process before its profile is complete"
        );
    }));
}
