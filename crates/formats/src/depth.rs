//! How deep stacks may be in formats that repeat the whole stack for each row.
//!
//! Such a file is as large as the sum of the depths of its rows: of a recursion, the square of what the profile has. So stacks
//! are cut at [`DEEPEST`] frames, where the recorder cuts them too. If the rows of a file would have more than so many frames
//! together, stacks are cut at the largest power of two below it with which they do not. [`EACH`] times the number of rows is
//! always allowed, so no stack is cut shorter than that, and the size of a file is linear in the number of its rows. A cut
//! stack keeps its innermost frames, and has a note in the place of the outer ones.

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;

/// No stack has more frames.
pub(crate) const DEEPEST: usize = 4096;

/// So many frames for each row are always allowed.
const EACH: u64 = 128;

/// The depth of each stack, at most [`DEEPEST`] + 1: two bytes for each of them.
pub(crate) struct Depths {
    of: Vec<u16>,
}

impl Depths {
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut of = vec![0_u16; profile.stacks.len()];
        // Callers come before what they call.
        for (at, node) in profile.stacks.iter().enumerate().skip(1) {
            of[at] = (of[node.parent.index()] + 1).min(DEEPEST as u16 + 1);
        }
        Self { of }
    }

    /// Where to cut the stacks of some rows, so that these have at most `most` frames together, or [`EACH`] each.
    pub(crate) fn cut(&self, rows: impl Iterator<Item = NodeId>, most: u64) -> Cut {
        let mut count_of_depth = vec![0_u64; DEEPEST + 2];
        for stack in rows {
            count_of_depth[usize::from(self.of[stack.index()])] += 1;
        }
        let rows: u64 = count_of_depth.iter().sum();
        let most = most.saturating_add(rows.saturating_mul(EACH));
        let frames = |depth: usize| {
            let each = (0_u64..).zip(&count_of_depth);
            each.map(|(of, rows)| rows * of.min(depth as u64))
                .sum::<u64>()
        };
        let mut depth = DEEPEST;
        while frames(depth) > most {
            depth /= 2;
        }
        let is_any_cut = count_of_depth[depth + 1..].iter().any(|&rows| rows > 0);
        Cut { depth, is_any_cut }
    }
}

/// Where stacks are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    depth: usize,
    is_any_cut: bool,
}

impl Cut {
    /// The note that stands for the outer frames of a cut stack, if a row has one. At [`DEEPEST`] frames it is the
    /// recorder's.
    pub(crate) fn note(self) -> Option<String> {
        let depth = self.depth;
        self.is_any_cut
            .then(|| format!("(deeper than {depth} frames: outer frames cut)"))
    }

    /// Replaces the content of `frames` by the frames of a stack, innermost first. Returns whether outer ones are cut.
    pub(crate) fn innermost(self, profile: &Profile, stack: NodeId, frames: &mut Vec<u32>) -> bool {
        frames.clear();
        let mut at = stack;
        while at != NodeId::ROOT && frames.len() < self.depth {
            let node = profile.stacks[at.index()];
            frames.push(node.frame);
            at = node.parent;
        }
        at != NodeId::ROOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nthbyte_profile::Profile;
    use nthbyte_profile::model::StackNode;
    use nthbyte_profile::synthetic::Synthetic;

    /// A recursion of so many frames.
    fn recursion(depth: u32) -> Profile {
        let mut profile = Profile::empty(Synthetic::default().meta());
        profile.stacks.extend((0..depth).map(|parent| StackNode {
            parent: NodeId(parent),
            frame: parent,
        }));
        profile
    }

    #[test]
    fn stacks_are_cut_only_where_they_are_too_deep_together() {
        let profile = recursion(2 * DEEPEST as u32);
        let depths = Depths::of(&profile);
        let rows = |count: u32, stack: u32| (0..count).map(move |_| NodeId(stack));
        let cut = |count, stack, most| depths.cut(rows(count, stack), most).depth;
        assert_eq!(cut(1, 2 * DEEPEST as u32, u64::MAX), DEEPEST);
        assert_eq!(cut(10, 4096, 40_960 - 1_280), 4096);
        assert_eq!(cut(10, 4096, 40_960 - 1_281), 2048);
        assert_eq!(cut(1_000_000, 4096, 0), EACH as usize);
        assert_eq!(cut(1_000_000, 100, 0), DEEPEST);
        assert_eq!(cut(0, 0, 0), DEEPEST);
        let note = |stack| depths.cut(rows(1, stack), u64::MAX).note();
        assert_eq!(note(DEEPEST as u32), None);
        assert!(note(DEEPEST as u32 + 1).is_some_and(|note| note.contains("4096 frames")));
    }

    #[test]
    fn the_innermost_frames_are_left() {
        let profile = recursion(10);
        let mut frames = vec![77];
        let stack = NodeId(10);
        let cut = |depth| Cut {
            depth,
            is_any_cut: true,
        };
        assert!(cut(4).innermost(&profile, stack, &mut frames));
        assert_eq!(frames, [9, 8, 7, 6]);
        assert!(!cut(10).innermost(&profile, stack, &mut frames));
        assert_eq!(frames.len(), 10);
    }
}
