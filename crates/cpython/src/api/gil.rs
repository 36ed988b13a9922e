//! The token of the GIL, and the functions that need it.
//!
//! Python code allocates, and an allocation may call the agent. So each function that may run Python code borrows the
//! token, and so does each object that it returns: dropping an [`Owned`] may run code too. Access to the agent borrows
//! the token mutably ([`Gil::agent`]). So the compiler refuses a call of Python while the agent is borrowed.
//!
//! ```compile_fail
//! fn wrong(gil: &mut nthbyte_cpython::Gil) {
//!     let agent = gil.agent();
//!     let module = gil.import(c"gc"); // the agent is still borrowed
//!     drop(agent);
//! }
//! ```
//!
//! ```
//! fn right(gil: &mut nthbyte_cpython::Gil) {
//!     let module = gil.import(c"gc");
//!     drop(module);
//!     let agent = gil.agent();
//! }
//! ```

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;

use super::object::{Object, Owned};
use super::{Api, CompilerFlags, MethodDef, PyObject};

/// A definition that is never written to.
struct Unused(MethodDef);

// SAFETY: nobody writes to it.
unsafe impl Sync for Unused {}

/// Proof that this thread holds a GIL and that Python code may run: the caller is not inside an allocation, and the
/// agent is not borrowed. (The heap's observer runs inside an allocation. It creates a token that it uses only for the
/// agent.)
pub struct Gil {
    api: &'static Api,
    /// The token must stay in its thread.
    _thread: PhantomData<*mut ()>,
}

impl Gil {
    /// A token for the time of one call into this library. `None` if this interpreter is not supported.
    ///
    /// # Safety
    /// As for [`Gil::assume`].
    #[must_use]
    pub unsafe fn of_caller() -> Option<Self> {
        // SAFETY: by the caller.
        Some(unsafe { Self::assume(Api::get().ok()?) })
    }

    /// A token for the time of one call into this library.
    ///
    /// # Safety
    /// The thread holds a GIL while the token lives. Inside an allocation or deallocation, where no Python code may
    /// run, the caller uses only [`Gil::agent`].
    #[must_use]
    pub(crate) const unsafe fn assume(api: &'static Api) -> Self {
        Self {
            api,
            _thread: PhantomData,
        }
    }

