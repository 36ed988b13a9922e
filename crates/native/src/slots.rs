//! Makes the calls of a running process reach this library, which was not preloaded: the agent has loaded it.
//!
//! Each program and library keeps the addresses of the functions of other libraries in words, its *import slots*. The
//! slots that hold the address of a replaced function get the address of this library's function. In a library that is
//! loaded later, they are changed when the program looks up the first function in it: `dlsym` is replaced in the same
//! way. The libraries that it needs are changed then, too.
//!
//! # What makes this sound
//!
//! - Blocks are the replaced allocator's own. A call that does not come here, because its slot is not known, is not
//!   sampled, and that is all.
//! - A slot is changed only if it holds the address of the replaced function, in one step with the comparison. So the
//!   slots of another tool or of a library with an allocator of its own, and variables that the program has given
//!   another value, stay as they are. A slot that the dynamic linker fills at the first call is changed only if there
//!   is one function of the name that it can find.
//! - Libraries in another namespace (`dlmopen`) stay as they are: they have a C library of their own, whose blocks the
//!   replaced functions do not know.
//! - No library is unloaded meanwhile. At the start, the slots are changed inside `dl_iterate_phdr`, which prevents
//!   that. Later, the caller of `dlsym` has the library's handle, and this module handles of those that it needs.
//! - No thread waits here for a lock that it would not wait for without this library. The lock of `dl_iterate_phdr`
//!   would be one: a thread may hold it while it waits for Python's lock. It is taken at the start of the first session
//!   only, right after this library was loaded, for which the dynamic linker takes the same lock.
//! - The dynamic linker makes import slots read-only once they are filled. Objects in which they are not yet are left
//!   out: another thread is loading them.
//! - Slots are never restored: a thread may be in any of the functions.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_void};
use std::ops::{ControlFlow, RangeInclusive};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use nthbyte_host::keep_errno;

use crate::definitions::{self, linker};
use crate::functions::{FUNCTIONS, Function, NAMES, OPERATORS, own};
use crate::handles::{self, UNLOADED};
use crate::objects::{self, ImportSlot, Object, gnu_hash, table_of_handle};
use crate::replaced::FOUND;
use crate::slot_pages::SlotPages;
use crate::turn::Turn;
use crate::{bundled, operators, processor, replaced, turn};

/// The address of this library's function.
fn own_address(function: Function) -> usize {
    let address = match function {
        Function::Malloc => own::malloc as *const (),
        Function::Calloc => own::calloc as *const (),
        Function::Realloc => own::realloc as *const (),
        Function::Free => own::free as *const (),
        Function::Reallocarray => own::reallocarray as *const (),
        Function::PosixMemalign => own::posix_memalign as *const (),
        Function::AlignedAlloc => own::aligned_alloc as *const (),
        Function::Memalign => own::memalign as *const (),
        Function::Valloc => own::valloc as *const (),
        Function::Pvalloc => own::pvalloc as *const (),
        Function::Mmap => own::mmap as *const (),
        Function::Mmap64 => own::mmap64 as *const (),
        Function::Munmap => own::munmap as *const (),
        Function::Mremap => own::mremap as *const (),
        Function::Dlsym => handles::dlsym as *const (),
        Function::Dlclose => handles::dlclose as *const (),
        Function::New => operators::new as *const (),
        Function::NewArray => operators::new_array as *const (),
        Function::NewNothrow => operators::new_nothrow as *const (),
        Function::NewArrayNothrow => operators::new_array_nothrow as *const (),
        Function::NewAligned => operators::new_aligned as *const (),
        Function::NewArrayAligned => operators::new_array_aligned as *const (),
        Function::NewAlignedNothrow => operators::new_aligned_nothrow as *const (),
        Function::NewArrayAlignedNothrow => operators::new_array_aligned_nothrow as *const (),
        Function::Delete => operators::delete as *const (),
        Function::DeleteArray => operators::delete_array as *const (),
        Function::DeleteNothrow => operators::delete_nothrow as *const (),
        Function::DeleteArrayNothrow => operators::delete_array_nothrow as *const (),
        Function::DeleteSized => operators::delete_sized as *const (),
        Function::DeleteArraySized => operators::delete_array_sized as *const (),
        Function::DeleteAligned => operators::delete_aligned as *const (),
        Function::DeleteArrayAligned => operators::delete_array_aligned as *const (),
        Function::DeleteSizedAligned => operators::delete_sized_aligned as *const (),
        Function::DeleteArraySizedAligned => operators::delete_array_sized_aligned as *const (),
        Function::DeleteAlignedNothrow => operators::delete_aligned_nothrow as *const (),
        Function::DeleteArrayAlignedNothrow => operators::delete_array_aligned_nothrow as *const (),
        Function::Dallocx => operators::dallocx as *const (),
        Function::Sdallocx => operators::sdallocx as *const (),
        Function::FreeSized => operators::free_sized as *const (),
        Function::FreeAlignedSized => operators::free_aligned_sized as *const (),
        Function::TcFreeSized => operators::tc_free_sized as *const (),
    };
    address as usize
}

