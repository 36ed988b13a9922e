//! Functions and types: definitions that the host finds by a key of its own, or by a name.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use nthbyte_profile::event::{CodeId, NodeId, TypeId};

use super::nodes::MAX_CODES;

/// A map whose keys are addresses and numbers of this process. No attacker chooses the keys, so no random seed is
/// needed.
pub type KeyMap<K, V> = HashMap<K, V, FixedState>;

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
pub(crate) type Functions = Keyed<CodeId, Appearance>;

/// A defined type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownType {
    /// The number of the type.
    pub id: TypeId,
    /// A value of the host's own, returned by the same look-up.
    pub detail: u32,
}

/// The types of one epoch.
pub(crate) type Types = Keyed<TypeId, KnownType>;

/// The number of a definition.
pub(crate) trait Number: Copy {
    /// The first one that is given, and the first one that is not.
    const ALL: [u32; 2];

    fn from_u32(number: u32) -> Self;
}

impl Number for CodeId {
    const ALL: [u32; 2] = [0, MAX_CODES];

    fn from_u32(number: u32) -> Self {
        Self(number)
    }
}

impl Number for TypeId {
    const ALL: [u32; 2] = [Self::UNKNOWN.0 + 1, u32::MAX];

    fn from_u32(number: u32) -> Self {
        Self(number)
    }
}

/// The definitions of one kind in one epoch. `Known`: the value for a key.
pub(crate) struct Keyed<Id, Known> {
    by_key: KeyMap<u64, Known>,
    by_name: KeyMap<&'static str, Id>,
    next: u32,
    /// The number of the first one that was defined since [`Self::begin_anew`].
    first: u32,
}

impl<Id: Number, Known> Default for Keyed<Id, Known> {
    fn default() -> Self {
        Self {
            by_key: KeyMap::default(),
            by_name: KeyMap::default(),
            next: Id::ALL[0],
            first: Id::ALL[0],
        }
    }
}

impl<Id: Number, Known: Copy> Keyed<Id, Known> {
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<Known> {
        self.by_key.get(&key).copied()
    }

    #[inline]
    pub(crate) fn named(&self, name: &'static str) -> Option<Id> {
        self.by_name.get(name).copied()
    }

    /// Reserves space for one more key and one more name. `None` if there is no memory or no free number.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.by_key.try_reserve(1).ok()?;
        self.by_name.try_reserve(1).ok()?;
        (self.next < Id::ALL[1]).then_some(())
    }

    /// The number of the next definition.
    pub(crate) fn define(&mut self) -> Id {
        self.next += 1;
        Id::from_u32(self.next - 1)
    }

    /// Adds a key. The caller has reserved space for it.
    pub(crate) fn insert(&mut self, key: u64, known: Known) {
        self.by_key.insert(key, known);
    }

    /// Adds a name. The caller has reserved space for it.
    pub(crate) fn insert_named(&mut self, name: &'static str, id: Id) {
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

    /// How many were defined since [`Self::begin_anew`].
    pub(crate) const fn defined(&self) -> u32 {
        self.next - self.first
    }

    /// Forgets all, and their memory. Numbers go on.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self {
            next: self.next,
            first: self.next,
            ..Self::default()
        };
    }
}
