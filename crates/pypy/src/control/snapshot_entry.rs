//! The C functions for snapshots that Python calls: some in the program, and the others in the copy of it, in this order.
//!
//! ```text
//! learn_signals  in the program, before the first session
//! snapshot_due   in the program, where Python was asked to come
//! snapshot       in the program; the copy goes on in `_allocate`
//! is_copy        1 there
//! copy_graph     after `gc._dump_rpy_heap`: what leads to samples
//! copy_nodes     its nodes, for which Python finds names
//! copy_leave     ends the copy, with its result; or copy_fail
//! ```

use std::ffi::{CStr, c_char, c_int};

use nthbyte_profile::holders::Reason;
use nthbyte_session::{copy_text, snapshots};

use crate::holders;

/// Takes a snapshot of who holds what. `reason`: its number in a profile; `whatever`: whatever it costs; `bytes`: what objects
/// take. Returns 0, or 1 with the reason why there is none in `message`.
///
/// # Safety
/// `message` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_snapshot(
    reason: u32,
    whatever: c_int,
    bytes: u64,
    message: *mut c_char,
    length: usize,
) -> c_int {
    let reason = Reason::of_number(reason.into()).unwrap_or(Reason::Call);
    let Err(why) = super::snapshot(reason, whatever != 0, bytes) else {
        return 0;
    };
    // SAFETY: the caller's promise.
    unsafe { copy_text(&why, message, length) };
    1
}

/// Finds out how Python is asked to come when a snapshot is due, from a signal for which Python has a handler now. Returns 1 if it
/// is known, or else 0.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_learn_signals(signal: c_int) -> c_int {
    c_int::from(holders::pending::learn(signal))
}

/// Why a snapshot is due, once: the reason's number and 1, and 256 more if it is taken whatever it costs; 0 if none is due.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_snapshot_due() -> c_int {
    match holders::pending::take() {
        Some((reason, whatever)) => c_int::from(reason as u8) + 1 + 256 * c_int::from(whatever),
        None => 0,
    }
}

/// Processor time that snapshots have taken until now, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_snapshot_nanos() -> u64 {
    snapshots::spent().0
}

/// Whether this process is a copy that shall look at its objects.
#[unsafe(no_mangle)]
pub extern "C" fn nthbyte_pypy_is_copy() -> c_int {
    c_int::from(holders::is_copy())
}

/// Reads the graph. `roots`: addresses of modules, their dictionaries and classes; `frames`: for each of `frame_count`, a thread,
/// which is an odd number, and a frame's address. Returns the number of nodes.
///
/// # Safety
/// There are as many numbers as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_copy_graph(
    roots: *const usize,
    root_count: usize,
    frames: *const [usize; 2],
    frame_count: usize,
) -> usize {
    // SAFETY: the caller's promise.
    let (roots, frames) = unsafe {
        (
            std::slice::from_raw_parts(roots, root_count),
            std::slice::from_raw_parts(frames, frame_count),
        )
    };
    holders::graph(roots, frames)
}

/// Writes three numbers for each node: its address, its parent's number plus 1, and 0 if it is inside of another one, 1 if it is an
/// object of Python, 2 if it is a root.
///
/// # Safety
/// There is room for three numbers for each of `count` nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_copy_nodes(into: *mut u64, count: usize) {
    // SAFETY: the caller's promise.
    holders::nodes(unsafe { std::slice::from_raw_parts_mut(into, 3 * count) });
}

/// Ends the copy, with what Python has found: a line for each node that has a name.
///
/// # Safety
/// `names` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_copy_leave(names: *const c_char) {
    // SAFETY: the caller's promise.
    let names = unsafe { CStr::from_ptr(names) }.to_string_lossy();
    holders::leave(&names);
}

/// Ends the copy without a result. `why`: one clause.
///
/// # Safety
/// `why` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nthbyte_pypy_copy_fail(why: *const c_char) {
    // SAFETY: the caller's promise.
    holders::fail(&unsafe { CStr::from_ptr(why) }.to_string_lossy());
}
