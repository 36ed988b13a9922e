//! Makes the calls of a running process reach this library, which was not preloaded: the agent has loaded it.
//!
//! Each program and library keeps the addresses of the functions of other libraries in words, its *import slots*. The
//! slots that hold the address of a replaced function get that of this library's function. In a library that is
//! loaded later, they are changed when `dlopen` returns: `dlopen` is replaced in the same way.
//!
//! # What makes this sound
//!
//! - Blocks are the replaced allocator's own. A call that does not come here, because its slot is not known, is not
//!   sampled, and that is all.
//! - A slot is changed only if it holds the address of the replaced function. So the slots of another tool, and those
//!   of a library with an allocator of its own, stay as they are. A slot that the dynamic linker fills at the first
//!   call is changed only if there is one function of the name that it can find.
//! - Slots are changed inside `dl_iterate_phdr`, which keeps libraries from being unloaded meanwhile and lets one thread
//!   in at a time. The slots of a library that another thread is loading are not read-only yet, though they will be;
//!   these are left for the next time, because the dynamic linker is still writing to the same pages.
//! - They are never restored: a thread may be in any of the functions.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicUsize, fence};

use crate::calls::PAGE;
use crate::entry;
use crate::objects::{Object, Slot, linker};
use crate::opening;
use crate::replaced;

/// The number of functions that are replaced.
const FUNCTIONS: usize = 16;
/// The first functions of the table allocate; the others load libraries.
const ALLOCATING: usize = 14;

/// The functions, by name, with this library's addresses.
fn functions() -> [(&'static CStr, usize); FUNCTIONS] {
    [
        (c"malloc", entry::malloc as *const () as usize),
        (c"calloc", entry::calloc as *const () as usize),
        (c"realloc", entry::realloc as *const () as usize),
        (c"free", entry::free as *const () as usize),
        (c"reallocarray", entry::reallocarray as *const () as usize),
        (
            c"posix_memalign",
            entry::posix_memalign as *const () as usize,
        ),
        (c"aligned_alloc", entry::aligned_alloc as *const () as usize),
        (c"memalign", entry::memalign as *const () as usize),
        (c"valloc", entry::valloc as *const () as usize),
        (c"pvalloc", entry::pvalloc as *const () as usize),
        (c"mmap", entry::mmap as *const () as usize),
        (c"mmap64", entry::mmap64 as *const () as usize),
        (c"munmap", entry::munmap as *const () as usize),
        (c"mremap", entry::mremap as *const () as usize),
        (c"dlopen", opening::dlopen as *const () as usize),
        (c"dlsym", opening::dlsym as *const () as usize),
    ]
}

/// The replaced functions, in the same order; 0 for one that the process does not have, or before [`attach`].
static REPLACED: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];

/// The number of programs and libraries whose slots are remembered as changed. The others are looked at each time.
const REMEMBERED: usize = 1024;

/// What is known of the loaded libraries. Only used inside `dl_iterate_phdr`, which one thread runs at a time.
struct Known {
    /// The linker's counts of libraries that it has loaded and unloaded, at the last pass.
    counts: [u64; 2],
    /// Whether the last pass left out a slot.
    left_out: bool,
    /// The addresses of the objects that are done; 0 in an unused place.
    done: [usize; REMEMBERED],
}

struct Shared(UnsafeCell<Known>);

// SAFETY: the dynamic linker's lock keeps other threads out.
unsafe impl Sync for Shared {}

static KNOWN: Shared = Shared(UnsafeCell::new(Known {
    counts: [0; 2],
    left_out: false,
    done: [0; REMEMBERED],
}));

/// The number of slots that were changed in this process.
static CHANGED: AtomicUsize = AtomicUsize::new(0);

/// Makes the calls of all loaded libraries reach this one. Returns whether any of them do; they do if this library was
/// preloaded.
pub fn attach() -> bool {
    if replaced::functions().is_none() {
        return false;
    }
    if replaced::is_preloaded() {
        return true;
    }
    for (place, (name, _)) in REPLACED.iter().zip(functions()) {
        place.store(replaced::next(name) as usize, Relaxed);
    }
    fence(Release);
    redirect();
    CHANGED.load(Acquire) > 0
}

/// The replaced function with this number of [`functions`].
pub fn replaced_function(number: usize) -> usize {
    REPLACED[number].load(Relaxed)
}

/// This library's function in place of a replaced one that allocates; the same address for all others.
pub fn own_function(address: usize) -> usize {
    let found = (0..ALLOCATING).find(|&number| replaced_function(number) == address);
    match found {
        Some(number) if address != 0 => functions()[number].1,
        _ => address,
    }
}

