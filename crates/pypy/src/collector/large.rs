//! Large objects. The collector allocates them by a few calls of `malloc` and `calloc`, and frees those that died
//! young during the minor collection.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::engine::Engine;
use crate::gil_trap::GilTrap;
use crate::stacks::Work;

/// Where the library's calls for large objects return to: the same for the life of the process.
static SITES: OnceLock<Vec<usize>> = OnceLock::new();

/// Finds the calls in the library that allocate large objects; they are known by the address that they return to.
/// `allocate`: see [`GilTrap::sites`].
///
/// # Errors
/// Why they cannot be known.
pub fn find_sites(allocate: impl Fn(usize)) -> Result<&'static [usize], String> {
    if let Some(known) = SITES.get() {
        return Ok(known);
    }
    match GilTrap::sites(allocate) {
        Some(sites) => Ok(SITES.get_or_init(|| sites)),
        None => Err("large objects are not allocated through malloc".to_owned()),
    }
}

/// Takes the place of `malloc` where it is redirected, from [`LARGE_OBJECT`](crate::binary::LARGE_OBJECT) bytes on; `site` is where the call
/// returns to.
///
/// # Safety
/// As `malloc`.
pub unsafe extern "C" fn malloc_hook(size: usize, site: usize) -> *mut c_void {
    // SAFETY: passed on.
    let block = unsafe { libc::malloc(size) };
    allocated(block, size, site);
    block
}

/// Takes the place of `calloc` where it is redirected, from [`LARGE_OBJECT`](crate::binary::LARGE_OBJECT) bytes on; `site` is where the call
/// returns to.
///
/// # Safety
/// As `calloc`; the product does not overflow.
pub unsafe extern "C" fn calloc_hook(count: usize, each: usize, site: usize) -> *mut c_void {
    // SAFETY: passed on.
    let block = unsafe { libc::calloc(count, each) };
    allocated(block, count * each, site);
    block
}

fn allocated(block: *mut c_void, size: usize, site: usize) {
    if block.is_null() || GilTrap::visit(size, site) {
        return;
    }
    // Other large blocks (arenas, buffers of the program) are allocated by other calls, some of them without
    // the lock. So the site comes first: only if it is one of an object may the engine be used.
    if !SITES.get().is_some_and(|sites| sites.contains(&site)) {
        return;
    }
    // SAFETY: objects are allocated with the lock held.
    if let Some(engine) = unsafe { Engine::current() } {
        engine.large(block as usize, size);
    }
}

/// Takes the place of `free` for the library while it is watched which sampled large objects are freed.
///
/// # Safety
/// As `free`.
pub unsafe extern "C" fn free_hook(block: *mut c_void) {
    if Work::Minor.is_here() {
        // SAFETY: this thread is collecting, so it holds the lock.
        if let Some(engine) = unsafe { Engine::current() } {
            engine.freed(block as usize);
        }
    }
    // SAFETY: passed on.
    unsafe { libc::free(block) };
}