/// The number of objects that are remembered as done. The others are looked at each time.
const REMEMBERED: usize = 1024;
/// The largest number of libraries that are followed from one handle.
const MOST_FOLLOWED: usize = 128;

/// The loaded libraries, as of the last look.
struct Known {
    /// The [`Object::dynamic`] of each object that is done; 0 in an unused place.
    done: [usize; REMEMBERED],
    /// The functions, by number, that another object than the replaced one defines too.
    defined_again: [bool; FUNCTIONS],
}

struct TurnCell(UnsafeCell<Known>);

// SAFETY: only the thread that has the turn uses it.
unsafe impl Sync for TurnCell {}

static KNOWN: TurnCell = TurnCell(UnsafeCell::new(Known {
    done: [0; REMEMBERED],
    defined_again: [false; FUNCTIONS],
}));

/// Whether the slots of the libraries that were loaded then are changed.
static ATTACHED: AtomicBool = AtomicBool::new(false);
/// The number of slots that were changed in this process.
static CHANGED: AtomicUsize = AtomicUsize::new(0);

/// Makes the calls of all loaded libraries reach this one. Returns whether any of them do; they do if this library was
/// preloaded. None do where a block's address is not good for the word before it.
pub fn attach() -> bool {
    if replaced::functions().is_none() || processor::compares_tags() {
        return false;
    }
    if replaced::is_preloaded() {
        return true;
    }
    attach_once(Pass::new());
    CHANGED.load(Acquire) > 0
}

/// Makes the calls of C++'s operators reach this library, which was preloaded; call it before the program's start.
pub fn attach_operators() {
    attach_once(Pass {
        is_at_start: true,
        ..Pass::new()
    });
}

fn attach_once(pass: Pass) {
    if !ATTACHED.swap(true, Relaxed) {
        turn::keep_at_forks(definitions::linker_state());
        let mut knows_all = true;
        objects::for_each(|object, _| {
            // SAFETY: the object stays loaded during the call.
            knows_all &= unsafe { pass.look_for_definitions(object) };
            ControlFlow::Continue(())
        });
        objects::for_each(|object, _| {
            // SAFETY: as above.
            unsafe { pass.change(object, knows_all) };
            ControlFlow::Continue(())
        });
        // SAFETY: no preconditions. A failed search is no error of the program's.
        unsafe { libc::dlerror() };
    }
}

/// This library's function in place of a replaced one that allocates, which was found by this name; the same address for
/// all others.
pub fn own_function(address: usize, name: &CStr) -> usize {
    if address == 0 {
        return address;
    }
    let replaced = std::array::from_fn(|at| FOUND[at].load(Relaxed) as usize);
    match number_of(&replaced, address, || name).map(|at| Function::ALL[at]) {
        None | Some(Function::Dlsym | Function::Dlclose) => address,
        Some(function) => own_address(function),
    }
}

/// The number of the replaced function at this address, which is not null. `free` and some forms of `operator delete` are
/// one function in tcmalloc and mimalloc, but not here: then it is the one of this name, or the first one if none has it.
fn number_of<'a>(
    replaced: &[usize; FUNCTIONS],
    address: usize,
    name: impl FnOnce() -> &'a CStr,
) -> Option<usize> {
    let first = replaced.iter().position(|&one| one == address)?;
    let name = name();
    let is_named = |&at: &usize| replaced[at] == address && NAMES[at] == name;
    Some((first..FUNCTIONS).find(is_named).unwrap_or(first))
}

