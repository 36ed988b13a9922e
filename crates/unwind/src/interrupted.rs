//! A thread that a signal has interrupted.
//!
//! A signal handler does not walk the stack of native code: the unwinder belongs to the thread with a recording. The
//! handler keeps the registers, and says which part of the stack the kernel is to copy. Later, a thread with a recording
//! walks the copy ([`Unwinder::walk_interrupted`](crate::Unwinder::walk_interrupted)).

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_session::ticks::LONGEST_MEMORY;

use crate::processor::{RED_ZONE, Start};
use crate::stack;

/// The end of the main thread's stack; 0 if it is not known.
static MAIN_END: AtomicUsize = AtomicUsize::new(0);

/// Called before a signal handler uses [`Registers`].
pub fn prepare() {
    MAIN_END.store(stack::main_end(), Relaxed);
}

/// What a walk of an interrupted thread begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    pub(crate) at: Start,
    /// The end of the stack; 0 if it is not known.
    end: u64,
}

impl Registers {
    /// The number of words of [`Self::to_words`].
    pub const WORDS: usize = Start::WORDS + 1;

    /// The registers of the interrupted thread. Safe in a signal handler.
    ///
    /// # Safety
    /// `context` is the third argument of a handler with `SA_SIGINFO`, which runs in this thread.
    #[must_use]
    pub unsafe fn of_context(context: *const c_void) -> Self {
        // SAFETY: by the contract.
        let at = unsafe { Start::of_context(context) };
        // SAFETY: no preconditions. It reads a register.
        let own = unsafe { libc::pthread_self() } as usize;
        Self {
            at,
            end: end_of_stack(at.pointer as usize, own) as u64,
        }
    }

    /// The part of the stack that a walk needs: from the red zone on, [`LONGEST_MEMORY`] at most.
    #[must_use]
    pub fn stack(self) -> Range<usize> {
        let start = self.start();
        let most = start.saturating_add(LONGEST_MEMORY);
        let end = match self.end as usize {
            0 => most,
            end => most.min(end),
        };
        start..end.max(start)
    }

    fn start(self) -> usize {
        (self.at.pointer as usize).saturating_sub(RED_ZONE) & !7
    }

    /// The registers in the host's form of a tick.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let mut words = [self.end; Self::WORDS];
        words[..Start::WORDS].copy_from_slice(&self.at.to_words());
        words
    }

    /// The registers from [`Self::to_words`].
    #[must_use]
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let (at, end) = words.split_first_chunk().expect("there is one more");
        Self {
            at: Start::from_words(*at),
            end: end[0],
        }
    }
}

/// The end of the stack that this stack pointer is in, if it is known: in the main thread, or near the thread's own data
/// (`own`), which the C library puts at the end of the stack. 0 if it is not known, as in a coroutine's stack.
fn end_of_stack(pointer: usize, own: usize) -> usize {
    let main_end = MAIN_END.load(Relaxed);
    if stack::is_main(pointer, main_end) {
        main_end
    } else if pointer < own && own - pointer <= LONGEST_MEMORY {
        own
    } else {
        0
    }
}

/// An interrupted thread: its registers, and the copy of [`Registers::stack`], up to the first byte that could not be
/// read.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted<'a> {
    pub(crate) registers: Registers,
    stack: &'a [u8],
}

impl<'a> Interrupted<'a> {
    /// The thread with these registers and this copy.
    #[must_use]
    pub const fn new(registers: Registers, stack: &'a [u8]) -> Self {
        Self { registers, stack }
    }

    /// Where the copy begins.
    pub(crate) fn start(&self) -> usize {
        self.registers.start()
    }

    /// Whether the copy has the whole stack.
    pub(crate) fn is_whole(&self) -> bool {
        self.registers.end as usize == self.registers.start() + self.stack.len()
    }

    /// The word at an address. `None` if it is not aligned, or was not copied.
    #[inline]
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let within = usize::try_from(address)
            .ok()?
            .checked_sub(self.registers.start())?;
        let bytes = self.stack.get(within..)?.first_chunk::<8>()?;
        within.is_multiple_of(8).then(|| u64::from_ne_bytes(*bytes))
    }

    /// The copied words from an address on, which is a multiple of 8.
    pub(crate) fn words_from(&self, address: usize) -> impl Iterator<Item = u64> + 'a {
        let stack = self.stack;
        let within = address.saturating_sub(self.registers.start());
        let bytes = stack.get(within..).unwrap_or_default();
        bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_copy() {
        let copied: Vec<u8> = (1..=40_u64).flat_map(u64::to_ne_bytes).collect();
        let registers = |end| {
            let mut words = [3; Registers::WORDS];
            words[..2].copy_from_slice(&[1, 0x1_0004 + RED_ZONE as u64]);
            words[Registers::WORDS - 1] = end;
            Registers::from_words(words)
        };
        assert_eq!(Registers::from_words(registers(5).to_words()), registers(5));
        let at = Interrupted::new(registers(0), &copied[..317]);
        assert_eq!(at.word(0x1_0000), Some(1));
        assert_eq!(at.word(0x1_0130), Some(39));
        for address in [0xfff8, 0x1_0004, 0x1_0138, 0x2_0000, u64::MAX] {
            assert_eq!(at.word(address), None, "{address:x}");
        }
        assert_eq!(
            at.words_from(0x1_0100).collect::<Vec<_>>(),
            [33, 34, 35, 36, 37, 38, 39]
        );
        assert_eq!(at.words_from(0x1_0138).count(), 0);
        assert_eq!(at.words_from(0x2_0000).count(), 0);
        assert!(!at.is_whole());
        assert!(Interrupted::new(registers(0x1_0140), &copied).is_whole());
        assert!(!Interrupted::new(registers(0x1_0148), &copied).is_whole());
        assert_eq!(registers(0).stack(), 0x1_0000..0x1_0000 + LONGEST_MEMORY);
        assert_eq!(registers(0x1_0100).stack(), 0x1_0000..0x1_0100);
        assert_eq!(registers(8).stack(), 0x1_0000..0x1_0000);
    }

    #[test]
    fn the_end_of_a_stack() {
        prepare();
        let thread = std::thread::spawn(|| {
            let here = 0_u8;
            // SAFETY: no preconditions.
            let own = unsafe { libc::pthread_self() } as usize;
            let end = end_of_stack((&raw const here) as usize, own);
            // In a test with a large frame, the thread's own data are too far away to be seen.
            assert!(end == own || end == 0, "{end:x} {own:x}");
            let far = (&raw const here) as usize - 2 * LONGEST_MEMORY;
            assert_eq!(end_of_stack(far, own), 0);
            assert_eq!(end_of_stack(own, own), 0);
        });
        thread.join().unwrap();
        let main_end = MAIN_END.load(Relaxed);
        assert_ne!(main_end, 0);
        assert_eq!(end_of_stack(main_end - 4096, 0), main_end);
        assert_eq!(end_of_stack(main_end, 0), 0);
    }
}
