//! Samples in the mimalloc of free-threaded CPython, for nothing: lists of free blocks end before the next sample point.
//!
//! An allocator of our own cannot take mimalloc's place there: the collector finds objects through mimalloc's pages. But each
//! heap of a thread has entries that say from which page a small request takes its block. They are pointed at page records of
//! ours ([`cut`]), whose lists have the page's free blocks up to the sample point. The allocation that contains it finds the list
//! empty, and takes the slow path. No code of the interpreter is changed; `PyMem_SetAllocator` puts our functions before mimalloc's,
//! and their fast path is mimalloc's own.
//!
//! # What the caller must do
//!
//! - [`install`] once, in a thread with a state, before there are tracers; [`start`] and [`stop`] sessions.
//! - Never unload the library: the functions stay until the process ends.
//! - Call [`forked`] in the child of a fork.
//! - The observer may be called by many threads at once, inside of an allocation. It allocates nothing from the interpreter.
//!
//! # What this crate does not do
//!
//! - It knows CPython 3.13 on x86-64 only. Other versions, debug builds and debug hooks are refused before anything is touched.
//! - It does not sample the domain `RAW`, which is the C library's there.
//!
//! # Vocabulary
//!
//! - *heap*: a thread state has four, for buffers, objects, and two kinds of objects of the collector.
//! - *page*: 64 KiB, or more, of blocks of one size. Its *record* (`mi_page_t`) lies at the start of its segment, of 32 MiB.
//! - *entry*: an element of `heap->pages_free_direct`, by the words of a request of at most 1,024 bytes.
//! - *queue*: the pages of a size class in a heap.
//! - *fake record*: a record of ours, at which entries are pointed.
//! - *displaced* entry: one that mimalloc has set to a page of its own. It costs exactness until it is seen, never safety: the
//!   page is valid.
//! - *page of sampled blocks*: one that holds nothing else ([`tokens`]).
//!
//! # Modules, in order of dependency
//!
//! | module | what it is |
//! |---|---|
//! | `layout` | offsets, records, size classes |
//! | `thread` | the calling thread |
//! | `verify` | the layout, compared with what mimalloc does |
//! | `settings` | the functions below, and what the session wants |
//! | `tokens` | pages of sampled blocks |
//! | `record` | each thread: its birth, its end, its totals |
//! | `cut` | lists that end before the sample point |
//! | `sampled` | blocks for samples; the calls of the observer |
//! | `survey` | what the memory is used for |
//! | `slow` | the slow paths |
//! | `entry` | their entries, which note the allocation site |
//! | `fast` | the fast paths |

mod cut;
mod entry;
mod fast;
mod layout;
mod record;
mod sampled;
mod settings;
mod slow;
mod survey;
mod thread;
mod tokens;
mod verify;

#[cfg(feature = "test-seams")]
pub mod seams;

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use nthbyte_heap::{Fallback, Survey};
use nthbyte_sampling::{Period, SamplePoints};

pub use settings::ThreadedObserver;
pub use verify::Functions;

static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// What a session has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Allocations that were counted.
    pub allocations: u64,
    /// Their bytes: small ones by the size of their blocks, others by what was asked for.
    pub bytes: u64,
    /// Samples.
    pub samples: u64,
    /// Samples that could not be taken.
    pub lost: u64,
}

/// Puts our functions before mimalloc's. In a thread that has no record yet, and where it is rare, they call these as `wrap` returns
/// them, objects first; else [`is_asking`] says that they call them. Sampling is off.
///
/// # Errors
/// One clause that says what prevents it. Nothing has changed then.
///
/// # Safety
/// The calling thread has a state, and is in no allocation. Called by one thread at a time.
pub unsafe fn install(
    functions: &Functions,
    wrap: fn([Fallback; 2]) -> [Fallback; 2],
) -> Result<(), &'static str> {
    if IS_INSTALLED.load(Acquire) {
        return Ok(());
    }
    let originals = verify::originals(functions)?;
    // SAFETY: by the contract.
    unsafe { verify::verify(functions, &layout::V3_13)? };
    if !record::prepare() {
        return Err("the process has no keys of threads left");
    }
    // SAFETY: nothing is installed yet. Each function works beside mimalloc's: another thread may see some of each.
    unsafe {
        settings::set_originals(originals, wrap(originals));
        for (domain, number) in [
            (nthbyte_heap::BlockDomain::Object, verify::DOMAINS[0]),
            (nthbyte_heap::BlockDomain::Memory, verify::DOMAINS[1]),
        ] {
            let mut ours = fast::functions(domain);
            (functions.set_allocator)(number, (&raw mut ours).cast());
        }
    }
    IS_INSTALLED.store(true, Release);
    Ok(())
}

/// Starts a session. The calling thread takes part at once, others from their next slow path on, which comes before they have
/// allocated 64 KiB of one size.
///
/// # Safety
/// The functions were installed; the calling thread is in none of them.
pub unsafe fn start(points: SamplePoints, observer: ThreadedObserver) {
    settings::change(|settings| {
        settings.points = Some(points);
        settings.observer = Some(observer);
        settings.session += 1;
    });
    slow::join();
}

/// Whether a slow path of the calling thread has called mimalloc. What it maps is not the program's.
#[must_use]
pub fn is_asking() -> bool {
    IS_INSTALLED.load(Acquire) && record::is_asking()
}

/// Calls `visit` with the addresses of each segment of mimalloc, in order. Any thread may call this, and the next one.
pub fn segments(visit: &mut dyn FnMut(Range<usize>)) {
    if IS_INSTALLED.load(Acquire) {
        survey::visit(visit);
    }
}

/// What mimalloc's segments are used for. Looks at `most` of them at most. `None` if they cannot be read.
#[must_use]
pub fn survey(most: usize) -> Option<Survey> {
    IS_INSTALLED
        .load(Acquire)
        .then(|| survey::survey(most))
        .flatten()
}

/// The number of free blocks that mimalloc counts as in use, because our lists have them: of the threads whose state, by its
/// address, `is_counted`.
#[must_use]
pub fn held(is_counted: &dyn Fn(usize) -> bool) -> usize {
    record::held(is_counted).0
}

/// Changes the period of the running session. Threads take it over as at the start.
pub fn set_period(period: Period) {
    settings::change(|settings| {
        if let Some(points) = &mut settings.points {
            points.set_period(period);
        }
    });
}

/// Ends the session, and returns its totals. Frees of its blocks are not told any more.
pub fn stop() -> Statistics {
    let totals = statistics();
    settings::change(|settings| {
        settings.points = None;
        settings.observer = None;
    });
    totals
}

/// The session's totals. Exact for the calling thread, and for those that have ended.
#[must_use]
pub fn statistics() -> Statistics {
    let session = settings::read_soon().map_or(0, |settings| settings.session);
    let [allocations, bytes, samples, lost] = record::totals(session);
    Statistics {
        allocations,
        bytes,
        samples,
        lost,
    }
}

/// Continues in the child of a fork: with other sample points than the parent and its other children.
///
/// # Safety
/// This is the only thread.
pub unsafe fn forked(number: u64) {
    record::forked();
    settings::forked();
    settings::change(|settings| {
        if let Some(points) = &mut settings.points {
            points.diverge(number);
        }
    });
}
