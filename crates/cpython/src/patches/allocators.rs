//! The functions of the domains `OBJ` and `MEM`: the heap replaces CPython's allocator for objects.
//!
//! - What: all four functions of each domain. The previous functions become the heap's fallback: for large requests,
//!   and for blocks that they allocated.
//! - Installed: before the first session.
//! - Removed: never, because the heap's blocks stay. Other code may wrap the functions and restore them later, as
//!   `tracemalloc` does: that is safe at any time, see [`super::raw_calloc`].
//!
//! With `PYTHONMALLOC=debug` or `-X dev`, the current functions are debug hooks. They store the allocator below them in
//! a structure (`debug_alloc_api_t` of `Objects/obmalloc.c`: a letter for the domain, then the allocator). The heap
//! then replaces that stored allocator.

use std::ffi::c_void;

use nthbyte_heap::{
    BlockDomain, DomainFunctions, Fallback, Heap, HeapObserver, HeapStatistics, HoldsLock,
    HugePages, MEDIUM_LIMIT, Trusts,
};
use nthbyte_sampling::SamplePoints;

use super::{NO_ADDRESSES, native_requests, own_requests, raw_calloc, unlocked};
use crate::api::{AllocatorDomain, AllocatorEx, Api, FREE_THREADED, Gil};
use crate::heap::{huge_pages, totals};
use crate::layout::Layout;
use nthbyte_host::process::Probe;

/// The installed heap.
pub struct Installed {
    /// Null in a build without the GIL, where mimalloc stays.
    heap: *mut Heap,
    has_debug_hooks: bool,
}

/// The heap serves extensions no larger requests of the domain `MEM` than CPython's own allocator
/// (`SMALL_REQUEST_THRESHOLD` of `Objects/obmalloc.c`). All versions pass a larger one directly to the C library, and
/// there are extensions that give such a block to `free`, or, on 3.11, request it without the GIL ([`unlocked`]). The
/// interpreter's own requests may be larger ([`own_requests`]).
const LARGEST_OF_PYMALLOC: usize = 512;

/// The domains: for the heap, for CPython, and as letters in debug hooks.
pub const DOMAINS: [(BlockDomain, AllocatorDomain, u8); 2] = [
    (BlockDomain::Object, AllocatorDomain::Obj, b'o'),
    (BlockDomain::Memory, AllocatorDomain::Mem, b'm'),
];

impl Installed {
    /// Installs the heap.
    ///
    /// # Errors
    /// One line that says what prevents it. Nothing has changed then.
    ///
    /// # Safety
    /// The GIL is the main interpreter's, and the layout was verified.
    pub unsafe fn install(
        gil: &Gil,
        layout: &Layout,
        huge_pages: HugePages,
    ) -> Result<Self, String> {
        let api = gil.api();
        if FREE_THREADED {
            // SAFETY: by the contract; one thread creates the agent at a time.
            return unsafe { in_mimalloc(api) }.map_err(|why| {
                format!(
                    "cannot profile CPython {} without the GIL: {why}",
                    api.version_text()
                )
            });
        }
        // The addresses of the debug hooks' structures for the two domains; 0 without debug hooks.
        let mut below = [0; 2];
        let mut fallbacks = [Fallback::LIBC; 2];
        for (at, (_, domain, letter)) in DOMAINS.into_iter().enumerate() {
            let mut there = AllocatorEx::NONE;
            // SAFETY: the function only stores the current functions into `there`.
            unsafe { (api.PyMem_GetAllocator)(domain, &raw mut there) };
            if let Some(inner) = below_debug_hooks(&there, letter) {
                below[at] = inner;
                // SAFETY: a structure of this shape was found there.
                there = unsafe { (inner as *const AllocatorEx).read() };
            }
            fallbacks[at] =
                fallback(&there).ok_or("cannot profile this interpreter: it has no allocator")?;
        }
        let fallbacks = native_requests::marked(raw_calloc::watched(layout, fallbacks));
        let config = heap_config(
            huge_pages,
            own_requests::check(api),
            unlocked::check(api, layout),
        );
        let heap = Heap::create(config, fallbacks)
            .ok_or(NO_ADDRESSES)?
            .as_ptr();
        // SAFETY: by the contract. No thread uses the heap before its functions are in place.
        unsafe { raw_calloc::install(gil, layout, heap)? };
        for (at, (heap_domain, domain, _)) in DOMAINS.into_iter().enumerate() {
            let DomainFunctions {
                malloc,
                calloc,
                realloc,
                free,
            } = DomainFunctions::of(heap_domain);
            let mut allocator = AllocatorEx {
                ctx: heap.cast(),
                malloc: Some(malloc),
                calloc: Some(calloc),
                realloc: Some(realloc),
                free: Some(free),
            };
            match below[at] {
                // SAFETY: the GIL is held.
                0 => unsafe { (api.PyMem_SetAllocator)(domain, &raw mut allocator) },
                // SAFETY: the structure was found there, and is static.
                inner => unsafe { (inner as *mut AllocatorEx).write(allocator) },
            }
        }
        // SAFETY: by the contract.
        unsafe { own_requests::find_table(heap.cast()) };
        Ok(Self {
            heap,
            has_debug_hooks: below[0] != 0,
        })
    }

