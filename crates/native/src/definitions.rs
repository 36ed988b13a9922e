//! Which loaded library defines a function.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::objects::{Object, gnu_hash};

/// An address in the dynamic linker.
pub fn linker() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_BASE) as usize }
}

/// What to search for in all objects.
struct Search<'a> {
    name: &'a CStr,
    hash: u32,
    own: usize,
    linker: usize,
    /// The file's name of the first object that defines the function; null if there is none. The program has none, or
    /// an empty one.
    file: *const c_char,
    is_found: bool,
    /// Whether this library came before the dynamic linker.
    is_first: Option<bool>,
}

impl Search<'_> {
    fn run(name: &CStr) -> Search<'_> {
        let mut search = Search {
            name,
            hash: gnu_hash(name),
            own: linker as *const () as usize,
            linker: linker(),
            file: std::ptr::null(),
            is_found: false,
            is_first: None,
        };
        // SAFETY: `look` has the type of the callback, and `search` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search
    }
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the linker's description, and the caller's search.
    unsafe {
        let (info, search) = (&*info, &mut *search.cast::<Search<'_>>());
        let Some(object) = Object::of(info) else {
            return 0;
        };
        let (is_own, is_linker) = (
            object.image.contains(&search.own),
            object.image.contains(&search.linker),
        );
        if is_own || is_linker {
            search.is_first.get_or_insert(is_own);
        } else if !search.is_found
            && object.has_hashes()
            && object.defines(search.name, search.hash)
        {
            search.is_found = true;
            search.file = info.dlpi_name;
        }
    }
    0
}

/// Whether the dynamic linker loaded this library with the program. Libraries that are loaded later come after it.
pub fn is_preloaded() -> bool {
    Search::run(c"").is_first == Some(true)
}

/// The function that the libraries of the program call, which have not this library before them; null if there is none.
///
/// `dlsym` does not always tell: in a program that is not position-independent and takes a function's address, its
/// answer is the program's own code that calls the function through a slot.
pub fn definition(name: &CStr) -> *mut c_void {
    let search = Search::run(name);
    // SAFETY: the names are C strings. The object stays loaded: it was found in the order in which the program's own
    // libraries come first.
    unsafe {
        let is_library = search.is_found && !search.file.is_null() && *search.file != 0;
        let handle = if is_library {
            libc::dlopen(search.file, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        } else {
            libc::RTLD_DEFAULT
        };
        if is_library && handle.is_null() {
            return std::ptr::null_mut();
        }
        libc::dlsym(handle, name.as_ptr())
    }
}
