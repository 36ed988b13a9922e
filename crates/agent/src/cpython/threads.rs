//! Threads and their names.
//!
//! A thread is known by the operating system's number. Its Python name is looked up later, when it
//! is safe to run Python: at a collection, or when the session ends.

use nthbyte_profile::event::{Thread, ThreadId};
use rustc_hash::FxHashMap;

use super::api::{Api, Owned};
use crate::session::Recorder;

/// Threads that have been seen.
#[derive(Default)]
pub struct Threads {
    known: FxHashMap<u64, ThreadId>,
    /// The last one asked for.
    last: Option<(u64, ThreadId)>,
    unnamed: Vec<Unnamed>,
}

/// A thread without a name.
#[derive(Clone, Copy, Debug)]
pub struct Unnamed {
    os_id: u64,
    id: ThreadId,
    /// How often its name has been asked for: a thread may be seen before `threading` knows it.
    tries: u8,
}

/// A thread is asked for so often; those that C started have no name to be found.
const MAX_TRIES: u8 = 3;

impl Threads {
    /// Forgets all.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The number of a thread, which is defined if it is new.
    #[inline]
    pub fn id(&mut self, os_id: u64, recorder: &mut Recorder) -> Option<ThreadId> {
        match self.last {
            Some((last, id)) if last == os_id => Some(id),
            _ => self.look_up(os_id, recorder),
        }
    }

    #[cold]
    fn look_up(&mut self, os_id: u64, recorder: &mut Recorder) -> Option<ThreadId> {
        let id = match self.known.get(&os_id) {
            Some(&id) => id,
            None => {
                self.known.try_reserve(1).ok()?;
                self.unnamed.try_reserve(1).ok()?;
                let is_main = os_id == u64::from(std::process::id());
                let name = if is_main { "MainThread" } else { "" };
                let id = recorder.thread(&Thread { os_id, name })?;
                self.known.insert(os_id, id);
                if !is_main {
                    self.unnamed.push(Unnamed {
                        os_id,
                        id,
                        tries: 0,
                    });
                }
                id
            }
        };
        self.last = Some((os_id, id));
        Some(id)
    }

    /// Whether there are threads to ask a name for.
    #[must_use]
    pub fn has_unnamed(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// The threads to ask a name for; [`Self::put_back`] those for which none was found.
    pub fn take_unnamed(&mut self) -> Vec<Unnamed> {
        std::mem::take(&mut self.unnamed)
    }

    /// Puts threads back that have no name yet.
    pub fn put_back(&mut self, still: Vec<Unnamed>) {
        if self.unnamed.try_reserve(still.len()).is_ok() {
            self.unnamed.extend(still.into_iter().filter_map(|thread| {
                let tries = thread.tries + 1;
                (tries < MAX_TRIES).then_some(Unnamed { tries, ..thread })
            }));
        }
    }
}

/// The names that `threading` has; takes the threads that it found out of `threads`. Finds none if
/// the program has not imported it.
///
/// # Safety
/// The GIL is held and Python code may run.
pub unsafe fn names(api: &Api, threads: &mut Vec<Unnamed>) -> Vec<(ThreadId, String)> {
    // SAFETY: as the caller says; borrowed references are used before anything else happens to them,
    // or are made strong first.
    unsafe {
        let threading =
            (api.PyDict_GetItemString)((api.PyImport_GetModuleDict)(), c"threading".as_ptr());
        let Some(active) = api.attribute(threading, c"_active") else {
            return Vec::new();
        };
        let Some(list) = api
            .attribute(active.get(), c"values")
            .and_then(|values| Owned::take(api, (api.PyObject_CallNoArgs)(values.get())))
            .and_then(|values| Owned::take(api, (api.PySequence_List)(values.get())))
        else {
            (api.PyErr_Clear)();
            return Vec::new();
        };
        let mut found = Vec::new();
        for at in 0.. {
            let thread = (api.PyList_GetItem)(list.get(), at);
            if thread.is_null() {
                (api.PyErr_Clear)();
                break;
            }
            let Some(os_id) = api.attribute(thread, c"_native_id") else {
                continue;
            };
            let os_id = (api.PyLong_AsLong)(os_id.get());
            (api.PyErr_Clear)();
            let wanted = threads
                .iter()
                .position(|wanted| Ok(wanted.os_id) == u64::try_from(os_id));
            if let Some(at) = wanted
                && let Some(name) = api.attribute(thread, c"_name")
                && let Some(name) = api.text(name.get())
            {
                found.push((threads.swap_remove(at).id, name));
            }
        }
        found
    }
}
