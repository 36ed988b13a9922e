//! Releases the memory of this library's own code and constants.
//!
//! When a page is touched, the kernel maps sixteen pages around it. So most of the library is resident once it has
//! started: one megabyte, which counts as the program's memory. Most of it is not needed again, and half of the
//! remainder is needed only to write a block. So the pages of code and constants are released after a session's start
//! and after each block. The kernel maps them again on demand, in small pieces. (`layout.ld` places code that runs
//! together side by side.)

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// Segments are mapped in multiples of this size.
const PAGE: usize = 4096;

/// The kernel maps this many bytes around a touched address, instead of 64 KiB. Smaller pieces mean more mappings and a
/// slower start. With pieces of 16 KiB, 100 KiB more were resident, and a start took 0.4 ms less.
const PIECE: usize = 2 * PAGE;

/// Start and length of a library's read-only segments; a library has at most four.
type Ranges = [(usize, usize); 4];

/// The read-only segments of this library, set by the first [`release`].
static CONSTANT: OnceLock<Ranges> = OnceLock::new();

/// Releases the pages of this library's code and constants. The kernel maps the needed ones again, from the page cache.
/// Pages that were written to, such as relocated data, stay.
pub fn release() {
    CONSTANT.get_or_init(|| {
        let mut constant = Ranges::default();
        let data = (&raw mut constant).cast::<c_void>();
        // SAFETY: the callback has the type that is asked for, and `data` is what it expects.
        unsafe { libc::dl_iterate_phdr(Some(find_ours), data) };
        for (start, len) in constant {
            cut(start, len);
        }
        constant
    });
    release_again();
}

/// Splits a mapping into pieces; the kernel does not map pages of other pieces around a touched address. Neighbouring
/// pieces differ in a `madvise` setting that matters only for reads from the disk.
fn cut(start: usize, len: usize) {
    // SAFETY: no preconditions.
    if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != PAGE as i64 {
        return;
    }
    for piece in (start..start + len).step_by(2 * PIECE) {
        let rest = start + len - piece;
        // SAFETY: the range is mapped, and the advice changes nothing in it.
        unsafe { libc::madvise(piece as *mut c_void, PIECE.min(rest), libc::MADV_RANDOM) };
    }
}

/// Does the same as [`release`] if that was called before. Any thread may call this.
pub fn release_again() {
    for &(start, len) in CONSTANT.get().iter().copied().flatten() {
        if len > 0 {
            // SAFETY: in a position-independent library, no code writes to a segment without PF_W. So reading it from
            // the file again gives the same content.
            unsafe { libc::madvise(start as *mut c_void, len, libc::MADV_DONTNEED) };
        }
    }
}

/// # Safety
/// `image` is what `dl_iterate_phdr` gives, and `data` points to [`Ranges`].
unsafe extern "C" fn find_ours(
    image: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: by the contract; headers are mapped as long as their image is, and none is unloaded during
    // the call.
    let (base, headers, constant) = unsafe {
        let headers = std::slice::from_raw_parts((*image).dlpi_phdr, (*image).dlpi_phnum.into());
        let base = (*image).dlpi_addr as usize;
        (base, headers, &mut *data.cast::<Ranges>())
    };
    let own = release as fn() as usize;
    let mut found = Ranges::default();
    let mut free = found.iter_mut();
    let mut ours = false;
    for header in headers.iter().filter(|one| one.p_type == libc::PT_LOAD) {
        let start = base + header.p_vaddr as usize;
        let end = start + header.p_memsz as usize;
        ours |= (start..end).contains(&own);
        if header.p_flags & libc::PF_W == 0
            && let Some(range) = free.next()
        {
            let first = start & !(PAGE - 1);
            *range = (first, end - first);
        }
    }
    if ours {
        *constant = found;
    }
    c_int::from(ours) // the last to look at, if it is ours
}

/// Start and end of the image that has this address; zeroes if none has.
#[must_use]
pub fn range(address: usize) -> [usize; 2] {
    struct Search {
        address: usize,
        found: [usize; 2],
    }

    unsafe extern "C" fn look(
        image: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: as in `find_ours`; `data` is the caller's.
        let (base, headers, search) = unsafe {
            let headers =
                std::slice::from_raw_parts((*image).dlpi_phdr, (*image).dlpi_phnum.into());
            (
                (*image).dlpi_addr as usize,
                headers,
                &mut *data.cast::<Search>(),
            )
        };
        let loaded = headers.iter().filter(|one| one.p_type == libc::PT_LOAD);
        let (mut start, mut end) = (usize::MAX, 0);
        for header in loaded {
            let first = base + header.p_vaddr as usize;
            start = start.min(first);
            end = end.max(first + header.p_memsz as usize);
        }
        if (start..end).contains(&search.address) {
            search.found = [start, end];
            return 1;
        }
        0
    }

    let mut search = Search {
        address,
        found: [0; 2],
    };
    // SAFETY: the callback has the type that is asked for, and `data` is what it expects.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_released_is_mapped_again_in_pieces() {
        release();
        let own = release as fn() as usize;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let around = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let address = |text| usize::from_str_radix(text, 16).ok();
            let (start, end) = (address(start)?, address(end)?);
            (start..end).contains(&own).then_some(end - start)
        };
        let piece = maps.lines().find_map(around);
        assert!(piece.is_some_and(|len| len <= PIECE), "{piece:?}");
        // The content stays the same whenever it is released.
        let texts: Vec<String> = (0..100)
            .map(|number| {
                release_again();
                number.to_string()
            })
            .collect();
        assert_eq!(texts.last().map(String::as_str), Some("99"));
    }
}
