//! The arithmetic of sampling, by thread.
//!
//! Each thread has a countdown of its own. With exponential distances of the same mean, the sample points of all
//! threads together are one Poisson process over the bytes that the process allocates.
//!
//! The period may change. A thread notices it at its next sample, which is still one of the period before and is recorded
//! as such, or [`IDLE`] bytes later; what remains of the distance is drawn anew then. So each allocation meets the sample points
//! of one known period, and a thread whose period was very long has a shorter one soon.
//!
//! A thread looks every [`IDLE`] bytes whether another session has begun, however far the next sample point is. So a thread
//! that runs when a session begins joins it at most that many bytes later; the thread that begins the session joins it at once.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use nthbyte_sampling::{Countdown, Distances, Period, Random, SamplePoints};

use crate::thread::ThreadState;

/// The largest countdown of a thread, and that without a session, in bytes.
pub const IDLE: u64 = 64 << 10;
/// No distance is longer. A larger countdown means that a signal handler allocated between the two steps of a call.
const LONGEST: u64 = 1 << 47;

/// The number of the session; 0 if there is none. The settings below are stored before it.
static SESSION: AtomicU32 = AtomicU32::new(0);
/// The number of the last session.
static LAST: AtomicU32 = AtomicU32::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(1);
static SEED: AtomicU64 = AtomicU64::new(0);
/// The number of threads that have joined the session.
static THREADS: AtomicU64 = AtomicU64::new(0);

/// Begins a session. A period of 1 samples each request.
pub fn begin(period: u64, seed: u64) {
    SESSION.store(0, Relaxed);
    PERIOD.store(period, Relaxed);
    SEED.store(seed, Relaxed);
    THREADS.store(0, Relaxed);
    let number = LAST.fetch_add(1, Relaxed).wrapping_add(1).max(1);
    SESSION.store(number, Release);
}

/// Whether there is a session.
pub fn is_on() -> bool {
    SESSION.load(Acquire) != 0
}

/// Sets the period of the session. Each thread has it after its next sample ([`follow_period`]).
pub fn set_period(period: u64) {
    PERIOD.store(period, Relaxed);
}

/// The period of the thread's sample points, in bytes. Call this after [`points`] has found some.
///
/// # Safety
/// As for [`points`].
pub unsafe fn period(thread: *mut ThreadState) -> u64 {
    // SAFETY: by the contract; the points were written when the thread joined the session.
    unsafe { (*thread).points.assume_init_ref() }
        .period()
        .bytes()
}

/// Called after each sample: if the session has another period now, draws what remains of the thread's distance anew.
///
/// # Safety
/// As for [`period`].
pub unsafe fn follow_period(thread: *mut ThreadState) {
    let period = PERIOD.load(Relaxed);
    // SAFETY: by the contract.
    unsafe {
        if period != self::period(thread)
            && let Some(period) = Period::new(period)
        {
            let points = (*thread).points.assume_init_mut();
            points.set_period(period);
            set_distance(thread, Countdown::new(points));
        }
    }
}

/// Ends the session.
pub fn end() {
    SESSION.store(0, Release);
}

/// Called in the child of a fork: its distances differ from its parent's. That changes no probability, because
/// a distance has no memory.
pub fn begin_in_child(process: u32) {
    if SESSION.load(Relaxed) != 0 {
        let seed = Random::new(SEED.load(Relaxed) ^ u64::from(process) << 32).next_u64();
        begin(PERIOD.load(Relaxed), seed);
    }
}

/// Makes the calling thread join the session with its next request.
///
/// # Safety
/// As for [`points`].
pub unsafe fn join(thread: *mut ThreadState) {
    // SAFETY: by the contract.
    unsafe { ((*thread).countdown, (*thread).rest) = (0, 0) };
}

/// Sets the distance to the thread's next sample point.
///
/// # Safety
/// As for [`points`].
unsafe fn set_distance(thread: *mut ThreadState, countdown: Countdown) {
    let distance = countdown.bytes_until_sample();
    let near = distance.min(IDLE);
    // SAFETY: by the contract.
    unsafe { ((*thread).countdown, (*thread).rest) = (near, distance - near) };
}

/// Decides about a request of `bytes`, which were subtracted from the thread's countdown and exhausted it. Returns the number of
/// sample points in it; 0 if it is not sampled, or is not the program's.
///
/// # Safety
/// `thread` is the calling thread's state.
pub unsafe fn points(thread: *mut ThreadState, bytes: usize) -> u32 {
    let bytes = bytes as u64;
    // SAFETY: by the contract; no reference to the state exists.
    unsafe {
        let before = (*thread).countdown.wrapping_add(bytes);
        let before = if before > LONGEST { 0 } else { before };
        let session = SESSION.load(Acquire);
        if (*thread).busy != 0 {
            if session != 0 && (*thread).session == session {
                // The points in this request are passed over. If the distance were kept instead, it would be a short one
                // whenever that happens, and the program's next request would be sampled far too often.
                let mut countdown = Countdown::of_bytes(before.saturating_add((*thread).rest));
                countdown.advance(bytes, (*thread).points.assume_init_mut());
                set_distance(thread, countdown);
            } else {
                (*thread).countdown = before;
            }
            return 0;
        }
        if session == 0 {
            (*thread).session = 0;
            set_distance(thread, Countdown::of_bytes(IDLE));
            return 0;
        }
        let mut countdown = if (*thread).session == session {
            Countdown::of_bytes(before.saturating_add((*thread).rest))
        } else {
            let points = (*thread).points.write(fresh_points());
            (*thread).session = session;
            Countdown::new(points)
        };
        // The points were written when the thread joined the session.
        let covered = countdown.advance(bytes, (*thread).points.assume_init_mut());
        set_distance(thread, countdown);
        if covered == 0 {
            follow_period(thread);
        }
        covered
    }
}

