//! CPython's own functions, found by name in the running process.
//!
//! The library is linked with no Python: it loads into every version, into PyPy, and into a test
//! without either, and finds out here where it is.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// A Python object. Only ever behind a pointer.
#[repr(C)]
pub struct PyObject {
    refcount: usize,
    /// The object's type.
    pub ob_type: *mut PyObject,
}

/// `PyMemAllocatorEx` of `Include/cpython/pymem.h`, with functions that may be null.
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
    /// No functions.
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
    /// Of the grammar; read for syntax trees only.
    pub feature_version: c_int,
}

/// `PyCF_IGNORE_COOKIE`: the source is UTF-8, whatever its first lines say.
pub const IGNORE_COOKIE: c_int = 0x0800;
/// `Py_file_input`.
pub const FILE_INPUT: c_int = 257;

/// `METH_VARARGS`.
pub const METH_VARARGS: c_int = 1;
/// `METH_NOARGS`.
pub const METH_NOARGS: c_int = 4;
/// `METH_O`.
pub const METH_O: c_int = 8;

macro_rules! api {
    (
        functions { $($name:ident $(| $other:ident)?: fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        data { $($datum:ident;)* }
    ) => {
        /// The functions and objects that the agent uses.
        #[allow(non_snake_case, missing_docs)]
        #[derive(Clone, Copy)]
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub $datum: *mut PyObject,)*
        }

        impl Api {
            /// Looks everything up.
            ///
            /// # Errors
            /// The name of what is not there.
            pub fn find() -> Result<Self, &'static str> {
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
                    $($datum: find(concat!(stringify!($datum), "\0")).ok_or(stringify!($datum))?.cast(),)*
                })
            }
        }
    };
}

api! {
    functions {
        PyMem_GetAllocator: fn(AllocatorDomain, *mut AllocatorEx);
        PyMem_SetAllocator: fn(AllocatorDomain, *mut AllocatorEx);
        PyMem_Malloc: fn(usize) -> *mut c_void;
        PyMem_Calloc: fn(usize, usize) -> *mut c_void;
        PyMem_Realloc: fn(*mut c_void, usize) -> *mut c_void;
        PyObject_Malloc: fn(usize) -> *mut c_void;
        PyObject_Calloc: fn(usize, usize) -> *mut c_void;
        PyObject_Realloc: fn(*mut c_void, usize) -> *mut c_void;
        Py_CompileStringObject: fn(*const c_char, *mut PyObject, c_int, *mut CompilerFlags, c_int) -> *mut PyObject;
        PyThreadState_GetUnchecked | _PyThreadState_UncheckedGet: fn() -> *mut c_void;
        PyThreadState_GetFrame: fn(*mut c_void) -> *mut PyObject;
        PyThreadState_GetInterpreter: fn(*mut c_void) -> *mut c_void;
        PyInterpreterState_Main: fn() -> *mut c_void;
        PyInterpreterState_Head: fn() -> *mut c_void;
        PyInterpreterState_Next: fn(*mut c_void) -> *mut c_void;
        PyFrame_GetBack: fn(*mut PyObject) -> *mut PyObject;
        PyFrame_GetCode: fn(*mut PyObject) -> *mut PyObject;
        PyFrame_GetLasti: fn(*mut PyObject) -> c_int;
        Py_IncRef: fn(*mut PyObject);
        Py_DecRef: fn(*mut PyObject);
        PyObject_GetAttrString: fn(*mut PyObject, *const c_char) -> *mut PyObject;
        PyObject_CallNoArgs: fn(*mut PyObject) -> *mut PyObject;
        PyObject_IsTrue: fn(*mut PyObject) -> c_int;
        PyModuleDef_Init: fn(*mut c_void) -> *mut PyObject;
        PyUnicode_FromString: fn(*const c_char) -> *mut PyObject;
        PyUnicode_InternFromString: fn(*const c_char) -> *mut PyObject;
        PyBytes_AsString: fn(*mut PyObject) -> *mut c_char;
        PyUnicode_AsUTF8AndSize: fn(*mut PyObject, *mut isize) -> *const c_char;
        PyLong_AsLong: fn(*mut PyObject) -> c_long;
        PyLong_FromSsize_t: fn(isize) -> *mut PyObject;
        PyDict_GetItemString: fn(*mut PyObject, *const c_char) -> *mut PyObject;
        PyTuple_Size: fn(*mut PyObject) -> isize;
        PyTuple_GetItem: fn(*mut PyObject, isize) -> *mut PyObject;
        PyList_Append: fn(*mut PyObject, *mut PyObject) -> c_int;
        PySequence_Index: fn(*mut PyObject, *mut PyObject) -> isize;
        PySequence_DelItem: fn(*mut PyObject, isize) -> c_int;
        PyImport_ImportModule: fn(*const c_char) -> *mut PyObject;
        PyCFunction_GetFunction: fn(*mut PyObject) -> Option<Function>;
        PyCFunction_NewEx: fn(*mut MethodDef, *mut PyObject, *mut PyObject) -> *mut PyObject;
        PyErr_Clear: fn();
        PyErr_Occurred: fn() -> *mut PyObject;
        Py_GetVersion: fn() -> *const c_char;
    }
    data {
        Py_Version;
        _PyRuntime;
        PyType_Type;
        PyCode_Type;
        PyUnicode_Type;
        _Py_NoneStruct;
    }
}

