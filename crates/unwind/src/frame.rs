//! Frames of a walk, and where it ends.

use framehop::FrameAddress;

use crate::processor::UnwindRegs;

/// The largest number of frames of a walk. A deeper stack keeps its innermost frames.
pub const MAX_DEPTH: usize = 1024;

/// A frame of native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// The instruction that runs: in a caller, the last byte of the call.
    pub address: usize,
    /// Where the frame's part of the stack begins. It ends where its caller's part begins.
    pub stack: usize,
}

/// A frame whose module is not known.
#[derive(Clone, Copy)]
pub(crate) struct Unknown {
    pub(crate) place: usize,
    pub(crate) address: FrameAddress,
    pub(crate) registers: UnwindRegs,
    /// The number of known frames inside of it.
    pub(crate) inner: usize,
}

/// Whether outer frames are missing in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    No,
    /// At [`MAX_DEPTH`].
    Deep,
    /// At the end of what was copied of the stack.
    NotCopied,
}