    /// The functions of CPython that need no token.
    #[must_use]
    pub(crate) const fn api(&self) -> &'static Api {
        self.api
    }

    /// A module. It is imported if necessary.
    #[must_use]
    pub fn import(&self, name: &CStr) -> Option<Owned<'_>> {
        // SAFETY: the GIL is held.
        unsafe { self.owned((self.api.PyImport_ImportModule)(name.as_ptr())) }
    }

    /// A `str`.
    #[must_use]
    pub fn text(&self, text: &CStr) -> Option<Owned<'_>> {
        // SAFETY: the GIL is held.
        unsafe { self.owned((self.api.PyUnicode_FromString)(text.as_ptr())) }
    }

    /// An `int`.
    #[must_use]
    pub fn integer(&self, value: isize) -> Option<Owned<'_>> {
        // SAFETY: the GIL is held.
        unsafe { self.owned((self.api.PyLong_FromSsize_t)(value)) }
    }

    /// The address of the interned `str`, which is never freed; 0 if there is no memory.
    #[must_use]
    pub fn interned(&self, text: &CStr) -> usize {
        // SAFETY: the GIL is held; the reference is kept.
        unsafe {
            let text = (self.api.PyUnicode_InternFromString)(text.as_ptr());
            if text.is_null() {
                (self.api.PyErr_Clear)();
            }
            text as usize
        }
    }

    /// An empty `dict`.
    #[must_use]
    pub fn dict(&self) -> Option<Owned<'_>> {
        // SAFETY: the GIL is held.
        unsafe { self.owned((self.api.PyDict_New)()) }
    }

    /// `None`.
    #[must_use]
    pub fn none(&self) -> Owned<'_> {
        // SAFETY: the object is never freed.
        unsafe { self.object(self.api._Py_NoneStruct) }
            .expect("an address")
            .to_owned()
    }

    /// A built-in function. Its first argument is `bound`.
    ///
    /// # Safety
    /// The definition fits its function, and lives as long as the result.
    #[must_use]
    pub unsafe fn function(
        &self,
        method: *mut MethodDef,
        bound: Option<Object<'_>>,
    ) -> Option<Owned<'_>> {
        let bound = bound.map_or(std::ptr::null_mut(), Object::as_ptr);
        // SAFETY: the GIL is held; by the caller.
        unsafe {
            self.owned((self.api.PyCFunction_NewEx)(
                method,
                bound,
                std::ptr::null_mut(),
            ))
        }
    }

    /// An object that the collector knows: a built-in function that nobody calls.
    #[must_use]
    pub fn interpreter_function(&self) -> Option<Owned<'_>> {
        static DEFINITION: Unused = Unused(MethodDef {
            name: c"unused".as_ptr(),
            function: None,
            flags: super::METH_NOARGS,
            doc: std::ptr::null(),
        });
        // SAFETY: the definition is static, and nobody calls the function.
        unsafe { self.function((&raw const DEFINITION.0).cast_mut(), None) }
    }

    /// The frame that the current thread executes.
    #[must_use]
    pub fn frame(&self) -> Option<Owned<'_>> {
        // SAFETY: the GIL is held, so that there is a thread state.
        unsafe {
            let thread = (self.api.PyThreadState_GetUnchecked)();
            self.owned((self.api.PyThreadState_GetFrame)(thread))
        }
    }

    /// Compiles a source. On failure, returns null and sets Python's error.
    ///
    /// # Safety
    /// `name` is a live object.
    pub unsafe fn compile(
        &self,
        source: &CStr,
        name: *mut PyObject,
        flags: &mut CompilerFlags,
    ) -> *mut PyObject {
        // SAFETY: the GIL is held; by the caller.
        unsafe {
            (self.api.Py_CompileStringObject)(source.as_ptr(), name, super::FILE_INPUT, flags, -1)
        }
    }

    /// The current thread's state, which lives as long as the thread runs Python.
    #[must_use]
    pub fn thread_state(&self) -> *mut c_void {
        // SAFETY: the GIL is held.
        unsafe { (self.api.PyThreadState_GetUnchecked)() }
    }

    /// The recursion limit.
    #[must_use]
    pub fn recursion_limit(&self) -> i32 {
        // SAFETY: the GIL is held.
        unsafe { (self.api.Py_GetRecursionLimit)() }
    }

    /// Changes the recursion limit.
    pub fn set_recursion_limit(&self, limit: i32) {
        // SAFETY: the GIL is held.
        unsafe { (self.api.Py_SetRecursionLimit)(limit) }
    }

    /// Executes a code object with a dictionary of globals, or calls any other object with a tuple of arguments. On
    /// failure, returns null and leaves Python's error set.
    ///
    /// # Safety
    /// Both are live objects of these types.
    pub unsafe fn execute(&self, what: *mut PyObject, with: *mut PyObject) -> *mut PyObject {
        // SAFETY: the GIL is held; by the caller.
        unsafe {
            if (*what).ob_type == self.api.PyCode_Type {
                (self.api.PyEval_EvalCode)(what, with, with)
            } else {
                (self.api.PyObject_Call)(what, with, std::ptr::null_mut())
            }
        }
    }

    /// The module object of a definition. The definition must never be freed.
    ///
    /// # Safety
    /// `definition` is a `PyModuleDef`.
    pub unsafe fn module(&self, definition: *mut c_void) -> *mut PyObject {
        // SAFETY: the GIL is held; by the caller.
        unsafe { (self.api.PyModuleDef_Init)(definition) }
    }

    /// An object. Another owner holds a reference to it.
    ///
    /// # Safety
    /// `object` is null, or an object that lives as long as the result.
    #[must_use]
    pub unsafe fn object(&self, object: *mut PyObject) -> Option<Object<'_>> {
        // SAFETY: by the caller.
        unsafe { Object::new(self, object) }
    }

    /// Takes ownership of a reference. If it is null, clears Python's error.
    ///
    /// # Safety
    /// The caller owns the reference and gives it away.
    #[must_use]
    pub unsafe fn owned(&self, object: *mut PyObject) -> Option<Owned<'_>> {
        // SAFETY: by the caller.
        let object = unsafe { self.object(object) };
        if object.is_none() {
            self.clear_error();
        }
        object.map(Owned::of)
    }

    /// One more reference to an object, which may be null.
    ///
    /// # Safety
    /// The object is live.
    #[inline]
    pub unsafe fn increment(&self, object: *mut PyObject) {
        // SAFETY: the GIL is held; by the caller.
        unsafe { (self.api.Py_IncRef)(object) }
    }

    /// One reference to an object less, which may be null. It may run Python code.
    ///
    /// # Safety
    /// The reference is the caller's.
    #[inline]
    pub unsafe fn decrement(&self, object: *mut PyObject) {
        // SAFETY: the GIL is held; by the caller.
        unsafe { (self.api.Py_DecRef)(object) }
    }

    /// A new context variable without a default.
    #[must_use]
    pub fn context_variable(&self, name: &CStr) -> Option<*mut PyObject> {
        // SAFETY: the GIL is held.
        let made = unsafe { (self.api.PyContextVar_New)(name.as_ptr(), std::ptr::null_mut()) };
        self.made(made)
    }

    /// Sets a context variable. Returns the token, which is the caller's. Without memory, the variable keeps its value, and the
    /// token is null.
    ///
    /// # Safety
    /// Both are live, and the variable is one.
    #[inline]
    pub unsafe fn set_variable(
        &self,
        variable: *mut PyObject,
        value: *mut PyObject,
    ) -> *mut PyObject {
        // SAFETY: the GIL is held; by the caller.
        let token = unsafe { (self.api.PyContextVar_Set)(variable, value) };
        if token.is_null() {
            self.clear_error();
        }
        token
    }

    /// Gives a context variable the value from before it was set. Returns whether that is done.
    ///
    /// # Safety
    /// Both are live: a variable and its token.
    #[inline]
    pub unsafe fn reset_variable(&self, variable: *mut PyObject, token: *mut PyObject) -> bool {
        // SAFETY: the GIL is held; by the caller.
        let status = unsafe { (self.api.PyContextVar_Reset)(variable, token) };
        if status != 0 {
            self.clear_error();
        }
        status == 0
    }

    /// A new type.
    ///
    /// # Safety
    /// It is a `PyType_Spec`, whose functions fit, and which is never freed.
    pub unsafe fn new_type(&self, specification: *mut c_void) -> Option<*mut PyObject> {
        // SAFETY: the GIL is held; by the caller.
        self.made(unsafe { (self.api.PyType_FromSpec)(specification) })
    }

    /// A new object, with zeroes. Null without memory, and then Python's error is set.
    ///
    /// # Safety
    /// It is a live type of objects that are not the collector's.
    pub unsafe fn new_object(&self, class: *mut PyObject) -> *mut PyObject {
        // SAFETY: the GIL is held; by the caller.
        unsafe { (self.api.PyType_GenericAlloc)(class, 0) }
    }

    fn made(&self, object: *mut PyObject) -> Option<*mut PyObject> {
        if object.is_null() {
            self.clear_error();
        }
        (!object.is_null()).then_some(object)
    }

    /// The text of any object: `str(object)`. If that fails, leaves Python's error set.
    ///
    /// # Safety
    /// The object is live.
    pub unsafe fn text_of(&self, object: *mut PyObject) -> Option<String> {
        // SAFETY: the GIL is held; by the caller.
        unsafe {
            let text = Owned::of(self.object((self.api.PyObject_Str)(object))?);
            // A lone surrogate is in no UTF-8.
            text.text().or_else(|| {
                let escaped = Owned::of(self.object((self.api.PyObject_ASCII)(text.as_ptr()))?);
                escaped.text()
            })
        }
    }

    /// `nthbyte._labels.decorator(label)(*arguments, **keywords)`. On failure, returns null and leaves Python's error set.
    ///
    /// # Safety
    /// All are live; the latter two are a tuple, and a dictionary or null.
    pub unsafe fn call_with_label(
        &self,
        label: *mut PyObject,
        arguments: *mut PyObject,
        keywords: *mut PyObject,
    ) -> *mut PyObject {
        // SAFETY: the GIL is held; by the caller.
        unsafe {
            let module = (self.api.PyImport_ImportModule)(c"nthbyte._labels".as_ptr());
            let Some(module) = self.object(module).map(Owned::of) else {
                return std::ptr::null_mut();
            };
            let name = c"decorator".as_ptr();
            let made = (self.api.PyObject_GetAttrString)(module.as_ptr(), name);
            let Some(made) = self.object(made).map(Owned::of) else {
                return std::ptr::null_mut();
            };
            let decorator = (self.api.PyObject_CallOneArg)(made.as_ptr(), label);
            let Some(decorator) = self.object(decorator).map(Owned::of) else {
                return std::ptr::null_mut();
            };
            (self.api.PyObject_Call)(decorator.as_ptr(), arguments, keywords)
        }
    }

    /// `hash(object)`; `None` if it fails.
    ///
    /// # Safety
    /// The object is live.
    #[must_use]
    pub unsafe fn hash(&self, object: *mut PyObject) -> Option<i64> {
        // SAFETY: the GIL is held; by the caller.
        let hash = unsafe { (self.api.PyObject_Hash)(object) };
        if hash == -1 {
            self.clear_error();
        }
        (hash != -1).then_some(hash as i64)
    }

    /// Sets Python's error.
    pub fn raise_type_error(&self, message: &CStr) {
        // SAFETY: the GIL is held; the datum is a variable with the exception.
        unsafe {
            let exception = self.api.PyExc_TypeError.cast::<*mut PyObject>().read();
            (self.api.PyErr_SetString)(exception, message.as_ptr());
        }
    }

    /// Clears Python's error, if one is set.
    pub fn clear_error(&self) {
        // SAFETY: the GIL is held.
        unsafe {
            if !(self.api.PyErr_Occurred)().is_null() {
                (self.api.PyErr_Clear)();
            }
        }
    }
}
