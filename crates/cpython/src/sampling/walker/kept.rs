//! A stack that waits until its native frames are known.

use nthbyte_profile::event::{FrameKind, Node, NodeId};
use nthbyte_session::{Appearance, Recording, native};
use nthbyte_unwind::Unfinished;

use super::{Call, Seen, cut_node, merge};

/// A stack whose native frames are found later. Its Python frames need not exist any more then.
pub struct Kept {
    pub(super) walk: Unfinished,
    /// The Python frames, innermost first: how each appears, and where it is in its code object.
    pub(super) python: Vec<(Appearance, u32)>,
    pub(super) calls: Vec<Call>,
    pub(super) is_cut: bool,
}

impl native::Unfinished for Kept {
    fn is_ready(&self, recording: &mut Recording<'_>) -> bool {
        self.walk.is_ready(recording)
    }

    fn bytes(&self) -> usize {
        self.walk.bytes() + size_of_val(&*self.python) + size_of_val(&*self.calls)
    }

    fn stack(self: Box<Self>, recording: &mut Recording<'_>) -> Option<NodeId> {
        // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
        let unwinder = unsafe { nthbyte_unwind::unwinder() }?;
        unwinder.resume(&self.walk);
        // The number of a frame, beginning with 1, in place of its code object.
        let python: Vec<Seen> = (1..=self.python.len()).map(Seen::numbered).collect();
        let mut seen = Vec::new();
        seen.try_reserve(python.len() + unwinder.frames().len())
            .ok()?;
        merge(&python, &self.calls, unwinder.frames(), &mut seen);
        let mut parent = match self.is_cut {
            true => cut_node(recording)?,
            false => NodeId::ROOT,
        };
        for frame in seen.iter().rev() {
            if frame.is_native() {
                if parent != NodeId::ROOT || python.is_empty() {
                    parent = unwinder.node(recording, parent, frame.instruction)?;
                }
                continue;
            }
            let (appearance, position) = self.python[frame.code - 1];
            let Some(code) = appearance.below(parent) else {
                continue;
            };
            parent = recording.node(Node {
                parent,
                code,
                position,
                kind: FrameKind::Interpreted,
            })?;
        }
        Some(parent)
    }
}
