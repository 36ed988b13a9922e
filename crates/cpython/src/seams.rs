//! Entry points for tests. A release does not contain them.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::api::Gil;
use crate::layout::{Layout, UNUSED};
use crate::verify;

/// The names of the layout's fields.
#[must_use]
pub fn layout_fields() -> &'static [&'static str] {
    Layout::FIELDS
}

/// Verifies the layout of the running interpreter with one field changed, and returns what does not agree. `None` if
/// the version does not have the field.
///
/// # Errors
/// One line: the interpreter is not supported.
pub fn verify_with(
    gil: &Gil,
    field: usize,
    change: isize,
) -> Result<Option<Option<&'static str>>, String> {
    let mut layout = Layout::of(gil.api())?;
    let Some(value) = layout.fields_mut().nth(field) else {
        return Err("no such field".to_owned());
    };
    if *value == UNUSED {
        return Ok(None);
    }
    *value = value.wrapping_add_signed(change);
    Ok(Some(verify::verify(gil, &layout).err()))
}

static UNTIL_PANIC: AtomicU32 = AtomicU32::new(0);

/// Makes a later call of the agent panic: the next one if `calls` is 1.
pub fn panic_after(calls: u32) {
    UNTIL_PANIC.store(calls, Relaxed);
}

/// From now on, lets the agent's allocations of the numbers `first` to `end` - 1 fail. Returns the number of allocations
/// since the last call.
pub fn fail_allocations(first: u64, end: u64) -> u64 {
    nthbyte_host::memory::failing::fail(first, end)
}

/// Called at each entry point, inside the code that catches panics.
pub(crate) fn enter() {
    let left = UNTIL_PANIC.load(Relaxed);
    UNTIL_PANIC.store(left.saturating_sub(1), Relaxed);
    assert!(left != 1, "a test wanted it");
}
