//! CPython's own functions, found by name in the running process.
//!
//! Functions that may run Python code, or that allocate or free objects, are private to this module: other code calls
//! them through the token [`Gil`], which does not exist while the agent is borrowed.
//!
//! The library is not linked with Python: it loads into every version, into PyPy, and into a test without either. It
//! finds out at run time which interpreter it is in.

mod gil;
mod object;

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::sync::OnceLock;

pub use gil::Gil;
pub use object::{Kept, Object, Owned};

/// Whether this is the agent of builds without the GIL: the crate `nthbyte-freethreaded`, of the same sources.
pub const FREE_THREADED: bool = cfg!(feature = "free-threaded");
/// `sizeof(PyObject)`.
pub const HEADER: usize = if FREE_THREADED { 32 } else { 16 };
/// `offsetof(PyObject, ob_type)`: its last word.
pub const OB_TYPE: usize = HEADER - 8;

/// A Python object. It is always behind a pointer.
#[repr(C)]
pub struct PyObject {
    _before_type: [usize; OB_TYPE / 8],
    /// The object's type.
    pub ob_type: *mut PyObject,
}

/// `PyMemAllocatorEx` of `Include/cpython/pymem.h`; its functions may be null.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocatorEx {
    /// Passed to each function.
    pub ctx: *mut c_void,
    /// `malloc`.
    pub malloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    /// `calloc`.
    pub calloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    /// `realloc`.
    pub realloc: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void>,
    /// `free`.
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
}

impl AllocatorEx {
    /// An allocator without functions.
    pub const NONE: Self = Self {
        ctx: std::ptr::null_mut(),
        malloc: None,
        calloc: None,
        realloc: None,
        free: None,
    };
}

/// `PyMemAllocatorDomain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum AllocatorDomain {
    /// `PYMEM_DOMAIN_RAW`: callable without the GIL.
    Raw = 0,
    /// `PYMEM_DOMAIN_MEM`.
    Mem = 1,
    /// `PYMEM_DOMAIN_OBJ`.
    Obj = 2,
}

/// `PyCFunction`.
pub type Function = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
/// `PyCFunctionFast`: it gets the arguments as an array, and their number.
pub type FastFunction =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, isize) -> *mut PyObject;

/// `PyCFunctionFastWithKeywords`: as [`FastFunction`], then the names of the last arguments, or null.
pub type FastKeywordFunction = unsafe extern "C" fn(
    *mut PyObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
) -> *mut PyObject;

/// `PyMethodDef`.
#[repr(C)]
pub struct MethodDef {
    pub name: *const c_char,
    pub function: Option<Function>,
    pub flags: c_int,
    pub doc: *const c_char,
}

/// `PyCompilerFlags` of `Include/cpython/compile.h`.
#[repr(C)]
pub struct CompilerFlags {
    pub flags: c_int,
    /// Version of the grammar; read for syntax trees only.
    pub feature_version: c_int,
}

/// `PyCF_IGNORE_COOKIE`: the source is UTF-8, whatever its first lines say.
pub const IGNORE_COOKIE: c_int = 0x0800;
/// `Py_file_input`.
pub const FILE_INPUT: c_int = 257;

/// `METH_VARARGS`.
pub const METH_VARARGS: c_int = 1;
/// `METH_KEYWORDS`.
pub const METH_KEYWORDS: c_int = 2;
/// `METH_NOARGS`.
pub const METH_NOARGS: c_int = 4;
/// `METH_O`.
pub const METH_O: c_int = 8;
/// `METH_FASTCALL`: the function is a [`FastFunction`].
pub const METH_FASTCALL: c_int = 0x80;

macro_rules! api {
    (
        functions { $($name:ident $(| $other:ident)?: fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        python { $($private:ident $(| $earlier:ident)?: fn($($parg:ty),*) $(-> $pret:ty)?;)* }
        data { $($datum:ident;)* }
    ) => {
        /// The functions and objects of CPython that the agent uses.
        #[allow(non_snake_case, missing_docs)]
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $($private: unsafe extern "C" fn($($parg),*) $(-> $pret)?,)*
            $(pub $datum: *mut PyObject,)*
        }

        impl Api {
            /// Looks up all symbols. The error is the name of a missing one.
            fn look_up() -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let found = find(concat!(stringify!($name), "\0"))
                            $(.or_else(|| find(concat!(stringify!($other), "\0"))))?
                            .ok_or(stringify!($name))?;
                        // SAFETY: the symbol is CPython's public function of this name, whose
                        // signature has been the same in all versions from 3.11 on.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(found)
                        }
                    },)*
                    $($private: {
                        let found = find(concat!(stringify!($private), "\0"))
                            $(.or_else(|| find(concat!(stringify!($earlier), "\0"))))?
                            .ok_or(stringify!($private))?;
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($parg),*) $(-> $pret)?>(found)
                        }
                    },)*
                    $($datum: find(concat!(stringify!($datum), "\0")).ok_or(stringify!($datum))?.cast(),)*
                })
            }
        }
    };
}

