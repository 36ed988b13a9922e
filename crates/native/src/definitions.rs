//! Which loaded library defines a function.

use std::ffi::{CStr, c_char, c_void};
use std::ops::{ControlFlow, Range};
use std::ptr::{null, null_mut};

use crate::objects::{for_each, gnu_hash};

/// An address in the dynamic linker.
pub fn linker() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_BASE) as usize }
}

/// An address in this library.
fn own() -> usize {
    linker as *const () as usize
}

/// The address of the dynamic linker's `struct r_debug`, which debuggers find in the same place; 0 if there is none.
pub fn linker_state() -> usize {
    let mut found = 0;
    // The first object is the program.
    for_each(|object, _| {
        // SAFETY: it stays loaded during the call.
        found = unsafe { object.linker_state() };
        ControlFlow::Break(())
    });
    found
}

/// An address in the C library: of a function that no other library has.
pub fn c_library() -> usize {
    libc::gnu_get_libc_version as *const () as usize
}

/// An address in the program's executable.
pub fn program() -> usize {
    // SAFETY: no preconditions. The kernel gives the place of the program's headers, which lie in its first segment.
    unsafe { libc::getauxval(libc::AT_PHDR) as usize }
}

/// The first object that defines a function.
struct Definition {
    /// Its file's name. The program has an empty one.
    file: *const c_char,
    image: Range<usize>,
    /// The function in its table of symbols; null if it is not known.
    function: *mut c_void,
}

/// The functions that the libraries of the program call, which have not this library before them; null for one that there
/// is not.
///
/// `dlsym` does not always tell: in a program that is not position-independent and takes a function's address, its
/// answer is the program's own code that calls the function through a slot. And it does not see functions of an old version
/// only, which older programs call (`libc_malloc_debug.so`'s): it finds the C library's instead.
pub fn of<const COUNT: usize>(names: &[&'static CStr; COUNT]) -> [*mut c_void; COUNT] {
    let hashes = names.map(gnu_hash);
    let others = [own(), linker()];
    let mut definitions = [const { None::<Definition> }; COUNT];
    for_each(|object, info| {
        let is_other = others.iter().any(|address| object.image.contains(address));
        if is_other || !object.has_hashes() {
            return ControlFlow::Continue(());
        }
        for (at, definition) in definitions.iter_mut().enumerate() {
            let (name, hash) = (names[at], hashes[at]);
            if definition.is_some() {
                continue;
            }
            // SAFETY: the object stays loaded during the call.
            if let Some(function) = unsafe { object.definition(name, hash) } {
                *definition = Some(Definition {
                    file: if info.dlpi_name.is_null() {
                        c"".as_ptr()
                    } else {
                        info.dlpi_name
                    },
                    image: object.image.clone(),
                    function,
                });
            }
        }
        if definitions.iter().any(Option::is_none) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    // Most functions are the C library's.
    let mut last = (null(), null_mut());
    std::array::from_fn(|at| {
        let Some(Definition {
            file,
            image,
            function,
        }) = definitions[at].take()
        else {
            return null_mut();
        };
        // SAFETY: the names are C strings. The object stays loaded, at the latest by this handle, which is not closed.
        let found = unsafe {
            if file != last.0 {
                let handle = if *file == 0 {
                    libc::RTLD_DEFAULT
                } else {
                    libc::dlopen(file, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
                };
                last = (file, handle);
            }
            let is_gone = *file != 0 && last.1.is_null();
            if is_gone {
                return null_mut();
            }
            libc::dlsym(last.1, names[at].as_ptr())
        };
        if function.is_null() || image.contains(&(found as usize)) {
            found
        } else {
            function
        }
    })
}

/// Whether the dynamic linker loaded this library with the program. Libraries that are loaded later come after it.
pub fn is_preloaded() -> bool {
    let (own, linker) = (own(), linker());
    let mut is_first = false;
    for_each(|object, _| {
        is_first = object.image.contains(&own);
        if is_first || object.image.contains(&linker) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    is_first
}
