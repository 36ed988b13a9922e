//! What the preloaded library and the agent say to each other.
//!
//! Both are separate shared objects, which may be of different versions for a moment while a package is upgraded. So
//! the table has a version, and each side uses only a table of its own version.

use std::ffi::{CStr, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

use crate::atomic_fn::AtomicFn;

use crate::memory::Room;

/// The name under which the preloaded library exports its [`Interface`].
pub const SYMBOL: &CStr = c"nthbyte_native_interface";
/// Changes when anything in this module changes.
pub const VERSION: u32 = 6;
/// The token of a block whose free the observer need not learn of.
pub const NOT_INTERESTED: u64 = u64::MAX;
/// In the token of memory that counts with its touched part, and of no other sample's.
pub const LAZY: u64 = 1 << 62;
/// The largest number of ranges in [`NativeSettings::excluded`].
pub const MOST_RANGES: usize = 4;

/// The function that the program called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// `malloc`.
    Malloc = 0,
    /// `calloc`.
    Calloc = 1,
    /// `realloc` and `reallocarray`.
    Realloc = 2,
    /// `memalign`, `posix_memalign`, `aligned_alloc`, `valloc` and `pvalloc`.
    Memalign = 3,
    /// `mmap` of anonymous memory.
    Mmap = 4,
    /// `mremap` of anonymous memory.
    Mremap = 5,
    /// C++'s `operator new`, in all its forms, if it does not call `malloc`.
    New = 6,
}

impl Kind {
    /// Those that give blocks of an allocator.
    pub const OF_BLOCKS: [Self; 5] = [
        Self::Malloc,
        Self::Calloc,
        Self::Realloc,
        Self::Memalign,
        Self::New,
    ];

    /// The name in profiles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Calloc => "calloc",
            Self::Realloc => "realloc",
            Self::Memalign => "memalign",
            Self::Mmap => "mmap",
            Self::Mremap => "mremap",
            Self::New => "operator new",
        }
    }

    /// Whether the memory is a mapping and no block of an allocator.
    #[must_use]
    pub const fn is_mapping(self) -> bool {
        matches!(self, Self::Mmap | Self::Mremap)
    }
}

/// A sampled request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// The requested size, in bytes.
    pub size: u64,
    /// The period under which the sample point was drawn, in bytes.
    pub period: u64,
    /// The number of sample points in it; at least 1.
    pub points: u32,
    /// The called function.
    pub kind: Kind,
    /// The return address of the call.
    pub caller: usize,
    /// Where the memory begins, if it counts with its touched part: a mapping, or a block with one of its own. 0 if it
    /// counts as a whole.
    pub lazy: usize,
}

/// Receives samples. The functions run in the thread that allocates or frees, whatever locks it holds. They do not
/// wait without a bound and do not unwind. What they allocate is not sampled.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NativeObserver {
    /// A request was sampled. Returns a token for `freed`, or [`NOT_INTERESTED`].
    pub sampled: unsafe extern "C" fn(&Request) -> u64,
    /// Sampled memory is being freed or resized.
    pub freed: unsafe extern "C" fn(token: u64),
    /// Memory that counts with its touched part is about to be freed or resized.
    pub look: unsafe extern "C" fn(token: u64),
    /// Addresses are about to be unmapped. Returns whether that was noted.
    pub unmap: unsafe extern "C" fn(start: usize, size: usize) -> bool,
}

/// The settings of a session.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NativeSettings {
    /// Mean distance between sample points, in bytes; 1 for each request. Distances are exponential.
    pub period: u64,
    /// Seed of the distances.
    pub seed: u64,
    /// Start and end of code whose requests are not the program's; 0 and 0 for none.
    pub excluded: [[usize; 2]; MOST_RANGES],
    /// The receiver of samples.
    pub observer: NativeObserver,
}

/// Receives the blocks that are in use: the caller's own pointer, an address, and the token of its sample.
pub type VisitBlock = unsafe extern "C" fn(context: *mut c_void, address: usize, token: u64);

/// What the preloaded library exports.
#[repr(C)]
pub struct Interface {
    /// [`VERSION`].
    pub version: u32,
    /// Makes the calls of the process reach the library. Returns false if that is not possible. Needed if the library
    /// was loaded and not preloaded. Calls of it may run in one thread at a time.
    pub attach: unsafe extern "C" fn() -> bool,
    /// Begins a session. The calling thread joins it at once, other threads after 64 KiB at most.
    pub connect: unsafe extern "C" fn(&NativeSettings),
    /// Sets the period of the session. A thread has it from its next sample on.
    pub set_period: unsafe extern "C" fn(u64),
    /// Ends the session. A call of the observer that another thread has begun may still run.
    pub disconnect: unsafe extern "C" fn(),
    /// Calls a function with each sampled block and mapping that is in use. What other threads allocate and free meanwhile may be
    /// left out.
    pub each_block: unsafe extern "C" fn(context: *mut c_void, visit: VisitBlock),
    /// A counter of the calling thread. While it is not 0, its requests are not the program's.
    pub busy: BusyCounter,
}

