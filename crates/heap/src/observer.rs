//! Who is told of samples, and who serves what the heap does not.

use core::ffi::c_void;

/// For which of the embedder's uses a block was allocated. The heap treats both alike and
/// passes the word on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Domain {
    /// Objects: CPython's `PYMEM_DOMAIN_OBJ`.
    Object = 0,
    /// Buffers: CPython's `PYMEM_DOMAIN_MEM`.
    Memory = 1,
}

/// A sampled allocation, as it is told to [`Observer::sampled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sample {
    /// The block that is about to be handed out. Its contents are undefined.
    pub block: *mut c_void,
    /// The size that was asked for, in bytes.
    pub requested: usize,
    /// The size that was set aside and counted, in bytes.
    pub block_size: usize,
    /// How many sample points lie in the block: at least 1.
    pub points: u32,
    /// What it is for.
    pub domain: Domain,
    /// The address to which the call that allocates will return; 0 where that is not known. (Where the functions
    /// of [`crate::Functions`] were jumped to, that is in the function before.)
    pub caller: usize,
}

/// What [`Observer::sampled`] returns if it does not want to hear when the block is freed.
pub const NOT_INTERESTED: u32 = u32::MAX;

/// Who is told of samples. Both functions run on the heap's slow path, with the heap in order. They
/// must not unwind. They may call the C library's allocator. Should they call the heap, it serves
/// them, but what they allocate is not sampled.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Observer {
    /// Passed to both.
    pub context: *mut c_void,
    /// An allocation was sampled. Returns a token for `freed`, or [`NOT_INTERESTED`].
    pub sampled: unsafe extern "C" fn(context: *mut c_void, sample: &Sample) -> u32,
    /// A block that was sampled in this session is being freed, or was moved by `realloc`. At
    /// `contents` all that the program had in it can still be read (after a move: what fits
    /// into the new size).
    pub freed: unsafe extern "C" fn(context: *mut c_void, contents: *const c_void, token: u32),
}

/// The allocator that was there before: serves requests above the heap's limit, and frees the
/// blocks that it made. The functions are those of CPython's `PyMemAllocatorEx`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fallback {
    /// Passed to all.
    pub context: *mut c_void,
    /// Allocates.
    pub malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    /// Allocates zeroed memory for so many elements of such a size.
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

// CPython wants a pointer even for no bytes, hence the `max(1)`.

unsafe extern "C" fn libc_malloc(_: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: malloc has no preconditions.
    unsafe { libc::malloc(size.max(1)) }
}

unsafe extern "C" fn libc_calloc(_: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: calloc has no preconditions.
    unsafe { libc::calloc(count.max(1), size.max(1)) }
}

unsafe extern "C" fn libc_realloc(_: *mut c_void, block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the block is one of the C library's, by the contract of `Fallback`.
    unsafe { libc::realloc(block, size.max(1)) }
}

unsafe extern "C" fn libc_free(_: *mut c_void, block: *mut c_void) {
    // SAFETY: the block is one of the C library's, by the contract of `Fallback`.
    unsafe { libc::free(block) }
}
