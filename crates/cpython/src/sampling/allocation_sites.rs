//! Which places in CPython's code allocate list items, tables of sets, and other memory that does not say
//! what it is.
//!
//! The heap reports the call that a sampled allocation came from. So once, when the heap is put in place, known
//! operations run with every allocation sampled; the lists and sets that come out of them point to
//! their memory, and the place that allocated it is learnt. Nothing depends on symbols, or on how the
//! interpreter was compiled; what could not be learnt has a vaguer name.

use std::ffi::{CStr, c_void};

use nthbyte_heap::{Domain, Heap, NOT_INTERESTED, Observer, Sample};
use nthbyte_sampling::{Distances, Period, SamplePoints};

use crate::api::Gil;
use crate::layout::Layout;
use crate::memory::field;
use crate::sampling::attributes;

/// The module of the function `operations`. As a module it is compiled once, and not in each process.
const MODULE: &CStr = c"nthbyte._operations";

/// Where an object has the address of its memory.
enum Place {
    /// In a field at this offset.
    Field(usize),
    /// Where the values of its attributes are.
    Values,
}

/// The variables of the operations, where their objects have the address of their memory
/// (`PyListObject`, `PySetObject`, `PyByteArrayObject`, `dequeobject`), and what that is called.
const KINDS: [(&CStr, Place, Domain, &str); 6] = [
    (c"lists", Place::Field(24), Domain::Memory, "list items"),
    (c"sets", Place::Field(40), Domain::Memory, "set table"),
    (
        c"arrays",
        Place::Field(32),
        Domain::Object,
        "bytearray buffer",
    ),
    (c"blocks", Place::Field(24), Domain::Memory, "deque block"),
    (c"blocks", Place::Field(32), Domain::Memory, "deque block"),
    (
        c"instances",
        Place::Values,
        Domain::Memory,
        "instance attributes",
    ),
];

/// More allocations than the operations make.
const MOST: usize = 8192;
/// A call from within so many bytes of an allocation function is by that function, which was
/// compiled to call, not to jump: then all places look alike.
const FORWARDER: usize = 96;

/// The places, by the address to which their call returns.
#[derive(Default)]
pub struct AllocationSites {
    known: Vec<(usize, &'static str)>,
}

impl AllocationSites {
    /// What the memory is that was allocated by this call.
    #[must_use]
    pub fn allocates(&self, site: usize) -> Option<&'static str> {
        self.known
            .iter()
            .find(|(known, _)| *known == site)
            .map(|(_, name)| *name)
    }

    /// Learns; what cannot be learnt is left out.
    ///
    /// # Safety
    /// The heap is in place, and sampling is off.
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
        let points = SamplePoints::new(Period::EVERY, Distances::Fixed, 0);
        let observer = Observer {
            context: (&raw mut seen).cast(),
            sampled: note,
            freed: ignore,
        };
        let mut sites = Self::default();
        let operations = gil.import(MODULE)?.attribute(c"operations")?;
        // SAFETY: by the contract. The observer's context lives until sampling is switched off.
        let names = unsafe {
            Heap::start(heap, points, observer);
            let names = operations.call();
            Heap::stop(heap);
            names?
        };
        for (variable, place, domain, kind) in &KINDS {
            let objects = names.value(variable)?;
            for at in 0..objects.tuple_length()? {
                let object = objects.element(at)?;
                let found = match place {
                    Place::Field(offset) => {
                        // SAFETY: the object is live, and of a type that has a word there.
                        let memory = unsafe { field::<usize>(object.address(), *offset) };
                        seen.iter().rfind(|seen| seen.block == memory)
                    }
                    Place::Values => attributes::separate_values(layout, object.address())
                        .and_then(|values| seen.iter().rfind(|seen| seen.holds(values))),
                };
                if let Some(seen) = found
                    && seen.domain == *domain
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

/// An allocation.
struct Seen {
    block: usize,
    size: usize,
    domain: Domain,
    site: usize,
}

impl Seen {
    fn holds(&self, address: usize) -> bool {
        (self.block..self.block + self.size).contains(&address)
    }
}

unsafe extern "C" fn note(context: *mut c_void, sample: &Sample) -> u32 {
    // SAFETY: the context is the vector of `try_to_learn`, which nobody else uses meanwhile.
    let seen = unsafe { &mut *context.cast::<Vec<Seen>>() };
    if seen.len() < seen.capacity() {
        seen.push(Seen {
            block: sample.block as usize,
            size: sample.requested,
            domain: sample.domain,
            site: sample.site,
        });
    }
    NOT_INTERESTED
}

unsafe extern "C" fn ignore(_: *mut c_void, _: *const c_void, _: u32) {}
