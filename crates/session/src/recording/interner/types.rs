//! Types, identified by the host's key.

use super::keys::KeyMap;
use nthbyte_profile::event::TypeId;

/// A defined type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownType {
    /// The number of the type.
    pub id: TypeId,
    /// A value of the host's own, returned by the same look-up.
    pub detail: u32,
}

/// The types of one epoch.
pub(crate) struct Types {
    by_key: KeyMap<u64, KnownType>,
    by_name: KeyMap<&'static str, TypeId>,
    next: u32,
}

impl Default for Types {
    fn default() -> Self {
        Self {
            by_key: KeyMap::default(),
            by_name: KeyMap::default(),
            next: TypeId::UNKNOWN.0 + 1,
        }
    }
}

impl Types {
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<KnownType> {
        self.by_key.get(&key).copied()
    }

    #[inline]
    pub(crate) fn named(&self, name: &'static str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// Reserves space for one more key and one more name. `None` if there is no memory.
    pub(crate) fn reserve(&mut self) -> Option<()> {
        self.by_key.try_reserve(1).ok()?;
        self.by_name.try_reserve(1).ok()
    }

    /// The number of the next definition.
    pub(crate) fn define(&mut self) -> TypeId {
        self.next += 1;
        TypeId(self.next - 1)
    }

    /// Adds a key. The caller has reserved space for it.
    pub(crate) fn insert(&mut self, key: u64, known: KnownType) {
        self.by_key.insert(key, known);
    }

    /// Adds a name. The caller has reserved space for it.
    pub(crate) fn insert_named(&mut self, name: &'static str, id: TypeId) {
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