/// A pass over all loaded objects.
struct Pass {
    functions: [(&'static CStr, usize); FUNCTIONS],
    replaced: [usize; FUNCTIONS],
    /// All replaced functions lie in here, and few others.
    around: RangeInclusive<usize>,
    /// Addresses in this library, the dynamic linker, the kernel's library and the replaced allocator.
    own: usize,
    linker: usize,
    kernel: usize,
    allocator: usize,
    /// Whether only the replaced allocator defines `malloc`.
    is_only_allocator: bool,
    is_begun: bool,
}

/// Changes the slots of the objects that were loaded since the last call.
pub fn redirect() {
    let replaced: [usize; FUNCTIONS] = std::array::from_fn(replaced_function);
    let found = replaced.into_iter().filter(|&address| address != 0);
    // SAFETY: no preconditions.
    let kernel = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    let mut pass = Pass {
        functions: functions(),
        replaced,
        around: found.clone().min().unwrap_or_default()..=found.max().unwrap_or_default(),
        own: entry::malloc as *const () as usize,
        linker: linker(),
        kernel,
        allocator: replaced_function(0),
        is_only_allocator: true,
        is_begun: false,
    };
    // SAFETY: both functions have the type of the callback, and `pass` outlives the calls.
    unsafe {
        let data = (&raw mut pass).cast();
        if libc::dl_iterate_phdr(Some(look_for_allocators), data) == 0 {
            libc::dl_iterate_phdr(Some(change), data);
        }
    }
}

/// Finds out whether another object defines `malloc`. Returns 1 if nothing was loaded since the last pass.
unsafe extern "C" fn look_for_allocators(
    info: *mut libc::dl_phdr_info,
    size: usize,
    pass: *mut c_void,
) -> c_int {
    // SAFETY: the linker's description; the caller's pass; the linker's lock is held.
    unsafe {
        let (info, pass, known) = (&*info, &mut *pass.cast::<Pass>(), &mut *KNOWN.0.get());
        if !pass.is_begun {
            pass.is_begun = true;
            // Older C libraries do not count.
            let is_counted = size >= std::mem::offset_of!(libc::dl_phdr_info, dlpi_tls_modid);
            let counts = if is_counted {
                [info.dlpi_adds, info.dlpi_subs]
            } else {
                [0, known.counts[1] + 1]
            };
            if known.counts == counts && !known.left_out {
                return 1;
            }
            if known.counts[1] != counts[1] {
                // Another object may lie at the address of one that was unloaded.
                known.done = [0; REMEMBERED];
            }
            (known.counts, known.left_out) = (counts, false);
        }
        if let Some(object) = Object::of(info) {
            let is_expected = pass.is_foreign(&object) && !object.image.contains(&pass.allocator);
            if is_expected && object.defines(c"malloc") {
                pass.is_only_allocator = false;
            }
        }
    }
    0
}

unsafe extern "C" fn change(info: *mut libc::dl_phdr_info, _: usize, pass: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe {
        let (info, pass, known) = (&*info, &*pass.cast::<Pass>(), &mut *KNOWN.0.get());
        if let Some(object) = Object::of(info)
            && pass.is_foreign(&object)
            && !known.is_done(object.image.start)
        {
            if pass.change(&object) {
                known.remember(object.image.start);
            } else {
                known.left_out = true;
            }
        }
    }
    0
}

impl Known {
    /// The places in which an address may be.
    fn places(start: usize) -> impl Iterator<Item = usize> {
        (0..8).map(move |at| ((start >> 12) + at) % REMEMBERED)
    }

    fn is_done(&self, start: usize) -> bool {
        Self::places(start).any(|at| self.done[at] == start)
    }

    fn remember(&mut self, start: usize) {
        if let Some(free) = Self::places(start).find(|&at| self.done[at] == 0) {
            self.done[free] = start;
        }
    }
}

impl Pass {
    /// Whether the object is neither this library nor the dynamic linker nor the kernel's.
    fn is_foreign(&self, object: &Object) -> bool {
        let others = [self.own, self.linker, self.kernel];
        !others.iter().any(|address| object.image.contains(address))
    }

    /// Changes the slots of an object. Returns false if a slot was left out for now.
    ///
    /// # Safety
    /// The object is loaded.
    unsafe fn change(&self, object: &Object) -> bool {
        let mut is_complete = true;
        // SAFETY: by the contract; the slots are the object's own.
        unsafe {
            object.for_each_slot(|slot| {
                if let Some(at) = self.function_of(object, slot) {
                    is_complete &= store(object, slot.place, self.functions[at].1);
                }
            });
        }
        is_complete
    }

    /// The number of the replaced function that a call through the slot reaches, if it reaches one.
    unsafe fn function_of(&self, object: &Object, slot: &Slot) -> Option<usize> {
        // SAFETY: the slot is mapped, and the object's.
        unsafe {
            let value = slot.place.read_volatile();
            if self.around.contains(&value) {
                return self.replaced.iter().position(|&one| one == value);
            }
            let name = object
                .name_if_lazy(slot, value)
                .filter(|_| self.is_only_allocator)?;
            let at = self
                .functions
                .iter()
                .position(|&(known, _)| known == name)?;
            (self.replaced[at] != 0).then_some(at)
        }
    }
}

/// Stores an address in a slot. Returns false if the slot must be left for later.
///
/// # Safety
/// The slot is the object's, which stays loaded.
unsafe fn store(object: &Object, slot: *mut usize, address: usize) -> bool {
    // SAFETY: by the contract. Other threads may call through the slot meanwhile: they see either address.
    unsafe {
        let word = AtomicUsize::from_ptr(slot);
        if is_writable(slot) {
            if object.is_sealed(slot as usize) {
                return false;
            }
            word.store(address, Release);
            CHANGED.fetch_add(1, Relaxed);
            return true;
        }
        // Once the page is read-only, the dynamic linker does not write to it again.
        let page = (slot as usize & !(PAGE - 1)) as *mut c_void;
        if libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) == 0 {
            word.store(address, Release);
            libc::mprotect(page, PAGE, libc::PROT_READ);
            CHANGED.fetch_add(1, Relaxed);
        }
    }
    true
}

/// Whether the memory may be written to. The kernel tries: it adds 0 to the word (the operation of `FUTEX_WAKE_OP`), and
/// wakes nobody.
fn is_writable(word: *mut usize) -> bool {
    const ADD_ZERO: usize = libc::FUTEX_OP_ADD as usize & 0xf;
    let unused = 0_u32;
    // SAFETY: the kernel checks the second address. It does not change the word.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const unused,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0,
            word,
            ADD_ZERO << 28,
        )
    };
    result >= 0
}
