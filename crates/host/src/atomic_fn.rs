//! A function that C code, or code below its owner, calls: the one place where an address becomes a function again.

use std::marker::PhantomData;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// A place for a function pointer of the type `F`, which one thread sets and others call: in signal handlers too.
pub struct AtomicFn<F> {
    address: AtomicPtr<()>,
    function: PhantomData<F>,
}

impl<F: Copy + Send + Sync + 'static> AtomicFn<F> {
    /// A function pointer is a word that is never zero.
    const IS_A_FUNCTION: () = assert!(
        size_of::<Option<F>>() == size_of::<*mut ()>() && align_of::<F>() == align_of::<*mut ()>()
    );

    /// Without a function.
    #[must_use]
    pub const fn none() -> Self {
        const { Self::IS_A_FUNCTION };
        Self {
            address: AtomicPtr::new(std::ptr::null_mut()),
            function: PhantomData,
        }
    }

    /// The address of a function.
    pub fn address(function: F) -> usize {
        const { Self::IS_A_FUNCTION };
        // SAFETY: `F` is a word: `IS_A_FUNCTION`.
        unsafe { std::mem::transmute_copy::<F, *mut ()>(&function) }.addr()
    }

    /// Sets the function. What this thread has written before is visible to whoever gets it.
    pub fn set(&self, function: F) {
        // SAFETY: it is the address of such a function.
        unsafe { self.set_address(Self::address(function)) };
    }

    /// The function, if one was set.
    #[inline]
    pub fn get(&self) -> Option<F> {
        let address = self.address.load(Acquire);
        // SAFETY: an `F` was stored, or null, which is `None`: `IS_A_FUNCTION`.
        unsafe { std::mem::transmute_copy::<*mut (), Option<F>>(&address) }
    }

    /// The function. It was set before anybody could ask: otherwise the process ends.
    #[inline]
    pub fn get_original(&self) -> F {
        self.get().unwrap_or_else(|| std::process::abort())
    }
}

/// A place for a function of some type, whose address alone is known.
pub trait FunctionPlace: Sync {
    /// Sets the function.
    ///
    /// # Safety
    /// A function of the type of the place is at this address, for as long as somebody may call it.
    unsafe fn set_address(&self, address: usize);
}

impl<F: Copy + Send + Sync + 'static> FunctionPlace for AtomicFn<F> {
    unsafe fn set_address(&self, address: usize) {
        let address = std::ptr::with_exposed_provenance_mut(address);
        self.address.store(address, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_comes_back_as_it_was_set() {
        static PLACE: AtomicFn<extern "C" fn(u32) -> u32> = AtomicFn::none();
        extern "C" fn next(of: u32) -> u32 {
            of + 1
        }
        assert!(PLACE.get().is_none());
        PLACE.set(next);
        assert_eq!(PLACE.get().map(|function| function(6)), Some(7));
        static OTHER: AtomicFn<extern "C" fn(u32) -> u32> = AtomicFn::none();
        // SAFETY: a function of this type.
        unsafe { OTHER.set_address(AtomicFn::address(next as extern "C" fn(u32) -> u32)) };
        assert_eq!(OTHER.get_original()(7), 8);
    }
}
