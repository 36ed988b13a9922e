//! CPython 3.15: most offsets from its `_Py_DebugOffsets`, the others from `offsetof` with its headers.

use super::debug_offsets::Positions;
use super::{Features, Layout, References, StackEnd, Version};

pub const VERSION: Version = Version {
    minor: 15,
    debug_offsets: Some(Positions {
        interpreter: 6,
        gil: 15,
        current_frame: 26,
        native_thread_id: 31,
        frame: 39,
        code: 47,
        unicode: 89,
    }),
    layout: Layout {
        type_qualname: 880,
        type_cached_keys: 888,
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
