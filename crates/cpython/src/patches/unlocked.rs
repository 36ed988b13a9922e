//! The check for the GIL at requests that the heap passes on to CPython's allocator (CPython 3.11).
//!
//! - What: not a patch, but a setting of the heap ([`nthbyte_heap::HeapConfig::holds_lock`]).
//! - Installed: with the heap.
//! - Removed: never.
//!
//! `PyMem_Malloc` needs the GIL. But CPython 3.11 passes a request above 512 bytes directly to the C library, so
//! extensions that make such requests without the GIL work, and so do frees of such blocks. The heap passes them to
//! CPython too, and takes no sample without the GIL. From 3.12 on, CPython itself crashes there: it looks for the
//! state of the thread's interpreter first.

use std::sync::OnceLock;

use nthbyte_heap::HoldsLock;

use crate::api::Api;
use crate::layout::Layout;
use nthbyte_host::process::Probe;

/// What the check reads. It never changes.
struct Check {
    api: &'static Api,
    native_thread_id: usize,
}

static CHECK: OnceLock<Check> = OnceLock::new();

/// The check, if CPython serves such requests.
#[must_use]
pub fn check(api: &'static Api, layout: &Layout) -> Option<HoldsLock> {
    if !layout.features.serves_without_gil {
        return None;
    }
    CHECK.get_or_init(|| Check {
        api,
        native_thread_id: layout.native_thread_id,
    });
    Some(holds_gil)
}

/// Whether the calling thread holds the GIL. Costs about 30 instructions.
#[unsafe(link_section = "nthbyte_hot")]
unsafe extern "C" fn holds_gil() -> bool {
    let Some(check) = CHECK.get() else {
        return false;
    };
    // SAFETY: both may be called at any time, in any thread. They read variables of the process and of the thread.
    let (attached, own) = unsafe {
        (
            (check.api.PyThreadState_GetUnchecked)() as usize,
            (check.api.PyGILState_GetThisThreadState)() as usize,
        )
    };
    // Before 3.12 the first is the state of the thread that holds the GIL, whichever that is.
    attached != 0 && (attached == own || is_of_this_thread(check, attached))
}

/// Whether a state that is not the thread's first one belongs to the calling thread: one of another interpreter does.
/// The state of another thread may be freed at this moment.
#[cold]
fn is_of_this_thread(check: &Check, state: usize) -> bool {
    // SAFETY: no preconditions.
    let thread = unsafe { libc::gettid() }.cast_unsigned() as usize;
    let address = state.wrapping_add(check.native_thread_id);
    Probe::new().and_then(|probe| probe.read(address)) == Some(thread)
}
