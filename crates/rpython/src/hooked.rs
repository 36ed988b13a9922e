//! Functions of the collector that are hooked.

use std::ffi::c_void;

use nthbyte_host::{AtomicFn, FunctionPlace};

use crate::binary::{Detour, MappedLibrary, MemoryMap};

/// `collect_and_reserve(gc, size)`.
pub type Reserve = unsafe extern "C" fn(*mut c_void, usize) -> usize;
/// `_minor_collection(gc)`.
pub type Minor = unsafe extern "C" fn(*mut c_void);
/// `major_collection_step(gc, reserving_size)`.
pub type MajorStep = unsafe extern "C" fn(*mut c_void, usize);

/// A function that is hooked, what replaces it, and the place of the original, which its replacement calls.
pub struct HookedFunction {
    name: &'static str,
    hook: usize,
    original: &'static dyn FunctionPlace,
}

impl HookedFunction {
    /// A function by its name in RPython's source.
    pub fn new<F: Copy + Send + Sync + 'static>(
        name: &'static str,
        hook: F,
        original: &'static AtomicFn<F>,
    ) -> Self {
        Self {
            name,
            hook: AtomicFn::address(hook),
            original,
        }
    }

    /// `collect_and_reserve`.
    pub fn reserve(hook: Reserve, original: &'static AtomicFn<Reserve>) -> Self {
        Self::new("collect_and_reserve", hook, original)
    }

    /// `_minor_collection`.
    pub fn minor(hook: Minor, original: &'static AtomicFn<Minor>) -> Self {
        Self::new("_minor_collection", hook, original)
    }

    /// `major_collection_step`.
    pub fn major_step(hook: MajorStep, original: &'static AtomicFn<MajorStep>) -> Self {
        Self::new("major_collection_step", hook, original)
    }

    /// A detour for the function, which begins at `target`. It is not placed yet.
    ///
    /// # Errors
    /// If the code there cannot be moved.
    pub fn detour(
        &self,
        library: &MappedLibrary,
        map: &MemoryMap,
        target: usize,
    ) -> Result<Detour, String> {
        let (code, text) = (library.code(), library.text.start);
        let detour = Detour::prepare(code, text, target, self.hook, map)
            .map_err(|why| format!("{} cannot be hooked: {why}", self.name))?;
        // SAFETY: a function of this name has this type, and the detour's copy of its beginning is the function.
        unsafe { self.original.set_address(detour.original()) };
        Ok(detour)
    }
}
