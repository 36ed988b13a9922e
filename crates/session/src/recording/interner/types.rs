//! Types, identified by the host's key.

use nthbyte_profile::event::TypeId;

use super::keyed::Keyed;

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
