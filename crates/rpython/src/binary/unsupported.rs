//! The replacement for a processor without a folder: nothing is found, so nothing is changed.

use std::ops::Range;

/// The collector cannot be hooked.
pub const CAN_HOOK: bool = false;
/// It is not sought.
pub const IN_PROGRAMS: bool = false;

/// No relocation is known.
pub const IMPORT_RELOCATIONS: [u32; 0] = [];

/// Does nothing on this processor.
pub const fn prefetch<T>(_: *const T) {}

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

    use std::ops::Range;

    /// None are known.
    #[must_use]
    pub fn calls_with(
        _: &[u8],
        _: usize,
        _: Range<usize>,
        _: impl FnMut(usize) -> bool,
    ) -> Vec<usize> {
        Vec::new()
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

    /// See the `x86_64` folder.
    pub const JUMP: usize = 0;
    /// See the `x86_64` folder.
    pub const REACH: usize = 0;
    /// See the `x86_64` folder.
    pub const FILLER: u8 = 0;

    /// The first instructions of a function are not known on this processor.
    pub enum First {}

    impl First {
        /// No function is hooked.
        ///
        /// # Errors
        /// Always.
        pub fn read(_: &[u8], _: usize, _: usize) -> Result<Self, String> {
            Err("code is not changed on this processor".to_owned())
        }

        /// See the `x86_64` folder.
        pub const fn length(&self) -> usize {
            match *self {}
        }

        /// See the `x86_64` folder.
        ///
        /// # Errors
        /// None.
        pub const fn moved_to(&self, _: usize) -> Result<Vec<u8>, String> {
            match *self {}
        }
    }

    /// No call is known.
    pub const fn called_slot(_: &[u8], _: usize, _: usize) -> Option<usize> {
        None
    }

    /// Does nothing.
    ///
    /// # Safety
    /// None is needed.
    pub const unsafe fn write_stub(_: usize, _: usize) {}

    /// There is none.
    pub const fn jump(_: usize, _: usize) -> Option<[u8; JUMP]> {
        None
    }

    /// There is none.
    pub const fn call(_: usize, _: usize) -> Option<[u8; JUMP]> {
        None
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
