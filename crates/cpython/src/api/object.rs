//! Python's objects, as the token's functions return them. Each object borrows the token.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Deref;
use std::ptr::NonNull;

use super::{Function, Gil, PyObject};

/// A live object. A method that fails clears Python's error.
#[derive(Clone, Copy)]
pub struct Object<'gil> {
    gil: &'gil Gil,
    object: NonNull<PyObject>,
}

impl<'gil> Object<'gil> {
    /// # Safety
    /// As for [`Gil::object`].
    pub(super) unsafe fn new(gil: &'gil Gil, object: *mut PyObject) -> Option<Self> {
        NonNull::new(object).map(|object| Self { gil, object })
    }

    /// The object's address.
    #[must_use]
    pub const fn as_ptr(self) -> *mut PyObject {
        self.object.as_ptr()
    }

    /// The object's address as a number.
    #[must_use]
    pub fn address(self) -> usize {
        self.as_ptr() as usize
    }

    /// A new reference to the object.
    #[must_use]
    pub fn to_owned(self) -> Owned<'gil> {
        // SAFETY: the object is live.
        unsafe { (self.gil.api().Py_IncRef)(self.as_ptr()) };
        Owned(self)
    }

    /// An attribute.
    #[must_use]
    pub fn attribute(self, name: &CStr) -> Option<Owned<'gil>> {
        // SAFETY: the GIL is held and the object is live; so in all functions below.
        unsafe {
            self.gil.owned((self.gil.api().PyObject_GetAttrString)(
                self.as_ptr(),
                name.as_ptr(),
            ))
        }
    }

    /// An attribute whose name is an object, if there is one. A built-in object makes nothing where there is none.
    #[must_use]
    pub fn optional_attribute(self, name: Object<'_>) -> Option<Owned<'gil>> {
        let mut found = std::ptr::null_mut();
        // SAFETY: see `attribute`; `found` is a place for the result, and null where there is none.
        unsafe {
            (self.gil.api().PyObject_GetOptionalAttr)(self.as_ptr(), name.as_ptr(), &raw mut found);
            self.gil.owned(found)
        }
    }

    /// Calls the object without arguments, and returns the result.
    #[must_use]
    pub fn call(self) -> Option<Owned<'gil>> {
        // SAFETY: see `attribute`.
        unsafe {
            self.gil
                .owned((self.gil.api().PyObject_CallNoArgs)(self.as_ptr()))
        }
    }

    /// Calls the object with one argument, and returns the result.
    #[must_use]
    pub fn call_with(self, argument: Object<'_>) -> Option<Owned<'gil>> {
        // SAFETY: see `attribute`.
        unsafe {
            self.gil.owned((self.gil.api().PyObject_CallOneArg)(
                self.as_ptr(),
                argument.as_ptr(),
            ))
        }
    }

    /// The object's truth value.
    #[must_use]
    pub fn is_true(self) -> bool {
        // SAFETY: see `attribute`.
        let answer = unsafe { (self.gil.api().PyObject_IsTrue)(self.as_ptr()) };
        if answer < 0 {
            self.gil.clear_error();
        }
        answer == 1
    }

    /// The object's `len`.
    #[must_use]
    pub fn length(self) -> Option<usize> {
        // SAFETY: see `attribute`.
        let length = unsafe { (self.gil.api().PyObject_Size)(self.as_ptr()) };
        self.size(length)
    }

    /// The text, if it is a `str`.
    #[must_use]
    pub fn text(self) -> Option<String> {
        let text = self.utf8()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Whether it is a `str` with this text.
    #[must_use]
    pub fn is_text(self, text: &str) -> bool {
        self.utf8() == Some(text.as_bytes())
    }

    /// The text in UTF-8, if it is a `str`. It lives as long as the object.
    fn utf8(&self) -> Option<&[u8]> {
        let mut length = 0isize;
        // SAFETY: see `attribute`.
        let bytes =
            unsafe { (self.gil.api().PyUnicode_AsUTF8AndSize)(self.as_ptr(), &raw mut length) };
        if bytes.is_null() {
            self.gil.clear_error();
            return None;
        }
        // SAFETY: the function returned `length` bytes that live as long as the object.
        unsafe {
            let length = usize::try_from(length).ok()?;
            Some(std::slice::from_raw_parts(bytes.cast::<u8>(), length))
        }
    }

    /// The number of characters, if it is a `str`.
    #[must_use]
    pub fn text_length(self) -> Option<usize> {
        // SAFETY: see `attribute`.
        let length = unsafe { (self.gil.api().PyUnicode_GetLength)(self.as_ptr()) };
        self.size(length)
    }

    /// The bytes, if it is a `bytes`. A zero byte follows them.
    #[must_use]
    pub fn bytes(self) -> Option<*const c_char> {
        // SAFETY: see `attribute`.
        let bytes = unsafe { (self.gil.api().PyBytes_AsString)(self.as_ptr()) };
        if bytes.is_null() {
            self.gil.clear_error();
            return None;
        }
        Some(bytes)
    }

    /// The value, if it is an `int` and fits.
    #[must_use]
    pub fn integer(self) -> Option<i64> {
        // SAFETY: see `attribute`.
        unsafe {
            let value = (self.gil.api().PyLong_AsLong)(self.as_ptr());
            if value == -1 && !(self.gil.api().PyErr_Occurred)().is_null() {
                (self.gil.api().PyErr_Clear)();
                return None;
            }
            Some(value)
        }
    }

    /// The value, if it is a number.
    #[must_use]
    pub fn float(self) -> Option<f64> {
        // SAFETY: see `attribute`.
        unsafe {
            let value = (self.gil.api().PyFloat_AsDouble)(self.as_ptr());
            if !(self.gil.api().PyErr_Occurred)().is_null() {
                (self.gil.api().PyErr_Clear)();
                return None;
            }
            Some(value)
        }
    }

    /// The value of a key, if it is a `dict`.
    #[must_use]
    pub fn value(self, key: &CStr) -> Option<Owned<'gil>> {
        // SAFETY: see `attribute`. The borrowed reference becomes one of ours before anything runs.
        unsafe {
            let found = (self.gil.api().PyDict_GetItemString)(self.as_ptr(), key.as_ptr());
            self.gil.object(found).map(Self::to_owned)
        }
    }

    /// The values of these keys, if it is a `dict`. No object is made, unlike in [`Object::value`].
    #[must_use]
    pub fn values<const N: usize>(self, keys: [&str; N]) -> [Option<Owned<'gil>>; N] {
        let mut values = [const { None }; N];
        let mut position = 0;
        let mut entry = [std::ptr::null_mut::<PyObject>(); 2];
        let [key, value] = &mut entry;
        // SAFETY: see `attribute`. Nothing runs between two calls that could change the dictionary.
        while unsafe {
            (self.gil.api().PyDict_Next)(self.as_ptr(), &raw mut position, key, value) != 0
        } {
            // SAFETY: the entry is live, as its dictionary is.
            let (found, value) = unsafe { (self.gil.object(*key), self.gil.object(*value)) };
            let at = keys
                .iter()
                .position(|key| found.is_some_and(|found| found.is_text(key)));
            if let Some(at) = at {
                values[at] = value.map(Self::to_owned);
            }
        }
        values
    }

    /// Sets the value of a key, if it is a `dict`. Returns whether it succeeded.
    pub fn set(self, key: Object<'_>, value: Object<'_>) -> bool {
        // SAFETY: see `attribute`.
        let done =
            unsafe { (self.gil.api().PyDict_SetItem)(self.as_ptr(), key.as_ptr(), value.as_ptr()) };
        self.succeeded(done)
    }

    /// The number of elements, if it is a `tuple`.
    #[must_use]
    pub fn tuple_length(self) -> Option<usize> {
        // SAFETY: see `attribute`.
        let length = unsafe { (self.gil.api().PyTuple_Size)(self.as_ptr()) };
        self.size(length)
    }

    /// An element, if it is a `tuple`.
    #[must_use]
    pub fn element(self, at: usize) -> Option<Owned<'gil>> {
        // SAFETY: as in `value`.
        unsafe {
            let found = (self.gil.api().PyTuple_GetItem)(self.as_ptr(), at.cast_signed());
            if found.is_null() {
                self.gil.clear_error();
            }
            self.gil.object(found).map(Self::to_owned)
        }
    }

    /// Appends an item, if it is a `list`. Returns whether it succeeded.
    pub fn append(self, item: Object<'_>) -> bool {
        // SAFETY: see `attribute`.
        let done = unsafe { (self.gil.api().PyList_Append)(self.as_ptr(), item.as_ptr()) };
        self.succeeded(done)
    }

    /// Removes an item from a `list` that contains this very object. Equal objects stay; their `__eq__` is not called.
    pub fn remove_identical(self, item: Object<'_>) {
        // SAFETY: see `attribute`. The list holds a reference to the item, and so does the caller: nothing runs
        // but the deletion. (`PyList_GetItem` does not take negative positions.)
        unsafe {
            let length = (self.gil.api().PyList_Size)(self.as_ptr());
            for at in 0..length {
                if (self.gil.api().PyList_GetItem)(self.as_ptr(), at) == item.as_ptr() {
                    (self.gil.api().PySequence_DelItem)(self.as_ptr(), at);
                    break;
                }
            }
        }
        self.gil.clear_error();
    }

    /// The C function of a built-in function, and its flags. `None` for other objects.
    #[must_use]
    pub fn c_function(self) -> Option<(Function, c_int)> {
        // SAFETY: see `attribute`.
        unsafe {
            let function = (self.gil.api().PyCFunction_GetFunction)(self.as_ptr());
            let flags = (self.gil.api().PyCFunction_GetFlags)(self.as_ptr());
            self.gil.clear_error();
            Some((function?, flags))
        }
    }

    /// `PyType_GetFlags`.
    ///
    /// # Safety
    /// The object is a type.
    #[must_use]
    pub unsafe fn type_flags(self) -> u64 {
        // SAFETY: by the caller.
        unsafe { (self.gil.api().PyType_GetFlags)(self.as_ptr()) }
    }

    /// The next outer frame, the code object, and the byte offset of the current instruction.
    ///
    /// # Safety
    /// The object is a frame.
    #[must_use]
    pub unsafe fn of_frame(self) -> (Option<Owned<'gil>>, Option<Owned<'gil>>, c_int) {
        // SAFETY: by the caller.
        unsafe {
            (
                self.gil
                    .owned((self.gil.api().PyFrame_GetBack)(self.as_ptr())),
                self.gil
                    .owned((self.gil.api().PyFrame_GetCode)(self.as_ptr())),
                (self.gil.api().PyFrame_GetLasti)(self.as_ptr()),
            )
        }
    }

    fn size(self, size: isize) -> Option<usize> {
        if size < 0 {
            self.gil.clear_error();
        }
        usize::try_from(size).ok()
    }

    fn succeeded(self, status: c_int) -> bool {
        if status != 0 {
            self.gil.clear_error();
        }
        status == 0
    }
}

