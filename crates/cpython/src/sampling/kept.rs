//! A stack that waits until its native frames are known.

use nthbyte_profile::event::{FrameKind, Node, NodeId};
use nthbyte_session::{Appearance, Recording, native};
use nthbyte_unwind::UnfinishedWalk;

use crate::sampling::merge::{Mark, Piece, merge};

/// The text of the note in place of native frames that are not known, between frames that are.
pub const GAP_NOTE: &str = "(native frames not known)";

/// A stack whose native frames are found later. Its Python frames need not exist any more then.
pub struct Kept {
    /// The native stack, as far as it was walked.
    pub walk: UnfinishedWalk,
    /// The Python frames, innermost first: how each appears, and where it is in its code object.
    pub python: Vec<(Appearance, u32)>,
    /// Where they belong.
    pub marks: Vec<Mark>,
    /// The name of the collection, if the stack has one.
    pub collection: Option<&'static str>,
    /// The note in place of outer Python frames, if they were left out.
    pub note: Option<&'static str>,
    /// Whether native frames that are not known have a note.
    pub has_gaps: bool,
}

impl native::UnfinishedStack for Kept {
    fn is_ready(&self, recording: &mut Recording<'_>) -> bool {
        self.walk.is_ready(recording)
    }

    fn bytes(&self) -> usize {
        self.walk.bytes() + size_of_val(&*self.python) + size_of_val(&*self.marks)
    }

    fn stack(self: Box<Self>, recording: &mut Recording<'_>) -> Option<NodeId> {
        // SAFETY: there is a recording, and this is the only use of the unwinder in this thread.
        let unwinder = unsafe { nthbyte_unwind::unwinder() }?;
        unwinder.resume(&self.walk);
        let python = &self.python;
        if python.is_empty() && self.collection.is_none() {
            return unwinder.stack(recording);
        }
        let mut pieces = Vec::new();
        let most = self.python.len() + self.marks.len() + unwinder.frames().len();
        pieces.try_reserve(2 * most).ok()?;
        merge(python.len(), &self.marks, unwinder.frames(), |piece| {
            pieces.push(piece);
        });
        let mut parent = NodeId::ROOT;
        if let Some(note) = self.note {
            parent = recording.named_node(parent, note, FrameKind::Note)?;
        }
        for piece in pieces.into_iter().rev() {
            match piece {
                Piece::Python(range) => {
                    for &(appearance, position) in python[range].iter().rev() {
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
                }
                Piece::Native(address) if parent != NodeId::ROOT || python.is_empty() => {
                    parent = unwinder.node(recording, parent, address)?;
                }
                Piece::Collection => {
                    if let Some(name) = self.collection {
                        parent = recording.named_node(parent, name, FrameKind::Gc)?;
                    }
                }
                Piece::Gap if self.has_gaps && parent != NodeId::ROOT => {
                    parent = recording.named_node(parent, GAP_NOTE, FrameKind::Note)?;
                }
                Piece::Native(_) | Piece::Gap => {}
            }
        }
        Some(parent)
    }
}
