//! CPython 3.13: most offsets from its `_Py_DebugOffsets`, the others from `offsetof` with its headers.

use super::debug_offsets::Positions;
use super::{Layout, Version};
use crate::api::HEADER;

pub const VERSION: Version = Version {
    minor: 13,
    debug_offsets: Some(Positions {
        interpreter: 6,
        gil: 14,
        current_frame: 23,
        native_thread_id: 25,
        frame: 28,
        code: 34,
        unicode: 67,
    }),
    layout: Layout {
        type_qualname: HEADER + 856,
        type_cached_keys: HEADER + 864,
        values_header: 8,
        ..Layout::COMMON
    },
};
