//! Import slots of a loaded library that are changed for a while to call another function.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use nthbyte_host::memory::page_size;

use super::memory_map::MemoryMap;

/// An import slot, and the function that replaces the imported one. Dropping this value changes
/// nothing.
#[derive(Debug)]
pub struct Redirect {
    pub(super) slot: *mut usize,
    before: usize,
    /// The address of the replacement function.
    pub(super) function: usize,
    /// The protection of the page that the slot lies in.
    protection: c_int,
}

// SAFETY: a slot belongs to no thread; it is written atomically.
unsafe impl Send for Redirect {}

impl Redirect {
    /// Prepares the redirection of the slots to `function`. The slots are not changed yet.
    ///
    /// # Errors
    /// One clause, if a slot is not mapped.
    ///
    /// # Safety
    /// The slots are import slots of a loaded library, and `function` has the type of the imported
    /// function.
    pub unsafe fn prepare(
        slots: &[*mut usize],
        function: usize,
        map: &MemoryMap,
    ) -> Result<Vec<Self>, String> {
        let prepare = |&slot: &*mut usize| {
            Ok(Self {
                slot,
                // SAFETY: the slot is mapped and aligned (the caller's promise).
                before: unsafe { slot.read_volatile() },
                function,
                protection: map.protection(slot as usize..slot as usize + 8)?,
            })
        };
        slots.iter().map(prepare).collect()
    }

    /// Makes the slot refer to the replacement function (`on`), or to the original one again. This is one store. If
    /// the loader has made the page read-only (RELRO), two system calls are added: one before, and one that makes
    /// the page read-only again.
    ///
    /// Only one thread at a time calls this for redirects of one library. While a session is started or stopped it
    /// is the thread that does so, at other times the thread that holds the interpreter's lock.
    ///
    /// # Errors
    /// One clause, if the system does not allow the change.
    pub fn turn(&self, on: bool) -> Result<(), String> {
        let value = if on { self.function } else { self.before };
        let is_sealed = self.protection & libc::PROT_WRITE == 0;
        let refused = |error: io::Error| format!("the import table may not be changed ({error})");
        if is_sealed {
            self.protect(self.protection | libc::PROT_WRITE)
                .map_err(refused)?;
        }
        // SAFETY: the slot is mapped, aligned and writable. Other threads may call through it meanwhile: they see the
        // old address or the new one. A read-only page has no slots that the loader fills later (lazy binding), so no
        // other thread writes to it.
        unsafe { AtomicUsize::from_ptr(self.slot) }.store(value, Ordering::SeqCst);
        if is_sealed {
            self.protect(self.protection).map_err(refused)?;
        }
        Ok(())
    }

    fn protect(&self, protection: c_int) -> io::Result<()> {
        let page = page_size();
        let start = self.slot as usize & !(page - 1);
        // SAFETY: changes the protection of the slot's page, which stays readable. Slots are aligned, so a slot
        // never lies in two pages.
        match unsafe { libc::mprotect(start as *mut c_void, page, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// For tests: a redirect of a slot whose page is not checked.
    #[cfg(test)]
    pub(super) const fn untouched(slot: *mut usize, function: usize) -> Self {
        Self {
            slot,
            before: 0,
            function,
            protection: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_slot_is_changed_and_sealed_again() {
        let page = super::page_size();
        for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
            let fresh = super::super::code_pages::fresh(page).unwrap();
            let slot = (fresh + 16) as *mut usize;
            // SAFETY: a fresh writable page.
            unsafe { slot.write(7) };
            // SAFETY: the page is this test's own.
            unsafe { libc::mprotect(fresh as *mut c_void, page, protection) };
            let map = || {
                MemoryMap::read()
                    .unwrap()
                    .protection(fresh..fresh + 1)
                    .unwrap()
            };
            assert_eq!(map(), protection);
            // SAFETY: the slot is mapped and no code calls through it.
            let redirects =
                unsafe { Redirect::prepare(&[slot], 9, &MemoryMap::read().unwrap()) }.unwrap();
            for (on, value) in [(true, 9), (true, 9), (false, 7)] {
                redirects[0].turn(on).unwrap();
                // SAFETY: the slot is mapped.
                assert_eq!(unsafe { slot.read_volatile() }, value);
                assert_eq!(map(), protection);
            }
        }
    }
}
