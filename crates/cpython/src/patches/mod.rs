//! What of the interpreter is replaced: one file for each thing, which says what, when, and how it is undone.
//!
//! | file | what | from | until |
//! |---|---|---|---|
//! | `allocators` | the functions of the domains `OBJ` and `MEM` | the first session | for ever: its blocks stay |
//! | `raw_calloc` | `calloc` of the domain `RAW` (3.12 and later) | the first session | for ever, with the above |
//! | `guarded` | the heap's functions, wherever they are | an interpreter is made without a GIL (3.13 and later) | for ever |
//! | `dealloc` | `tp_dealloc` of the code type and of `type` | the first session | for ever: one look-up a call |
//! | `allocated_blocks` | the function behind `sys.getallocatedblocks` | the first session | for ever, with the heap |
//! | `gc_callbacks` | an entry in `gc.callbacks` | a session's start | its end |

pub mod allocated_blocks;
pub mod allocators;
pub mod dealloc;
pub mod gc_callbacks;
mod guarded;
pub mod raw_calloc;
