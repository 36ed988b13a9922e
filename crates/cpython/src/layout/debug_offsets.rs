//! Offsets that the interpreter publishes itself (`_Py_DebugOffsets`, 3.13 and later).

use super::Layout;
use crate::api::{Api, FREE_THREADED};

/// Positions of the needed offsets in `_Py_DebugOffsets`, counted in 64-bit words.
pub struct Positions {
    /// `interpreter_state.size`.
    pub interpreter: usize,
    /// `interpreter_state.ceval_gil` (3.13: `gil` within `ceval`).
    pub gil: usize,
    /// `thread_state.current_frame`.
    pub current_frame: usize,
    /// `thread_state.native_thread_id`; `datastack_chunk` follows.
    pub native_thread_id: usize,
    /// `interpreter_frame`.
    pub frame: usize,
    /// `code_object`.
    pub code: usize,
    /// `unicode_object`.
    pub unicode: usize,
}

/// The first word of `_Py_DebugOffsets`.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// The word that says whether the build is without the GIL.
const FREE_THREADED_FLAG: usize = 2;
/// The largest plausible offset. Offsets in `PyInterpreterState` may be larger.
const LARGEST_OFFSET: usize = 4096;

/// Whether the running interpreter was built without the GIL.
#[cfg(not(feature = "free-threaded"))]
pub fn is_free_threaded(api: &Api) -> bool {
    /// The first version with `_Py_DebugOffsets`.
    const FIRST: u32 = 0x030d_0000;
    let words = api._PyRuntime.cast::<u64>();
    // SAFETY: see `Positions::read`.
    api.version() >= FIRST
        && unsafe { words.read() == COOKIE && words.add(FREE_THREADED_FLAG).read() != 0 }
}

impl Positions {
    /// Copies the offsets into a layout.
    pub fn read(&self, api: &Api, minor: u8, layout: &mut Layout) -> Result<(), &'static str> {
        let words = api._PyRuntime.cast::<u64>();
        // SAFETY: `_PyRuntime` begins with `_Py_DebugOffsets` from 3.13 on, which has more words than
        // are read here or below.
        let word = |index: usize| unsafe { words.add(index).read() };
        if word(0) != COOKIE || (word(1) >> 16) as u16 != 0x0300 + u16::from(minor) {
            return Err("its _Py_DebugOffsets are not where they should be");
        }
        if (word(FREE_THREADED_FLAG) != 0) != FREE_THREADED {
            return Err("its _Py_DebugOffsets do not say whether it has a GIL");
        }
        let offset = |index: usize| word(index) as usize;
        layout.current_frame = offset(self.current_frame);
        layout.native_thread_id = offset(self.native_thread_id);
        layout.thread_chunk = offset(self.native_thread_id + 1);
        layout.frame_previous = offset(self.frame + 1);
        layout.frame_code = offset(self.frame + 2);
        layout.frame_instruction = offset(self.frame + 3);
        layout.frame_locals = offset(self.frame + 4);
        layout.frame_owner = offset(self.frame + 5);
        layout.code_filename = offset(self.code + 1);
        layout.code_qualname = offset(self.code + 3);
        layout.code_linetable = offset(self.code + 4);
        layout.code_first_line = offset(self.code + 5);
        layout.references.code_locals = offset(self.code + 7);
        layout.code_instructions = offset(self.code + 9);
        layout.ascii_size = offset(self.unicode + 3);
        layout.unicode_size = layout.ascii_size.saturating_add(16);
        if layout
            .fields_mut()
            .any(|field| *field != super::UNUSED && *field > LARGEST_OFFSET)
        {
            return Err("its _Py_DebugOffsets make no sense");
        }
        layout.interpreter_size = offset(self.interpreter);
        layout.interpreter_gil = offset(self.gil);
        if !(1 << 16..1 << 24).contains(&layout.interpreter_size)
            || layout.interpreter_gil >= layout.interpreter_size
        {
            return Err("its _Py_DebugOffsets make no sense");
        }
        Ok(())
    }
}
