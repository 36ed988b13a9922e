//! One thread of another process, stopped by ptrace for a moment.
//!
//! Whatever happens to this process, the kernel lets the thread go on. So each change of its registers leads to a place
//! from which it comes back by itself: see [`Stopped::enter`].

use std::io;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_void, pid_t, user_regs_struct};

use super::frame;
use crate::denial::denied;
use crate::memory::Memory;
use crate::process;
use crate::refusal::{Refusal, plain, refuse};

/// What the kernel leaves in rax when a system call is interrupted: it begins again, ends with EINTR, or goes on with
/// the rest of its time.
const RESTART: [i64; 3] = [-512, -513, -514];
const RESTART_BLOCK: i64 = -516;
/// Those that a signal with a handler ends with EINTR; after the first, only if the handler has no `SA_RESTART`.
const ENDED_BY_HANDLER: [i64; 2] = [-512, -514];
const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// The bytes below the stack pointer that a function may use without moving it.
const RED_ZONE: u64 = 128;
/// The direction flag, which is clear in every function.
const DIRECTION: u64 = 0x400;
/// A stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const AT_SYSTEM_CALL: c_int = libc::SIGTRAP | 0x80;
/// More than any processor's extended state.
const LONGEST_STATE: usize = 16 << 10;
/// A thread stops at once, unless the kernel waits for a device.
const LONGEST_STOP: Duration = Duration::from_secs(1);

/// System calls in which a thread waits, without the GIL as a rule, and without a lock of the C library: `read` and
/// `write` and their relatives, `poll`, `select`, `epoll`, sleeps, sockets, waits for children and for signals, locks of
/// files.
const WAITS: [c_long; 30] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_pause,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
];
/// glibc's own signals.
const SIGCANCEL: c_int = 32;
const SIGSETXID: c_int = 33;
const FUTEX_WAITV: c_long = 449;

/// Whether a thread in this system call may wait in Python code. The name of what was interrupted before is lost.
pub fn is_wait(number: u64) -> bool {
    let number = i64::try_from(number).unwrap_or(-1);
    number == libc::SYS_restart_syscall || WAITS.contains(&number)
}

/// Where a thread was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its own code, or in a system call that is not a wait.
    Elsewhere,
    /// In a wait: see [`WAITS`].
    Wait,
    /// In a lock of the C library, or of the interpreter.
    Lock,
}

/// Where to find code in the process that makes a system call and returns, and code that makes `rt_sigreturn`.
#[derive(Clone, Copy, Debug)]
pub struct Gadgets {
    /// `syscall; ret`.
    pub call: u64,
    /// `mov rax, 15; syscall`.
    pub restore: u64,
}

/// A thread that this process has stopped. It goes on when this is dropped, or when this process ends.
#[derive(Debug)]
pub struct Stopped {
    thread: u32,
    registers: user_regs_struct,
    mask: u64,
    is_by_job_control: bool,
    /// The instruction after a system call that begins again, and that a handler would have ended.
    after_wait: Option<u64>,
}

fn last(what: &str) -> Refusal {
    refuse!("{what}: {}", plain(&io::Error::last_os_error()))
}

/// A request of ptrace that reads or writes no memory of this process.
fn request(kind: libc::c_uint, thread: u32, data: usize) -> bool {
    // SAFETY: the requests that this is called with take numbers, no pointers.
    unsafe { libc::ptrace(kind, thread as pid_t, std::ptr::null_mut::<c_void>(), data) == 0 }
}

/// The stop of a thread that has been told to stop.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// At a signal, with its number.
    Signal(c_int),
    /// Because of `PTRACE_INTERRUPT`, or in a group that job control has stopped.
    Event(c_int),
    /// At a system call.
    SystemCall,
    /// Not within the time.
    None,
    /// It has ended.
    Ended,
}

