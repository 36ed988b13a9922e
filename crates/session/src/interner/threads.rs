//! Threads by the operating system's number.

use super::KeyMap;
use nthbyte_profile::event::ThreadId;

/// The threads of one epoch.
#[derive(Default)]
pub(crate) struct Threads {
    known: KeyMap<u64, Known>,
    /// The last one asked for: most samples are of the same thread as the one before.
    last: Option<(u64, Known)>,
}

/// A thread that was defined.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) id: ThreadId,
    /// Whether its name is known, or was looked for.
    pub(crate) is_named: bool,
}

impl Threads {
    /// A thread, if it was the last one asked for.
    #[inline]
    pub(crate) fn last(&self, os_id: u64) -> Option<Known> {
        self.last
            .filter(|&(last, _)| last == os_id)
            .map(|(_, known)| known)
    }

    pub(crate) fn get(&self, os_id: u64) -> Option<Known> {
        self.known.get(&os_id).copied()
    }

    /// Makes room for one more; `None` if there is none.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.known.try_reserve(1).ok()
    }

    /// Adds a thread for which there is room.
    pub(crate) fn define(&mut self, os_id: u64, is_named: bool) -> Known {
        let id = ThreadId(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        let known = Known { id, is_named };
        self.known.insert(os_id, known);
        known
    }

    /// Its name was looked for.
    pub(crate) fn set_named(&mut self, os_id: u64) {
        if let Some(known) = self.known.get_mut(&os_id) {
            known.is_named = true;
        }
    }

    /// It is the last one asked for.
    pub(crate) fn set_last(&mut self, os_id: u64) {
        self.last = self.get(os_id).map(|known| (os_id, known));
    }
}
