//! The functions that this library replaces, by number and by name.

use std::ffi::CStr;

/// Defines [`Function`] and [`NAMES`] of one list.
macro_rules! functions {
    ($($function:ident = $name:literal,)*) => {
        /// The functions that are replaced. [`Function::Dlsym`] and [`Function::Dlclose`] have handles of libraries; the
        /// others allocate, or free. Those from [`OPERATORS`] on are C++'s operators, and functions that free and that
        /// the C library does not have.
        #[derive(Clone, Copy, Debug)]
        #[repr(usize)]
        pub enum Function {
            $($function,)*
        }

        impl Function {
            /// All, by number.
            pub const ALL: [Self; FUNCTIONS] = [$(Self::$function,)*];
        }

        /// The number of them.
        pub const FUNCTIONS: usize = [$(Function::$function,)*].len();

        /// Their symbols, by number.
        pub const NAMES: [&CStr; FUNCTIONS] = [$($name,)*];
    };
}

functions! {
    Malloc = c"malloc",
    Calloc = c"calloc",
    Realloc = c"realloc",
    Free = c"free",
    Reallocarray = c"reallocarray",
    PosixMemalign = c"posix_memalign",
    AlignedAlloc = c"aligned_alloc",
    Memalign = c"memalign",
    Valloc = c"valloc",
    Pvalloc = c"pvalloc",
    Mmap = c"mmap",
    Mmap64 = c"mmap64",
    Munmap = c"munmap",
    Mremap = c"mremap",
    Dlsym = c"dlsym",
    Dlclose = c"dlclose",
    New = c"_Znwm",
    NewArray = c"_Znam",
    NewNothrow = c"_ZnwmRKSt9nothrow_t",
    NewArrayNothrow = c"_ZnamRKSt9nothrow_t",
    NewAligned = c"_ZnwmSt11align_val_t",
    NewArrayAligned = c"_ZnamSt11align_val_t",
    NewAlignedNothrow = c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    NewArrayAlignedNothrow = c"_ZnamSt11align_val_tRKSt9nothrow_t",
    Delete = c"_ZdlPv",
    DeleteArray = c"_ZdaPv",
    DeleteNothrow = c"_ZdlPvRKSt9nothrow_t",
    DeleteArrayNothrow = c"_ZdaPvRKSt9nothrow_t",
    DeleteSized = c"_ZdlPvm",
    DeleteArraySized = c"_ZdaPvm",
    DeleteAligned = c"_ZdlPvSt11align_val_t",
    DeleteArrayAligned = c"_ZdaPvSt11align_val_t",
    DeleteSizedAligned = c"_ZdlPvmSt11align_val_t",
    DeleteArraySizedAligned = c"_ZdaPvmSt11align_val_t",
    DeleteAlignedNothrow = c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    DeleteArrayAlignedNothrow = c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
    Dallocx = c"dallocx",
    Sdallocx = c"sdallocx",
    FreeSized = c"free_sized",
    FreeAlignedSized = c"free_aligned_sized",
    TcFreeSized = c"tc_free_sized",
}

/// The number of the first function that only another allocator than the C library's may have.
pub const OPERATORS: usize = Function::New as usize;

#[cfg(not(test))]
pub mod own {
    //! This library's functions by their second names, which no other library sees: see [`entry`](crate::entry). For their
    //! addresses only: they have other arguments.

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
}
