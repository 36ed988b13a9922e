//! Data that Python passes to the agent, and allocations that the agent requests from Python.

use std::ffi::{CString, c_char, c_int, c_void};

use nthbyte_host::BoundedLock;

use crate::types::{ProbeInstance, Types};

/// An allocation that the agent requests from Python. `nthbyte/_pypy.py` uses the same numbers.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// A few small objects.
    Small = 0,
    /// Large objects of each kind, of the given size. The last object is
    /// [`GilTrap::ROOM`](crate::gil_trap::GilTrap::ROOM) larger.
    LargeOfEachKind = 1,
    /// One object of the given size.
    OneLarge = 2,
    /// One object of the given size, after which this process may be a copy ([`crate::holders`]).
    Snapshot = 3,
}

/// Makes Python call its `_allocate(request, size)`; `size` is in bytes.
///
/// This uses PyPy's embedding interface, not a callback. For a callback PyPy sets up threads, and from
/// then on every loop stops regularly to let other threads run. A tight loop then takes a quarter longer.
pub fn allocate(request: Wanted, size: usize) {
    type Execute = unsafe extern "C" fn(*const c_char) -> c_int;
    // SAFETY: the name is a terminated string.
    let execute = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pypy_execute_source".as_ptr()) };
    let source = CString::new(format!(
        "from nthbyte import _pypy\n_pypy._allocate({}, {size})\n",
        request as u8
    ));
    if let Ok(source) = source
        && !execute.is_null()
    {
        // SAFETY: the function has this type since PyPy 2.x. It takes the interpreter's lock itself, and the C
        // functions that lead to this call are called without the lock.
        unsafe { std::mem::transmute::<*mut c_void, Execute>(execute)(source.as_ptr()) };
    }
}

/// The settings in the configuration under `"pypy"`.
#[derive(Debug)]
pub struct PypySettings {
    /// Bytes of the nursery, if PyPy knows.
    pub nursery_size: Option<usize>,
    /// Sentences for the profile's reader.
    pub notes: Vec<String>,
}

impl PypySettings {
    /// Reads the settings.
    #[must_use]
    pub fn read(value: &serde_json::Value) -> Self {
        let nursery = value.get("nursery").and_then(serde_json::Value::as_u64);
        let notes = value.get("notes").and_then(serde_json::Value::as_array);
        let text = |note: &serde_json::Value| note.as_str().map(str::to_owned);
        Self {
            nursery_size: nursery.and_then(|size| usize::try_from(size).ok()),
            notes: notes
                .map(|notes| notes.iter().filter_map(text).collect())
                .unwrap_or_default(),
        }
    }
}

/// The type names between sessions: all sessions of a process share them.
static TYPES: BoundedLock<Option<Types>> = BoundedLock::new(None);

/// Removes the type names from the store, for a new session. `None` if another thread holds the store, as in the child of a
/// fork: then types have no names.
pub fn take_types() -> Option<Types> {
    TYPES
        .lock()
        .map(|mut types| types.take().unwrap_or_default())
}

/// Stores the type names for the next session.
pub fn keep_types(types: Types) {
    if let Some(mut place) = TYPES.lock() {
        *place = Some(types);
    }
}

/// Adds instances whose classes are known to the stored type names.
pub fn keep_probe_instances(instances: Vec<ProbeInstance>) {
    if let Some(mut place) = TYPES.lock()
        && let Some(types) = place.as_mut()
    {
        types.probe_with(instances);
    }
}

/// Names of threads, by the operating system's numbers, for the session that is about to stop.
static THREAD_NAMES: BoundedLock<Vec<(u64, String)>> = BoundedLock::new(Vec::new());

/// Stores the name of a thread.
pub fn keep_thread_name(os_id: u64, name: String) {
    if let Some(mut names) = THREAD_NAMES.lock() {
        names.push((os_id, name));
    }
}

/// Returns the names that were stored since the last call.
pub fn take_thread_names() -> Vec<(u64, String)> {
    THREAD_NAMES
        .lock()
        .map(|mut names| std::mem::take(&mut *names))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_the_names_of_types_and_threads() {
        let (types, names) = (TYPES.lock(), THREAD_NAMES.lock());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(take_types().is_none());
                keep_types(Types::default());
                keep_probe_instances(Vec::new());
                keep_thread_name(1, "one".to_owned());
                assert!(take_thread_names().is_empty());
            });
        });
        drop((types, names));
        keep_thread_name(1, "one".to_owned());
        assert_eq!(take_thread_names(), [(1, "one".to_owned())]);
        assert!(take_types().is_some());
    }
}
