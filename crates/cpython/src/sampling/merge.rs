//! Python frames and native ones, in the order of their calls.
//!
//! ```text
//! native frames by their stack        marks                     merged
//!   list_sort      [100, 200)                                   list_sort
//!   EvalFrame…     [200, 300)   ◀── call at 250: 2 frames       Python frame 1, Python frame 2
//!   builtin_call   [300, 400)                                   builtin_call
//!   EvalFrame…     [400, 500)   ◀── call at 450: 1 frame        Python frame 3
//! ```
//!
//! Each time C code calls the interpreter, the C function that runs the code has a variable on its stack that the
//! interpreter links to the frames. So no symbol is needed: the native frame whose part of the stack contains the
//! variable is replaced by the Python frames of the call.

use std::ops::Range;

/// A place between Python frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The number of Python frames inside of it.
    pub frames: usize,
    /// An address in the part of the stack of the C function that runs the frames, if it is a call.
    pub stack: usize,
    /// What it marks.
    pub kind: MarkKind,
}

/// See [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A call of the interpreter from C, which runs the frames inside of it.
    Call,
    /// A collection, which has interrupted the frame outside of it. The native frames from there on are the collector's.
    Collection,
}

/// A part of a merged stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These Python frames.
    Python(Range<usize>),
    /// A frame of native code, with this address.
    Native(usize),
    /// The collection.
    Collection,
    /// Native frames that are not known, between frames that are.
    Gap,
}

/// Calls `place` with the pieces of a stack, innermost first. `python` is the number of Python frames.
///
/// All frames and marks are innermost first. The stack grows towards lower addresses, so frame `n` of native code has the
/// part from its own `stack` to frame `n + 1`'s. Python frames whose C function was not found follow what was found.
/// Native frames outside of all Python frames are left out.
#[inline(always)]
pub fn merge(
    python: usize,
    marks: &[Mark],
    native: &[nthbyte_unwind::NativeFrame],
    mut place: impl FnMut(Piece),
) {
    let mut placed = 0;
    // Whether the last piece is a native frame, or Python frames whose caller in C must be known.
    let mut is_open = false;
    // Where the innermost native frame is not inside of the innermost call, it is on another stack, such as a signal
    // handler's, from which a walk does not come back.
    let mut calls = marks
        .iter()
        .filter(|mark| mark.kind == MarkKind::Call && mark.frames != 0);
    let is_elsewhere = match (native.first(), calls.next()) {
        (Some(frame), Some(call)) => call.stack < frame.stack,
        _ => false,
    };
    let mut native = native.iter().peekable();
    if is_elsewhere {
        native
            .by_ref()
            .for_each(|frame| place(Piece::Native(frame.address)));
        is_open = true;
    }
    let mut collects = false;
    for mark in marks {
        if mark.kind == MarkKind::Collection {
            // The frames of finalizers whose call is not known.
            if placed < mark.frames {
                place(Piece::Python(placed..mark.frames));
                placed = mark.frames;
                is_open = false;
            }
            collects = true;
            continue;
        }
        if mark.frames == placed {
            continue;
        }
        let mut is_found = false;
        while let Some(frame) = native.peek().copied()
            && frame.stack <= mark.stack
        {
            native.next();
            // The last frame may be anything: the walk ended there.
            is_found = native.peek().is_some_and(|next| mark.stack < next.stack);
            if is_found {
                break;
            }
            place(Piece::Native(frame.address));
            is_open = true;
        }
        if is_open && !is_found {
            place(Piece::Gap);
        }
        if std::mem::take(&mut collects) {
            place(Piece::Collection);
        }
        place(Piece::Python(placed..mark.frames));
        placed = mark.frames;
        is_open = is_found;
    }
    if collects {
        place(Piece::Collection);
    }
    if placed < python {
        place(Piece::Python(placed..python));
    }
    if python == 0 {
        native.for_each(|frame| place(Piece::Native(frame.address)));
    }
}

#[cfg(test)]
mod tests {
    use nthbyte_unwind::NativeFrame;

    use super::MarkKind::{Call, Collection};
    use super::*;

