//! Has the interpreter do work that is due, at the next point at which Python code may run: a snapshot, and a look at the
//! names in the cache of attributes.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};

use nthbyte_session::snapshots::due;

use crate::api::Api;
use crate::patches::attribute_cache;

/// The first version whose list of pending calls has a lock for which a thread gives the GIL away.
const FIRST_DETACHING: u32 = 0x030d_0000;

/// A function that the interpreter calls.
pub type Call = extern "C" fn(*mut c_void) -> c_int;

static CALL: OnceLock<Call> = OnceLock::new();
/// Whether the interpreter was asked.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Sets the function, which is never unloaded.
pub fn set(call: Call) {
    CALL.get_or_init(|| call);
}

/// Nobody was asked, or the function has been called: it is asked for again when something is due.
pub fn begun() {
    IS_ASKED.store(false, Release);
}

/// Asks, if something is due. `is_inside`: this thread holds the GIL, and is inside of an allocation; else it is the writer
/// thread. Before 3.13, a thread without the GIL might read the state of a thread that ends; from then on, one with the GIL
/// might give it away, which no allocation may.
pub fn ask(api: &Api, is_inside: bool) {
    let Some(&call) = CALL.get() else {
        return;
    };
    if (due::is_due() || attribute_cache::is_due())
        && is_inside == (api.version() < FIRST_DETACHING)
        && !IS_ASKED.swap(true, AcqRel)
    {
        // SAFETY: the function is never unloaded, and the list's lock is held for some instructions.
        let full = unsafe { (api.Py_AddPendingCall)(call, std::ptr::null_mut()) };
        if full != 0 {
            begun();
        }
    }
}

/// Called by the writer thread, again and again.
pub fn ask_from_writer() {
    if let Ok(api) = Api::get() {
        ask(api, false);
    }
}
