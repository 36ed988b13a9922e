//! What is mapped of this library's own file.
//!
//! The kernel maps sixteen pages around each that is touched, so that most of the library is resident once it
//! has started: a megabyte that counts as the program's. The larger part is not needed again. (`layout.ld`
//! keeps the rest together.)

use std::ffi::{c_int, c_void};

/// Segments are mapped in multiples of it, or of a multiple of it.
const PAGE: usize = 4096;

/// Lets go of the code and the constants of this library. What of them is needed comes back, from
/// the page cache. What was written to, relocated data among it, stays.
pub fn release() {
    // SAFETY: the callback has the type that is asked for, and no data.
    unsafe { libc::dl_iterate_phdr(Some(release_if_ours), std::ptr::null_mut()) };
}

/// # Safety
/// `image` is what `dl_iterate_phdr` gives.
unsafe extern "C" fn release_if_ours(
    image: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: by the contract; headers are mapped as long as their image is, and none is unloaded during
    // the call.
    let (base, headers) = unsafe {
        let headers = std::slice::from_raw_parts((*image).dlpi_phdr, (*image).dlpi_phnum.into());
        ((*image).dlpi_addr as usize, headers)
    };
    let own = release as fn() as usize;
    let mut constant = [(0, 0); 4];
    let mut count = 0;
    let mut ours = false;
    for header in headers.iter().filter(|one| one.p_type == libc::PT_LOAD) {
        let start = base + header.p_vaddr as usize;
        let end = start + header.p_memsz as usize;
        ours |= (start..end).contains(&own);
        if header.p_flags & libc::PF_W == 0 && count < constant.len() {
            constant[count] = (start & !(PAGE - 1), end);
            count += 1;
        }
    }
    // The headers lie in one of the segments, and looking at them would bring it back.
    for &(start, end) in constant[..count].iter().filter(|_| ours) {
        // SAFETY: nothing is ever written to a segment without PF_W in a library that is position-independent,
        // so what is read anew from its file is what was there.
        unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
    }
    c_int::from(ours) // the last to look at, if it is ours
}
