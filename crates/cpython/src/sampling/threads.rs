//! Threads and their names.
//!
//! A thread is known by the operating system's number. The name that `threading` has for it is read
//! when the thread is first seen to allocate: `Thread._bootstrap`, the outermost frame of each thread
//! that Python started, has the `Thread` as its first local variable.

use nthbyte_profile::event::{Thread, ThreadId};
use rustc_hash::FxHashMap;

use nthbyte_session::Recorder;

/// Threads that have been seen.
#[derive(Default)]
pub struct Threads {
    known: FxHashMap<u64, Known>,
    /// The last one asked for with its stack.
    last: Option<(u64, ThreadId)>,
}

#[derive(Clone, Copy)]
struct Known {
    id: ThreadId,
    /// Whether its name was looked for.
    asked: bool,
}

impl Threads {
    /// Forgets all.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The number of a thread, which is defined if it is new. `name` reads its name from its stack,
    /// where that has been walked. `None` if there is no room.
    #[inline]
    pub fn id(
        &mut self,
        os_id: u64,
        recorder: &mut Recorder,
        name: Option<&dyn Fn() -> Option<String>>,
    ) -> Option<ThreadId> {
        match self.last {
            Some((last, id)) if last == os_id => Some(id),
            _ => self.look_up(os_id, recorder, name),
        }
    }

    #[cold]
    fn look_up(
        &mut self,
        os_id: u64,
        recorder: &mut Recorder,
        name: Option<&dyn Fn() -> Option<String>>,
    ) -> Option<ThreadId> {
        let is_main = os_id == u64::from(std::process::id());
        let mut known = match self.known.get(&os_id) {
            Some(&known) => known,
            None => {
                self.known.try_reserve(1).ok()?;
                let name = if is_main { "MainThread" } else { "" };
                Known {
                    id: recorder.thread(&Thread { os_id, name })?,
                    asked: is_main,
                }
            }
        };
        if let Some(name) = name {
            if !std::mem::replace(&mut known.asked, true)
                && let Some(name) = name()
            {
                recorder.thread_name(known.id, &name);
            }
            self.last = Some((os_id, known.id));
        }
        self.known.insert(os_id, known);
        Some(known.id)
    }
}
