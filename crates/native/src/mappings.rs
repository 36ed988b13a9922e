//! Mappings of anonymous memory.
//!
//! Only calls from other libraries come here: the C library maps thread stacks and its own arenas without a call of the
//! public function. Mappings that the replaced allocator makes are not the program's: its blocks are sampled.
//!
//! A mapping without access rights only reserves addresses, and does not count.
//!
//! `mremap` does not say whether a mapping is of anonymous memory. So mappings that are not sampled are in the table of
//! blocks too, without a token ([`NOT_INTERESTED`]): a small mapping that grows counts with its new size, whether or not a
//! sample point was in the old one.

use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::keep_errno;
use nthbyte_host::preload::{Kind, LAZY, NOT_INTERESTED};
use nthbyte_host::process::image;
use nthbyte_requests::blocks::BLOCKS;

use crate::calls::{forget, record, report_freed};
use crate::functions::Function;
use crate::replaced::{REPLACED, next};
use crate::thread::{self, Busy, ThreadState};
use crate::{replaced, reports, sampler};

/// The most mappings that are known without a sample: the kernel's own limit is not much higher
/// (`vm.max_map_count`). Those that were unmapped together with others before them are forgotten when their address is
/// mapped again, and until then count here.
const MOST_UNSAMPLED: usize = 1 << 17;
static UNSAMPLED: AtomicUsize = AtomicUsize::new(0);

/// The smallest memory that counts with its touched part, in bytes. Of smaller memory, little is left untouched, and
/// a look at it would cost as much as its use.
const LEAST_LAZY: usize = 256 << 10;

/// The code of the replaced allocator; 0 and 0 if it is the C library's.
static ALLOCATOR: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Finds the code of the replaced allocator.
pub fn exclude_allocator() {
    let [start, end] = image::range(REPLACED.malloc.load(Relaxed) as usize);
    ALLOCATOR[0].store(start, Relaxed);
    ALLOCATOR[1].store(end, Relaxed);
}

/// `mmap` that does not count.
pub unsafe extern "C" fn mmap_plain(
    address: *mut c_void,
    size: usize,
    protection: i32,
    flags: i32,
    file: i32,
    offset: i64,
) -> *mut c_void {
    type Original = unsafe extern "C" fn(*mut c_void, usize, i32, i32, i32, i64) -> *mut c_void;
    // SAFETY: the program's call. The function of this name has this type.
    unsafe {
        match original(Function::Mmap) {
            Some(original) => std::mem::transmute::<*mut c_void, Original>(original)(
                address, size, protection, flags, file, offset,
            ),
            None => libc::syscall(
                libc::SYS_mmap,
                address,
                size,
                protection,
                flags,
                file,
                offset,
            ) as *mut c_void,
        }
    }
}

/// `mmap` of anonymous memory. The return address is in the thread's state.
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    size: usize,
    protection: i32,
    flags: i32,
    file: i32,
    offset: i64,
) -> *mut c_void {
    let thread = thread::current();
    // SAFETY: the caller's own state; the program's call.
    unsafe {
        let caller = (*thread).caller;
        let points = sampler::points_of(thread, size, caller);
        let start = mmap_plain(address, size, protection, flags, file, offset);
        if start != libc::MAP_FAILED && protection != libc::PROT_NONE && !is_allocator(caller) {
            note(thread, start, size, points, Kind::Mmap, caller);
        }
        start
    }
}

/// Records a mapping that is sampled, and remembers another one that is the program's.
///
/// # Safety
/// `thread` is the calling thread's state.
unsafe fn note(
    thread: *mut ThreadState,
    start: *mut c_void,
    size: usize,
    points: u32,
    kind: Kind,
    caller: usize,
) {
    // SAFETY: by the contract.
    unsafe {
        if points > 0 {
            record(thread, start, size, points, kind);
            return;
        }
        if (*thread).busy != 0 || !sampler::is_on() || reports::is_excluded(caller) {
            return;
        }
    }
    // An earlier mapping here was unmapped together with another one.
    forget(start);
    if UNSAMPLED.load(Relaxed) < MOST_UNSAMPLED
        && BLOCKS.insert(start, NOT_INTERESTED, size).is_some()
    {
        UNSAMPLED.fetch_add(1, Relaxed);
    }
}

/// A mapping that is not sampled is not in the table any more.
pub fn forget_unsampled() {
    UNSAMPLED.fetch_sub(1, Relaxed);
}

