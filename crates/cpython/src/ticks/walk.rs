//! The walk of a thread's frames in the signal handler.
//!
//! A frame takes one word: see [`super::words`]. Nothing here is believed: a frame may
//! be half made, so that its fields are an earlier frame's. A word that refers to no memory is noticed here; one that
//! is no code object, when it is read ([`super::resolve`]). In both cases the tick counts as lost.

use std::sync::OnceLock;

use nthbyte_host::process::CachedProbe;
use nthbyte_session::ticks::LONGEST_STACK;

use super::collecting::Collection;
use super::words::{NO_POSITION, Word};
use crate::layout::{Entries, Layout, UNUSED};

/// The layout of the interpreter, for the handler. It is the same in all sessions.
pub static LAYOUT: OnceLock<Layout> = OnceLock::new();

/// The largest number of recorded frames. A deeper stack keeps its innermost frames.
pub const MAX_DEPTH: usize = 1024;
/// There is room for a call of the interpreter from C for each of them, nearly.
const _: () = assert!(2 * MAX_DEPTH * size_of::<u64>() <= LONGEST_STACK);
/// Frames that are followed before the chain must be a circle. Frames without code are among them.
const MAX_STEPS: usize = 4 * MAX_DEPTH;

/// A walked stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Number of words.
    pub words: usize,
    /// Whether outer frames were left out.
    pub is_cut: bool,
}

/// The word for a frame.
fn pack(layout: &Layout, code: usize, instruction: usize) -> Option<u64> {
    let first = code.wrapping_add(layout.code_instructions);
    let units = (instruction.wrapping_add(2)).wrapping_sub(first) / 2;
    let position = u32::try_from(units).unwrap_or(NO_POSITION);
    Word::Frame(code, position).pack()
}

