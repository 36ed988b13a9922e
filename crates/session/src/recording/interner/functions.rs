//! Functions (code objects), identified by the host's key.

use super::keys::KeyMap;
use nthbyte_profile::event::{CodeId, NodeId};

use super::nodes::MAX_CODES;

/// How frames of a function appear in stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appearance {
    /// As frames.
    Frame(CodeId),
    /// As frames, except at the outer end of a stack.
    FrameWithin(CodeId),
    /// Not at all.
    Hidden,
}

impl Appearance {
    /// The code object of a frame that `parent` calls. `None` if there is no frame.
    #[inline(always)]
    #[must_use]
    pub fn below(self, parent: NodeId) -> Option<CodeId> {
        match self {
            Self::Frame(code) => Some(code),
            Self::FrameWithin(code) => (parent != NodeId::ROOT).then_some(code),
            Self::Hidden => None,
        }
    }
}

/// The functions of one epoch.
#[derive(Default)]
pub(crate) struct Functions {
    by_key: KeyMap<u64, Appearance>,
    by_name: KeyMap<&'static str, CodeId>,
    defined: u32,
}

impl Functions {
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<Appearance> {
        self.by_key.get(&key).copied()
    }

    pub(crate) fn named(&self, name: &'static str) -> Option<CodeId> {
        self.by_name.get(name).copied()
    }

    /// Reserves space for one more key and one more name. `None` if there is no memory or no free number.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.by_key.try_reserve(1).ok()?;
        self.by_name.try_reserve(1).ok()?;
        (self.defined < MAX_CODES).then_some(())
    }

    /// The number of the next definition.
    pub(crate) fn define(&mut self) -> CodeId {
        self.defined += 1;
        CodeId(self.defined - 1)
    }

    /// Adds a key. The caller has reserved space for it.
    pub(crate) fn insert(&mut self, key: u64, appearance: Appearance) {
        self.by_key.insert(key, appearance);
    }

    /// Adds a name. The caller has reserved space for it.
    pub(crate) fn insert_named(&mut self, name: &'static str, id: CodeId) {
        self.by_name.insert(name, id);
    }

    /// Removes a key. Returns whether it was known.
    pub(crate) fn forget(&mut self, key: u64) -> bool {
        self.by_key.remove(&key).is_some()
    }

    /// Removes all keys. Names and numbers stay valid.
    pub(crate) fn forget_keys(&mut self) {
        self.by_key.clear();
    }
}
