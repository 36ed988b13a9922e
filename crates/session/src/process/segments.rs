//! The segments of the images in this process: the program and its shared libraries.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

const PAGE: usize = 4096;

/// One loaded segment.
pub struct Segment {
    /// Its whole pages, in units of the smallest OS page.
    pub pages: Range<usize>,
    /// Whether its code may write to it. The part that is read-only after relocation counts as writable.
    pub is_writable: bool,
    /// Whether it can be executed.
    pub is_code: bool,
    /// Whether it belongs to the image that contains this function.
    pub is_ours: bool,
}

/// Calls `visit` for each loaded segment. `visit` must not load or unload a library.
pub fn for_each(visit: &mut dyn FnMut(Segment)) {
    let mut visit = visit;
    // SAFETY: the callback has the type that is asked for, and gets what it expects.
    unsafe { libc::dl_iterate_phdr(Some(image), (&raw mut visit).cast::<c_void>()) };
}

/// # Safety
/// `info` is what `dl_iterate_phdr` gives, and `visit` points to the argument of [`for_each`].
unsafe extern "C" fn image(info: *mut libc::dl_phdr_info, _: usize, visit: *mut c_void) -> c_int {
    // SAFETY: by the contract. Headers are mapped as long as their image is, and no image is unloaded during the call.
    let (info, headers, visit) = unsafe {
        let info = &*info;
        (
            info,
            std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
            &mut *visit.cast::<&mut dyn FnMut(Segment)>(),
        )
    };
    if !info.dlpi_name.is_null() {
        // SAFETY: a name is a C string, and lives as long as its image.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        if name.to_bytes().starts_with(b"linux-") {
            return 0; // the kernel's own: linux-vdso.so.1
        }
    }
    let base = info.dlpi_addr as usize;
    let loaded = || {
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
    };
    let range = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    };
    let own = for_each as fn(&mut dyn FnMut(Segment)) as usize;
    let is_ours = loaded().any(|header| range(header).contains(&own));
    for header in loaded() {
        let Range { start, end } = range(header);
        visit(Segment {
            pages: start & !(PAGE - 1)..end.next_multiple_of(PAGE),
            is_writable: header.p_flags & libc::PF_W != 0,
            is_code: header.p_flags & libc::PF_X != 0,
            is_ours,
        });
    }
    0
}