/// Changes the slots of a library and of those that it needs, unless that was done. Costs about a hundred instructions
/// if it was.
///
/// # Safety
/// A handle of `dlopen`, which is not closed during the call.
pub unsafe fn follow(handle: *mut c_void) {
    // SAFETY: by the contract.
    unsafe {
        let table = table_of_handle(handle);
        if table != 0 && Known::is_done(table) == Some(false) {
            keep_errno(|| {
                if objects::is_apart(handle) {
                    Known::with(|known| known.remember(table));
                } else {
                    follow_new(handle, table);
                }
            });
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn follow_new(handle: *mut c_void, table: usize) {
    // The handles of new libraries, and their tables; each library before those that it needs.
    let mut handles = [(null_mut(), 0); MOST_FOLLOWED];
    handles[0] = (handle, table);
    let (mut count, mut at) = (1, 0);
    // Whether all that they need was found; and whether another thread has the turn for too long, so that all is done
    // again at the next look-up.
    let (mut knows_all, mut gives_up) = (true, false);
    let (pass, is_linker_stopped) = (Pass::new(), turn::is_linker_stopped());
    // SAFETY: the handles are open until the end of the function, the first one by the contract.
    unsafe {
        while at < count && !gives_up {
            let object = Object::of_handle(handles[at].0);
            knows_all &= object.is_some() && !is_linker_stopped;
            if let Some(object) = &object {
                gives_up |= !pass.look_for_definitions(object);
                if is_linker_stopped {
                    at += 1;
                    continue;
                }
                object.for_each_needed(|name| {
                    // Only a library that is loaded: it takes the lock that `dlsym` takes too.
                    let needed = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                    if needed.is_null() {
                        knows_all = false;
                        return;
                    }
                    let table = table_of_handle(needed);
                    let is_listed = handles[..count].iter().any(|one| one.1 == table);
                    let is_done = Known::is_done(table);
                    if !is_listed && is_done == Some(false) && count < MOST_FOLLOWED {
                        handles[count] = (needed, table);
                        count += 1;
                        return;
                    }
                    gives_up |= is_done.is_none();
                    knows_all &= is_listed || is_done == Some(true);
                    libc::dlclose(needed);
                });
            }
            at += 1;
        }
        for &(handle, _) in handles[..count].iter().rev() {
            if !gives_up && let Some(object) = Object::of_handle(handle) {
                pass.change(&object, knows_all);
            }
        }
        for &(needed, _) in &handles[1..count] {
            libc::dlclose(needed);
        }
    }
}

impl Known {
    /// Calls `work`, unless another thread has the turn for too long.
    fn with<T>(work: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let _turn = Turn::take()?;
        // SAFETY: this thread has the turn, and `work` comes from here: none of it calls this function.
        let known = unsafe { &mut *KNOWN.0.get() };
        if UNLOADED.swap(false, Relaxed) {
            known.done = [0; REMEMBERED];
        }
        Some(work(known))
    }

    /// The places in which a table may be.
    fn places(table: usize) -> impl Iterator<Item = usize> {
        (0..8).map(move |at| ((table >> 12) + at) % REMEMBERED)
    }

    /// Whether the object with this table is done. An object without a table is. `None` if another thread has the turn for
    /// too long.
    fn is_done(table: usize) -> Option<bool> {
        Self::with(|known| table == 0 || Self::places(table).any(|at| known.done[at] == table))
    }

    fn remember(&mut self, table: usize) {
        let mut places = Self::places(table);
        if let Some(free) = places.find(|&at| [0, table].contains(&self.done[at])) {
            self.done[free] = table;
        }
    }
}

/// Changes objects.
struct Pass {
    own: [usize; FUNCTIONS],
    hashes: [u32; FUNCTIONS],
    replaced: [usize; FUNCTIONS],
    /// All replaced functions lie in here, and few others.
    around: RangeInclusive<usize>,
    /// The number of functions that are looked for by their names.
    named: usize,
    /// Whether the program has not begun. All objects were loaded with it then, so they all find the first function of
    /// a name, but those that are linked to find their own ([`Object::is_symbolic`]).
    is_at_start: bool,
    /// Addresses in this library, the dynamic linker and the kernel's library, which stay as they are.
    others: [usize; 3],
}

impl Pass {
    fn new() -> Self {
        let replaced: [usize; FUNCTIONS] =
            std::array::from_fn(|at| FOUND[at].load(Relaxed) as usize);
        let found = replaced.into_iter().filter(|&address| address != 0);
        // SAFETY: no preconditions.
        let kernel = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        Self {
            hashes: NAMES.map(gnu_hash),
            own: Function::ALL.map(own_address),
            replaced,
            named: if replaced::has_operators() {
                FUNCTIONS
            } else {
                OPERATORS
            },
            is_at_start: false,
            around: found.clone().min().unwrap_or_default()..=found.max().unwrap_or_default(),
            others: [own::malloc as *const () as usize, linker(), kernel],
        }
    }

    fn is_foreign(&self, object: &Object) -> bool {
        let mut others = self.others.iter();
        !others.any(|address| object.image.contains(address))
    }

    /// Finds out whether the object defines functions of the replaced names. Returns false if another thread has the turn
    /// for too long.
    ///
    /// # Safety
    /// The object is loaded.
    unsafe fn look_for_definitions(&self, object: &Object) -> bool {
        if !self.is_foreign(object) {
            return true;
        }
        Known::with(|known| {
            for (at, name) in NAMES.into_iter().enumerate().take(self.named) {
                if !object.image.contains(&self.replaced[at]) {
                    // SAFETY: by the contract.
                    known.defined_again[at] |= unsafe { object.defines(name, self.hashes[at]) };
                }
            }
        })
        .is_some()
    }

    /// Changes the slots of an object. `knows_all`: [`Pass::look_for_definitions`] was called for it, and for all libraries in
    /// which it may find functions.
    ///
    /// # Safety
    /// The object is loaded.
    unsafe fn change(&self, object: &Object, knows_all: bool) {
        if !self.is_foreign(object) {
            return;
        }
        Known::with(|known| {
            let Some(mut pages) = SlotPages::of(object) else {
                return;
            };
            // SAFETY: by the contract; the slots are the object's own, and this thread has the turn.
            unsafe {
                let has_bundled = bundled::is_library(object);
                object.for_each_slot(|slot| {
                    let value = AtomicUsize::from_ptr(slot.place).load(Relaxed);
                    let reached = self.function_of(object, slot, value, |at| {
                        knows_all
                            && (!known.defined_again[at] || self.is_first_at_start(object, at))
                    });
                    let own = reached.map(|at| self.own[at]);
                    let own =
                        own.or_else(|| has_bundled.then(|| bundled::replacement(value)).flatten());
                    if let Some(own) = own
                        && pages.replace(slot.place, value, own)
                    {
                        CHANGED.fetch_add(1, Relaxed);
                    }
                });
            }
            if !pages.was_short() {
                known.remember(object.dynamic.start);
            }
        });
    }

    /// Whether the object finds the replaced operator, though others define one of the same name: as all objects do at the
    /// start, it is the first one.
    fn is_first_at_start(&self, object: &Object, at: usize) -> bool {
        // SAFETY: the object is loaded.
        self.is_at_start && at >= OPERATORS && !unsafe { object.is_symbolic() }
    }

    /// The number of the replaced function that a call through the slot reaches, if it reaches one. `is_only` tells whether
    /// there is no other function of the name.
    unsafe fn function_of(
        &self,
        object: &Object,
        slot: &ImportSlot,
        value: usize,
        is_only: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        // Other libraries may lie between the libraries of the functions.
        if self.around.contains(&value)
            // SAFETY: the slot is the object's.
            && let Some(at) = number_of(&self.replaced, value, || unsafe { object.name(slot) })
        {
            return Some(at);
        }
        // SAFETY: the slot is the object's.
        let name = unsafe { object.name_if_lazy(slot, value, self.is_at_start) }?;
        let at = NAMES[..self.named]
            .iter()
            .position(|&known| known == name)?;
        (self.replaced[at] != 0 && is_only(at)).then_some(at)
    }
}
