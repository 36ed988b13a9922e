//! CPython 3.14: most offsets from its `_Py_DebugOffsets`, the others from `offsetof` with its headers.

use super::debug_offsets::Positions;
use super::{Features, Layout, References, StackEnd, Version};

pub const VERSION: Version = Version {
    minor: 14,
    debug_offsets: Some(Positions {
        interpreter: 6,
        gil: 15,
        current_frame: 26,
        native_thread_id: 28,
        frame: 31,
        code: 39,
        unicode: 77,
    }),
    layout: Layout {
        type_qualname: 872,
        type_cached_keys: 880,
        values_header: 8,
        features: Features {
            reference_tags: 7,
            ..Layout::COMMON.features
        },
        references: References {
            stack: StackEnd::Pointer(64),
            tuple_items: 32,
            ..Layout::COMMON.references
        },
        ..Layout::COMMON
    },
};