    /// The heap, as the context that its functions take.
    #[must_use]
    pub const fn heap(&self) -> *mut c_void {
        self.heap.cast()
    }

    /// Whether debug hooks put their own bytes around the blocks of the heap.
    #[must_use]
    pub const fn has_debug_hooks(&self) -> bool {
        self.has_debug_hooks
    }

    /// Starts sampling.
    ///
    /// # Safety
    /// The GIL is held; the observer's context is never freed.
    pub unsafe fn start_sampling(&mut self, points: SamplePoints, observer: HeapObserver) {
        // SAFETY: by the contract.
        unsafe { Heap::start(self.heap, points, observer) };
    }

    /// Continues in the child of a fork: see [`Heap::diverge`].
    ///
    /// # Safety
    /// The GIL is held, and the heap is not further up the stack.
    pub unsafe fn diverge(&mut self, number: u64) {
        // SAFETY: by the contract.
        unsafe { Heap::diverge(self.heap, number) };
    }

    /// Stops sampling. Returns the exact totals of the session.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn stop_sampling(&mut self) -> HeapStatistics {
        // SAFETY: by the contract.
        unsafe {
            if FREE_THREADED {
                return totals::in_mimalloc(nthbyte_mimalloc::stop());
            }
            let exact = Heap::statistics_exact(self.heap);
            Heap::stop(self.heap);
            exact
        }
    }

    /// The heap's totals; [`Heap::statistics`] says how exact they are.
    #[must_use]
    pub fn statistics(&self) -> HeapStatistics {
        if FREE_THREADED {
            return totals::in_mimalloc(nthbyte_mimalloc::statistics());
        }
        // SAFETY: an `Installed` is used by the holder of the GIL only.
        unsafe { Heap::statistics(self.heap) }
    }

    /// A note about huge pages for the reader of the profile, if there is one.
    #[must_use]
    pub fn huge_page_note(&self) -> Option<String> {
        self.statistics().huge_page_pool_was_empty.then(|| {
            "huge pages: the system's pool was empty, so the heap uses ordinary pages; raise vm.nr_hugepages"
                .to_owned()
        })
    }
}

/// Has mimalloc sample, in a build without the GIL: see [`nthbyte_mimalloc`].
///
/// # Safety
/// As for [`Installed::install`]. Called by one thread at a time.
unsafe fn in_mimalloc(api: &Api) -> Result<Installed, &'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Err("nthbyte knows it on x86-64 only");
    }
    let functions = api.of_mimalloc().ok_or("it has no allocator")?;
    // SAFETY: by the contract.
    unsafe { nthbyte_mimalloc::install(&functions, native_requests::marked)? };
    Ok(Installed {
        heap: std::ptr::null_mut(),
        has_debug_hooks: false,
    })
}

/// Refuses to continue if another tool traces allocations by replacing allocators: at its end it would restore the
/// allocator from before the heap.
///
/// # Errors
/// One line.
pub fn refuse_other_tracers(gil: &Gil) -> Result<(), String> {
    // `_tracemalloc` is built in: `-X tracemalloc` traces without an import of `tracemalloc`.
    let tracing = gil
        .import(c"_tracemalloc")
        .and_then(|module| module.attribute(c"is_tracing"))
        .and_then(|function| function.call())
        .is_some_and(|answer| answer.is_true());
    if tracing {
        return Err("tracemalloc is tracing; start it after nthbyte, or do without it".to_owned());
    }
    Ok(())
}

/// The address of the allocator below the debug hooks, if debug hooks are in place.
fn below_debug_hooks(there: &AllocatorEx, letter: u8) -> Option<usize> {
    let context = there.ctx as usize;
    if context == 0 {
        return None;
    }
    let words = Probe::new()?.read::<[usize; 6]>(context)?;
    let [first, _, inner @ ..] = words;
    // The hooks' functions differ from those below, and none is null.
    let hooked = (first & 0xff) as u8 == letter
        && inner.iter().all(|&function| function != 0)
        && there
            .malloc
            .is_some_and(|malloc| malloc as usize != inner[0]);
    hooked.then_some(context + size_of::<usize>())
}

fn fallback(there: &AllocatorEx) -> Option<Fallback> {
    Some(Fallback {
        context: there.ctx,
        malloc: there.malloc?,
        calloc: there.calloc?,
        realloc: there.realloc?,
        free: there.free?,
    })
}

fn heap_config(
    huge_pages: HugePages,
    trusts: Option<Trusts>,
    holds_lock: Option<HoldsLock>,
) -> nthbyte_heap::HeapConfig {
    let huge_pages = if huge_pages == HugePages::Thp && huge_pages::are_forbidden() {
        HugePages::Off
    } else {
        huge_pages
    };
    nthbyte_heap::HeapConfig {
        huge_pages,
        limits: [MEDIUM_LIMIT, LARGEST_OF_PYMALLOC],
        trusts,
        holds_lock,
        ..nthbyte_heap::HeapConfig::default()
    }
}
