//! Which loaded library defines a function.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use crate::objects::{Object, gnu_hash};
use crate::replaced::FUNCTIONS;

/// An address in the dynamic linker.
pub fn linker() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_BASE) as usize }
}

/// The address of the dynamic linker's `struct r_debug`, which debuggers find in the same place; 0 if there is none.
pub fn linker_state() -> usize {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker's description, and the caller's value. The first object is the program.
        unsafe {
            if let Some(object) = Object::of(&*info) {
                *found.cast() = object.linker_state();
            }
        }
        1
    }
    let mut found = 0_usize;
    // SAFETY: `look` has the type of the callback, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// Where each of the names is defined.
struct Search<'a> {
    names: &'a [&'static CStr; FUNCTIONS],
    hashes: [u32; FUNCTIONS],
    own: usize,
    linker: usize,
    /// The file's name of the first object that defines the function; null if there is none. The program has an empty one.
    files: [*const c_char; FUNCTIONS],
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the linker's description, and the caller's search.
    unsafe {
        let (info, search) = (&*info, &mut *search.cast::<Search<'_>>());
        let Some(object) = Object::of(info).filter(Object::has_hashes) else {
            return 0;
        };
        let others = [search.own, search.linker];
        if others.iter().any(|address| object.image.contains(address)) {
            return 0;
        }
        let mut all_found = true;
        for (at, file) in search.files.iter_mut().enumerate() {
            if file.is_null() && object.defines(search.names[at], search.hashes[at]) {
                *file = if info.dlpi_name.is_null() {
                    c"".as_ptr()
                } else {
                    info.dlpi_name
                };
            }
            all_found &= !file.is_null();
        }
        c_int::from(all_found)
    }
}

/// The functions that the libraries of the program call, which have not this library before them; null for one that there
/// is not.
///
/// `dlsym` does not always tell: in a program that is not position-independent and takes a function's address, its
/// answer is the program's own code that calls the function through a slot.
pub fn of(names: &[&'static CStr; FUNCTIONS]) -> [*mut c_void; FUNCTIONS] {
    let mut search = Search {
        names,
        hashes: names.map(gnu_hash),
        own: linker as *const () as usize,
        linker: linker(),
        files: [null(); FUNCTIONS],
    };
    // SAFETY: `look` has the type of the callback, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    // Most functions are the C library's.
    let mut last = (null(), null_mut());
    std::array::from_fn(|at| {
        let file = search.files[at];
        if file.is_null() {
            return null_mut();
        }
        // SAFETY: the names are C strings. The object stays loaded, at the latest by this handle, which is not closed.
        unsafe {
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
                null_mut()
            } else {
                libc::dlsym(last.1, names[at].as_ptr())
            }
        }
    })
}

/// Whether the dynamic linker loaded this library with the program. Libraries that are loaded later come after it.
pub fn is_preloaded() -> bool {
    struct Order {
        own: usize,
        linker: usize,
        is_first: bool,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        order: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker's description, and the caller's value.
        unsafe {
            let order = &mut *order.cast::<Order>();
            let Some(object) = Object::of(&*info) else {
                return 0;
            };
            order.is_first = object.image.contains(&order.own);
            c_int::from(order.is_first || object.image.contains(&order.linker))
        }
    }
    let mut order = Order {
        own: linker as *const () as usize,
        linker: linker(),
        is_first: false,
    };
    // SAFETY: `look` has the type of the callback, and `order` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut order).cast()) };
    order.is_first
}
