//! The differences between versions of CPython: offsets of fields, flags, tags and features.
//!
//! Each version has one file with one record, and two lines here: its module, and its place in [`VERSIONS`]. No other
//! code in this crate depends on the version.
//! From 3.13 on, the interpreter publishes the offsets of most fields: `_Py_DebugOffsets`, at the start of `_PyRuntime`
//! (`Include/internal/pycore_debug_offsets.h`). All other offsets, and all offsets of 3.11 and 3.12, come from
//! `offsetof` with the headers of the version. In both cases [`crate::verify`] compares each field with the results of
//! CPython's public functions before the agent changes anything.

mod debug_offsets;
mod v3_11;
mod v3_12;
mod v3_13;
mod v3_14;
mod v3_15;

#[cfg(not(feature = "free-threaded"))]
pub use debug_offsets::is_free_threaded;

use crate::api::{Api, FREE_THREADED, HEADER};

/// The supported versions, oldest first.
const VERSIONS: &[&Version] = &[
    &v3_11::VERSION,
    &v3_12::VERSION,
    &v3_13::VERSION,
    &v3_14::VERSION,
    &v3_15::VERSION,
];

/// The version that is known without the GIL. Others have other frames there.
const FREE_THREADED_VERSION: (u8, u8) = (3, 13);

/// One minor version of CPython.
struct Version {
    /// 11 for Python 3.11.
    minor: u8,
    /// The layout by the headers of this version. Fields in `_Py_DebugOffsets` are [`UNUSED`].
    layout: Layout,
    /// The positions of fields in `_Py_DebugOffsets`, if the version has it.
    debug_offsets: Option<debug_offsets::Positions>,
}

/// The offset of a field that the version does not have, or that the agent does not read in it.
pub const UNUSED: usize = usize::MAX;

macro_rules! layout {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// The layout of the running interpreter. Offsets and sizes are in bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Layout {
            $($(#[$doc])* pub $field: usize,)*
            /// Features of the version, and how it marks them.
            pub features: Features,
            /// Bits of `PyASCIIObject.state`.
            pub str_bits: StrBits,
            /// Where containers store the addresses of their memory.
            pub containers: Containers,
            /// Where objects refer to others, as far as only snapshots of who holds what read it.
            pub references: References,
        }

        impl Layout {
            /// The names of all offsets and sizes.
            #[cfg(feature = "test-seams")]
            pub const FIELDS: &[&str] = &[$(stringify!($field),)*];

            /// All offsets and sizes, in the order of `FIELDS`.
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
    /// `PyThreadState.datastack_chunk`; `datastack_top` and `datastack_limit` follow.
    thread_chunk,
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
    /// `PyCodeObject.co_flags`.
    code_flags,
    /// `PyCodeObject.co_code_adaptive`.
    code_instructions,
    /// `PyVarObject.ob_size`.
    var_size,
    /// `PyBytesObject.ob_sval`.
    bytes_value,
    /// `PyASCIIObject.length`.
    str_length,
    /// `PyASCIIObject.state`; see [`StrBits`].
    str_state,
    /// `sizeof(PyASCIIObject)`: where the characters of an ASCII string begin.
    ascii_size,
    /// `sizeof(PyCompactUnicodeObject)`: where the characters of any other string begin.
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
    /// `sizeof(PyInterpreterState)`, in versions with [`Features::own_gils`].
    interpreter_size,
    /// `PyInterpreterState.ceval.gil`, in versions with [`Features::own_gils`].
    interpreter_gil,
}

/// Features of a version, and how it marks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Bits of a frame's reference that are not part of the address (`_PyStackRef`).
    pub reference_tags: usize,
    /// Frames with this owner or a higher one have no Python code (`FRAME_OWNED_BY_CSTACK`,
    /// `FRAME_OWNED_BY_INTERPRETER`).
    pub first_owner_without_code: u8,
    /// How a call of the interpreter from C is marked.
    pub entries: Entries,
    /// The location of the values of an instance's attributes.
    pub values: Values,
    /// Distance in bytes from an object back to the address of its dictionary, where that is a word of its own.
    pub dictionary_before: usize,
    /// Distance in bytes from an object back to the address of its array of values, in [`Values::BesideDictionary`].
    pub array_before: usize,
    /// Possible sizes before an object: nothing, the collector's header, or that header and the two words of
    /// `_PyType_PreHeaderSize`. Multiples of 16.
    pub pre_headers: [usize; 3],
    /// Bits of `tp_flags` for types whose instances have two words before the collector's header.
    pub flags_of_pre_header: u64,
    /// Whether an interpreter may have its own GIL.
    pub own_gils: bool,
    /// Whether CPython's allocator also serves large requests of callers without the GIL; see `patches/unlocked.rs`.
    pub serves_without_gil: bool,
}

/// How a call of the interpreter from C is marked in the chain of frames. The mark is a variable of the C function that runs
/// Python code, so its address lies in that function's part of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// By a frame without code, outside of the frames that the call runs.
    Frames,
    /// By a `_PyCFrame` for each call; the outermost frame of a call has a flag.
    CFrames {
        /// `_PyInterpreterFrame.is_entry`, a byte.
        frame_is_entry: usize,
        /// `_PyCFrame.previous`.
        cframe_previous: usize,
    },
}

