//! Where the fields are that frames, code objects and strings are read from.
//!
//! From 3.13 on the interpreter carries the answer itself: `_Py_DebugOffsets`, at the start of
//! `_PyRuntime` (`Include/internal/pycore_debug_offsets.h`). For 3.11 and 3.12 there is a table,
//! made with `offsetof` from the headers of those versions. Either way [`super::verify`] compares
//! what the layout says with what the public API says before anything is touched.

use crate::api::Api;

/// Byte offsets into CPython's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Minor version: 11 for Python 3.11.
    pub minor: u8,
    /// `PyThreadState`: the pointer to the `_PyCFrame` that holds `current_frame` (3.11, 3.12).
    pub thread_cframe: Option<usize>,
    /// `current_frame`, in the `_PyCFrame` or in `PyThreadState`.
    pub current_frame: usize,
    /// `PyThreadState.native_thread_id`.
    pub native_thread_id: usize,
    /// `_PyInterpreterFrame.previous`.
    pub frame_previous: usize,
    /// `_PyInterpreterFrame.f_code`, `f_executable` from 3.13 on.
    pub frame_code: usize,
    /// `_PyInterpreterFrame.prev_instr`, `instr_ptr` from 3.13 on.
    pub frame_instruction: usize,
    /// `_PyInterpreterFrame.owner`.
    pub frame_owner: usize,
    /// `_PyInterpreterFrame.localsplus`.
    pub frame_locals: usize,
    /// `PyCodeObject.co_filename`.
    pub code_filename: usize,
    /// `PyCodeObject.co_qualname`.
    pub code_qualname: usize,
    /// `PyCodeObject.co_linetable`.
    pub code_linetable: usize,
    /// `PyCodeObject.co_firstlineno`.
    pub code_first_line: usize,
    /// `PyCodeObject.co_code_adaptive`.
    pub code_instructions: usize,
    /// `sizeof(PyASCIIObject)`: where the characters of an ASCII string begin.
    pub ascii_size: usize,
    /// `sizeof(PyCompactUnicodeObject)`: where those of another string begin.
    pub unicode_size: usize,
    /// `PyHeapTypeObject.ht_qualname`; `ht_cached_keys` follows.
    pub type_qualname: usize,
    /// `sizeof(PyInterpreterState)`.
    pub interpreter_size: usize,
    /// `PyInterpreterState.ceval.gil` (3.12 and later).
    pub interpreter_gil: usize,
}

/// Frames whose owner is this or more belong to no Python code
/// (`FRAME_OWNED_BY_CSTACK`, `FRAME_OWNED_BY_INTERPRETER`; 3.12 and later).
pub const FIRST_OWNER_WITHOUT_CODE: u8 = 3;

/// Offsets that are the same in 3.11 to 3.15, by `offsetof` in each version's headers.
pub mod fixed {
    /// `PyVarObject.ob_size`.
    pub const VAR_SIZE: usize = 16;
    /// `PyBytesObject.ob_sval`.
    pub const BYTES_VALUE: usize = 32;
    /// `PyASCIIObject.length`.
    pub const STR_LENGTH: usize = 16;
    /// `PyASCIIObject.state`.
    pub const STR_STATE: usize = 32;
    /// `PyCFunctionObject.m_ml`.
    pub const FUNCTION_DEFINITION: usize = 16;
    /// `PyTypeObject.tp_name`.
    pub const TYPE_NAME: usize = 24;
    /// `PyTypeObject.tp_basicsize`.
    pub const TYPE_BASIC_SIZE: usize = 32;
    /// `PyTypeObject.tp_dealloc`.
    pub const TYPE_DEALLOC: usize = 48;
    /// `PyTypeObject.tp_flags`.
    pub const TYPE_FLAGS: usize = 168;
    /// `PyTypeObject.tp_dict`.
    pub const TYPE_DICT: usize = 264;
    /// `PyDictObject.ma_keys`.
    pub const DICT_KEYS: usize = 32;
    /// `sizeof(PyDictKeysObject)`.
    pub const KEYS_SIZE: usize = 32;
    /// `PyDictKeysObject.dk_log2_size`; `dk_log2_index_bytes` and `dk_kind` follow, a byte each.
    pub const KEYS_LOG2_SIZE: usize = 8;
    /// `PyDictKeysObject.dk_nentries`.
    pub const KEYS_ENTRIES: usize = 24;
}

const PY_3_11: Layout = Layout {
    minor: 11,
    thread_cframe: Some(56),
    current_frame: 8,
    native_thread_id: 160,
    frame_previous: 48,
    frame_code: 32,
    frame_instruction: 56,
    frame_owner: 69,
    frame_locals: 72,
    code_filename: 112,
    code_qualname: 128,
    code_linetable: 136,
    code_first_line: 72,
    code_instructions: 184,
    ascii_size: 48,
    unicode_size: 72,
    type_qualname: 864,
    interpreter_size: 107_752,
    interpreter_gil: 0,
};

