//! The functions and types of CPython that a walk uses, and where it begins. Looked up before there is a child.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::api::{Api, Gil};

/// `visitproc` of `Include/cpython/object.h`.
pub type Visit = unsafe extern "C" fn(usize, *mut c_void) -> c_int;
/// `traverseproc`.
pub type Traverse = unsafe extern "C" fn(usize, Visit, *mut c_void) -> c_int;
type VisitAll = unsafe extern "C" fn(Visit, *mut c_void);
type DictNext = unsafe extern "C" fn(usize, *mut isize, *mut usize, *mut usize) -> c_int;
type OfAddress = unsafe extern "C" fn(usize) -> usize;
type OfNothing = unsafe extern "C" fn() -> usize;

/// See the module.
#[derive(Clone, Copy)]
pub struct WalkFunctions {
    /// `PyUnstable_GC_VisitObjects`, from 3.12 on: for what has other lists than those that are known.
    pub visit_all: Option<VisitAll>,
    /// Reads only.
    pub dict_next: DictNext,
    /// `PyThreadState_Next`, which takes no lock.
    pub next_thread: OfAddress,
    pub first_thread: usize,
    pub interpreter: usize,
    /// `sys.modules`.
    pub modules: usize,
    /// An object that the collector knows: the last one, or one of the first.
    pub collected: usize,
    pub code_type: usize,
    pub function_type: usize,
    pub module_type: usize,
    pub set_types: [usize; 2],
    pub generator_types: [usize; 3],
    pub frame_type: usize,
    pub cell_type: usize,
    pub sequence_iterators: [usize; 2],
    pub dict_iterators: [usize; 3],
    pub enumerate_type: usize,
    /// 0 if there is none.
    pub deque_type: usize,
    /// `numpy.ndarray`; 0 if it was not imported.
    pub array_type: usize,
}

fn find(name: &CStr) -> Option<usize> {
    // SAFETY: `dlsym` takes any name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found as usize)
}

/// The function of a name.
///
/// # Safety
/// `F` is the type of a pointer to that function.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    let found = find(name)?;
    // SAFETY: by the caller; pointers to functions have the size of an address.
    Some(unsafe { std::mem::transmute_copy::<usize, F>(&found) })
}

impl WalkFunctions {
    /// `None` if one is missing. Imports nothing.
    pub fn find(gil: &Gil) -> Option<Self> {
        // SAFETY: the functions of these names have these signatures in 3.11 to 3.15. The GIL is held.
        unsafe {
            let api: &Api = gil.api();
            let interpreter = (api.PyInterpreterState_Main)() as usize;
            let modules: OfNothing = function(c"PyImport_GetModuleDict")?;
            let first_thread: OfAddress = function(c"PyInterpreterState_ThreadHead")?;
            let modules = modules();
            let item = |name: *const c_char, of: usize| -> usize {
                let get: unsafe extern "C" fn(usize, *const c_char) -> usize =
                    match function(c"PyDict_GetItemString") {
                        Some(get) => get,
                        None => return 0,
                    };
                get(of, name)
            };
            let of_module = |module: &CStr, name: &CStr| -> usize {
                let module = item(module.as_ptr(), modules);
                let dict: Option<OfAddress> = function(c"PyModule_GetDict");
                match (module, dict) {
                    (0, _) | (_, None) => 0,
                    (module, Some(dict)) => match dict(module) {
                        0 => 0,
                        dict => item(name.as_ptr(), dict),
                    },
                }
            };
            Some(Self {
                visit_all: function(c"PyUnstable_GC_VisitObjects"),
                dict_next: function(c"PyDict_Next")?,
                next_thread: function(c"PyThreadState_Next")?,
                first_thread: first_thread(interpreter),
                interpreter,
                modules,
                collected: 0,
                code_type: api.PyCode_Type as usize,
                function_type: find(c"PyFunction_Type")?,
                module_type: find(c"PyModule_Type")?,
                set_types: [find(c"PySet_Type")?, find(c"PyFrozenSet_Type")?],
                generator_types: [
                    find(c"PyGen_Type")?,
                    find(c"PyCoro_Type")?,
                    find(c"PyAsyncGen_Type")?,
                ],
                frame_type: find(c"PyFrame_Type")?,
                cell_type: find(c"PyCell_Type")?,
                sequence_iterators: [find(c"PyListIter_Type")?, find(c"PyTupleIter_Type")?],
                dict_iterators: [
                    find(c"PyDictIterKey_Type")?,
                    find(c"PyDictIterValue_Type")?,
                    find(c"PyDictIterItem_Type")?,
                ],
                enumerate_type: find(c"PyEnum_Type")?,
                deque_type: of_module(c"_collections", c"deque"),
                array_type: of_module(c"numpy", c"ndarray"),
            })
        }
    }
}