/// The location of the values of an instance's attributes (`Include/internal/pycore_object.h`, `pycore_dict.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// In an array, whose address is [`Features::array_before`] the object; or in a dictionary, whose address is
    /// [`Features::dictionary_before`] it.
    BesideDictionary,
    /// In an array or a dictionary, whose address is [`Features::dictionary_before`] the object. The lowest bit is set
    /// for an array, and is not part of the address.
    Tagged,
    /// In an array behind the object, if the array is marked as valid; else in a dictionary, whose address is
    /// [`Features::dictionary_before`] the object.
    Inline,
}

/// Bits of `PyASCIIObject.state` (`Include/cpython/unicodeobject.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrBits {
    /// Position of the three bits that say how many bytes a character has.
    pub kind_shift: u32,
    /// Set if the characters follow the header.
    pub compact: u32,
    /// Set if all characters are ASCII. The header is shorter then.
    pub ascii: u32,
}

/// Offsets of the fields in which containers store the addresses of their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Containers {
    /// `PyListObject.ob_item`.
    pub list_items: usize,
    /// `PySetObject.table`.
    pub set_table: usize,
    /// `PyByteArrayObject.ob_bytes`.
    pub bytearray_buffer: usize,
    /// `dequeobject.leftblock` and `dequeobject.rightblock`.
    pub deque_blocks: [usize; 2],
}

/// `Py_TPFLAGS_…` of `Include/object.h`. They mean the same in all versions that have them.
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
    /// `Py_TPFLAGS_LONG_SUBCLASS`.
    pub const LONG_SUBCLASS: u64 = 1 << 24;
    /// `Py_TPFLAGS_LIST_SUBCLASS`.
    pub const LIST_SUBCLASS: u64 = 1 << 25;
    /// `Py_TPFLAGS_TUPLE_SUBCLASS`.
    pub const TUPLE_SUBCLASS: u64 = 1 << 26;
    /// `Py_TPFLAGS_BYTES_SUBCLASS`.
    pub const BYTES_SUBCLASS: u64 = 1 << 27;
    /// `Py_TPFLAGS_UNICODE_SUBCLASS`.
    pub const UNICODE_SUBCLASS: u64 = 1 << 28;
    /// `Py_TPFLAGS_DICT_SUBCLASS`.
    pub const DICT_SUBCLASS: u64 = 1 << 29;
    /// `Py_TPFLAGS_TYPE_SUBCLASS`.
    pub const TYPE_SUBCLASS: u64 = 1 << 31;
}

