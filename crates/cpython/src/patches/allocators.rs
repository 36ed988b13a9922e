//! The functions of the domains `OBJ` and `MEM`: the heap in the place of CPython's allocator for objects.
//!
//! - What: all four functions of each domain. Those from before become the heap's fallback: for large requests, and for
//!   the blocks that they made.
//! - When: before the first session.
//! - Undone: never, for the heap's blocks stay. Other code may wrap the functions and put them back, as
//!   `tracemalloc` does: they are right at any time, see [`super::raw_calloc`].
//!
//! With `PYTHONMALLOC=debug` or `-X dev` the functions in place are debug hooks, which keep the
//! allocator below them in a structure (`debug_alloc_api_t` of `Objects/obmalloc.c`: a letter for the
//! domain, then the allocator). The heap goes below them.

use std::ffi::c_void;

use nthbyte_heap::{Domain, Fallback, Functions, Heap, HugePages, Observer, Statistics};
use nthbyte_sampling::SamplePoints;

use super::raw_calloc;
use crate::api::{AllocatorDomain, AllocatorEx, Gil};
use crate::heap::huge_pages;
use crate::layout::Layout;
use crate::memory::Probe;

/// The heap, in place.
pub struct Installed {
    heap: *mut Heap,
    has_debug_hooks: bool,
}

/// The domains: as the heap knows them, as CPython does, and their letters in debug hooks.
pub const DOMAINS: [(Domain, AllocatorDomain, u8); 2] = [
    (Domain::Object, AllocatorDomain::Obj, b'o'),
    (Domain::Memory, AllocatorDomain::Mem, b'm'),
];

impl Installed {
    /// Puts the heap in place.
    ///
    /// # Errors
    /// One line that says why not; nothing has changed then.
    ///
    /// # Safety
    /// The GIL is the main interpreter's, and the layout was verified.
    pub unsafe fn install(
        gil: &Gil,
        layout: &Layout,
        huge_pages: HugePages,
    ) -> Result<Self, String> {
        let api = gil.api();
        // The structures under debug hooks, for the two domains; 0 where there are none.
        let mut below = [0; 2];
        let mut fallbacks = [Fallback::LIBC; 2];
        for (at, (_, domain, letter)) in DOMAINS.into_iter().enumerate() {
            let mut there = AllocatorEx::NONE;
            // SAFETY: writes the functions in place.
            unsafe { (api.PyMem_GetAllocator)(domain, &raw mut there) };
            if let Some(inner) = below_debug_hooks(&there, letter) {
                below[at] = inner;
                // SAFETY: a structure of this shape was found there.
                there = unsafe { (inner as *const AllocatorEx).read() };
            }
            fallbacks[at] =
                fallback(&there).ok_or("cannot profile this interpreter: it has no allocator")?;
        }
        let fallbacks = raw_calloc::watched(layout, fallbacks);
        let heap = Heap::create(heap_config(huge_pages), fallbacks)
            .ok_or("cannot reserve address space for the heap; raise the memory limit (ulimit -v)")?
            .as_ptr();
        // SAFETY: by the contract. Nobody uses the heap until its functions are put in place.
        unsafe { raw_calloc::install(gil, layout, heap)? };
        for (at, (heap_domain, domain, _)) in DOMAINS.into_iter().enumerate() {
            let Functions {
                malloc,
                calloc,
                realloc,
                free,
            } = Functions::of(heap_domain);
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
        Ok(Self {
            heap,
            has_debug_hooks: below[0] != 0,
        })
    }

    /// The heap, as the context of its functions.
    #[must_use]
    pub const fn heap(&self) -> *mut c_void {
        self.heap.cast()
    }

    /// Whether the blocks that the heap serves have the debug hooks' bytes around them.
    #[must_use]
    pub const fn has_debug_hooks(&self) -> bool {
        self.has_debug_hooks
    }

    /// Switches sampling on.
    ///
    /// # Safety
    /// The GIL is held; the observer's context lives for ever.
    pub unsafe fn start_sampling(&mut self, points: SamplePoints, observer: Observer) {
        // SAFETY: by the contract.
        unsafe { Heap::start(self.heap, points, observer) };
    }

    /// Switches sampling off. Returns the exact totals of the session.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn stop_sampling(&mut self) -> Statistics {
        // SAFETY: by the contract.
        unsafe {
            let exact = Heap::statistics_exact(self.heap);
            Heap::stop(self.heap);
            exact
        }
    }

    /// Totals; see [`Heap::statistics`] for how exact they are.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        // SAFETY: an `Installed` is used by the holder of the GIL only.
        unsafe { Heap::statistics(self.heap) }
    }

    /// What a reader of the profile should know of the huge pages, if anything.
    #[must_use]
    pub fn huge_page_note(&self) -> Option<String> {
        self.statistics().huge_page_pool_was_empty.then(|| {
            "huge pages: the system's pool was empty, so the heap uses ordinary pages; raise vm.nr_hugepages"
                .to_owned()
        })
    }
}

/// Refuses to go on when something else follows allocations by replacing allocators, and would put
/// back at its end what was there before us.
///
/// # Errors
/// One line.
pub fn refuse_other_tracers(gil: &Gil) -> Result<(), String> {
    // A built-in module: `-X tracemalloc` traces without it being imported.
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

/// The address of the allocator below debug hooks, if these are what is in place.
fn below_debug_hooks(there: &AllocatorEx, letter: u8) -> Option<usize> {
    let context = there.ctx as usize;
    if context == 0 {
        return None;
    }
    let words = Probe::new()?.read::<[usize; 6]>(context)?;
    let [first, _, inner @ ..] = words;
    // The functions of hooks and of what is below differ; all are there.
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

fn heap_config(huge_pages: HugePages) -> nthbyte_heap::Config {
    let huge_pages = if huge_pages == HugePages::Thp && huge_pages::are_forbidden() {
        HugePages::Off
    } else {
        huge_pages
    };
    nthbyte_heap::Config {
        huge_pages,
        ..nthbyte_heap::Config::default()
    }
}
