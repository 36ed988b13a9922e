//! The interfaces of the embedder: the receiver of samples, and the allocator for requests that the
//! heap does not serve.

use core::ffi::c_void;

/// The embedder's use of a block. The heap treats both alike; a [`SampledBlock`] contains the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockDomain {
    /// Objects: CPython's `PYMEM_DOMAIN_OBJ`.
    Object = 0,
    /// Buffers: CPython's `PYMEM_DOMAIN_MEM`.
    Memory = 1,
}

impl BlockDomain {
    /// The domain of objects, or that of buffers.
    #[inline(always)]
    #[must_use]
    pub const fn of_objects(is_objects: bool) -> Self {
        if is_objects {
            Self::Object
        } else {
            Self::Memory
        }
    }
}

/// A sampled allocation, the argument of [`HeapObserver::sampled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SampledBlock {
    /// The block that the allocation is about to return. Its contents are undefined.
    pub block: *mut c_void,
    /// The requested size, in bytes.
    pub requested: usize,
    /// The size of the block, in bytes. Sampling counts this size.
    pub block_size: usize,
    /// The number of sample points that the block covers; at least 1.
    pub points: u32,
    /// The use of the block.
    pub domain: BlockDomain,
    /// The allocation site: the return address of the call that allocates, or 0 if unknown. (If a function jumps to one
    /// of [`crate::DomainFunctions`], the address is in the caller of that function.)
    pub site: usize,
    /// The page from which the next block of this size comes, where this one would lie if it had not been sampled; 0 if
    /// unknown.
    pub near: usize,
}

/// The token of a block for which the observer does not need a call of `freed`.
pub const NOT_INTERESTED: u32 = u32::MAX;

/// Receives samples. Both functions run on the heap's slow path, while the heap is consistent. They
/// must not unwind. They may call the C library's allocator. They may also call the heap: it serves
/// their requests, but does not sample them. They may change `errno`: the heap restores it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HeapObserver {
    /// The first argument of both functions.
    pub context: *mut c_void,
    /// An allocation was sampled. Returns a token for `freed`, or [`NOT_INTERESTED`].
    pub sampled: unsafe extern "C" fn(context: *mut c_void, sample: &SampledBlock) -> u32,
    /// A block that was sampled in this session is being freed, or was moved by `realloc`. The program's data in the
    /// block can still be read at `contents` (after a move: the part that fits into the new size).
    pub freed: unsafe extern "C" fn(context: *mut c_void, contents: *const c_void, token: u32),
}

/// The allocator that the heap replaces: it serves requests above the heap's limit, and frees its own
/// blocks. The functions have the types of CPython's `PyMemAllocatorEx`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fallback {
    /// The first argument of all functions.
    pub context: *mut c_void,
    /// Allocates.
    pub malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    /// Allocates zeroed memory: a number of elements, and their size.
    pub calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    /// Resizes.
    pub realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    /// Frees.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

impl Fallback {
    /// The C library's allocator.
    pub const LIBC: Self = Self {
        context: core::ptr::null_mut(),
        malloc: libc_malloc,
        calloc: libc_calloc,
        realloc: libc_realloc,
        free: libc_free,
    };
}

// CPython requires a pointer even for 0 bytes, hence the `max(1)`.

unsafe extern "C" fn libc_malloc(_: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: malloc has no preconditions.
    unsafe { libc::malloc(size.max(1)) }
}

unsafe extern "C" fn libc_calloc(_: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: calloc has no preconditions.
    unsafe { libc::calloc(count.max(1), size.max(1)) }
}

unsafe extern "C" fn libc_realloc(_: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the block belongs to the C library, by the contract of `Fallback`.
    unsafe { libc::realloc(block, size.max(1)) }
}

unsafe extern "C" fn libc_free(_: *mut c_void, block: *mut c_void) {
    // SAFETY: the block belongs to the C library, by the contract of `Fallback`.
    unsafe { libc::free(block) }
}
