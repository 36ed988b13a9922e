//! The replacement for a processor without a folder: nothing is found, so nothing is changed.

/// The collector cannot be hooked.
pub const CAN_HOOK: bool = false;
/// It is not sought.
pub const IN_PROGRAMS: bool = false;

/// No relocation is known.
pub const IMPORT_RELOCATIONS: [u32; 0] = [];

pub mod search {
    //! No collector is found.

    use std::ops::Range;

    use crate::binary::incminimark::Collector;

    /// There is no search for this processor.
    ///
    /// # Errors
    /// Always.
    pub fn search(_: &[u8], _: usize, _: &Range<usize>) -> Result<Collector, String> {
        Err("there is no search for this processor".to_owned())
    }
}

pub mod debug_sections {
    //! Nothing is read from code on this processor.

    use crate::binary::function_table::FunctionTable;
    use crate::binary::incminimark::Collector;

    /// See the `x86_64` folder.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DebugSections {
        /// See the `x86_64` folder.
        pub start: usize,
        /// See the `x86_64` folder.
        pub stop: usize,
    }

    /// They are not known.
    #[must_use]
    pub const fn debug_sections(
        _: &[u8],
        _: usize,
        _: &Collector,
        _: &FunctionTable,
    ) -> Option<DebugSections> {
        None
    }
}

pub mod few_sites {
    //! No collector is found.

    pub use super::search::search;
}

pub mod nursery_setters {
    //! Nothing is read from code on this processor.

    use crate::binary::function_table::FunctionTable;
    use crate::binary::incminimark::Collector;

    /// None are known.
    #[must_use]
    pub const fn nursery_setters(
        _: &[u8],
        _: usize,
        _: &Collector,
        _: &FunctionTable,
    ) -> Vec<usize> {
        Vec::new()
    }
}

pub mod collector_memory {
    //! No call is known.

    /// See the `x86_64` folder.
    pub const WORDS: usize = 0;

    /// See the `x86_64` folder.
    pub fn is_collectors(
        _: &[u8],
        _: usize,
        _: u64,
        _: usize,
        _: impl FnOnce(&mut [usize; WORDS]),
    ) -> bool {
        false
    }
}

pub mod patching {
    //! No code is changed.

    use crate::binary::imports::Redirect;
    use crate::binary::memory_map::MemoryMap;

    /// A detour cannot exist on this processor.
    #[derive(Clone, Copy, Debug)]
    pub enum Detour {}

    impl Detour {
        /// There is no detour for this processor.
        ///
        /// # Errors
        /// Always.
        pub fn prepare(
            _: &[u8],
            _: usize,
            _: usize,
            _: usize,
            _: &MemoryMap,
        ) -> Result<Self, String> {
            Err("code is not changed on this processor".to_owned())
        }

        /// See the `x86_64` folder.
        #[must_use]
        pub const fn original(&self) -> usize {
            match *self {}
        }

        /// See the `x86_64` folder.
        ///
        /// # Safety
        /// There is no value to call it with.
        ///
        /// # Errors
        /// None.
        pub unsafe fn place(&self) -> Result<(), String> {
            match *self {}
        }

        /// See the `x86_64` folder.
        ///
        /// # Safety
        /// There is no value to call it with.
        ///
        /// # Errors
        /// None.
        pub unsafe fn remove(&self) -> Result<(), String> {
            match *self {}
        }
    }

    /// A call site cannot exist on this processor.
    #[derive(Clone, Copy, Debug)]
    pub enum CallSite {}

    impl CallSite {
        /// There is no call site for this processor.
        #[must_use]
        pub fn prepare(
            _: &[u8],
            _: usize,
            _: usize,
            _: &[Redirect],
            _: &MemoryMap,
        ) -> Option<Self> {
            None
        }

        /// See the `x86_64` folder.
        ///
        /// # Safety
        /// There is no value to call it with.
        ///
        /// # Errors
        /// None.
        pub unsafe fn place(&self) -> Result<(), String> {
            match *self {}
        }

        /// See the `x86_64` folder.
        ///
        /// # Safety
        /// There is no value to call it with.
        ///
        /// # Errors
        /// None.
        pub unsafe fn remove(&self) -> Result<(), String> {
            match *self {}
        }
    }
}

pub mod entry {
    //! Imports are not redirected: these functions are never called.

    use std::ffi::c_void;

    /// Called instead of `malloc(size)`; the second argument is the return address of the call.
    pub type MallocHook = unsafe extern "C" fn(usize, usize) -> *mut c_void;
    /// Called instead of `calloc(count, size)`; the third argument is the return address of the
    /// call.
    pub type CallocHook = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;

    /// `malloc` itself.
    pub fn malloc(_: MallocHook) -> usize {
        libc::malloc as *const () as usize
    }

    /// `calloc` itself.
    pub fn calloc(_: CallocHook) -> usize {
        libc::calloc as *const () as usize
    }
}

pub mod ignored_signals {
    //! Nothing is read from code on this processor.

    use std::ops::Range;

    /// The count is not known.
    #[must_use]
    pub const fn count_of_ignoring(_: &[u8], _: usize, _: &Range<usize>) -> Option<usize> {
        None
    }
}

pub mod cache {
    //! No prefetch on this processor.

    /// Does nothing.
    pub const fn prefetch<T>(_: *const T) {}
}

pub mod thread_pointer {
    //! The identity of the calling thread.

    use std::ops::Range;

    /// A number that identifies the calling thread.
    #[must_use]
    pub fn thread_pointer() -> usize {
        // SAFETY: no arguments.
        unsafe { libc::pthread_self() as usize }
    }

    /// The place of thread-local memory is not known on this processor.
    #[must_use]
    pub fn static_thread_local(_: usize, _: usize) -> Option<Range<usize>> {
        None
    }
}
