//! Label sets, identified by their parent and their own label.

use super::keys::KeyMap;
use nthbyte_profile::event::LabelSetId;

/// The label sets of one epoch.
pub(crate) struct Labels {
    by_text: KeyMap<(LabelSetId, &'static str, String), LabelSetId>,
    next: u32,
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            by_text: KeyMap::default(),
            next: LabelSetId::NONE.0 + 1,
        }
    }
}

impl Labels {
    pub(crate) fn get(&self, label: &(LabelSetId, &'static str, String)) -> Option<LabelSetId> {
        self.by_text.get(label).copied()
    }

    /// Reserves space for one more set. `None` if there is no memory.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.by_text.try_reserve(1).ok()
    }

    /// Adds a set, and returns its number. The caller has reserved space for it.
    pub(crate) fn define(&mut self, label: (LabelSetId, &'static str, String)) -> LabelSetId {
        let id = LabelSetId(self.next);
        self.next += 1;
        self.by_text.insert(label, id);
        id
    }
}
