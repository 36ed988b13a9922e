//! This library's functions by their second names, which no other library sees: see [`entry`](crate::entry).
//!
//! For their addresses only: they have other arguments.

macro_rules! names {
    ($($name:ident)*) => {
        unsafe extern "C" {
            $(
                #[link_name = concat!("nthbyte_native_", stringify!($name))]
                pub fn $name();
            )*
        }
    };
}

names! {
    malloc free calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc pvalloc mmap mmap64 mremap munmap
    first_resize
}
