//! Takes this library out of the environment, so that the programs that this one starts do not load it.
//!
//! The launcher stores the value that `LD_PRELOAD` had before in [`BEFORE`]. The variable itself stays: Python removes
//! it, when it has seen that this process was started again for this library.

use std::ffi::{CStr, c_char, c_int};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const BEFORE: &[u8] = b"NTHBYTE_PRELOAD=";

/// Called by the dynamic linker before `main`, or when the agent loads the library.
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALIZE: extern "C" fn(c_int, *const *const c_char, *mut *mut c_char) = initialize;

extern "C" fn initialize(_: c_int, _: *const *const c_char, environment: *mut *mut c_char) {
    crate::replaced::functions();
    if !crate::replaced::is_preloaded() {
        return;
    }
    // SAFETY: the C library passes the environment: an array of strings that ends with a null pointer. No other thread
    // exists yet.
    unsafe { restore(environment) };
}

/// # Safety
/// An environment that nobody else uses at the moment.
unsafe fn restore(environment: *mut *mut c_char) {
    // SAFETY: by the contract. What is written is not longer than what was there: the launcher puts this library before
    // the old value.
    unsafe {
        let (Some((_, before)), Some((at, now))) =
            (find(environment, BEFORE), find(environment, PRELOAD))
        else {
            return;
        };
        let (old, new) = (CStr::from_ptr(now), CStr::from_ptr(before));
        if new.to_bytes().len() > old.to_bytes().len() {
            return;
        }
        if new.is_empty() {
            let mut place = at;
            while !(*place).is_null() {
                *place = *place.add(1);
                place = place.add(1);
            }
        } else {
            now.copy_from_nonoverlapping(before, new.to_bytes_with_nul().len());
        }
    }
}

/// The place of a variable, and its value.
unsafe fn find(
    environment: *mut *mut c_char,
    name: &[u8],
) -> Option<(*mut *mut c_char, *mut c_char)> {
    if environment.is_null() {
        return None;
    }
    let mut place = environment;
    // SAFETY: as in `restore`.
    unsafe {
        while !(*place).is_null() {
            if CStr::from_ptr(*place).to_bytes().starts_with(name) {
                return Some((place, (*place).add(name.len())));
            }
            place = place.add(1);
        }
    }
    None
}
