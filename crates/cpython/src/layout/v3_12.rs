//! CPython 3.12: offsets from `offsetof` with its headers.

use super::{Features, Layout, Values, Version};

pub const VERSION: Version = Version {
    minor: 12,
    debug_offsets: None,
    layout: Layout {
        thread_cframe: 56,
        current_frame: 0,
        native_thread_id: 144,
        thread_chunk: 232,
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
        type_cached_keys: 880,
        // On AArch64 the size is 383,568, because a mutex is larger there. `patches/raw_calloc.rs` accepts the
        // difference.
        interpreter_size: 383_552,
        interpreter_gil: 384,
        features: Features {
            values: Values::Tagged,
            ..Layout::COMMON.features
        },
        ..Layout::COMMON
    },
};
