//! No walk: the registers and the frames of this processor are not known yet.

use std::ffi::c_void;
use std::ops::Range;

use nthbyte_profile::event::{NodeId, ThreadId};
use nthbyte_session::native::{self, Placed};
use nthbyte_session::{Epoch, Recording, Session};

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

/// There is none on this processor.
pub enum UnfinishedWalk {}

/// What a walk of an interrupted thread begins with. There is none on this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers;

impl Registers {
    /// The number of words of [`Self::to_words`].
    pub const WORDS: usize = 0;

    /// Nothing.
    ///
    /// # Safety
    /// Always sound.
    #[must_use]
    pub const unsafe fn of_context(_context: *const c_void) -> Self {
        Self
    }

    /// Nothing.
    #[must_use]
    pub const fn stack(self) -> Range<usize> {
        0..0
    }

    /// Nothing.
    #[must_use]
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        []
    }

    /// Nothing.
    #[must_use]
    pub const fn from_words(_words: [u64; Self::WORDS]) -> Self {
        Self
    }
}

/// An interrupted thread.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted;

impl Interrupted {
    /// Any thread.
    #[must_use]
    pub const fn new(_registers: Registers, _stack: &[u8]) -> Self {
        Self
    }
}

/// There is nothing to prepare.
pub const fn prepare() {}

/// There is nothing to keep up.
pub const fn keep_up() {}

/// No.
#[must_use]
pub const fn is_possible() -> bool {
    false
}

/// There is nothing to begin.
pub const fn begin(_session: &Session) -> bool {
    false
}

/// There is nothing to begin.
pub const fn begin_in_program(_session: &Session) -> bool {
    false
}

/// `None`.
///
/// # Safety
/// Always sound.
#[must_use]
pub const unsafe fn unwinder() -> Option<&'static mut Unwinder> {
    None
}

impl native::UnfinishedStack for UnfinishedWalk {
    fn is_ready(&self, _recording: &mut Recording<'_>) -> bool {
        match *self {}
    }

    fn bytes(&self) -> usize {
        match *self {}
    }

    fn stack(self: Box<Self>, _recording: &mut Recording<'_>) -> Option<NodeId> {
        match *self {}
    }
}

impl Unwinder {
    /// What is needed to complete the last walk.
    pub const fn unfinished(&mut self, _recording: &mut Recording<'_>) -> Option<UnfinishedWalk> {
        match *self {}
    }

    /// Completes a walk.
    pub const fn resume(&mut self, _walk: &UnfinishedWalk) {
        match *self {}
    }

    /// The calling thread with its stack.
    pub const fn place(
        &mut self,
        _recording: &mut Recording<'_>,
        _thread: ThreadId,
    ) -> Option<Placed> {
        match *self {}
    }

    /// The calling thread with its stack, without its innermost frames.
    pub const fn place_from(
        &mut self,
        _recording: &mut Recording<'_>,
        _thread: ThreadId,
        _inside: usize,
    ) -> Option<Placed> {
        match *self {}
    }

    /// Walks the stack of an interrupted thread.
    pub const fn walk_interrupted(&mut self, _at: &Interrupted) {
        match *self {}
    }

    /// What is needed to complete the last walk.
    pub const fn unfinished_interrupted(
        &mut self,
        _at: &Interrupted,
        _recording: &mut Recording<'_>,
    ) -> Option<UnfinishedWalk> {
        match *self {}
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