/// The interface of the library, once it was found; null before. The end of the process must not ask the dynamic linker.
static FOUND: AtomicPtr<Interface> = AtomicPtr::new(std::ptr::null_mut());

/// The interface of the library; `None` if it was neither preloaded nor loaded in this process.
#[must_use]
pub fn interface() -> Option<&'static Interface> {
    // SAFETY: the library is never unloaded.
    if let Some(found) = unsafe { FOUND.load(Acquire).as_ref() } {
        return Some(found);
    }
    // SAFETY: the name is a C string.
    let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
    // SAFETY: a symbol of this name is a static of this type, or begins like one.
    let interface = unsafe { found.cast::<Interface>().as_ref() }?;
    if interface.version != VERSION {
        return None;
    }
    FOUND.store(found.cast(), Release);
    Some(interface)
}

/// Sets the period of the library, if it was found. Does not ask the dynamic linker.
pub fn set_period(period: u64) {
    // SAFETY: the library is never unloaded; the function of the interface.
    unsafe {
        if let Some(found) = FOUND.load(Acquire).as_ref() {
            (found.set_period)(period);
        }
    }
}

/// Bytes that must be left beside native memory: 4 MiB for the session's ring, its writer thread and their buffers, and
/// 12 MiB for the program: a thread's stack usually takes eight.
const ROOM_OF_OTHERS: usize = 16 << 20;

/// What the library takes: its reserve of 8 MiB, the rest of its data, and its code.
const ROOM_OF_LIBRARY: usize = 11 << 20;

/// Makes native memory available in this process: loads the library, unless it was preloaded, and attaches it. Where
/// addresses are limited, it takes only what the session and the program leave.
///
/// # Errors
/// One clause that says why that is not possible.
pub fn load(path: &CStr) -> Result<(), String> {
    let no_room = "there is no memory for it";
    let preloaded = interface();
    if preloaded.is_none() {
        // Not the dynamic linker's attempt: where it fails, a part of the limit of writable memory (`ulimit -d`) stays used.
        Room::hold(ROOM_OF_OTHERS + ROOM_OF_LIBRARY).ok_or(no_room)?;
    }
    let _room = Room::hold(ROOM_OF_OTHERS).ok_or(no_room)?;
    let found = match preloaded {
        Some(preloaded) => preloaded,
        None => open(path)?,
    };
    // SAFETY: the function of the interface. The caller starts a session, which one thread does at a time.
    if !unsafe { (found.attach)() } {
        return Err("the calls of this process cannot be changed".to_owned());
    }
    FOUND.store(std::ptr::from_ref(found).cast_mut(), Release);
    BUSY.set(found.busy);
    Ok(())
}

fn open(path: &CStr) -> Result<&'static Interface, String> {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: strings that end with a zero byte; the library's initialiser may run at any time.
    let interface = unsafe {
        let handle = libc::dlopen(path.as_ptr(), flags);
        if handle.is_null() {
            let why = libc::dlerror();
            let why = if why.is_null() {
                "it cannot be loaded".into()
            } else {
                CStr::from_ptr(why).to_string_lossy()
            };
            return Err(why.lines().next().unwrap_or_default().to_owned());
        }
        libc::dlsym(handle, SYMBOL.as_ptr())
            .cast::<Interface>()
            .as_ref()
    };
    let interface = interface.ok_or("there is no library for this processor yet")?;
    if interface.version != VERSION {
        return Err("its library is of another version; install nthbyte again".to_owned());
    }
    Ok(interface)
}

/// A function that returns a counter of the calling thread. While it is not 0, its requests are not the program's.
pub type BusyCounter = unsafe extern "C" fn() -> *mut u32;

/// The function [`Interface::busy`], or the host's own; none without the library, or before [`load`] and [`find_busy_counter`].
static BUSY: AtomicFn<BusyCounter> = AtomicFn::none();

/// Sets the counter of a host that samples its own requests, or finds the preloaded library's: once, when the first session
/// of the process begins. The dynamic linker has a lock, and whoever loads a library holds it while that is read from the
/// disk and initialised. So a fork, which starts the writer thread again, must not ask.
pub fn find_busy_counter(of_host: Option<BusyCounter>) {
    static HAS_ASKED: AtomicBool = AtomicBool::new(false);
    if let Some(counter) = of_host {
        BUSY.set(counter);
    } else if !HAS_ASKED.swap(true, Relaxed)
        && BUSY.get().is_none()
        && let Some(interface) = interface()
    {
        BUSY.set(interface.busy);
    }
}

/// Calls `work`, whose requests are not the program's. Costs a load and a branch without the library.
#[inline]
pub fn unobserved<T>(work: impl FnOnce() -> T) -> T {
    let Some(busy) = BUSY.get() else {
        return work();
    };
    // SAFETY: the function of the interface. Its result is the calling thread's own counter.
    unsafe {
        let busy = busy();
        *busy += 1;
        let result = work();
        *busy -= 1;
        result
    }
}

/// Marks all requests of the calling thread as not the program's.
pub fn ignore_thread() {
    if let Some(busy) = BUSY.get() {
        // SAFETY: the function of the interface. Its result is the calling thread's own counter.
        unsafe { *busy() += 1 };
    }
}