/// The sample points of a thread that joins the session.
fn fresh_points() -> SamplePoints {
    let period = Period::new(PERIOD.load(Relaxed)).unwrap_or(Period::EVERY);
    let thread = THREADS.fetch_add(1, Relaxed);
    let mut seeds = Random::new(SEED.load(Relaxed).wrapping_add(thread));
    SamplePoints::new(period, Distances::Exponential, seeds.next_u64())
}

/// The same as [`points`], for a request that was not subtracted from the countdown.
///
/// # Safety
/// As for [`points`].
pub unsafe fn points_of(thread: *mut ThreadState, bytes: usize) -> u32 {
    // SAFETY: by the contract.
    unsafe {
        let before = (*thread).countdown;
        (*thread).countdown = before.wrapping_sub(bytes as u64);
        if bytes as u64 >= before {
            points(thread, bytes)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weighted by the period under which each was drawn, the samples stand for the bytes that were requested.
    fn a_change_is_followed_after_the_next_sample(thread: *mut ThreadState) {
        begin(4096, 12);
        // SAFETY: this thread's state.
        unsafe { join(thread) };
        let (requests, mut estimate, mut variance) = (2_000_000, 0.0, 0.0);
        let mut periods = [0_u32; 2];
        for request in 0..requests {
            if request % 1000 == 0 {
                set_period(if request % 2000 == 0 { 4096 } else { 512 << 10 });
            }
            // SAFETY: this thread's state.
            unsafe {
                if points_of(thread, 100) > 0 {
                    let of_sample = period(thread);
                    follow_period(thread);
                    assert_eq!(period(thread), PERIOD.load(Relaxed));
                    let p = -(-100.0 / of_sample as f64).exp_m1();
                    estimate += 100.0 / p;
                    variance += (100.0 / p).powi(2) * (1.0 - p);
                    periods[usize::from(of_sample != 4096)] += 1;
                }
            }
        }
        assert!(periods.iter().all(|&samples| samples > 50), "{periods:?}");
        let error = (estimate - 100.0 * f64::from(requests)).abs();
        assert!(error < 5.0 * f64::sqrt(variance), "{error} {variance}");
    }

    /// Among requests of an agent, which are larger than the distance to the next sample point now and then, the program's
    /// requests are sampled with the same probability as without them.
    fn requests_that_are_not_observed_change_no_probability(thread: *mut ThreadState) {
        begin(4096, 13);
        // SAFETY: this thread's state.
        unsafe { join(thread) };
        let requests = 200_000;
        let mut sampled = 0;
        for request in 0..requests {
            // SAFETY: this thread's state.
            unsafe {
                (*thread).busy = 1;
                assert_eq!(points_of(thread, 100 + request % 50 * 400), 0);
                (*thread).busy = 0;
                sampled += u32::from(points_of(thread, 100) > 0);
            }
        }
        let probability = -(-100.0 / 4096.0_f64).exp_m1();
        let mean = probability * requests as f64;
        let deviation = (mean * (1.0 - probability)).sqrt();
        let error = (f64::from(sampled) - mean).abs();
        assert!(error < 6.0 * deviation, "{sampled} of {mean}");
    }

    /// A thread that was in a session with a long distance left, such as one of a pool.
    fn a_thread_joins_the_next_session_soon(thread: *mut ThreadState) {
        begin(1 << 40, 14);
        // SAFETY: this thread's state.
        unsafe {
            join(thread);
            assert_eq!(points_of(thread, 100), 0);
            end();
            begin(1, 15);
            let unseen = (0..).take_while(|_| points_of(thread, 100) == 0).count();
            assert!(unseen as u64 * 100 <= IDLE, "{unseen}");
            assert_eq!(points_of(thread, 100), 100);
        }
    }

    /// Of requests of `s` bytes, the part 1 - exp(-s/period) is sampled.
    #[test]
    fn the_probability_is_the_formula() {
        let mut state = ThreadState::new();
        let thread = &raw mut state;
        begin(4096, 11);
        // SAFETY: this thread's state.
        unsafe { join(thread) };
        for (period, size) in [
            (4096, 64_usize),
            (4096, 1000),
            (4096, 4096),
            (4096, 20_000),
            (1 << 20, 5000),
        ] {
            set_period(period);
            let requests = 400_000;
            let mut sampled = 0;
            for _ in 0..requests {
                // SAFETY: this thread's state.
                unsafe {
                    if points_of(thread, size) > 0 {
                        sampled += 1;
                        follow_period(thread);
                    }
                }
            }
            let probability = -(-(size as f64) / period as f64).exp_m1();
            let mean = probability * f64::from(requests);
            let deviation = (mean * (1.0 - probability)).sqrt();
            // Six standard deviations: one in 500 million.
            assert!(
                (f64::from(sampled) - mean).abs() < 6.0 * deviation,
                "{size}: {sampled} {mean}"
            );
        }
        a_change_is_followed_after_the_next_sample(thread);
        requests_that_are_not_observed_change_no_probability(thread);
        a_thread_joins_the_next_session_soon(thread);
        begin(1, 11);
        // SAFETY: as above.
        unsafe {
            join(thread);
            assert_eq!(points_of(thread, 10), 10);
            assert_eq!(points_of(thread, 0), 0);
            assert_eq!(points_of(thread, 1), 1);
            (*thread).busy = 1;
            assert_eq!(points_of(thread, 10), 0);
            (*thread).busy = 0;
            end();
            assert_eq!(points_of(thread, 10), 0);
            assert_eq!((*thread).countdown, IDLE);
        }
    }
}
