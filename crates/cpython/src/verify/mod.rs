//! Does the layout hold? Asked before anything is touched.
//!
//! The stack that the layout yields is compared, frame by frame, with the one that CPython's public
//! functions yield, and so are the names, the line and the position table of the code object on top.

use std::ffi::{CStr, c_long};

use crate::api::{Api, Owned, PyObject};
use crate::layout::Layout;
use crate::memory::field;
use crate::sampling::codes::Codes;
use crate::sampling::strings;
use crate::sampling::walker::{MAX_DEPTH, Walker};

/// Checks the layout against the running thread.
///
/// # Errors
/// What does not agree.
///
/// # Safety
/// The GIL is held by the caller, in Python code.
pub unsafe fn verify(api: &Api, layout: &Layout) -> Result<(), &'static str> {
    // SAFETY: by the contract; every reference that is used is owned here or by what is.
    unsafe {
        let thread = (api.PyThreadState_GetUnchecked)();
        if thread.is_null() {
            return Err("no thread state");
        }
        let native = field::<u64>(thread as usize, layout.native_thread_id);
        if native != u64::from(libc::gettid().cast_unsigned()) {
            return Err("thread states");
        }
        let codes = Codes::new(api);
        let mut walker = Walker::default();
        walker.look(layout, thread as usize, &codes);
        let mut frame = Owned::take(api, (api.PyThreadState_GetFrame)(thread));
        let mut top = None;
        let mut seen = walker.last(layout).take(MAX_DEPTH);
        loop {
            match (frame, seen.next()) {
                (None, None) => break,
                (Some(public), Some((code, offset))) => {
                    let found =
                        Owned::take(api, (api.PyFrame_GetCode)(public.get())).ok_or("frames")?;
                    let lasti = (api.PyFrame_GetLasti)(public.get());
                    if found.get() as usize != code || i64::from(lasti) != offset as i64 {
                        return Err("frames");
                    }
                    frame = Owned::take(api, (api.PyFrame_GetBack)(public.get()));
                    top.get_or_insert(found);
                }
                (Some(_), None) | (None, Some(_)) => return Err("the chain of frames"),
            }
        }
        let code = top.ok_or("no frame")?;
        verify_code(api, layout, code.get())
    }
}

/// # Safety
/// The GIL is held; `code` is a code object.
unsafe fn verify_code(api: &Api, layout: &Layout, code: *mut PyObject) -> Result<(), &'static str> {
    // SAFETY: by the contract.
    unsafe {
        let public = |name: &CStr| api.attribute(code, name).ok_or("code objects");
        for (name, offset) in [
            (c"co_qualname", layout.code_qualname),
            (c"co_filename", layout.code_filename),
        ] {
            let public = public(name)?;
            if public.get() as usize != field::<usize>(code as usize, offset) {
                return Err("code objects");
            }
            let mut text = String::new();
            let read = strings::append(layout, public.get() as usize, &mut text);
            if !read
                || api
                    .text(public.get())
                    .is_none_or(|expected| expected != text)
            {
                return Err("strings");
            }
        }
        if public(c"co_linetable")?.get() as usize
            != field::<usize>(code as usize, layout.code_linetable)
        {
            return Err("position tables");
        }
        let line = (api.PyLong_AsLong)(public(c"co_firstlineno")?.get());
        if line != c_long::from(field::<u32>(code as usize, layout.code_first_line)) {
            return Err("line numbers");
        }
    }
    Ok(())
}
