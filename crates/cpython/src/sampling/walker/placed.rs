//! The last stack of a walker, and what the next walk changes in it.

use nthbyte_profile::event::NodeId;

use super::{End, KEPT_DEPTH, MAX_DEPTH, Seen, Walk};
use crate::sampling::data_stack::{Chunks, Reader};

/// The last stack, outermost frame first.
#[derive(Default)]
pub(super) struct Placed {
    pub(super) frames: Vec<Seen>,
    /// The nodes of the frames; fewer if there was no room for some.
    pub(super) nodes: Vec<NodeId>,
    /// Whether outer frames are missing.
    pub(super) is_cut: bool,
    pub(super) chunks: Chunks,
}

impl Placed {
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.nodes.clear();
        self.chunks.clear();
        self.is_cut = false;
    }

    /// Takes over a walk: keeps the frames, and their nodes, that are the same.
    ///
    /// # Safety
    /// The walked thread has not run since.
    #[inline(always)]
    pub(super) unsafe fn take(&mut self, walk: &Walk, end: End, reader: Reader) -> Option<()> {
        let seen = &walk.seen;
        let outside = match end {
            End::Known(outside) => outside,
            End::Whole | End::Cut => 0,
        };
        self.frames.try_reserve(seen.len()).ok()?;
        // Where frames are missing, a frame and its place say nothing.
        let is_aligned = match end {
            End::Known(_) => true,
            End::Whole => !self.is_cut,
            End::Cut => false,
        };
        let mut same = outside;
        let mut new = seen.len();
        if is_aligned {
            let before = &self.frames[outside..];
            let most = before.len().min(new);
            // Two pointers: this is half of what a sample costs in a stack of usual depth.
            // SAFETY: `most` frames are there, from the outer end of both on.
            unsafe {
                let mut now = seen.as_ptr().add(new);
                let mut old = before.as_ptr();
                let end = old.add(most);
                while old != end && *old == *now.sub(1) {
                    (now, old) = (now.sub(1), old.add(1));
                }
                let equal = most - end.offset_from_unsigned(old);
                (new, same) = (new - equal, same + equal);
            }
        }
        if !matches!(end, End::Known(_)) {
            self.chunks.clear();
            self.is_cut = end == End::Cut;
        }
        self.frames.truncate(same);
        self.nodes.truncate(same);
        self.frames.extend(seen[..new].iter().rev());
        if !walk.passed.is_empty() {
            // SAFETY: by the contract.
            unsafe { self.chunks.add(reader, self.frames.len(), &walk.passed) };
        }
        if self.frames.len() > MAX_DEPTH {
            let dropped = self.frames.len() - KEPT_DEPTH;
            self.frames.drain(..dropped);
            self.nodes.clear();
            self.chunks.drop_outer(dropped);
            self.is_cut = true;
        }
        Some(())
    }
}
