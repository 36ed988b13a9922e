//! Large objects. The collector allocates them with a few calls of `malloc` and `calloc`. During a minor
//! collection it frees those that died young.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::engine::Engine;
use crate::gil_trap::GilTrap;
use crate::sealed;
use crate::stacks::Work;

/// The return addresses of the library's calls for large objects. They stay the same until the
/// process ends.
static SITES: OnceLock<Vec<usize>> = OnceLock::new();

/// Finds the calls in the library that allocate large objects, by their return addresses. `allocate`: see
/// [`GilTrap::sites`].
///
/// # Errors
/// The reason why they cannot be found.
pub fn find_sites(allocate: impl Fn(usize)) -> Result<&'static [usize], String> {
    if let Some(known) = SITES.get() {
        return Ok(known);
    }
    match GilTrap::sites(allocate) {
        Some(sites) => Ok(SITES.get_or_init(|| sites)),
        None => Err("large objects are not allocated through malloc".to_owned()),
    }
}

/// Replaces a redirected `malloc`, for requests of [`LARGE_OBJECT`](nthbyte_rpython::binary::LARGE_OBJECT) bytes or more. `site`
/// is the return address of the call.
///
/// # Safety
/// As `malloc`.
pub unsafe extern "C" fn malloc_hook(size: usize, site: usize) -> *mut c_void {
    if sealed::is_sealed() {
        return sealed::malloc(size);
    }
    // SAFETY: the caller's promise.
    let block = unsafe { libc::malloc(size) };
    allocated(block, size, site);
    block
}

/// Replaces a redirected `calloc`, for requests of [`LARGE_OBJECT`](nthbyte_rpython::binary::LARGE_OBJECT) bytes or more. `site`
/// is the return address of the call.
///
/// # Safety
/// As `calloc`; the product does not overflow.
pub unsafe extern "C" fn calloc_hook(count: usize, each: usize, site: usize) -> *mut c_void {
    if sealed::is_sealed() {
        return sealed::malloc(count * each);
    }
    // SAFETY: the caller's promise.
    let block = unsafe { libc::calloc(count, each) };
    allocated(block, count * each, site);
    block
}

fn allocated(block: *mut c_void, size: usize, site: usize) {
    // The lock is held, whether there is memory or not.
    if GilTrap::visit(size, site) || block.is_null() {
        return;
    }
    // Other large blocks (arenas, buffers of the program) are allocated by other calls, some of them without
    // the lock. So the site is checked first: the engine may be used only if the site allocates objects.
    if !SITES.get().is_some_and(|sites| sites.contains(&site)) {
        return;
    }
    // SAFETY: objects are allocated with the lock held.
    if let Some(engine) = unsafe { Engine::current() } {
        engine.large(block as usize, size);
    }
}

/// Replaces the library's `free` while a sampled large object is pending.
///
/// # Safety
/// As `free`.
pub unsafe extern "C" fn free_hook(block: *mut c_void) {
    if Work::Minor.is_here() {
        // SAFETY: this thread runs a collection, so it holds the lock.
        if let Some(engine) = unsafe { Engine::current() } {
            engine.freed(block as usize);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { libc::free(block) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trap_needs_no_memory() {
        let mut has_run = false;
        let out_of_memory = |size| allocated(std::ptr::null_mut(), size, 0);
        assert!(GilTrap::run(out_of_memory, || has_run = true));
        assert!(has_run);
    }
}
