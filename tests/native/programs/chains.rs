//! The same in Rust: a generic method and an inlined function.

use std::hint::black_box;

struct Store<T>(Vec<T>);

impl<T: Clone + Default> Store<T> {
    #[inline(always)]
    fn inlined(count: usize) -> Vec<T> {
        black_box(Vec::with_capacity(count))
    }

    #[inline(never)]
    fn filled(count: usize) -> Self {
        black_box(Self(Self::inlined(count)))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn rust_allocate(size: usize) -> usize {
    let store = Store::<u32>::filled(size / 4);
    let address = store.0.as_ptr() as usize;
    std::mem::forget(black_box(store));
    address
}
