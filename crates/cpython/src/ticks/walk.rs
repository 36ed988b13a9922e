//! The walk of a thread's frames in the signal handler.
//!
//! A frame takes one word: the address of its code object, and the position in it. Nothing here is believed: a frame may
//! be half made, so that its fields are those of an earlier frame. What refers to no memory is noticed here; what is no
//! code object is noticed when the word is read ([`super::resolve`]). In both cases the tick counts as lost.

use std::sync::OnceLock;

use nthbyte_session::process::CachedProbe;
use nthbyte_session::ticks::LONGEST_STACK;

use super::collecting::Collection;
use crate::layout::{Layout, UNUSED};

/// The layout of the interpreter, for the handler. It is the same in all sessions.
pub static LAYOUT: OnceLock<Layout> = OnceLock::new();

/// The largest number of recorded frames. A deeper stack keeps its innermost frames.
pub const MAX_DEPTH: usize = LONGEST_STACK / 8;
/// Frames that are followed before the chain must be a circle. Frames without code are among them.
const MAX_STEPS: usize = 4 * MAX_DEPTH;

/// Bits of the position. Code objects are aligned to 8 bytes, and lie below 2^47.
const POSITION_BITS: u32 = 20;
/// The position of an instruction that does not lie in its code object.
pub const NO_POSITION: u32 = (1 << POSITION_BITS) - 1;

/// The word for a frame. `position` is the number of the instruction's unit of two bytes, plus one: CPython up to 3.12
/// stores the unit before the one that runs.
fn pack(layout: &Layout, code: usize, instruction: usize) -> Option<u64> {
    if code >> 47 != 0 || !code.is_multiple_of(8) {
        return None;
    }
    let first = code + layout.code_instructions;
    let units = (instruction.wrapping_add(2)).wrapping_sub(first) / 2;
    let position = u32::try_from(units).map_or(NO_POSITION, |units| units.min(NO_POSITION));
    Some((code as u64) >> 3 << POSITION_BITS | u64::from(position))
}

/// The code object's address, and the position as above.
pub const fn unpack(word: u64) -> (usize, u32) {
    let position = (word & NO_POSITION as u64) as u32;
    (((word >> POSITION_BITS) << 3) as usize, position)
}

/// A walked stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Number of frames.
    pub frames: usize,
    /// Whether outer frames were left out.
    pub is_cut: bool,
    /// The number of frames inside of the running collection, if there is one.
    pub inside: Option<usize>,
}

/// Writes the frames of a thread to `stack`, innermost first. `None` if they cannot be read.
pub fn walk(
    layout: &Layout,
    memory: &CachedProbe,
    state: usize,
    collection: Option<Collection>,
    stack: &mut [u8; LONGEST_STACK],
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
    let mut frame = read(holder, layout.current_frame)?;
    let mut walked = Walked::default();
    for _ in 0..MAX_STEPS {
        if frame == 0 {
            return Some(walked);
        }
        if collection.is_some_and(|collection| collection.frame == frame) {
            walked.inside = Some(walked.frames);
        }
        let owner = byte(frame, layout.frame_owner)?;
        let code = read(frame, layout.frame_code)? & !tags;
        if owner < layout.features.first_owner_without_code && code != 0 {
            let Some(place) = stack.as_chunks_mut::<8>().0.get_mut(walked.frames) else {
                walked.is_cut = true;
                return Some(walked);
            };
            let instruction = read(frame, layout.frame_instruction)?;
            *place = pack(layout, code, instruction)?.to_ne_bytes();
            walked.frames += 1;
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
    ) -> Option<Vec<(usize, u32)>> {
        let mut stack = [0; LONGEST_STACK];
        let state = std::ptr::from_ref(state) as usize;
        let walked = walk(layout, &CachedProbe::new(), state, collection, &mut stack)?;
        let words = &stack.as_chunks::<8>().0[..walked.frames];
        Some(
            words
                .iter()
                .map(|word| unpack(u64::from_ne_bytes(*word)))
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
        let expected = vec![(CODE, 4), (CODE + 64, 0)];
        if CachedProbe::new().word(state).is_none() {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        }
        assert_eq!(walk_of(&layout, &state, None), Some(expected));
        let mut stack = [0; LONGEST_STACK];
        let collection = Collection {
            frame: (&raw const frames[1]) as usize,
            generation: 2,
        };
        let at = (&raw const state) as usize;
        let walked = walk(
            &layout,
            &CachedProbe::new(),
            at,
            Some(collection),
            &mut stack,
        );
        assert_eq!(walked.unwrap().inside, Some(1));

        // An instruction outside of its code object; an impossible code object; a caller that is nowhere; a circle.
        // The kernel reads the frames, which the compiler does not see.
        let mut changed = |frame: usize, field: usize, value: usize| {
            frames[frame][field] = value;
            std::hint::black_box(&mut frames);
            walk_of(&layout, &state, None)
        };
        assert_eq!(changed(0, 1, first - 4).unwrap()[0].1, NO_POSITION);
        let far = first + (2 << POSITION_BITS);
        assert_eq!(changed(0, 1, far).unwrap()[0].1, NO_POSITION);
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
