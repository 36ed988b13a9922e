//! What differs from one version of CPython to the next: offsets of fields, flags, tags, and what there is at all.
//!
//! Each version has one file with one record, and two lines here: its module, and its place in [`VERSIONS`]. Nothing else in
//! this crate asks for a version.
//! From 3.13 on the interpreter says itself where most fields are: `_Py_DebugOffsets`, at the start of
//! `_PyRuntime` (`Include/internal/pycore_debug_offsets.h`). What is not in there, and all of 3.11 and 3.12, comes
//! from `offsetof` and the headers of those versions. Either way [`crate::verify`] compares each field with what CPython's
//! public functions say before anything is touched.

mod debug_offsets;
mod v3_11;
mod v3_12;
mod v3_13;
mod v3_14;
mod v3_15;

use crate::api::Api;

/// The versions that are known, oldest first.
const VERSIONS: &[&Version] = &[
    &v3_11::VERSION,
    &v3_12::VERSION,
    &v3_13::VERSION,
    &v3_14::VERSION,
    &v3_15::VERSION,
];

/// One minor version of CPython.
struct Version {
    /// 11 for Python 3.11.
    minor: u8,
    /// What the headers of this version say. Fields that the interpreter itself says are [`UNUSED`].
    layout: Layout,
    /// Where the interpreter says it.
    debug_offsets: Option<debug_offsets::Positions>,
}

/// The offset of a field that a version does not have, or that the agent does not read there.
pub const UNUSED: usize = usize::MAX;

macro_rules! layout {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// What the agent knows of the running interpreter. Offsets and sizes are in bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Layout {
            $($(#[$doc])* pub $field: usize,)*
            /// What there is, and how it is marked.
            pub features: Features,
        }

        impl Layout {
            /// The names of all offsets and sizes.
            #[cfg(feature = "test-seams")]
            pub const FIELDS: &[&str] = &[$(stringify!($field),)*];

            /// All offsets and sizes, in the order of [`Self::FIELDS`].
            pub fn fields_mut(&mut self) -> impl Iterator<Item = &mut usize> {
                [$(&mut self.$field,)*].into_iter()
            }
        }
    };
}

layout! {
    /// `PyThreadState`: the pointer to the `_PyCFrame` that holds `current_frame` (3.11, 3.12).
    thread_cframe,
    /// `current_frame`, in the `_PyCFrame` or in `PyThreadState`.
    current_frame,
    /// `PyThreadState.native_thread_id`.
    native_thread_id,
    /// `_PyInterpreterFrame.previous`.
    frame_previous,
    /// `_PyInterpreterFrame.f_code`, `f_executable` from 3.13 on.
    frame_code,
    /// `_PyInterpreterFrame.prev_instr`, `instr_ptr` from 3.13 on.
    frame_instruction,
    /// `_PyInterpreterFrame.owner`, a byte.
    frame_owner,
    /// `_PyInterpreterFrame.localsplus`.
    frame_locals,
    /// `PyCodeObject.co_filename`.
    code_filename,
    /// `PyCodeObject.co_qualname`.
    code_qualname,
    /// `PyCodeObject.co_linetable`.
    code_linetable,
    /// `PyCodeObject.co_firstlineno`.
    code_first_line,
    /// `PyCodeObject.co_code_adaptive`.
    code_instructions,
    /// `PyVarObject.ob_size`.
    var_size,
    /// `PyBytesObject.ob_sval`.
    bytes_value,
    /// `PyASCIIObject.length`.
    str_length,
    /// `PyASCIIObject.state`; see [`crate::sampling::strings`].
    str_state,
    /// `sizeof(PyASCIIObject)`: where the characters of an ASCII string begin.
    ascii_size,
    /// `sizeof(PyCompactUnicodeObject)`: where those of another string begin.
    unicode_size,
    /// `PyCFunctionObject.m_ml`.
    function_definition,
    /// `PyTypeObject.tp_name`.
    type_name,
    /// `PyTypeObject.tp_basicsize`.
    type_basic_size,
    /// `PyTypeObject.tp_dealloc`.
    type_dealloc,
    /// `PyTypeObject.tp_flags`.
    type_flags,
    /// `PyTypeObject.tp_dict`.
    type_dict,
    /// `PyHeapTypeObject.ht_qualname`.
    type_qualname,
    /// `PyHeapTypeObject.ht_cached_keys`.
    type_cached_keys,
    /// `PyDictObject.ma_keys`; `ma_values` follows.
    dict_keys,
    /// `sizeof(PyDictKeysObject)`.
    keys_size,
    /// `PyDictKeysObject.dk_log2_size`; `dk_log2_index_bytes` and `dk_kind` follow, a byte each.
    keys_log2_size,
    /// `PyDictKeysObject.dk_nentries`; `dk_usable` is the word before.
    keys_entries,
    /// `offsetof(PyDictValues, values)`.
    values_header,
    /// `sizeof(PyInterpreterState)`, of versions with [`Features::own_gils`].
    interpreter_size,
    /// `PyInterpreterState.ceval.gil`, of versions with [`Features::own_gils`].
    interpreter_gil,
}

