//! Writes to import slots, which may lie in read-only pages.

use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, Release};

use nthbyte_host::errno;
use nthbyte_host::memory::page_size;

use crate::objects::Object;

/// No page begins at this address.
const NONE: usize = usize::MAX;

/// The pages of an object while its slots are changed. Pages are read-only again when it is dropped.
pub struct SlotPages<'a> {
    object: &'a Object,
    /// The read-only page that is writable for the moment.
    open: usize,
    /// The last page that was found to be writable.
    writable: usize,
    /// Whether the system had no memory to open a page.
    was_short: bool,
}

impl<'a> SlotPages<'a> {
    /// Returns `None` if the object is not to be written to now: the dynamic linker is still at work on it in another
    /// thread, or a tool has opened its pages, or the system does not tell.
    pub fn of(object: &'a Object) -> Option<Self> {
        let sealed = &object.relro;
        (sealed.is_empty() || is_writable(sealed.start) == Some(false)).then_some(Self {
            object,
            open: NONE,
            writable: NONE,
            was_short: false,
        })
    }

    /// Whether a slot was left as it was only because the system was short of memory.
    pub const fn was_short(&self) -> bool {
        self.was_short
    }

    /// Stores `new` in a slot if it still holds `old`. Returns whether it does so now.
    ///
    /// # Safety
    /// The slot is the object's, which stays loaded, and no other thread has [`SlotPages`].
    pub unsafe fn replace(&mut self, slot: *mut usize, old: usize, new: usize) -> bool {
        let page = slot as usize & !(page_size() - 1);
        let is_open = page == self.open || page == self.writable;
        if !is_open && !self.open(page, slot as usize) {
            return false;
        }
        // SAFETY: by the contract. Other threads may call through the slot meanwhile: they see either address. The
        // program may store another one, if the slot is a variable of its own.
        unsafe {
            AtomicUsize::from_ptr(slot)
                .compare_exchange(old, new, Release, Relaxed)
                .is_ok()
        }
    }

    fn open(&mut self, page: usize, slot: usize) -> bool {
        if !self.object.relro.contains(&slot) {
            // Code with relocations in it is read-only too, and stays as it is.
            let found = is_writable(slot) == Some(true);
            if found {
                self.writable = page;
            }
            return found;
        }
        self.close();
        // SAFETY: a page of the object, with relocated data. The dynamic linker has made it read-only.
        let opened = unsafe {
            libc::mprotect(
                page as *mut c_void,
                page_size(),
                libc::PROT_READ | libc::PROT_WRITE,
            ) == 0
        };
        if opened {
            self.open = page;
        } else {
            self.was_short |= errno() == libc::ENOMEM;
        }
        opened
    }

    fn close(&mut self) {
        if self.open != NONE {
            // SAFETY: as in `open`.
            unsafe { libc::mprotect(self.open as *mut c_void, page_size(), libc::PROT_READ) };
            self.open = NONE;
        }
    }
}

impl Drop for SlotPages<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether a word may be written to; `None` if the system does not tell. The kernel tries: it adds 0 to the word
/// (the operation of `FUTEX_WAKE_OP`), and wakes nobody.
fn is_writable(word: usize) -> Option<bool> {
    const ADD_ZERO: usize = libc::FUTEX_OP_ADD as usize & 0xf;
    let unused = 0_u32;
    // SAFETY: the kernel checks the second address. It does not change the word.
    unsafe {
        let result = libc::syscall(
            libc::SYS_futex,
            &raw const unused,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0,
            word,
            ADD_ZERO << 28,
        );
        match result {
            0.. => Some(true),
            _ if errno() == libc::EFAULT => Some(false),
            _ => None,
        }
    }
}
