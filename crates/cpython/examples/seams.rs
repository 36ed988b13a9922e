//! A library by which tests reach into the agent, from inside an interpreter that loads it with `ctypes.PyDLL`.

use std::ffi::{CString, c_char};

use nthbyte_cpython::{Gil, seams};

/// The name of a field of the layout; null behind the last.
#[unsafe(no_mangle)]
extern "C" fn layout_field(at: usize) -> *const c_char {
    seams::layout_fields()
        .get(at)
        .and_then(|name| CString::new(*name).ok())
        .map_or(std::ptr::null(), |name| name.into_raw())
}

/// What does not agree in a layout with one field changed, `fine`, or `unused`.
#[unsafe(no_mangle)]
extern "C" fn verify_with(field: usize, change: isize) -> *const c_char {
    // SAFETY: `PyDLL` calls with the GIL held, in Python code.
    let result = match unsafe { Gil::of_caller() } {
        Some(gil) => seams::verify_with(&gil, field, change),
        None => Err("no CPython".to_owned()),
    };
    let text = match result {
        Ok(Some(Some(what))) => what.to_owned(),
        Ok(Some(None)) => "fine".to_owned(),
        Ok(None) => "unused".to_owned(),
        Err(why) => format!("error: {why}"),
    };
    CString::new(text).unwrap_or_default().into_raw()
}

/// Has a call of the agent panic.
#[unsafe(no_mangle)]
extern "C" fn panic_after(calls: u32) {
    seams::panic_after(calls);
}

/// Has allocations of the agent fail.
#[unsafe(no_mangle)]
extern "C" fn fail_allocations(first: u64, end: u64) -> u64 {
    seams::fail_allocations(first, end)
}
