//! The cache of attributes by name: it lets go of sampled names.
//!
//! The cache keeps a reference to each name at a place that depends on the name's address. Names that a program makes anew
//! each time (`getattr(node, "visit_" + kind)`) take turns at few addresses, and let go of each other there. A sampled one
//! lies elsewhere, so nothing would take its place, and it would count as alive, where an unsampled one is gone.
//!
//! - What: entries whose name is a sampled block that nobody else refers to become empty, as `PyType_ClearCache` leaves all.
//! - When: once in [`SAMPLES`] sampled `str`, at a point where Python code may run; and before the last snapshot.
//! - Where: `struct type_cache` in the interpreter's state (`Include/internal/pycore_typeobject.h`; since 3.11), found by what
//!   lookups of new names leave there. Where that does not fit (the free-threaded build has other entries), nothing is done.

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use nthbyte_heap::Heap;
use nthbyte_host::process::Probe;

use crate::api::{Gil, PyObject};

/// The sampled `str` between two looks: a look is some 35,000 instructions.
const SAMPLES: u32 = 64;
/// The cache keeps no names of more than 100 characters (`MCACHE_MAX_ATTR_SIZE`), of 4 bytes at most.
const LONGEST: usize = 512;
/// The sampled `str` before the last look, if it is the first one: to find the cache costs more than a look.
const SAMPLES_AT_END: u32 = 8;
/// The entries that one look empties.
const MOST_AT_ONCE: usize = 512;
/// The entries (`MCACHE_SIZE_EXP`).
const ENTRIES: usize = 1 << 12;
/// The names that are looked up to find the cache, and their objects, which are never freed.
const TRIALS: [&CStr; 3] = [
    c"nthbyte looks for the cache, 1",
    c"nthbyte looks for the cache, 2",
    c"nthbyte looks for the cache, 3",
];
/// How much of the interpreter's state is looked through: it has 450 KiB in 3.15.
const STATE: usize = 2 << 20;
const CHUNK: usize = 4 << 10;

/// `struct type_cache_entry`.
#[repr(C)]
struct Entry {
    version: u32,
    name: *mut PyObject,
    /// A borrowed reference.
    value: *mut PyObject,
}

/// The address of the entries, or one of the two below. No lock: the GIL may go to another thread meanwhile.
static CACHE: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = 0;
const NONE: usize = usize::MAX;
static NAMES: [AtomicUsize; TRIALS.len()] = [const { AtomicUsize::new(0) }; TRIALS.len()];
static SINCE: AtomicU32 = AtomicU32::new(0);

/// Makes the names of the trials. Before sampling begins: then the search makes no object at a time of its own, and with one seed
/// the same allocations are sampled each time.
pub fn prepare(gil: &Gil) {
    for (name, text) in NAMES.iter().zip(TRIALS) {
        if name.load(Relaxed) == 0 {
            name.store(gil.interned(text), Relaxed);
        }
    }
}

