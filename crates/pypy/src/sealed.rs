//! What the C library does in the copy of a process.
//!
//! The copy may have been made while another thread was inside `malloc`, or waited for the interpreter's lock: nobody releases
//! those locks there. So in the copy, PyPy's imports of these functions lead here. Memory is this library's, which has no
//! lock; locks are free, because there is one thread; and what PyPy writes goes to the dump of the heap, and nowhere else.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use nthbyte_rpython::binary::{MappedLibrary, MemoryMap, Redirect};

/// Whether this process is a copy.
static IS_SEALED: AtomicBool = AtomicBool::new(false);

/// Whether this process is a copy, in which nothing of the C library is called that takes a lock.
#[inline]
pub fn is_sealed() -> bool {
    IS_SEALED.load(Relaxed)
}

/// Gets what PyPy writes.
static SINK: OnceLock<fn(&[u8])> = OnceLock::new();

/// Before a block: its size, and a mark.
const HEADER: usize = 16;
const MARK: usize = 0x6e74_6862_7974_6521;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEADER)?, HEADER).ok()
}

/// As `calloc(1, size)`.
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    let Some(layout) = layout(size) else {
        return null_mut();
    };
    // SAFETY: the layout has a header at least.
    unsafe {
        let start = alloc_zeroed(layout);
        if start.is_null() {
            return null_mut();
        }
        let block = start.add(HEADER);
        start.cast::<usize>().write(size);
        start.cast::<usize>().add(1).write(MARK ^ block as usize);
        block.cast()
    }
}

extern "C" fn calloc(count: usize, each: usize) -> *mut c_void {
    count
        .checked_mul(each)
        .map_or(null_mut(), |size| malloc(size))
}

/// The size of a block of this module; `None` if it is one that the C library made before the copy.
unsafe fn own_size(block: *mut c_void) -> Option<usize> {
    // SAFETY: by the callers. A block of the C library has two words of its own before it, too.
    unsafe {
        let header = block.cast::<usize>().sub(2);
        (header.add(1).read() == MARK ^ block as usize).then(|| header.read())
    }
}

/// As `free`. Memory that the C library has made stays.
unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(size) = own_size(block)
            && let Some(layout) = layout(size)
        {
            let start = block.cast::<u8>().sub(HEADER);
            start.cast::<usize>().add(1).write(0);
            dealloc(start, layout);
        }
    }
}

unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let new = malloc(size);
    if block.is_null() || new.is_null() {
        return new;
    }
    // SAFETY: the caller's promise. `malloc_usable_size` takes no lock.
    unsafe {
        let old = own_size(block).unwrap_or_else(|| libc::malloc_usable_size(block));
        new.cast::<u8>()
            .copy_from_nonoverlapping(block.cast(), old.min(size));
        free(block);
    }
    new
}

/// Of a lock that is free, or the end of a wait.
const extern "C" fn done() -> c_int {
    0
}

const extern "C" fn timed_out() -> c_int {
    libc::ETIMEDOUT
}

unsafe extern "C" fn write(_: c_int, bytes: *const c_void, length: usize) -> isize {
    if let Some(sink) = SINK.get() {
        // SAFETY: the caller's promise.
        sink(unsafe { std::slice::from_raw_parts(bytes.cast(), length) });
    }
    length.cast_signed()
}

/// PyPy's imports, ready to be changed in the copy.
pub struct Seal(Vec<Redirect>);

impl Seal {
    /// Finds the imports.
    ///
    /// # Errors
    /// One clause that says what it lacks.
    pub fn prepare() -> Result<Self, String> {
        let library = MappedLibrary::of_this_process().ok_or("this interpreter is not PyPy")?;
        let map = MemoryMap::read()?;
        let (done, timed_out) = (done as *const () as usize, timed_out as *const () as usize);
        let functions: [(&CStr, usize); 20] = [
            (c"malloc", malloc as *const () as usize),
            (c"free", free as *const () as usize),
            (c"write", write as *const () as usize),
            (c"calloc", calloc as *const () as usize),
            (c"realloc", realloc as *const () as usize),
            (c"pthread_mutex_lock", done),
            (c"pthread_mutex_trylock", done),
            (c"pthread_mutex_timedlock", done),
            (c"pthread_mutex_clocklock", done),
            (c"pthread_mutex_unlock", done),
            (c"pthread_cond_wait", done),
            (c"pthread_cond_timedwait", timed_out),
            (c"pthread_cond_clockwait", timed_out),
            (c"pthread_cond_signal", done),
            (c"pthread_cond_broadcast", done),
            (c"sem_wait", done),
            (c"sem_trywait", done),
            (c"sem_timedwait", done),
            (c"sem_clockwait", done),
            (c"sem_post", done),
        ];
        // PyPy cannot do without these.
        const NEEDED: usize = 3;
        let mut redirects = Vec::new();
        for (number, (name, function)) in functions.into_iter().enumerate() {
            let slots = library.import_slots(name);
            if slots.is_empty() && number < NEEDED {
                return Err(format!(
                    "this PyPy does not import {}",
                    name.to_string_lossy()
                ));
            }
            // SAFETY: these are the library's import slots of a function that takes the same arguments, or more of them.
            redirects.extend(unsafe { Redirect::prepare(&slots, function, &map) }?);
        }
        Ok(Self(redirects))
    }

    /// Changes the imports of this process, which is a copy. What PyPy writes from now on goes to `sink`.
    ///
    /// # Errors
    /// One clause, if the system does not allow it.
    pub fn close(&self, sink: fn(&[u8])) -> Result<(), String> {
        SINK.get_or_init(|| sink);
        IS_SEALED.store(true, Relaxed);
        self.0.iter().try_for_each(|redirect| redirect.turn(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_content_when_they_grow_wherever_they_come_from() {
        // SAFETY: blocks are used as long as they are there.
        unsafe {
            let of_c = libc::malloc(100);
            let own = malloc(100);
            for block in [of_c, own] {
                block.cast::<u8>().write_bytes(7, 100);
                let grown = realloc(block, 100_000);
                let content = std::slice::from_raw_parts(grown.cast::<u8>(), 100);
                assert_eq!(content, [7; 100]);
                assert_eq!(own_size(grown), Some(100_000));
                let cut = realloc(grown, 50);
                assert_eq!(own_size(cut), Some(50));
                free(cut);
            }
            assert!(own_size(of_c).is_none());
            free(of_c);
            libc::free(of_c);
            free(null_mut());
            assert!(calloc(usize::MAX, 2).is_null() && malloc(usize::MAX).is_null());
        }
    }
}
