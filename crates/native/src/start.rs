//! The start of the library: the functions are known before there are more threads.

use std::sync::atomic::Ordering::Relaxed;

use nthbyte_host::process::image;

use crate::functions::{FUNCTIONS, NAMES, OPERATORS};
use crate::replaced::{FOUND, REPLACED, find_resize, functions, has_operators, is_preloaded};
use crate::{definitions, reports, slots};

/// Called by the dynamic linker before `main`, or when the agent loads the library.
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALIZE: extern "C" fn() = initialize;

extern "C" fn initialize() {
    if functions().is_none() {
        return;
    }
    find_operators();
    find_resize();
    if is_preloaded() && has_operators() {
        slots::attach_operators();
    }
}

/// Finds C++'s operators, if they are in the library of another allocator than the C library's. The look-up allocates, so it
/// is not part of the other one.
fn find_operators() {
    let malloc = REPLACED.malloc.load(Relaxed) as usize;
    let [start, end] = image::range(malloc);
    let allocator = start..end;
    let c_library = definitions::c_library();
    let is_other = |address| allocator.contains(&malloc) && !allocator.contains(&address);
    // An allocator that is part of the program is not told apart from the rest of it.
    if !is_other(c_library) || !is_other(definitions::program()) {
        return;
    }
    let (_, names) = NAMES
        .split_first_chunk::<OPERATORS>()
        .expect("there are more");
    let names: &[_; FUNCTIONS - OPERATORS] = names.try_into().expect("the rest");
    for (place, function) in FOUND[OPERATORS..].iter().zip(definitions::of(names)) {
        if allocator.contains(&(function as usize)) {
            place.store(function, Relaxed);
        }
    }
    if has_operators() {
        reports::exclude_calls_of(allocator);
    }
}