fn find(name: &'static str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: `name` ends with a zero; `dlsym` takes any name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Api {
    /// `PY_VERSION_HEX` of the running interpreter.
    #[must_use]
    pub fn version(&self) -> u32 {
        // SAFETY: `Py_Version` is a constant `unsigned long` of the interpreter.
        unsafe { self.Py_Version.cast::<std::ffi::c_ulong>().read() as u32 }
    }

    /// Python's own description of itself: `3.13.0 (main, …) [GCC …]`.
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

    /// The text of a `str`, or `None` if `object` is null or not a `str`. Clears Python's error.
    ///
    /// # Safety
    /// The GIL is held; `object` is null or a live object.
    #[must_use]
    pub unsafe fn text(&self, object: *mut PyObject) -> Option<String> {
        if object.is_null() {
            return None;
        }
        let mut length = 0isize;
        // SAFETY: as the caller says.
        let bytes = unsafe { (self.PyUnicode_AsUTF8AndSize)(object, &raw mut length) };
        if bytes.is_null() {
            // SAFETY: the GIL is held.
            unsafe { (self.PyErr_Clear)() };
            return None;
        }
        // SAFETY: the function returned `length` bytes that live as long as the object.
        let bytes = unsafe {
            std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(length).ok()?)
        };
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A new reference to an attribute, or `None`. Clears Python's error.
    ///
    /// # Safety
    /// The GIL is held; `object` is null or a live object. May run Python code.
    #[must_use]
    pub unsafe fn attribute(&self, object: *mut PyObject, name: &CStr) -> Option<Owned<'_>> {
        if object.is_null() {
            return None;
        }
        // SAFETY: as the caller says.
        let found = unsafe { (self.PyObject_GetAttrString)(object, name.as_ptr()) };
        if found.is_null() {
            // SAFETY: the GIL is held.
            unsafe { (self.PyErr_Clear)() };
            return None;
        }
        Some(Owned {
            api: self,
            object: found,
        })
    }

    /// A new reference to an imported module.
    ///
    /// # Safety
    /// The GIL is held. Runs Python code.
    #[must_use]
    pub unsafe fn import(&self, name: &CStr) -> Option<Owned<'_>> {
        // SAFETY: as the caller says.
        let module = unsafe { (self.PyImport_ImportModule)(name.as_ptr()) };
        if module.is_null() {
            // SAFETY: the GIL is held.
            unsafe { (self.PyErr_Clear)() };
            return None;
        }
        Some(Owned {
            api: self,
            object: module,
        })
    }
}

/// A strong reference.
pub struct Owned<'a> {
    api: &'a Api,
    object: *mut PyObject,
}

impl<'a> Owned<'a> {
    /// Takes over a new reference; `None` if it is null.
    ///
    /// # Safety
    /// The GIL is held, and stays held until this is dropped; the reference is the caller's to give.
    pub unsafe fn take(api: &'a Api, object: *mut PyObject) -> Option<Self> {
        (!object.is_null()).then_some(Self { api, object })
    }

    /// The object, borrowed.
    #[must_use]
    pub fn get(&self) -> *mut PyObject {
        self.object
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and the GIL is held, by the contract of the constructors.
        unsafe { (self.api.Py_DecRef)(self.object) };
    }
}