/// Offsets of references between objects. `holders/check.rs` compares them with what public functions say before each
/// snapshot; without agreement there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct References {
    /// `_PyInterpreterFrame`: its function, its dictionary of locals, its frame object.
    pub frame_objects: [usize; 3],
    /// The end of a frame's references, behind [`Layout::frame_locals`].
    pub stack: StackEnd,
    /// `PyCodeObject.co_localsplusnames`.
    pub code_locals: usize,
    /// `PyTupleObject.ob_item`.
    pub tuple_items: usize,
    /// Whether objects may be immortal, and count their references in 32 bits.
    pub immortal: bool,
}

/// Where a frame says how far its references go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// `_PyInterpreterFrame.stacktop`, an `int`: a number of words behind the locals' start; negative while the frame runs.
    Count(usize),
    /// `_PyInterpreterFrame.stackpointer`: an address; null while the frame runs.
    Pointer(usize),
}

impl Layout {
    /// Offsets that are the same in 3.11 to 3.15, from `offsetof` with each version's headers. The others are unused. Those of objects
    /// count from the end of the header that each object has.
    pub const COMMON: Self = Self {
        thread_cframe: UNUSED,
        current_frame: UNUSED,
        native_thread_id: UNUSED,
        thread_chunk: UNUSED,
        frame_previous: UNUSED,
        frame_code: UNUSED,
        frame_instruction: UNUSED,
        frame_owner: UNUSED,
        frame_locals: UNUSED,
        code_filename: UNUSED,
        code_qualname: UNUSED,
        code_linetable: UNUSED,
        code_first_line: UNUSED,
        code_flags: HEADER + 32,
        code_instructions: UNUSED,
        var_size: HEADER,
        bytes_value: HEADER + 16,
        str_length: HEADER,
        str_state: HEADER + 16,
        ascii_size: UNUSED,
        unicode_size: UNUSED,
        function_definition: HEADER,
        type_name: HEADER + 8,
        type_basic_size: HEADER + 16,
        type_dealloc: HEADER + 32,
        type_flags: HEADER + 152,
        type_dict: HEADER + 248,
        type_qualname: UNUSED,
        type_cached_keys: UNUSED,
        dict_keys: HEADER + 16,
        keys_size: 32,
        keys_log2_size: 8,
        keys_entries: 24,
        values_header: 0,
        interpreter_size: UNUSED,
        interpreter_gil: UNUSED,
        features: Features {
            reference_tags: 0,
            first_owner_without_code: 3,
            entries: Entries::Frames,
            values: Values::Inline,
            dictionary_before: if FREE_THREADED { 8 } else { 24 },
            array_before: 32,
            pre_headers: if FREE_THREADED {
                [0, 0, 16]
            } else {
                [0, 16, 32]
            },
            flags_of_pre_header: type_flags::MANAGED_DICT | type_flags::MANAGED_WEAKREF,
            own_gils: true,
            serves_without_gil: false,
        },
        str_bits: StrBits {
            kind_shift: 2,
            compact: 1 << 5,
            ascii: 1 << 6,
        },
        containers: Containers {
            list_items: HEADER + 8,
            set_table: HEADER + 24,
            bytearray_buffer: HEADER + 16,
            deque_blocks: [HEADER + 8, HEADER + 16],
        },
        references: References {
            frame_objects: [16, 40, 48],
            stack: StackEnd::Count(64),
            code_locals: 96,
            tuple_items: HEADER + 8,
            immortal: true,
        },
    };

    /// The layout of the running interpreter.
    ///
    /// # Errors
    /// One line: the version is unknown, or the build is not supported.
    pub fn of(api: &Api) -> Result<Self, String> {
        let version = api.version();
        let (major, minor) = ((version >> 24) as u8, (version >> 16) as u8);
        let text = api.version_text();
        if FREE_THREADED && (major, minor) != FREE_THREADED_VERSION {
            return Err(format!(
                "cannot profile CPython {text}: without the GIL, only 3.13 is known; use a build with the GIL"
            ));
        }
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
