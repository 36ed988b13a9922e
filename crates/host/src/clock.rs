//! Clocks of the system.

/// A raw reading of `CLOCK_MONOTONIC` in nanoseconds. Safe in a signal handler.
#[inline]
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result. The clock always exists, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The CPU clock of a thread of this process (`MAKE_THREAD_CPUCLOCK` of the kernel's `posix-timers.h`).
pub const fn cpu_clock_of(thread: i32) -> libc::clockid_t {
    const PER_THREAD: i32 = 4;
    const SCHEDULED_TIME: i32 = 2;
    (!thread << 3) | PER_THREAD | SCHEDULED_TIME
}

/// The CPU clock of a process (`MAKE_PROCESS_CPUCLOCK`).
pub const fn cpu_clock_of_process(process: i32) -> libc::clockid_t {
    const SCHEDULED_TIME: i32 = 2;
    (!process << 3) | SCHEDULED_TIME
}

/// CPU time of a thread in nanoseconds; `None` if it has ended. Safe in a signal handler.
pub fn thread_cpu(thread: i32) -> Option<u64> {
    read(cpu_clock_of(thread))
}

/// A clock in nanoseconds; `None` if its thread has ended. Safe in a signal handler.
#[unsafe(link_section = "nthbyte_hot")]
pub fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer.
    let asked = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (asked == 0).then(|| time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