/// Writes the words of a thread's stack to `stack`, innermost first, with `with_calls` the calls from C too. `None` if they
/// cannot be read.
pub fn walk(
    layout: &Layout,
    memory: &CachedProbe,
    state: usize,
    collection: Option<Collection>,
    with_calls: bool,
    stack: &mut [[u8; 8]],
) -> Option<Walked> {
    let read = |address: usize, offset: usize| memory.word(address.checked_add(offset)?);
    let byte = |address: usize, offset: usize| {
        let at = address.checked_add(offset)?;
        Some(memory.word(at & !7)?.to_ne_bytes()[at % 8])
    };
    let holder = match layout.thread_cframe {
        UNUSED => state,
        offset => read(state, offset)?,
    };
    let tags = layout.features.reference_tags;
    let first_without_code = layout.features.first_owner_without_code;
    let mut frame = read(holder, layout.current_frame)?;
    let mut call = holder;
    let (mut words, mut frames) = (0, 0);
    let mut add = |word: u64| {
        let place = stack.get_mut(words)?;
        *place = word.to_ne_bytes();
        words += 1;
        Some(())
    };
    let mut is_cut = false;
    for _ in 0..MAX_STEPS {
        if frame == 0 || is_cut {
            return Some(Walked { words, is_cut });
        }
        if collection.is_some_and(|collection| collection.frame == frame) {
            is_cut |= add(Word::Collection.pack()?).is_none();
        }
        let owner = byte(frame, layout.frame_owner)?;
        let code = read(frame, layout.frame_code)? & !tags;
        if owner < first_without_code && code != 0 {
            if frames == MAX_DEPTH {
                is_cut = true;
                continue;
            }
            let instruction = read(frame, layout.frame_instruction)?;
            is_cut |= add(pack(layout, code, instruction)?).is_none();
            frames += 1;
        }
        if with_calls {
            let stack = match layout.features.entries {
                Entries::Frames => (owner >= first_without_code).then_some(frame),
                Entries::CFrames {
                    frame_is_entry,
                    cframe_previous,
                } if byte(frame, frame_is_entry)? != 0 && call != 0 => {
                    let ended = call;
                    call = read(call, cframe_previous)?;
                    Some(ended)
                }
                Entries::CFrames { .. } => None,
            };
            if let Some(stack) = stack {
                is_cut |= add(Word::Call(stack).pack()?).is_none();
            }
        }
        frame = read(frame, layout.frame_previous)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Features;

    /// Three frames in memory: two words each for the code object, the instruction, the owner and the caller.
    fn layout() -> Layout {
        Layout {
            thread_cframe: UNUSED,
            current_frame: 0,
            frame_code: 0,
            frame_instruction: 8,
            frame_owner: 16,
            frame_previous: 24,
            code_instructions: 200,
            features: Features {
                reference_tags: 7,
                ..Layout::COMMON.features
            },
            ..Layout::COMMON
        }
    }

    fn walk_of(
        layout: &Layout,
        state: &usize,
        collection: Option<Collection>,
        with_calls: bool,
    ) -> Option<Vec<Word>> {
        let mut stack = [[0; 8]; LONGEST_STACK / 8];
        let state = std::ptr::from_ref(state) as usize;
        let memory = CachedProbe::new();
        let walked = walk(layout, &memory, state, collection, with_calls, &mut stack)?;
        assert_eq!(walked.is_cut, walked.words >= MAX_DEPTH);
        let words = stack[..walked.words].iter();
        Some(
            words
                .map(|word| Word::unpack(u64::from_ne_bytes(*word)))
                .collect(),
        )
    }

    #[test]
    fn frames_are_walked_and_bad_ones_end_the_walk() {
        const CODE: usize = 0x7f12_3456_7890;
        let layout = layout();
        let first = CODE + layout.code_instructions;
        let mut frames: [[usize; 4]; 3] = [
            [CODE | 1, first + 6, 0, 0],
            // A frame without code.
            [8, 0, 3, 0],
            [CODE + 64, first + 64 - 2, 1, 0],
        ];
        for inner in 0..2 {
            frames[inner][3] = (&raw const frames[inner + 1]) as usize;
        }
        let state = (&raw const frames[0]) as usize;
        let expected = [Word::Frame(CODE, 4), Word::Frame(CODE + 64, 0)];
        if CachedProbe::new().word(state).is_none() {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        }
        let [inner, outer] = expected;
        let all = walk_of(&layout, &state, None, false);
        assert_eq!(all, Some(expected.to_vec()));
        let without_code = (&raw const frames[1]) as usize;
        let call = Word::Call(without_code);
        let with_calls = walk_of(&layout, &state, None, true);
        assert_eq!(with_calls, Some(vec![inner, call, outer]));
        let collection = Collection {
            frame: without_code,
            generation: 2,
        };
        let collecting = walk_of(&layout, &state, Some(collection), false);
        assert_eq!(collecting, Some(vec![inner, Word::Collection, outer]));
        // With a mark of each call that its outermost frame refers to by a flag.
        let marked = Layout {
            features: Features {
                entries: Entries::CFrames {
                    frame_is_entry: 16,
                    cframe_previous: 8,
                },
                ..layout.features
            },
            ..layout
        };
        let outermost = [0; 2];
        let mark = [state, (&raw const outermost) as usize];
        frames[0][2] = 1;
        std::hint::black_box((&mut frames, &outermost));
        let marks = walk_of(&marked, &mark[0], None, true).unwrap();
        let calls = mark.as_ptr() as usize;
        assert_eq!(marks[..2], [inner, Word::Call(calls)]);
        frames[0][2] = 0;

        // An instruction outside of its code object; an impossible code object; a caller that is nowhere; a circle.
        // The kernel reads the frames, which the compiler does not see.
        let mut changed = |frame: usize, field: usize, value: usize| {
            frames[frame][field] = value;
            std::hint::black_box(&mut frames);
            walk_of(&layout, &state, None, false)
        };
        let nowhere = Word::Frame(CODE, NO_POSITION);
        assert_eq!(changed(0, 1, first - 4).unwrap()[0], nowhere);
        let far = first + 2 * NO_POSITION as usize + 2;
        assert_eq!(changed(0, 1, far).unwrap()[0], nowhere);
        assert_eq!(changed(0, 0, 1 << 60), None);
        assert!(changed(0, 0, CODE).is_some());
        assert_eq!(changed(2, 3, 40), None);
        // A circle of frames with code fills the stack, which keeps its innermost frames; one without never ends.
        let deep = changed(2, 3, state).unwrap();
        assert_eq!(deep.len(), MAX_DEPTH);
        changed(0, 2, 3);
        assert_eq!(changed(2, 2, 3), None);
    }
}
