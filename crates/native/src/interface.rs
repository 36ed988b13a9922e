//! What an agent calls: see [`nthbyte_host::preload`].

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use nthbyte_host::AtomicFn;
use nthbyte_host::memory::close_reserve;
use nthbyte_host::preload::{
    Interface, MOST_RANGES, NOT_INTERESTED, Observer, Request, Settings, VERSION,
};
use nthbyte_host::process::image;

use crate::{mappings, replaced, sampler, thread};

/// Below this period, small requests that are sampled are not enlarged, which may waste most of the memory; instead, each
/// `free` searches for its block. With this period, up to a sixteenth of native memory is wasted; with the shortest one of
/// `--every auto`, less than a two hundredth.
const ENLARGED_FROM: u64 = 16 << 10;

/// The exported table.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_upper_case_globals)]
static nthbyte_native_interface: Interface = Interface {
    version: VERSION,
    attach,
    connect,
    set_period,
    disconnect,
    busy,
};

// The functions of the observer.
static SAMPLED: AtomicFn<unsafe extern "C" fn(&Request) -> u64> = AtomicFn::none();
static FREED: AtomicFn<unsafe extern "C" fn(u64)> = AtomicFn::none();
static LOOK: AtomicFn<unsafe extern "C" fn(u64)> = AtomicFn::none();
static UNMAP: AtomicFn<unsafe extern "C" fn(usize, usize) -> bool> = AtomicFn::none();
/// Starts and ends of excluded code.
static EXCLUDED: [[AtomicUsize; 2]; MOST_RANGES] =
    [const { [const { AtomicUsize::new(0) }; 2] }; MOST_RANGES];

/// Without the functions that replace others, in this crate's own tests, there is nothing to attach.
unsafe extern "C" fn attach() -> bool {
    #[cfg(not(test))]
    return crate::slots::attach();
    #[cfg(test)]
    false
}

/// Whether the memory that the start needed of this library was released.
static IS_RELEASED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn connect(settings: &Settings) {
    if replaced::functions().is_none() {
        return;
    }
    let Observer {
        sampled,
        freed,
        look,
        unmap,
    } = settings.observer;
    for (place, range) in EXCLUDED.iter().zip(settings.excluded) {
        place[0].store(range[0], Relaxed);
        place[1].store(range[1], Relaxed);
    }
    mappings::exclude_allocator();
    SAMPLED.set(sampled);
    FREED.set(freed);
    LOOK.set(look);
    UNMAP.set(unmap);
    if settings.period >= ENLARGED_FROM && replaced::has_sizes() {
        replaced::search_large_only();
    } else {
        replaced::search_always();
    }
    watch_forks();
    if !IS_RELEASED.swap(true, Relaxed) {
        close_reserve();
        image::release_all();
    }
    sampler::begin(settings.period, settings.seed);
    // SAFETY: the calling thread's state.
    unsafe { sampler::join(thread::current()) };
}

unsafe extern "C" fn set_period(period: u64) {
    sampler::set_period(period);
}

unsafe extern "C" fn disconnect() {
    sampler::end();
}

unsafe extern "C" fn busy() -> *mut u32 {
    // SAFETY: the field of the calling thread's state.
    unsafe { &raw mut (*thread::current()).busy }
}

/// Code of an allocator whose `operator new` is replaced. Some of them call its `aligned_alloc`: one request of the program.
static ALLOCATOR: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Excludes the requests that an allocator makes of itself.
#[cfg(not(test))]
pub fn exclude_calls_of(allocator: std::ops::Range<usize>) {
    ALLOCATOR[0].store(allocator.start, Relaxed);
    ALLOCATOR[1].store(allocator.end, Relaxed);
}

/// Whether a request of this code is not the program's.
pub fn is_excluded(caller: usize) -> bool {
    EXCLUDED
        .iter()
        .chain([&ALLOCATOR])
        .any(|range| caller >= range[0].load(Relaxed) && caller < range[1].load(Relaxed))
}

/// Reports a sampled request. Returns its token.
pub fn sampled(request: &Request) -> u64 {
    // SAFETY: the observer's function, with its argument.
    SAMPLED
        .get()
        .map_or(NOT_INTERESTED, |sampled| unsafe { sampled(request) })
}

/// Reports that sampled memory is freed.
pub fn freed(token: u64) {
    if let Some(freed) = FREED.get() {
        // SAFETY: the observer's function, with a token of its own.
        unsafe { freed(token) };
    }
}

/// Reports that memory that counts with what is touched of it is about to be freed or resized.
pub fn look(token: u64) {
    if let Some(look) = LOOK.get() {
        // SAFETY: as above.
        unsafe { look(token) };
    }
}

/// Reports that addresses are about to be unmapped. Returns whether that was noted.
pub fn unmap(start: usize, size: usize) -> bool {
    // SAFETY: the observer's function, with any addresses.
    UNMAP
        .get()
        .is_some_and(|unmap| unsafe { unmap(start, size) })
}

fn watch_forks() {
    static WATCHED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn in_child() {
        sampler::begin_in_child(std::process::id());
        // SAFETY: the calling thread's state.
        unsafe { sampler::join(thread::current()) };
    }
    if WATCHED.swap(1, Relaxed) == 0 {
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}