/// A strong reference.
pub struct Owned<'gil>(Object<'gil>);

impl<'gil> Owned<'gil> {
    /// Takes ownership of a reference. The caller gives it away.
    pub(super) const fn of(object: Object<'gil>) -> Self {
        Self(object)
    }

    /// Releases ownership without dropping the reference, for example to return it to Python.
    #[must_use]
    pub fn give(self) -> *mut PyObject {
        let object = self.0.as_ptr();
        std::mem::forget(self);
        object
    }

    /// Keeps the reference beyond the time that the GIL is held.
    pub fn keep(self) -> Kept {
        Kept(self.give())
    }
}

impl<'gil> Deref for Owned<'gil> {
    type Target = Object<'gil>;

    fn deref(&self) -> &Object<'gil> {
        &self.0
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and the GIL is held while the token is borrowed.
        unsafe { (self.0.gil.api().Py_DecRef)(self.0.as_ptr()) };
    }
}

/// A strong reference that outlives a call into this library. If it is dropped, the object is never freed.
#[must_use]
pub struct Kept(*mut PyObject);

impl Kept {
    /// Converts it back into a reference that is freed when dropped.
    pub fn take(self, gil: &Gil) -> Owned<'_> {
        // SAFETY: the reference is ours, so the object is live.
        Owned(unsafe { gil.object(self.0) }.expect("a reference is not null"))
    }
}
