//! SIGTERM while a session ends, and while the program holds what the writer thread needs.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize};
use std::time::{Duration, Instant};

use super::{
    Child, LONGEST, Profile, alone, in_child, record, small_pipe, start, start_counted,
    start_preparing,
};
use crate::termination;

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
    let (_alone, path) = alone("pipe.nthb");
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

/// The thread that gets the signal may hold what the writer thread needs: the C library's lock of `malloc`, for example.
#[test]
fn the_interrupted_code_goes_on_if_the_writer_thread_needs_it() {
    static IS_RELEASED: AtomicBool = AtomicBool::new(false);
    let (_alone, path) = alone("out.nthb");
    let (mut ready, mut says_so) = std::io::pipe().unwrap();
    let child = Child::running(|| {
        let session = start_preparing(&path, || {
            while termination::requested().is_some() && !IS_RELEASED.load(Acquire) {
                std::thread::yield_now();
            }
        });
        record(&session, 1);
        says_so.write_all(&[1]).unwrap();
        while termination::requested().is_none() {
            std::thread::yield_now();
        }
        IS_RELEASED.store(true, Release);
        loop {
            std::thread::yield_now();
        }
    });
    ready.read_exact(&mut [0]).unwrap();
    // SAFETY: no preconditions; the child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.0, libc::SIGTERM) }, 0);
    let status = child.status();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM);
    let found = Profile::read(&path);
    assert_eq!(found.allocations.len(), 1);
    assert!(found.end);
}

/// A program's handler may call the one from before, when it has done its own work.
#[test]
fn a_handler_that_calls_this_one_is_called_once() {
    static BEFORE: AtomicUsize = AtomicUsize::new(0);
    static SAYS_SO: AtomicI32 = AtomicI32::new(-1);
    extern "C" fn clean_up(signal: libc::c_int) {
        // SAFETY: a byte of this function's, and the handler from before, which need not get more than the number.
        unsafe {
            libc::write(SAYS_SO.load(Acquire), [1_u8].as_ptr().cast(), 1);
            let before: extern "C" fn(libc::c_int) = std::mem::transmute(BEFORE.load(Acquire));
            before(signal);
        }
    }
    let (_alone, path) = alone("out.nthb");
    for writer_is_stuck in [false, true] {
        let (mut ready, says_so) = std::io::pipe().unwrap();
        SAYS_SO.store(says_so.as_raw_fd(), Release);
        let child = Child::running(|| {
            let session = if writer_is_stuck {
                start_preparing(&path, || {
                    while termination::requested().is_some() {
                        std::thread::yield_now();
                    }
                })
            } else {
                start(&path, "exponential", 512)
            };
            record(&session, 1);
            let handler = clean_up as *const () as usize;
            // SAFETY: the handler is a function of this program.
            BEFORE.store(unsafe { libc::signal(libc::SIGTERM, handler) }, Release);
            loop {
                // SAFETY: sends the signal to this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
            }
        });
        drop(says_so);
        let status = child.status();
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM);
        let mut called = Vec::new();
        ready.read_to_end(&mut called).unwrap();
        assert_eq!(called, [1]);
        if !writer_is_stuck {
            assert!(Profile::read(&path).end);
        }
    }
}

/// As on a quarter of a core: the thread needs more than a second, and has used a tenth of it.
#[test]
fn a_thread_that_gets_little_of_the_processor_completes_the_profile() {
    let (_alone, path) = alone("out.nthb");
    let (mut ready, mut says_so) = std::io::pipe().unwrap();
    let child = Child::running(|| {
        let session = start_preparing(&path, || {
            if termination::requested().is_some() {
                let used = nthbyte_host::threads::cpu_millis();
                while nthbyte_host::threads::cpu_millis() < used + 100 {
                    std::hint::spin_loop();
                }
                while termination::waited() < 1500 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        record(&session, 1);
        says_so.write_all(&[1]).unwrap();
        rest();
    });
    ready.read_exact(&mut [0]).unwrap();
    assert_complete(child, &path, 1);
}

/// `kill(getpid(), SIGTERM)` does not return.
#[test]
fn no_code_runs_after_a_signal_of_the_process_itself() {
    let (_alone, path) = alone("out.nthb");
    let child = Child::running(|| {
        // The profile cannot be completed.
        let session = start_preparing(&path, || {
            while termination::requested().is_some() {
                std::thread::yield_now();
            }
        });
        record(&session, 1);
        // SAFETY: no preconditions; the second call would end the process without a signal.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGTERM);
            libc::_exit(0);
        }
    });
    let status = child.status();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM);
}

/// A process that has forked may record little after that, and then rest until a signal ends it.
#[test]
fn the_writer_thread_comes_back_after_a_fork() {
    let (_alone, path) = alone("out.nthb");
    let (mut ready, mut says_so) = std::io::pipe().unwrap();
    let child = Child::running(|| {
        let session = start(&path, "exponential", 512);
        record(&session, 1);
        assert!(in_child(|| {}));
        record(&session, 1);
        says_so.write_all(&[1]).unwrap();
        rest();
    });
    ready.read_exact(&mut [0]).unwrap();
    let begun = Instant::now();
    while Profile::read(&path).allocations.len() < 2 {
        assert!(
            begun.elapsed() < LONGEST,
            "the last sample is not in the file"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_complete(child, &path, 2);
}

/// The host counts the threads after a fork, and the signal comes before that is over.
#[test]
fn a_signal_waits_for_a_writer_thread_that_is_away() {
    let (_alone, path) = alone("out.nthb");
    let (mut ready, mut says_so) = std::io::pipe().unwrap();
    let child = Child::running(|| {
        let session = start_counted(&path, 512);
        record(&session, 1);
        assert!(in_child(|| {}));
        session.with_writer(|writer| assert!(!writer.is_running()));
        record(&session, 1);
        says_so.write_all(&[1]).unwrap();
        while termination::requested().is_none() {
            std::thread::yield_now();
        }
        crate::let_writer_run();
        rest();
    });
    ready.read_exact(&mut [0]).unwrap();
    assert_complete(child, &path, 2);
}

/// Waits for a signal that ends the process.
fn rest() -> ! {
    loop {
        // SAFETY: no preconditions.
        unsafe { libc::pause() };
    }
}

/// Sends SIGTERM, and checks that the profile has its end, and so many samples.
fn assert_complete(child: Child, profile: &Path, samples: usize) {
    // SAFETY: no preconditions; the child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.0, libc::SIGTERM) }, 0);
    let status = child.status();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTERM);
    let found = Profile::read(profile);
    assert_eq!((found.allocations.len(), found.end), (samples, true));
}
