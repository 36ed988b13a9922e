//! CPython 3.11: offsets from `offsetof` with its headers.

use super::{Entries, Features, Layout, References, Values, Version, type_flags};

pub const VERSION: Version = Version {
    minor: 11,
    debug_offsets: None,
    layout: Layout {
        thread_cframe: 56,
        current_frame: 8,
        native_thread_id: 160,
        thread_chunk: 296,
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
        type_cached_keys: 872,
        features: Features {
            values: Values::BesideDictionary,
            flags_of_pre_header: type_flags::MANAGED_DICT,
            entries: Entries::CFrames {
                frame_is_entry: 68,
                cframe_previous: 16,
            },
            own_gils: false,
            serves_without_gil: true,
            ..Layout::COMMON.features
        },
        references: References {
            frame_objects: [0, 24, 40],
            immortal: false,
            ..Layout::COMMON.references
        },
        ..Layout::COMMON
    },
};
