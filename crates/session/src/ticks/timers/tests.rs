//! Timers end with a session, and are no other process's.

use std::sync::mpsc;

use super::*;

const AN_HOUR: u64 = 3600 * SECOND;

/// The table is the process's: one test at a time uses it.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of timers, after the keeper has looked for threads.
fn timers_after(look: fn()) -> usize {
    look();
    table().unwrap().threads.len()
}

#[test]
fn no_timer_is_made_after_the_end() {
    let _lock = one_at_a_time();
    let find_new = || assert!(super::find_new());
    for _ in 0..2 {
        begin_with(libc::SIGURG, AN_HOUR, 1).unwrap();
        // The main thread of the tests, and this one.
        assert!(timers_after(scan) > 1);
        end();
        // The writer thread may get there late.
        assert_eq!([timers_after(scan), timers_after(find_new)], [0, 0]);
    }
    begin_with(libc::SIGURG, AN_HOUR, 1).unwrap();
    table().unwrap().while_wanted(|_| end_without_the_table());
    assert_eq!(timers_after(|| ()), 0);
}

/// What [`end`] does if it does not get the table.
fn end_without_the_table() {
    ARE_WANTED.store(false, SeqCst);
}

/// A thread that waits until the sender is dropped, and its number.
fn waiting_thread() -> (c_int, mpsc::Sender<()>) {
    let (tell, number) = mpsc::channel();
    let (end, until) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        tell.send(this_thread()).unwrap();
        let _ = until.recv();
    });
    (number.recv().unwrap(), end)
}

#[test]
fn of_many_threads_the_newest_is_found_without_the_list_of_all() {
    let _lock = one_at_a_time();
    begin_with(libc::SIGURG, AN_HOUR, 1).unwrap();
    let many: Vec<_> = std::iter::repeat_with(waiting_thread).take(FEW).collect();
    assert!(timers_after(scan) > FEW);
    // Nothing is new, unless another test starts just now.
    assert!((0..100).any(|_| {
        scan();
        !super::find_new()
    }));
    // Other processes start threads too, whose numbers may lie between.
    let is_found = (0..100).any(|_| {
        let (newest, _end) = waiting_thread();
        let is_found = super::find_new() && table().unwrap().threads.contains_key(&newest);
        scan();
        is_found
    });
    assert!(is_found);
    drop(many);
    end();
}

/// In a child, the kernel gives the program's timers the numbers that its parent's have.
#[test]
fn a_child_does_not_delete_the_programs_timers() {
    let _lock = one_at_a_time();
    begin_with(libc::SIGURG, AN_HOUR, 1).unwrap();
    let ours = table().unwrap().threads[&this_thread()].timer.unwrap();
    // The C library does not know of the second child.
    for is_known in [true, false] {
        // SAFETY: the child ends below without running other code of this process; the second allocates nothing.
        let child = unsafe {
            if is_known {
                libc::fork()
            } else {
                libc::syscall(libc::SYS_fork) as libc::pid_t
            }
        };
        if child == 0 {
            let is_well = keeps_the_timer(ours, is_known);
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!is_well)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child that was just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "{is_known}");
    }
    assert!(timers_after(scan) > 0);
    end();
}

/// Makes timers of the program until one has this number. Returns whether it is still there after all that may
/// happen before a child begins its own profile, and after that, if it does.
fn keeps_the_timer(number: usize, begins: bool) -> bool {
    let mut timers = std::iter::from_fn(a_timer).take(1 << 10);
    let Some(timer) = timers.find(|&timer| timer as usize == number) else {
        return false;
    };
    scan();
    change_signal(libc::SIGURG);
    let has_table = find_new();
    end();
    if begins {
        ARE_WANTED.store(true, SeqCst);
        begin_in_child();
        scan();
        end();
    }
    !has_table && is_there(timer)
}

/// Makes a timer that does not expire.
fn a_timer() -> Option<libc::timer_t> {
    // SAFETY: zero is a valid value of both types, and there is a place for the answer.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_NONE;
        let mut timer: libc::timer_t = std::mem::zeroed();
        let clock = libc::CLOCK_MONOTONIC;
        (libc::timer_create(clock, &raw mut event, &raw mut timer) == 0).then_some(timer)
    }
}

fn is_there(timer: libc::timer_t) -> bool {
    // SAFETY: zero is a valid value of the struct; the kernel refuses the number of a timer that does not exist.
    unsafe {
        let mut times: libc::itimerspec = std::mem::zeroed();
        libc::timer_gettime(timer, &raw mut times) == 0
    }
}
