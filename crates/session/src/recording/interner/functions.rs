//! Functions (code objects), identified by the host's key.

use nthbyte_profile::event::{CodeId, NodeId};

use super::keyed::Keyed;

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
