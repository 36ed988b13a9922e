//! The allocation sites in CPython's code that allocate list items, tables of sets, and other memory whose content does
//! not show its purpose.
//!
//! The heap reports the call site of each sampled allocation. When the heap is installed, known operations run once
//! with every allocation sampled. The resulting lists and sets point to their memory, which shows the call site that
//! allocated it. The method needs no symbols and does not depend on the compiler. A site that it does not find gets a
//! more general name.

use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use nthbyte_heap::{BlockDomain, Heap, HeapObserver, NOT_INTERESTED, SampledBlock};
use nthbyte_host::sync::this_thread;
use nthbyte_mimalloc::ThreadedObserver;
use nthbyte_sampling::{Distances, Period, SamplePoints};

use crate::api::{FREE_THREADED, Gil};
use crate::layout::Layout;
use crate::sampling::attributes;
use nthbyte_host::process::field;

/// The module of the function `operations`. A module is compiled once, not in each process.
const MODULE: &CStr = c"nthbyte._operations";

/// Where an object stores the address of its memory.
enum AddressIn {
    /// In the field at this offset.
    Field(usize),
    /// Where the object stores the values of its attributes.
    Values,
}

/// The variables of the operations, where their objects store the address of their memory, the domain and the name of
/// that memory.
fn kinds(layout: &Layout) -> [(&CStr, AddressIn, BlockDomain, &'static str); 6] {
    let at = layout.containers;
    let field = AddressIn::Field;
    [
        (
            c"lists",
            field(at.list_items),
            BlockDomain::Memory,
            "list items",
        ),
        (
            c"sets",
            field(at.set_table),
            BlockDomain::Memory,
            "set table",
        ),
        (
            c"arrays",
            field(at.bytearray_buffer),
            // Without the GIL, there are no buffers among the objects.
            if FREE_THREADED {
                BlockDomain::Memory
            } else {
                BlockDomain::Object
            },
            "bytearray buffer",
        ),
        (
            c"blocks",
            field(at.deque_blocks[0]),
            BlockDomain::Memory,
            "deque block",
        ),
        (
            c"blocks",
            field(at.deque_blocks[1]),
            BlockDomain::Memory,
            "deque block",
        ),
        (
            c"instances",
            AddressIn::Values,
            BlockDomain::Memory,
            "instance attributes",
        ),
    ]
}

/// An upper limit of the allocations that the operations make.
const MOST: usize = 8192;
/// A call this close, in bytes, to the start of an allocation function comes from that function itself: the compiler
/// used a call instead of a jump. Then all sites look the same.
const FORWARDER: usize = 96;

/// The allocation sites, by their return address.
#[derive(Default)]
pub struct AllocationSites {
    known: Vec<(usize, &'static str)>,
}

impl AllocationSites {
    /// The name of the memory that this call allocates.
    #[must_use]
    pub fn allocates(&self, site: usize) -> Option<&'static str> {
        self.known
            .iter()
            .find(|(known, _)| *known == site)
            .map(|(_, name)| *name)
    }

    /// Finds the allocation sites. Sites that it does not find are left out.
    ///
    /// # Safety
    /// The heap is installed, and sampling is off. Without the GIL, `heap` does not matter.
    #[must_use]
    pub unsafe fn learn(gil: &Gil, layout: &Layout, heap: *mut Heap) -> Self {
        // SAFETY: by the contract.
        unsafe { Self::try_to_learn(gil, layout, heap) }.unwrap_or_default()
    }

    /// `None` if the operations fail.
    ///
    /// # Safety
    /// As for [`Self::learn`].
    unsafe fn try_to_learn(gil: &Gil, layout: &Layout, heap: *mut Heap) -> Option<Self> {
        let mut seen: Vec<Seen> = Vec::new();
        seen.try_reserve_exact(MOST).ok()?;
        // Not on this thread's stack, which another thread may get in the child of a fork.
        let observed = Box::new(Observed {
            taken: AtomicUsize::new(0),
            places: seen.as_mut_ptr(),
        });
        let points = SamplePoints::new(Period::EVERY, Distances::Fixed, 0);
        let observer = HeapObserver {
            context: (&raw const *observed).cast_mut().cast(),
            sampled: note,
            freed: ignore,
        };
        let mut sites = Self::default();
        let operations = gil.import(MODULE)?.attribute(c"operations")?;
        // SAFETY: by the contract. The observer's context lives until sampling is switched off, and then no other thread looks at it.
        let names = unsafe {
            if FREE_THREADED {
                LEARNING.store(this_thread(), Relaxed);
                let observer = ThreadedObserver {
                    context: observer.context as usize,
                    sampled: note_own,
                    freed: ignore_any,
                };
                nthbyte_mimalloc::start(points, observer);
                let names = operations.call();
                nthbyte_mimalloc::stop();
                LEARNING.store(0, Relaxed);
                names?
            } else {
                Heap::start(heap, points, observer);
                let names = operations.call();
                Heap::stop(heap);
                names?
            }
        };
        // SAFETY: so many places are filled: sampling is off, and `note` takes one after the other.
        unsafe { seen.set_len(observed.taken.load(Acquire).min(MOST)) };
        for (variable, place, domain, kind) in kinds(layout) {
            let objects = names.value(variable)?;
            for at in 0..objects.tuple_length()? {
                let object = objects.element(at)?;
                let found = match place {
                    AddressIn::Field(offset) => {
                        // SAFETY: the object is live, and of a type that has a word there.
                        let memory = unsafe { field::<usize>(object.address(), offset) };
                        // Without the GIL, a list's items have their number before them.
                        let is_it = |seen: &&Seen| match FREE_THREADED {
                            true => seen.holds(memory),
                            false => seen.block == memory,
                        };
                        seen.iter().rfind(is_it)
                    }
                    AddressIn::Values => attributes::separate_values(layout, object.address())
                        .and_then(|values| seen.iter().rfind(|seen| seen.holds(values))),
                };
                if let Some(seen) = found
                    && seen.domain == domain
                {
                    sites.add(seen.site, kind);
                }
            }
        }
        let forwarders = gil.api().allocation_functions();
        sites.known.retain(|(site, _)| {
            forwarders
                .iter()
                .all(|start| !(*start..start + FORWARDER).contains(site))
        });
        Some(sites)
    }

    fn add(&mut self, site: usize, kind: &'static str) {
        if site != 0 && self.allocates(site).is_none() && self.known.try_reserve(1).is_ok() {
            self.known.push((site, kind));
        }
    }
}

/// Where `note` writes what it observes: [`MOST`] places.
///
/// Another thread may fork meanwhile. In its child, sampling stays on until a session begins, and several threads may call
/// `note` there. Each call takes a place of its own, so they need no look at the process's number (a system call).
struct Observed {
    taken: AtomicUsize,
    places: *mut Seen,
}

/// An observed allocation.
struct Seen {
    block: usize,
    size: usize,
    domain: BlockDomain,
    site: usize,
}

impl Seen {
    fn holds(&self, address: usize) -> bool {
        (self.block..self.block + self.size).contains(&address)
    }
}

unsafe extern "C" fn note(context: *mut c_void, sample: &SampledBlock) -> u32 {
    // SAFETY: the context is `try_to_learn`'s; in the child of a fork it is never freed.
    let observed = unsafe { &*context.cast::<Observed>() };
    // A count that is too large stays so: it does not wrap.
    if observed.taken.load(Relaxed) < MOST {
        let at = observed.taken.fetch_add(1, AcqRel);
        if at < MOST {
            let seen = Seen {
                block: sample.block as usize,
                size: sample.requested,
                domain: sample.domain,
                site: sample.site,
            };
            // SAFETY: there are so many places, and this one is nobody else's.
            unsafe { observed.places.add(at).write(seen) };
        }
    }
    NOT_INTERESTED
}

unsafe extern "C" fn ignore(_: *mut c_void, _: *const c_void, _: u32) {}

/// The thread that learns the sites, without a GIL: another one may be in [`note_own`] when it has learnt them.
static LEARNING: AtomicUsize = AtomicUsize::new(0);

fn note_own(context: usize, sample: &SampledBlock, _: Period) -> u32 {
    if LEARNING.load(Relaxed) != this_thread() {
        return NOT_INTERESTED;
    }
    // SAFETY: this thread is in `try_to_learn`, which keeps the context.
    unsafe { note(context as *mut c_void, sample) }
}

fn ignore_any(_: usize, _: usize, _: u32) {}