    fn merged(
        python: usize,
        marks: &[(usize, usize, MarkKind)],
        native: &[(usize, usize)],
    ) -> String {
        let marks = marks.iter().map(|&(frames, stack, kind)| Mark {
            frames,
            stack,
            kind,
        });
        let native = native
            .iter()
            .map(|&(address, stack)| NativeFrame { address, stack });
        let (marks, native): (Vec<_>, Vec<_>) = (marks.collect(), native.collect());
        let mut names = Vec::new();
        merge(python, &marks, &native, |piece| match piece {
            Piece::Python(range) => names.extend(range.map(|one| format!("p{}", one + 1))),
            Piece::Native(address) => names.push(format!("n{address}")),
            Piece::Collection => names.push("gc".to_owned()),
            Piece::Gap => names.push("?".to_owned()),
        });
        names.join(" ")
    }

    /// Two calls: frames 1 and 2, and frame 3. Native frames 11 and 14 run them.
    const NATIVE: [(usize, usize); 6] = [
        (10, 100),
        (11, 200),
        (12, 300),
        (13, 400),
        (14, 500),
        (15, 600),
    ];
    const CALLS: [(usize, usize, MarkKind); 2] = [(2, 250, Call), (3, 550, Call)];

    #[test]
    fn python_frames_take_the_place_of_what_runs_them() {
        let all = "n10 p1 p2 n12 n13 p3";
        assert_eq!(merged(3, &CALLS, &NATIVE), all);
        // A call that runs no frames, with an address that is not on the stack.
        let [inner, outer] = CALLS;
        assert_eq!(merged(3, &[inner, outer, (3, 9000, Call)], &NATIVE), all);
        assert_eq!(merged(3, &[(0, 90, Call), inner, outer], &NATIVE), all);
        // No Python frames: all native ones.
        assert_eq!(merged(0, &[], &NATIVE[..2]), "n10 n11");
        // Frames outside of the last known call.
        assert_eq!(merged(3, &CALLS[..1], &NATIVE), "n10 p1 p2 p3");
    }

    #[test]
    fn what_is_not_known_is_said() {
        // A walk that ended early, or found nothing; a frame that is missing in it.
        assert_eq!(merged(3, &CALLS, &NATIVE[..3]), "n10 p1 p2 n12 ? p3");
        assert_eq!(merged(3, &CALLS, &NATIVE[..2]), "n10 n11 ? p1 p2 p3");
        assert_eq!(merged(3, &CALLS, &NATIVE[..1]), "n10 ? p1 p2 p3");
        // Nothing is known of the inner end, as in code without tables: the Python frame is at work.
        assert_eq!(merged(3, &CALLS, &[]), "p1 p2 p3");
        let [first, _, third, .., last] = NATIVE;
        assert_eq!(merged(3, &CALLS, &[first, third, last]), "p1 p2 p3");
        // On another stack, such as a signal handler's, at either side.
        for other in [10, 9000] {
            let native = [(20, other), (21, other + 100)];
            assert_eq!(merged(3, &CALLS, &native), "n20 n21 ? p1 p2 p3");
        }
    }

    #[test]
    fn the_frame_that_a_collection_interrupts_calls_it() {
        let [inner, outer] = CALLS;
        // In frame 3, in a finalizer of frames 1 and 2, and in the collector itself.
        let within = [inner, (2, 0, Collection), outer];
        assert_eq!(merged(3, &within, &NATIVE), "n10 p1 p2 n12 n13 gc p3");
        assert_eq!(merged(3, &within, &NATIVE[..3]), "n10 p1 p2 n12 ? gc p3");
        let alone = [(0, 0, Collection), inner, outer];
        assert_eq!(merged(3, &alone, &NATIVE), "n10 gc p1 p2 n12 n13 p3");
        let none: [(usize, usize); 0] = [];
        assert_eq!(merged(3, &within, &none), "p1 p2 gc p3");
        assert_eq!(merged(2, &[(0, 0, Collection)], &none), "gc p1 p2");
        // Finalizers without a call, as without native frames.
        assert_eq!(merged(3, &[(2, 0, Collection)], &none), "p1 p2 gc p3");
        assert_eq!(merged(0, &[(0, 0, Collection)], &none), "gc");
    }
}