/// What a version has, and how it is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Bits of a reference in a frame that are not part of its address (`_PyStackRef`).
    pub reference_tags: usize,
    /// Frames whose owner is this or more belong to no Python code (`FRAME_OWNED_BY_CSTACK`,
    /// `FRAME_OWNED_BY_INTERPRETER`).
    pub first_owner_without_code: u8,
    /// Whether there is such a frame for each call from C.
    pub entry_frames: bool,
    /// Where the values of an instance's attributes are.
    pub values: Values,
    /// `tp_flags` of types whose instances have two words before the collector's header.
    pub flags_of_pre_header: u64,
    /// Whether an interpreter may have a GIL of its own.
    pub own_gils: bool,
}

/// Where the values of an instance's attributes are (`Include/internal/pycore_object.h`, `pycore_dict.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// In an array, from the word 32 bytes before the object; or in a dictionary, from the one 24 before it.
    BesideDictionary,
    /// In either, from the word 24 bytes before; the array if the lowest bit is set, which is not part of its address.
    Tagged,
    /// In an array behind the object, if it says that it is valid; else in a dictionary, from the word 24 bytes before.
    Inline,
}

/// `Py_TPFLAGS_…` of `Include/object.h`, with the same meaning in all versions that have them.
pub mod type_flags {
    /// `Py_TPFLAGS_MANAGED_WEAKREF`.
    pub const MANAGED_WEAKREF: u64 = 1 << 3;
    /// `Py_TPFLAGS_MANAGED_DICT`.
    pub const MANAGED_DICT: u64 = 1 << 4;
    /// `Py_TPFLAGS_HEAPTYPE`.
    pub const HEAP_TYPE: u64 = 1 << 9;
    /// `Py_TPFLAGS_READY`.
    pub const READY: u64 = 1 << 12;
    /// `Py_TPFLAGS_HAVE_GC`.
    pub const HAVE_GC: u64 = 1 << 14;
    /// `Py_TPFLAGS_TYPE_SUBCLASS`.
    pub const TYPE_SUBCLASS: u64 = 1 << 31;
}

impl Layout {
    /// Offsets that are the same in 3.11 to 3.15, by `offsetof` in each version's headers; the others are unused.
    const COMMON: Self = Self {
        thread_cframe: UNUSED,
        current_frame: UNUSED,
        native_thread_id: UNUSED,
        frame_previous: UNUSED,
        frame_code: UNUSED,
        frame_instruction: UNUSED,
        frame_owner: UNUSED,
        frame_locals: UNUSED,
        code_filename: UNUSED,
        code_qualname: UNUSED,
        code_linetable: UNUSED,
        code_first_line: UNUSED,
        code_instructions: UNUSED,
        var_size: 16,
        bytes_value: 32,
        str_length: 16,
        str_state: 32,
        ascii_size: UNUSED,
        unicode_size: UNUSED,
        function_definition: 16,
        type_name: 24,
        type_basic_size: 32,
        type_dealloc: 48,
        type_flags: 168,
        type_dict: 264,
        type_qualname: UNUSED,
        type_cached_keys: UNUSED,
        dict_keys: 32,
        keys_size: 32,
        keys_log2_size: 8,
        keys_entries: 24,
        values_header: 0,
        interpreter_size: UNUSED,
        interpreter_gil: UNUSED,
        features: Features {
            reference_tags: 0,
            first_owner_without_code: 3,
            entry_frames: true,
            values: Values::Inline,
            flags_of_pre_header: type_flags::MANAGED_DICT | type_flags::MANAGED_WEAKREF,
            own_gils: true,
        },
    };

    /// The layout of the running interpreter.
    ///
    /// # Errors
    /// One line: the version is not known, or the build is one that is not served.
    pub fn of(api: &Api) -> Result<Self, String> {
        let version = api.version();
        let (major, minor) = ((version >> 24) as u8, (version >> 16) as u8);
        let text = api.version_text();
        let known = VERSIONS
            .iter()
            .find(|known| major == 3 && known.minor == minor)
            .ok_or_else(|| {
                let (first, last) = (VERSIONS[0].minor, VERSIONS[VERSIONS.len() - 1].minor);
                format!(
                    "cannot profile CPython {text}: only 3.{first} to 3.{last} are known; use one of these or a newer nthbyte"
                )
            })?;
        let mut layout = known.layout;
        if let Some(positions) = &known.debug_offsets {
            positions
                .read(api, minor, &mut layout)
                .map_err(|why| format!("cannot profile CPython {text}: {why}"))?;
        }
        Ok(layout)
    }
}