const PY_3_12: Layout = Layout {
    minor: 12,
    thread_cframe: Some(56),
    current_frame: 0,
    native_thread_id: 144,
    frame_previous: 8,
    frame_code: 0,
    frame_instruction: 56,
    frame_owner: 70,
    frame_locals: 72,
    code_filename: 112,
    code_qualname: 128,
    code_linetable: 136,
    code_first_line: 68,
    code_instructions: 192,
    ascii_size: 40,
    unicode_size: 56,
    type_qualname: 872,
    // 383,568 on AArch64, where a mutex is larger: within what `interpreters.rs` allows.
    interpreter_size: 383_552,
    interpreter_gil: 384,
};

/// Positions, counted in 64-bit words, of what is needed within `_Py_DebugOffsets`.
struct DebugOffsets {
    minor: u8,
    interpreter: usize,
    gil: usize,
    current_frame: usize,
    native_thread_id: usize,
    frame: usize,
    code: usize,
    unicode: usize,
    /// Not part of `_Py_DebugOffsets`: `PyHeapTypeObject.ht_qualname`, by `offsetof`.
    type_qualname: usize,
}

const DEBUG_OFFSETS: [DebugOffsets; 3] = [
    DebugOffsets {
        minor: 13,
        interpreter: 6,
        gil: 14,
        current_frame: 23,
        native_thread_id: 25,
        frame: 28,
        code: 34,
        unicode: 67,
        type_qualname: 872,
    },
    DebugOffsets {
        minor: 14,
        interpreter: 6,
        gil: 15,
        current_frame: 26,
        native_thread_id: 28,
        frame: 31,
        code: 39,
        unicode: 77,
        type_qualname: 872,
    },
    DebugOffsets {
        minor: 15,
        interpreter: 6,
        gil: 15,
        current_frame: 26,
        native_thread_id: 31,
        frame: 39,
        code: 47,
        unicode: 89,
        type_qualname: 880,
    },
];

/// The first word of `_Py_DebugOffsets`.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

impl Layout {
    /// The layout of the running interpreter.
    ///
    /// # Errors
    /// One line: the version is not known, or the build is one that is not served.
    pub fn of(api: &Api) -> Result<Self, String> {
        let version = api.version();
        let (major, minor) = ((version >> 24) as u8, (version >> 16) as u8);
        let text = api.version_text();
        match (major, minor) {
            (3, 11) => Ok(PY_3_11),
            (3, 12) => Ok(PY_3_12),
            (3, 13..=15) => Self::from_debug_offsets(api, minor)
                .map_err(|why| format!("cannot profile CPython {text}: {why}")),
            _ => Err(format!(
                "cannot profile CPython {text}: only 3.11 to 3.15 are known; use one of these or a newer nthbyte"
            )),
        }
    }

    fn from_debug_offsets(api: &Api, minor: u8) -> Result<Self, &'static str> {
        let at = DEBUG_OFFSETS
            .iter()
            .find(|known| known.minor == minor)
            .ok_or("its _Py_DebugOffsets are not known")?;
        let words = api._PyRuntime.cast::<u64>();
        // SAFETY: `_PyRuntime` begins with `_Py_DebugOffsets` from 3.13 on, which has more words than
        // are read here or below.
        let word = |index: usize| unsafe { words.add(index).read() };
        if word(0) != COOKIE || (word(1) >> 16) as u16 != 0x0300 + u16::from(minor) {
            return Err("its _Py_DebugOffsets are not where they should be");
        }
        if word(2) != 0 {
            return Err("free-threaded builds are not served; use a build with the GIL");
        }
        // SAFETY: as above; the unicode part ends before the structure does.
        let offset = |index: usize| unsafe { words.add(index).read() as usize };
        let layout = Self {
            minor,
            thread_cframe: None,
            current_frame: offset(at.current_frame),
            native_thread_id: offset(at.native_thread_id),
            frame_previous: offset(at.frame + 1),
            frame_code: offset(at.frame + 2),
            frame_instruction: offset(at.frame + 3),
            frame_owner: offset(at.frame + 5),
            frame_locals: offset(at.frame + 4),
            code_filename: offset(at.code + 1),
            code_qualname: offset(at.code + 3),
            code_linetable: offset(at.code + 4),
            code_first_line: offset(at.code + 5),
            code_instructions: offset(at.code + 9),
            ascii_size: offset(at.unicode + 3),
            unicode_size: offset(at.unicode + 3) + 16,
            type_qualname: at.type_qualname,
            interpreter_size: offset(at.interpreter),
            interpreter_gil: offset(at.gil),
        };
        if layout.largest_small_offset() > 4096
            || !(1 << 16..1 << 24).contains(&layout.interpreter_size)
        {
            return Err("its _Py_DebugOffsets make no sense");
        }
        Ok(layout)
    }

    fn largest_small_offset(&self) -> usize {
        [
            self.current_frame,
            self.native_thread_id,
            self.frame_previous,
            self.frame_code,
            self.frame_instruction,
            self.frame_owner,
            self.code_filename,
            self.code_qualname,
            self.code_linetable,
            self.code_first_line,
            self.code_instructions,
            self.ascii_size,
        ]
        .into_iter()
        .max()
        .unwrap_or_default()
    }
}
