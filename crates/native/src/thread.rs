//! The state of a thread.

use std::mem::MaybeUninit;

use nthbyte_sampling::SamplePoints;

/// The state of a thread. It begins as zeroes.
///
/// It lies in the static TLS block, at a fixed distance from the thread pointer. Rust's own thread-local variables call
/// a function of the dynamic linker, which may call `malloc`.
#[repr(C, align(64))]
pub struct Thread {
    /// Bytes to the next sample point. 0 in a new thread, which makes its first call take the slow path. `entry`
    /// subtracts each request from it.
    pub countdown: u64,
    /// The return address of the last call of `mmap` that took the slow path, and of each call that is sampled.
    pub caller: usize,
    /// Not 0 while this thread's requests are not the program's: inside this library, or inside the agent.
    pub busy: u32,
    /// The number of the session that `countdown` and `points` belong to; 0 if none.
    pub session: u32,
    /// The sample points of the session.
    pub points: MaybeUninit<SamplePoints>,
}

const _: () = assert!(size_of::<Thread>() == 64);

#[cfg(not(test))]
std::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 64",
    ".globl nthbyte_native_thread",
    ".hidden nthbyte_native_thread",
    ".type nthbyte_native_thread, @object",
    ".size nthbyte_native_thread, 64",
    "nthbyte_native_thread:",
    ".zero 64",
    ".popsection",
);

/// The state of the calling thread. Only the calling thread may use it, and a signal handler may interrupt each use: so
/// no reference to the whole is made.
#[cfg(not(test))]
#[inline]
pub fn current() -> *mut Thread {
    let thread: *mut Thread;
    // SAFETY: reads the thread pointer and the variable's distance from it, which the dynamic linker stored.
    unsafe {
        std::arch::asm!(
            "mov {thread}, qword ptr fs:[0]",
            "add {thread}, qword ptr [rip + nthbyte_native_thread@GOTTPOFF]",
            thread = out(reg) thread,
            options(nostack, readonly),
        );
    }
    thread
}

#[cfg(test)]
pub fn current() -> *mut Thread {
    use std::cell::UnsafeCell;
    thread_local! {
        static THREAD: UnsafeCell<MaybeUninit<Thread>> = const { UnsafeCell::new(MaybeUninit::zeroed()) };
    }
    THREAD.with(|thread| thread.get().cast())
}

/// Marks the calling thread as busy until it is dropped.
pub struct Busy(*mut Thread);

impl Busy {
    /// Marks the thread, whose state this is, as busy.
    pub fn begin(thread: *mut Thread) -> Self {
        // SAFETY: the caller's own state.
        unsafe { (*thread).busy += 1 };
        Self(thread)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { (*self.0).busy -= 1 };
    }
}
