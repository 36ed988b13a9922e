//! What all threads share: the allocator below, and what the current session wants.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

use nthbyte_heap::{BlockDomain, Fallback, SampledBlock};
use nthbyte_host::sync::yield_now;
use nthbyte_sampling::{Period, SamplePoints};

/// Data that is written before other threads can reach it.
pub struct Once<T>(UnsafeCell<Option<T>>);

// SAFETY: written before anything is installed, and only read then.
unsafe impl<T> Sync for Once<T> {}

impl<T: Copy> Once<T> {
    /// Sets the value.
    ///
    /// # Safety
    /// Nobody reads it meanwhile.
    unsafe fn set(&self, value: T) {
        // SAFETY: by the contract.
        unsafe { *self.0.get() = Some(value) };
    }

    /// The value.
    #[inline(always)]
    fn get(&self) -> Option<T> {
        // SAFETY: see `Sync`.
        unsafe { *self.0.get() }
    }
}

static ORIGINALS: Once<[Fallback; 2]> = Once(UnsafeCell::new(None));
static MARKED: Once<[Fallback; 2]> = Once(UnsafeCell::new(None));

/// Sets the functions that ours stand before, and the same with marks.
///
/// # Safety
/// Ours are not installed yet.
pub unsafe fn set_originals(originals: [Fallback; 2], marked: [Fallback; 2]) {
    // SAFETY: by the contract.
    unsafe {
        ORIGINALS.set(originals);
        MARKED.set(marked);
    }
}

/// mimalloc's functions for a domain.
#[inline(always)]
pub fn original(domain: BlockDomain) -> Fallback {
    of(&ORIGINALS, domain)
}

/// The same with marks, for calls of a thread without a record, or that are rare.
pub fn marked(domain: BlockDomain) -> Fallback {
    of(&MARKED, domain)
}

#[inline(always)]
fn of(functions: &Once<[Fallback; 2]>, domain: BlockDomain) -> Fallback {
    match functions.get() {
        Some(originals) => originals[domain as usize],
        // Our functions are installed after it was set.
        None => std::process::abort(),
    }
}

/// Receives samples. Many threads may call both functions at once, inside of an allocation, where nothing is allocated from the
/// interpreter. They may change `errno`.
#[derive(Clone, Copy, Debug)]
pub struct ThreadedObserver {
    /// The first argument of both.
    pub context: usize,
    /// An allocation was sampled, whose point was drawn under this period. Returns a token for `freed`, or
    /// [`nthbyte_heap::NOT_INTERESTED`].
    pub sampled: fn(context: usize, sample: &SampledBlock, period: Period) -> u32,
    /// A block that was sampled in this session is being freed, or was moved. What was in it can still be read at `contents`.
    pub freed: fn(context: usize, contents: usize, token: u32),
}

/// What the current session wants. Threads take it over one by one, when they are in a slow path.
#[derive(Clone)]
pub struct Settings {
    /// The sample points; `None` while sampling is off. Each thread continues them with numbers of its own.
    pub points: Option<SamplePoints>,
    /// The receiver of samples.
    pub observer: Option<ThreadedObserver>,
    /// The number of the session, from 1 on.
    pub session: u32,
}

/// So often a thread lets others run before it gives up.
const TRIES: usize = 10_000;

struct Shared {
    /// Changes whenever the settings do; odd while they are being written.
    version: AtomicU32,
    is_written: AtomicBool,
    settings: UnsafeCell<Settings>,
}

// SAFETY: one writer at a time, by `is_written`; readers compare the version before and after.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    version: AtomicU32::new(0),
    is_written: AtomicBool::new(false),
    settings: UnsafeCell::new(Settings {
        points: None,
        observer: None,
        session: 0,
    }),
};

/// The version of the settings. Odd while they are being changed.
#[inline(always)]
pub fn version() -> u32 {
    SHARED.version.load(Acquire)
}

/// The settings, and their version. `None` while they are being changed: ask later.
pub fn read() -> Option<(u32, Settings)> {
    let before = version();
    if !before.is_multiple_of(2) {
        return None;
    }
    // SAFETY: plain data without pointers that are followed; a copy that was torn is dropped by the comparison.
    let copy = unsafe {
        SHARED
            .settings
            .get()
            .cast::<std::mem::MaybeUninit<Settings>>()
            .read_volatile()
    };
    std::sync::atomic::fence(Acquire);
    // SAFETY: nobody has written meanwhile, so that the copy is whole.
    (SHARED.version.load(Relaxed) == before).then(|| (before, unsafe { copy.assume_init() }))
}

/// The settings, also while they are being changed: the change is waited for. `None` if it takes too long, because its thread does not
/// run.
pub fn read_soon() -> Option<Settings> {
    (0..TRIES).find_map(|_| {
        let settings = read();
        if settings.is_none() {
            yield_now();
        }
        settings.map(|(_, settings)| settings)
    })
}

/// Changes the settings. Callers are few: the start and the end of a session, a new period, a fork. If two come at once, one
/// waits for the other, which does nothing but write some words.
pub fn change(with: impl FnOnce(&mut Settings)) {
    while SHARED.is_written.swap(true, Acquire) {
        std::hint::spin_loop();
    }
    let before = SHARED.version.fetch_add(1, Acquire);
    // SAFETY: there is one writer, and readers drop what they read now.
    with(unsafe { &mut *SHARED.settings.get() });
    SHARED.version.store(before.wrapping_add(2), Release);
    SHARED.is_written.store(false, Release);
}

/// In the child of a fork: a writer that was another thread does not exist any more. What it wrote may be half done, so the
/// caller writes all of it anew.
pub fn forked() {
    let version = SHARED.version.load(Relaxed);
    SHARED.version.store(version.next_multiple_of(2), Relaxed);
    SHARED.is_written.store(false, Relaxed);
}
