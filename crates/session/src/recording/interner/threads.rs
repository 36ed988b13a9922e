//! Threads, identified by the operating system's number.

use super::keyed::KeyMap;
use nthbyte_profile::event::ThreadId;

/// The threads of one epoch.
#[derive(Default)]
pub(crate) struct Threads {
    known: KeyMap<u64, KnownThread>,
    /// How many were forgotten.
    forgotten: u32,
    /// The thread of the last look-up. Most samples come from the same thread as the sample before.
    last: Option<(u64, KnownThread)>,
}

/// Where the name of a thread is from. A later one replaces those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Naming {
    /// There was no look for a name.
    Unnamed,
    /// From the system: a thread has that name before it is one of the host's.
    System,
    /// From the host; or it has none.
    Host,
}

/// A defined thread.
#[derive(Clone, Copy)]
pub(crate) struct KnownThread {
    pub(crate) id: ThreadId,
    pub(crate) naming: Naming,
}

impl Threads {
    /// Returns a thread if it is the one of the last look-up.
    #[inline]
    pub(crate) fn last(&self, os_id: u64) -> Option<KnownThread> {
        self.last
            .filter(|&(last, _)| last == os_id)
            .map(|(_, known)| known)
    }

    pub(crate) fn get(&self, os_id: u64) -> Option<KnownThread> {
        self.known.get(&os_id).copied()
    }

    /// Reserves space for one more thread. `None` if there is none.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.known.try_reserve(1).ok()
    }

    /// Adds a thread. The caller has reserved space for it.
    pub(crate) fn define(&mut self, os_id: u64, naming: Naming) -> KnownThread {
        let known = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let id = ThreadId(self.forgotten.saturating_add(known));
        let known = KnownThread { id, naming };
        self.known.insert(os_id, known);
        known
    }

    /// How many were defined since [`Self::begin_anew`].
    pub(crate) fn defined(&self) -> usize {
        self.known.len()
    }

    /// Forgets all, and their memory. Numbers go on.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self {
            known: KeyMap::default(),
            forgotten: self.forgotten.saturating_add(self.known.len() as u32),
            last: None,
        };
    }

    /// Records where the thread's name was looked for.
    pub(crate) fn set_naming(&mut self, os_id: u64, naming: Naming) {
        if let Some(known) = self.known.get_mut(&os_id) {
            known.naming = naming;
        }
    }

    /// Makes a thread the one of the last look-up.
    pub(crate) fn set_last(&mut self, os_id: u64) {
        self.last = self.get(os_id).map(|known| (os_id, known));
    }
}
