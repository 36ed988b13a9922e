//! Threads, identified by the operating system's number.

use super::KeyMap;
use nthbyte_profile::event::ThreadId;

/// The threads of one epoch.
#[derive(Default)]
pub(crate) struct Threads {
    known: KeyMap<u64, Known>,
    /// The thread of the last look-up. Most samples come from the same thread as the sample before.
    last: Option<(u64, Known)>,
}

/// A defined thread.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) id: ThreadId,
    /// Whether the thread's name is known or was looked for.
    pub(crate) is_named: bool,
}

impl Threads {
    /// Returns a thread if it is the one of the last look-up.
    #[inline]
    pub(crate) fn last(&self, os_id: u64) -> Option<Known> {
        self.last
            .filter(|&(last, _)| last == os_id)
            .map(|(_, known)| known)
    }

    pub(crate) fn get(&self, os_id: u64) -> Option<Known> {
        self.known.get(&os_id).copied()
    }

    /// Reserves space for one more thread. `None` if there is none.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.known.try_reserve(1).ok()
    }

    /// Adds a thread. The caller has reserved space for it.
    pub(crate) fn define(&mut self, os_id: u64, is_named: bool) -> Known {
        let id = ThreadId(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        let known = Known { id, is_named };
        self.known.insert(os_id, known);
        known
    }

    /// Records that the thread's name was looked for.
    pub(crate) fn set_named(&mut self, os_id: u64) {
        if let Some(known) = self.known.get_mut(&os_id) {
            known.is_named = true;
        }
    }

    /// Makes a thread the one of the last look-up.
    pub(crate) fn set_last(&mut self, os_id: u64) {
        self.last = self.get(os_id).map(|known| (os_id, known));
    }
}
