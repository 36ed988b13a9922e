//! No walk: the registers and the frames of this processor are not known yet.

use nthbyte_profile::event::NodeId;
use nthbyte_session::{Epoch, Recording};

/// The largest number of frames of a walk.
pub const MAX_DEPTH: usize = 1024;

/// A frame of native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The instruction that runs.
    pub address: usize,
    /// Where the frame's part of the stack begins.
    pub stack: usize,
}

/// There is none on this processor.
pub enum Unwinder {}

impl Unwinder {
    /// `None`.
    #[must_use]
    pub const fn new(_own: &[usize]) -> Option<Self> {
        None
    }

    /// Walks the stack of the calling thread.
    pub const fn walk(&mut self, _epoch: Epoch) {
        match *self {}
    }

    /// The frames of the last walk.
    #[must_use]
    pub const fn frames(&self) -> &[Frame] {
        match *self {}
    }

    /// A number that changes with the modules.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        match *self {}
    }

    /// The node of a frame of the last walk.
    pub const fn node(
        &mut self,
        _recording: &mut Recording<'_>,
        _parent: NodeId,
        _address: usize,
    ) -> Option<NodeId> {
        match *self {}
    }

    /// The stack of the calling thread.
    pub const fn stack(&mut self, _recording: &mut Recording<'_>) -> Option<NodeId> {
        match *self {}
    }
}