/// A `str` of this size was sampled. Only the holder of the GIL counts.
#[inline(always)]
pub fn sampled(size: usize) {
    if size <= LONGEST {
        SINCE.store(SINCE.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// Whether it is time for a look.
pub fn is_due() -> bool {
    SINCE.load(Relaxed) >= SAMPLES
}

/// Whether there may be something to see at the end.
pub fn is_due_at_end() -> bool {
    let since = SINCE.load(Relaxed);
    since >= SAMPLES_AT_END || since > 0 && CACHE.load(Relaxed) != UNKNOWN
}

/// Empties the entries of sampled names that nobody else refers to. `heap` is the heap's context.
pub fn look(gil: &mut Gil, heap: *mut c_void) {
    SINCE.store(0, Relaxed);
    if CACHE.load(Relaxed) == UNKNOWN {
        CACHE.store(find(gil).unwrap_or(NONE), Relaxed);
    }
    let entries = CACHE.load(Relaxed);
    if entries == NONE {
        return;
    }
    let mut sampled = [std::ptr::null_mut::<Entry>(); MOST_AT_ONCE];
    let mut count = 0;
    for number in 0..ENTRIES {
        let entry = entry(entries, number);
        // SAFETY: the GIL is held, so that nothing is looked up meanwhile. A name is a live object, or null.
        let is_sampled =
            unsafe { (*entry).version != 0 && Heap::is_sampled(heap, (*entry).name.addr()) };
        if is_sampled && count < MOST_AT_ONCE {
            sampled[count] = entry;
            count += 1;
        }
    }
    // SAFETY: as above.
    let name = |entry: &*mut Entry| unsafe { (**entry).name };
    let sampled = &mut sampled[..count];
    sampled.sort_unstable_by_key(name);
    // A name has an entry for each type for which it was looked up: for an attribute of a class, two.
    for same in sampled.chunk_by(|one, other| name(one) == name(other)) {
        // SAFETY: as above. The first word of an object is its number of references, in 32 or 64 bits.
        if unsafe { name(&same[0]).cast::<u32>().read() } as usize != same.len() {
            continue;
        }
        for &entry in same {
            // SAFETY: it is an entry of the cache.
            unsafe { empty(gil, entry) };
        }
    }
}

fn entry(entries: usize, number: usize) -> *mut Entry {
    std::ptr::with_exposed_provenance_mut::<Entry>(entries).wrapping_add(number)
}

/// # Safety
/// The entry is one of the cache, and the GIL is held.
unsafe fn empty(gil: &Gil, entry: *mut Entry) {
    // SAFETY: by the caller. The reference is the entry's. Only a `str` is freed, which runs no Python code.
    unsafe {
        let name = gil.owned((*entry).name);
        entry.write(Entry {
            version: 0,
            name: gil.none().give(),
            value: std::ptr::null_mut(),
        });
        drop(name);
    }
}

/// The address of the entries. The first trial finds it, and the others have to agree.
fn find(gil: &Gil) -> Option<usize> {
    let probe = Probe::new()?;
    let mut known = None;
    for name in &NAMES {
        // SAFETY: the GIL is held; the object is never freed.
        let name = unsafe { gil.object(name.load(Relaxed) as *mut PyObject)? };
        // `None` has no such attribute, and the cache keeps that.
        drop(gil.none().optional_attribute(name));
        let (entries, version) = match known {
            Some(known) => known,
            None => {
                // SAFETY: the GIL is held.
                let state = unsafe { (gil.api().PyInterpreterState_Main)() };
                *known.insert(first(&probe, state.addr(), name.address())?)
            }
        };
        let entry = entry(entries, number(version, name.address()));
        let found: [usize; 2] = probe.read(entry.addr())?;
        if found != [version as usize, name.address()] {
            return None;
        }
        // SAFETY: it has the name of this trial; the GIL is held.
        unsafe { empty(gil, entry) };
    }
    known.map(|(entries, _)| entries)
}

/// The number of a name's entry, for a type of this version (`MCACHE_HASH` in `Objects/typeobject.c`).
fn number(version: u32, name: usize) -> usize {
    (version as usize ^ name >> 3) % ENTRIES
}

/// The address of the entries, and the version of the type whose entry has this name.
fn first(probe: &Probe, state: usize, name: usize) -> Option<(usize, u32)> {
    let mut chunk = [0; CHUNK];
    for start in (state..state + STATE).step_by(CHUNK) {
        let got = probe.bytes(start, &mut chunk);
        for (at, word) in chunk[..got].chunks_exact(size_of::<usize>()).enumerate() {
            if word != name.to_ne_bytes() {
                continue;
            }
            let entry = start + at * size_of::<usize>() - offset_of!(Entry, name);
            let version: u32 = probe.read(entry)?;
            let entries = entry.saturating_sub(number(version, name) * size_of::<Entry>());
            if version != 0 && entries >= state {
                return Some((entries, version));
            }
        }
        if got < CHUNK {
            break;
        }
    }
    None
}