fn wait(thread: u32, limit: Duration) -> Stop {
    let end = Instant::now() + limit;
    for round in 0_u32.. {
        let mut status = 0;
        // SAFETY: the pointer is to `status`.
        let got = unsafe {
            libc::waitpid(
                thread as pid_t,
                &raw mut status,
                libc::__WALL | libc::WNOHANG,
            )
        };
        if got < 0 {
            return Stop::Ended;
        }
        if got > 0 {
            if !libc::WIFSTOPPED(status) {
                return Stop::Ended;
            }
            let signal = libc::WSTOPSIG(status);
            return match status >> 16 {
                libc::PTRACE_EVENT_STOP => Stop::Event(signal),
                0 if signal == AT_SYSTEM_CALL => Stop::SystemCall,
                0 => Stop::Signal(signal),
                _ => Stop::Signal(0),
            };
        }
        if Instant::now() > end {
            break;
        }
        if round > 50 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    Stop::None
}

impl Stopped {
    /// Stops a thread; `None` if it ends, or does not stop now.
    ///
    /// # Errors
    /// If that is not allowed.
    pub fn new(pid: u32, thread: u32) -> Result<Option<Self>, Refusal> {
        let options = libc::PTRACE_O_TRACESYSGOOD as usize;
        if !request(libc::PTRACE_SEIZE, thread, options) {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::ESRCH) {
                return Ok(None);
            }
            return Err(denied(pid, &error));
        }
        request(libc::PTRACE_INTERRUPT, thread, 0);
        let end = Instant::now() + LONGEST_STOP;
        let is_by_job_control = loop {
            match wait(thread, end.saturating_duration_since(Instant::now())) {
                // On its way already: it is delivered first.
                Stop::Signal(signal) => {
                    request(libc::PTRACE_CONT, thread, signal as usize);
                }
                Stop::Event(signal) => break signal != libc::SIGTRAP,
                Stop::SystemCall => {
                    request(libc::PTRACE_CONT, thread, 0);
                }
                // It is let go when this process ends; nothing can be done with a thread that runs.
                Stop::None | Stop::Ended => return Ok(None),
            }
        };
        // SAFETY: a structure of numbers.
        let registers: user_regs_struct = unsafe { std::mem::zeroed() };
        let mut stopped = Self {
            thread,
            registers,
            mask: 0,
            is_by_job_control,
            after_wait: None,
        };
        stopped.registers = stopped.read_registers()?;
        let result = stopped.registers.rax.cast_signed();
        let is_ended = stopped.is_in_call() && ENDED_BY_HANDLER.contains(&result);
        stopped.after_wait = is_ended.then_some(stopped.registers.rip);
        let mask = &raw mut stopped.mask;
        // SAFETY: the kernel writes the 8 bytes of `mask`.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, thread as pid_t, 8_usize, mask) };
        if got != 0 {
            return Err(last("the mask of signals cannot be read"));
        }
        Ok(Some(stopped))
    }

    /// Whether job control had stopped it before.
    pub fn is_by_job_control(&self) -> bool {
        self.is_by_job_control
    }

    /// The next instruction.
    pub fn at(&self) -> u64 {
        self.registers.rip
    }

    /// The stack pointer.
    pub fn stack(&self) -> u64 {
        self.registers.rsp
    }

    fn read_registers(&self) -> Result<user_regs_struct, Refusal> {
        // SAFETY: a structure of numbers, which the kernel fills.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        let to = &raw mut registers;
        // SAFETY: as above; `to` points to it.
        let got = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGS,
                self.thread as pid_t,
                std::ptr::null_mut::<c_void>(),
                to,
            )
        };
        if got != 0 {
            return Err(last("the registers cannot be read"));
        }
        Ok(registers)
    }

    fn write_registers(&self, registers: &user_regs_struct) -> Result<(), Refusal> {
        let from = std::ptr::from_ref(registers).cast_mut();
        // SAFETY: the kernel reads the structure, and does not write to it.
        let got = unsafe {
            libc::ptrace(
                libc::PTRACE_SETREGS,
                self.thread as pid_t,
                std::ptr::null_mut::<c_void>(),
                from,
            )
        };
        if got != 0 {
            return Err(last("the registers cannot be written"));
        }
        Ok(())
    }

    /// Whether it was stopped in a system call which has not ended.
    fn is_in_call(&self) -> bool {
        let result = self.registers.rax.cast_signed();
        let is_interrupted = RESTART.contains(&result) || result == RESTART_BLOCK;
        self.registers.orig_rax.cast_signed() >= 0 && (is_interrupted || result == INTERRUPTED)
    }

    /// Where it was stopped.
    pub fn place(&self) -> Place {
        if !self.is_in_call() {
            return Place::Elsewhere;
        }
        let number = self.registers.orig_rax.cast_signed();
        // Once interrupted, a wait with a time limit is `restart_syscall`. Its arguments are still in the registers; a
        // futex has an operation in the second one: FUTEX_WAIT or FUTEX_WAIT_BITSET, which is private or has a clock.
        let operation = self.registers.rsi;
        let was_futex = number == libc::SYS_restart_syscall
            && operation >= 128
            && matches!(operation & !(128 | 256), 0 | 9);
        if number == libc::SYS_futex || number == FUTEX_WAITV || was_futex {
            Place::Lock
        } else if is_wait(self.registers.orig_rax) {
            Place::Wait
        } else {
            Place::Elsewhere
        }
    }

    /// The registers with which the thread goes on, as the kernel makes them when it delivers a signal: a system call
    /// begins again, or ends with EINTR if it cannot. `is_woken`: it ends with EINTR anyway.
    fn continuing(&self, is_woken: bool) -> user_regs_struct {
        let mut registers = self.registers;
        if self.is_in_call() {
            if RESTART.contains(&registers.rax.cast_signed()) && !is_woken {
                registers.rax = registers.orig_rax;
                // The length of the instruction.
                registers.rip -= 2;
            } else {
                registers.rax = INTERRUPTED.cast_unsigned();
            }
        }
        registers.orig_rax = u64::MAX;
        registers
    }

    /// The signals that would end the wait in which it was stopped, and where the thread goes on then. A handler with
    /// `SA_RESTART` counts as any other: what waits in Python code waits again.
    pub fn ends_of_wait(&self) -> Option<(u64, u64)> {
        let after = self.after_wait?;
        Some((self.signals(&["SigCgt"]) & !self.mask, after))
    }

    /// Signals of the thread, of these fields of its status.
    fn signals(&self, fields: &[&str]) -> u64 {
        let thread = self.thread.to_string();
        let read = |name: &&str| u64::from_str_radix(&process::field(&thread, name)?, 16).ok();
        fields
            .iter()
            .filter_map(read)
            .fold(0, |all, some| all | some)
    }

    /// Stops all signals in the thread but its own faults', and the two of the C library, for which other threads wait.
    /// The frame has the mask from before.
    fn mask_signals(&self) {
        let kept = [
            libc::SIGTRAP,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            SIGCANCEL,
            SIGSETXID,
        ];
        let mask = !kept
            .iter()
            .fold(0_u64, |all, signal| all | 1 << (signal - 1));
        let from = (&raw const mask).cast_mut();
        // SAFETY: the kernel reads the 8 bytes of `mask`. Where it refuses, a handler runs in between: no harm.
        unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, self.thread as pid_t, 8_usize, from) };
    }

    /// The bytes of the frame that brings the thread back to where it was. `None` if it cannot be made now.
    fn frame(&self, at: u64, return_address: u64, is_woken: bool) -> Option<Vec<u8>> {
        let mut extended = vec![0_u8; LONGEST_STATE];
        let mut vector = libc::iovec {
            iov_base: extended.as_mut_ptr().cast(),
            iov_len: extended.len(),
        };
        // SAFETY: the kernel fills the vector's buffer up to its length, and sets that.
        let got = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGSET,
                self.thread as pid_t,
                NT_X86_XSTATE,
                &raw mut vector,
            )
        };
        if got != 0 {
            return None;
        }
        extended.truncate(vector.iov_len);
        let registers = self.continuing(is_woken);
        frame::build(at, return_address, &registers, self.mask, &extended)
    }

    /// Makes system calls in the thread, one after the other, and returns their results: those before the first that
    /// fails, and its own. The thread comes back by a frame on its stack, with us or without. `None` if there is no room
    /// for the frame, or the thread is interrupted in between.
    ///
    /// # Errors
    /// If the process ends, or ptrace fails.
    pub fn system_calls(
        &mut self,
        memory: &Memory,
        gadgets: Gadgets,
        calls: &mut dyn FnMut(usize, i64) -> Option<[u64; 7]>,
    ) -> Result<Option<()>, Refusal> {
        // The frame's length does not depend on its place, but for the alignment.
        let Some(draft) = self.frame(0, 0, false) else {
            return Ok(None);
        };
        let at = (self.registers.rsp - RED_ZONE - draft.len() as u64 - 64) & !63;
        let Some(bytes) = self.frame(at, gadgets.restore, false) else {
            return Ok(None);
        };
        if !memory.write(at, &bytes) {
            return Ok(None);
        }
        let mut result = 0;
        let mut number = 0;
        while let Some(call) = calls(number, result) {
            let mut registers = self.registers;
            registers.rip = gadgets.call;
            registers.rsp = at;
            registers.orig_rax = u64::MAX;
            registers.eflags &= !DIRECTION;
            registers.rax = call[0];
            registers.rdi = call[1];
            registers.rsi = call[2];
            registers.rdx = call[3];
            registers.r10 = call[4];
            registers.r8 = call[5];
            registers.r9 = call[6];
            self.write_registers(&registers)?;
            if number == 0 {
                self.mask_signals();
            }
            // Its begin and its end.
            self.step()?;
            self.step()?;
            result = self.read_registers()?.rax.cast_signed();
            number += 1;
        }
        if number > 0 {
            // `rt_sigreturn`.
            self.step()?;
            self.step()?;
        }
        let after = self.read_registers()?;
        let expected = self.continuing(false);
        debug_assert_eq!((after.rip, after.rsp), (expected.rip, expected.rsp));
        self.registers = after;
        self.registers.orig_rax = u64::MAX;
        // A signal has come meanwhile: the kernel would deliver it before the wait begins again, and the wait would not end.
        if let Some((signals, after_wait)) = self.ends_of_wait()
            && signals & self.signals(&["SigPnd", "ShdPnd"]) != 0
        {
            self.registers.rax = INTERRUPTED.cast_unsigned();
            self.registers.rip = after_wait;
            self.after_wait = None;
            self.write_registers(&self.registers)?;
        }
        Ok(Some(()))
    }

    /// Lets the thread run to the next begin or end of a system call.
    fn step(&self) -> Result<(), Refusal> {
        let mut signal = 0;
        loop {
            if !request(libc::PTRACE_SYSCALL, self.thread, signal) {
                return Err(last("the process has ended"));
            }
            match wait(self.thread, LONGEST_STOP) {
                Stop::SystemCall => return Ok(()),
                Stop::Signal(number) => signal = number as usize,
                Stop::Event(_) => signal = 0,
                Stop::None => return Err(refuse!("a system call of the process does not return")),
                Stop::Ended => return Err(refuse!("the process has ended")),
            }
        }
    }

    /// Lets the thread go, into code at `code` with `block` as its argument. That code ends with `rt_sigreturn` and the
    /// frame at `frame`, so the thread needs nobody any more. `is_woken`: a system call that it was in ends with EINTR.
    /// Returns false if the frame cannot be made now; then the thread goes on as it was.
    ///
    /// # Errors
    /// If ptrace fails.
    pub fn enter(
        self,
        memory: &Memory,
        code: u64,
        block: u64,
        frame: u64,
        is_woken: bool,
    ) -> Result<bool, Refusal> {
        let Some(bytes) = self.frame(frame, 0, is_woken) else {
            return Ok(false);
        };
        if !memory.write(frame, &bytes) {
            return Ok(false);
        }
        let mut registers = self.registers;
        registers.rip = code;
        registers.rdi = block;
        registers.rsp = (self.registers.rsp - RED_ZONE) & !15;
        // A walk along frame pointers ends here.
        registers.rbp = 0;
        registers.rax = 0;
        registers.orig_rax = u64::MAX;
        registers.eflags &= !DIRECTION;
        self.write_registers(&registers)?;
        // In this order: from here on, the thread comes back by itself, and with its mask.
        self.mask_signals();
        Ok(true)
    }

    /// Lets the thread go on; what it waits for ends with EINTR.
    ///
    /// # Errors
    /// If ptrace fails.
    pub fn wake(self) -> Result<(), Refusal> {
        if self.is_in_call() {
            self.write_registers(&self.continuing(true))?;
        }
        Ok(())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        request(libc::PTRACE_DETACH, self.thread, 0);
    }
}

/// `NT_X86_XSTATE` of `elf.h`.
const NT_X86_XSTATE: usize = 0x202;