api! {
    // These functions neither run Python code nor allocate, so other code may call them while the agent is borrowed.
    functions {
        PyMem_GetAllocator: fn(AllocatorDomain, *mut AllocatorEx);
        PyMem_SetAllocator: fn(AllocatorDomain, *mut AllocatorEx);
        PyThreadState_GetUnchecked | _PyThreadState_UncheckedGet: fn() -> *mut c_void;
        PyGILState_GetThisThreadState: fn() -> *mut c_void;
        PyObject_GetArenaAllocator: fn(*mut usize);
        PyThreadState_GetInterpreter: fn(*mut c_void) -> *mut c_void;
        PyInterpreterState_Main: fn() -> *mut c_void;
        PyInterpreterState_Head: fn() -> *mut c_void;
        PyInterpreterState_Next: fn(*mut c_void) -> *mut c_void;
        PyType_GetSlot: fn(*mut PyObject, c_int) -> *mut c_void;
        PyImport_GetModuleDict: fn() -> *mut PyObject;
        Py_GetVersion: fn() -> *const c_char;
        Py_AddPendingCall: fn(extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;
        Py_AtExit: fn(extern "C" fn()) -> c_int;
    }
    python {
        PyMem_Malloc: fn(usize) -> *mut c_void;
        PyMem_Calloc: fn(usize, usize) -> *mut c_void;
        PyMem_Realloc: fn(*mut c_void, usize) -> *mut c_void;
        PyObject_Malloc: fn(usize) -> *mut c_void;
        PyObject_Calloc: fn(usize, usize) -> *mut c_void;
        PyObject_Realloc: fn(*mut c_void, usize) -> *mut c_void;
        Py_CompileStringObject: fn(*const c_char, *mut PyObject, c_int, *mut CompilerFlags, c_int) -> *mut PyObject;
        PyThreadState_GetFrame: fn(*mut c_void) -> *mut PyObject;
        PyFrame_GetBack: fn(*mut PyObject) -> *mut PyObject;
        PyFrame_GetCode: fn(*mut PyObject) -> *mut PyObject;
        PyFrame_GetLasti: fn(*mut PyObject) -> c_int;
        Py_IncRef: fn(*mut PyObject);
        Py_DecRef: fn(*mut PyObject);
        PyObject_GetOptionalAttr | _PyObject_LookupAttr: fn(*mut PyObject, *mut PyObject, *mut *mut PyObject) -> c_int;
        PyObject_GetAttrString: fn(*mut PyObject, *const c_char) -> *mut PyObject;
        PyObject_CallNoArgs: fn(*mut PyObject) -> *mut PyObject;
        PyObject_CallOneArg: fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
        PyObject_Call: fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
        PyEval_EvalCode: fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
        Py_GetRecursionLimit: fn() -> c_int;
        Py_SetRecursionLimit: fn(c_int);
        PyObject_IsTrue: fn(*mut PyObject) -> c_int;
        PyObject_Size: fn(*mut PyObject) -> isize;
        PyModuleDef_Init: fn(*mut c_void) -> *mut PyObject;
        PyUnicode_FromString: fn(*const c_char) -> *mut PyObject;
        PyUnicode_InternFromString: fn(*const c_char) -> *mut PyObject;
        PyUnicode_AsUTF8AndSize: fn(*mut PyObject, *mut isize) -> *const c_char;
        PyUnicode_GetLength: fn(*mut PyObject) -> isize;
        PyBytes_AsString: fn(*mut PyObject) -> *mut c_char;
        PyLong_AsLong: fn(*mut PyObject) -> c_long;
        PyLong_FromSsize_t: fn(isize) -> *mut PyObject;
        PyFloat_AsDouble: fn(*mut PyObject) -> f64;
        PyDict_New: fn() -> *mut PyObject;
        PyDict_SetItem: fn(*mut PyObject, *mut PyObject, *mut PyObject) -> c_int;
        PyDict_GetItemString: fn(*mut PyObject, *const c_char) -> *mut PyObject;
        PyDict_Next: fn(*mut PyObject, *mut isize, *mut *mut PyObject, *mut *mut PyObject) -> c_int;
        PyTuple_Size: fn(*mut PyObject) -> isize;
        PyTuple_GetItem: fn(*mut PyObject, isize) -> *mut PyObject;
        PyList_Append: fn(*mut PyObject, *mut PyObject) -> c_int;
        PyList_Size: fn(*mut PyObject) -> isize;
        PyList_GetItem: fn(*mut PyObject, isize) -> *mut PyObject;
        PySequence_DelItem: fn(*mut PyObject, isize) -> c_int;
        PyImport_ImportModule: fn(*const c_char) -> *mut PyObject;
        PyCFunction_GetFunction: fn(*mut PyObject) -> Option<Function>;
        PyCFunction_GetFlags: fn(*mut PyObject) -> c_int;
        PyCFunction_NewEx: fn(*mut MethodDef, *mut PyObject, *mut PyObject) -> *mut PyObject;
        PyType_GetFlags: fn(*mut PyObject) -> std::ffi::c_ulong;
        PyErr_Clear: fn();
        PyErr_SetString: fn(*mut PyObject, *const c_char);
        PyObject_Str: fn(*mut PyObject) -> *mut PyObject;
        PyObject_ASCII: fn(*mut PyObject) -> *mut PyObject;
        PyObject_Hash: fn(*mut PyObject) -> isize;
        PyContextVar_New: fn(*const c_char, *mut PyObject) -> *mut PyObject;
        PyContextVar_Set: fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
        PyContextVar_Reset: fn(*mut PyObject, *mut PyObject) -> c_int;
        PyType_FromSpec: fn(*mut c_void) -> *mut PyObject;
        PyType_GenericAlloc: fn(*mut PyObject, isize) -> *mut PyObject;
        PyErr_Occurred: fn() -> *mut PyObject;
    }
    data {
        Py_Version;
        _PyRuntime;
        PyType_Type;
        PyCode_Type;
        PyUnicode_Type;
        _Py_NoneStruct;
        PyExc_TypeError;
    }
}

// SAFETY: addresses of functions, and of objects that are never freed; the table never changes.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

fn find(name: &'static str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: `name` ends with a zero; `dlsym` takes any name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Api {
    /// The functions of this process, looked up once.
    ///
    /// # Errors
    /// The name of a missing symbol: this is not CPython, or not a supported version.
    pub fn get() -> Result<&'static Self, &'static str> {
        static API: OnceLock<Result<Api, &'static str>> = OnceLock::new();
        API.get_or_init(Self::look_up)
            .as_ref()
            .map_err(|&name| name)
    }

    /// `PY_VERSION_HEX` of the running interpreter.
    #[must_use]
    pub fn version(&self) -> u32 {
        // SAFETY: `Py_Version` is a constant `unsigned long` of the interpreter.
        unsafe { self.Py_Version.cast::<std::ffi::c_ulong>().read() as u32 }
    }

    /// Python's description of itself: `3.13.0 (main, …) [GCC …]`.
    #[must_use]
    pub fn version_text(&self) -> String {
        // SAFETY: the function returns a static text.
        let text = unsafe { CStr::from_ptr((self.Py_GetVersion)()) };
        text.to_string_lossy()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// What sampling in mimalloc needs. `None` if a function is missing.
    #[must_use]
    pub fn of_mimalloc(&self) -> Option<nthbyte_mimalloc::Functions> {
        let free = find("PyObject_Free\0")?;
        // SAFETY: CPython's public functions, with the types of C: a domain is an `int`, and an allocator five words.
        unsafe {
            Some(nthbyte_mimalloc::Functions {
                thread_state: self.PyThreadState_GetUnchecked,
                get_allocator: std::mem::transmute::<
                    unsafe extern "C" fn(AllocatorDomain, *mut AllocatorEx),
                    unsafe extern "C" fn(c_int, *mut c_void),
                >(self.PyMem_GetAllocator),
                set_allocator: std::mem::transmute::<
                    unsafe extern "C" fn(AllocatorDomain, *mut AllocatorEx),
                    unsafe extern "C" fn(c_int, *mut c_void),
                >(self.PyMem_SetAllocator),
                malloc: self.PyObject_Malloc,
                free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(free),
            })
        }
    }

    /// The addresses of the public functions that allocate through the domain `MEM`.
    #[must_use]
    pub fn memory_functions(&self) -> [usize; 3] {
        [
            self.PyMem_Malloc as usize,
            self.PyMem_Calloc as usize,
            self.PyMem_Realloc as usize,
        ]
    }

    /// The addresses of the public functions that allocate through the domains `MEM` and `OBJ`.
    #[must_use]
    pub fn allocation_functions(&self) -> [usize; 6] {
        let [malloc, calloc, realloc] = self.memory_functions();
        [
            malloc,
            calloc,
            realloc,
            self.PyObject_Malloc as usize,
            self.PyObject_Calloc as usize,
            self.PyObject_Realloc as usize,
        ]
    }
}
