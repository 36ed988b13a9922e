//! What an agent calls: see [`nthbyte_host::preload`].

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use nthbyte_host::memory::close_reserve;
use nthbyte_host::preload::{Interface, NativeSettings, VERSION, VisitBlock};
use nthbyte_host::process::image;
use nthbyte_requests::blocks::BLOCKS;

use crate::{mappings, replaced, reports, sampler, thread};

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
    each_block,
    busy,
};

unsafe extern "C" fn each_block(context: *mut c_void, visit: VisitBlock) {
    // SAFETY: the caller's function, with its own pointer.
    BLOCKS.each(|address, token| unsafe { visit(context, address, token) });
}

/// Without the functions that replace others, in this crate's own tests, there is nothing to attach.
unsafe extern "C" fn attach() -> bool {
    #[cfg(not(test))]
    return crate::slots::attach();
    #[cfg(test)]
    false
}

/// Whether the memory that the start needed of this library was released.
static IS_RELEASED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn connect(settings: &NativeSettings) {
    if replaced::functions().is_none() {
        return;
    }
    mappings::exclude_allocator();
    reports::go_to(settings);
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