/// `munmap`. A mapping that counts as a whole is freed when it is unmapped from its start on.
pub unsafe extern "C" fn munmap(start: *mut c_void, size: usize) -> i32 {
    type Original = unsafe extern "C" fn(*mut c_void, usize) -> i32;
    // Before the call: after it, another thread may get the same address.
    let sampled = BLOCKS.remove(start);
    let is_noted = unmap(start, size);
    // SAFETY: the program's call. The function of this name has this type.
    let result = unsafe {
        match original(Function::Munmap) {
            Some(original) => std::mem::transmute::<*mut c_void, Original>(original)(start, size),
            None => libc::syscall(libc::SYS_munmap, start, size) as i32,
        }
    };
    if let Some(removed) = sampled {
        if result == 0 {
            // The rest of memory that is looked at is known by its addresses.
            if !(is_noted && is_looked_at(removed.token)) {
                report_freed(start, removed.token);
            }
        } else {
            BLOCKS.insert(start, removed.token, removed.detail);
        }
    }
    result
}

/// `mremap`. The result counts as a new mapping of the whole size.
pub unsafe extern "C" fn mremap(
    start: *mut c_void,
    old: usize,
    new: usize,
    flags: i32,
    to: *mut c_void,
    caller: usize,
) -> *mut c_void {
    type Original =
        unsafe extern "C" fn(*mut c_void, usize, usize, i32, *mut c_void) -> *mut c_void;
    let thread = thread::current();
    // SAFETY: the caller's own state; the program's call. The function of this name has this type, and reads its fifth
    // argument only if the flags say that there is one.
    unsafe {
        let sampled = BLOCKS.remove(start);
        if let Some(removed) = sampled {
            look(removed.token);
        }
        let moved = match original(Function::Mremap) {
            Some(original) => {
                std::mem::transmute::<*mut c_void, Original>(original)(start, old, new, flags, to)
            }
            None => libc::syscall(libc::SYS_mremap, start, old, new, flags, to) as *mut c_void,
        };
        let failed = moved == libc::MAP_FAILED;
        let Some(removed) = sampled else {
            // From before the session, of a file, or not the program's.
            return moved;
        };
        if failed {
            BLOCKS.insert(start, removed.token, removed.detail);
            return moved;
        }
        report_freed(start, removed.token);
        let points = sampler::points_of(thread, new, caller);
        if !is_allocator(caller) {
            note(thread, moved, new, points, Kind::Mremap, caller);
        }
        moved
    }
}

/// Whether memory is so large that it may count with its touched part.
pub const fn is_large(size: usize) -> bool {
    size >= LEAST_LAZY
}

/// Whether sampled memory counts with its touched part: a mapping, or a block that has a mapping of its own.
pub fn is_lazy(start: *mut c_void, size: usize, kind: Kind) -> bool {
    is_large(size) && (kind.is_mapping() || replaced::has_mapping(start))
}

/// Whether the token is of memory that counts with its touched part.
const fn is_looked_at(token: u64) -> bool {
    token & LAZY != 0 && token != NOT_INTERESTED
}

/// Looks at sampled memory that is about to be freed or resized, if it counts with its touched part. Keeps `errno`.
#[inline]
pub fn look(token: u64) {
    if is_looked_at(token) {
        // SAFETY: the calling thread's state.
        let _busy = unsafe { Busy::begin(thread::current()) };
        keep_errno(|| reports::look(token));
    }
}

/// Looks at memory that is about to be unmapped. Returns whether that was possible. Keeps `errno`.
fn unmap(start: *mut c_void, size: usize) -> bool {
    let mut is_noted = false;
    let thread = thread::current();
    // SAFETY: the calling thread's state.
    let is_busy = unsafe { (*thread).busy != 0 };
    if !is_busy && sampler::is_on() {
        // SAFETY: as above.
        let _busy = unsafe { Busy::begin(thread) };
        keep_errno(|| is_noted = reports::unmap(start as usize, size));
    }
    is_noted
}

fn is_allocator(caller: usize) -> bool {
    caller >= ALLOCATOR[0].load(Relaxed) && caller < ALLOCATOR[1].load(Relaxed)
}

/// The replaced function. `None` if there is none.
fn original(function: Function) -> Option<*mut c_void> {
    let found = next(function);
    (!found.is_null()).then_some(found)
}
