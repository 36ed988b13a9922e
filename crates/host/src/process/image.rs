//! Releases the memory of this library's own code and constants.
//!
//! When a page is touched, the kernel maps sixteen pages around it. So most of the library is resident once it has
//! started: one megabyte, which counts as the program's memory. Most of it is not needed again, and half of the
//! remainder is needed only to write a block. So the pages of code and constants are released after a session's start
//! and after each block. The kernel maps them again on demand.
//!
//! The code that runs inside an allocation is never released, because an allocation must not wait for the disk: the
//! page cache may have lost the file by then. Its functions are in the section `nthbyte_hot`
//! (`#[unsafe(link_section = "nthbyte_hot")]`), which the linker places in one piece.
//!
//! The file may be replaced or removed while the library is mapped: the mapping keeps the old file, as long as it is
//! not overwritten in place. If it is cut short in place, the kernel takes the pages away from every process, resident
//! or not. No shared library survives that.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;

use super::segments;

/// The parts of a library that may be released. A library has at most four read-only segments, and the hot code splits
/// one of them.
type Ranges = [Range<usize>; 5];

/// The parts of this library that may be released, set by the first [`release`].
static CONSTANT: OnceLock<Ranges> = OnceLock::new();

unsafe extern "C" {
    /// The bounds of the section. The linker defines them.
    #[link_name = "__start_nthbyte_hot"]
    static HOT_START: u8;
    #[link_name = "__stop_nthbyte_hot"]
    static HOT_STOP: u8;
    /// The library's first byte. The linker defines it.
    #[link_name = "__ehdr_start"]
    static FILE_START: libc::Elf64_Ehdr;
}

/// The code that runs inside an allocation, in whole pages.
fn hot() -> Range<usize> {
    let (start, stop) = (&raw const HOT_START as usize, &raw const HOT_STOP as usize);
    segments::whole_pages(start..stop)
}

/// Releases the pages of this library's code and constants, but not of the hot code. The kernel maps the needed ones
/// again, from the page cache. Pages that were written to, such as relocated data, stay.
// In the hot section, so that there is one in each library.
#[unsafe(link_section = "nthbyte_hot")]
pub fn release() {
    CONSTANT.get_or_init(|| find(&hot()));
    release_again();
}

/// Releases the pages of this library's code and constants once, all of them: for a library that has no hot code, or has
/// not run it yet.
pub fn release_all() {
    find(&(0..0)).iter().for_each(release_pages);
}

/// The read-only segments of this library, without the hot code, if there is any. By its own headers: a search among all
/// images reads `/proc/self/maps`.
fn find(hot: &Range<usize>) -> Ranges {
    let file = &raw const FILE_START;
    // SAFETY: the linker puts the symbol at the start of the library's first segment, which begins with the file's header.
    // The program headers are in that segment, too.
    let headers = unsafe {
        let first = file.byte_add((*file).e_phoff as usize);
        std::slice::from_raw_parts(first.cast::<libc::Elf64_Phdr>(), (*file).e_phnum.into())
    };
    let mut found = Ranges::default();
    let mut free = found.iter_mut();
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        // The first segment has the address 0 in the file.
        let start = file as usize + header.p_vaddr as usize;
        let Range { start, end } = segments::whole_pages(start..start + header.p_memsz as usize);
        for part in [start..end.min(hot.start), start.max(hot.end)..end] {
            if !part.is_empty()
                && let Some(range) = free.next()
            {
                *range = part;
            }
        }
    }
    found
}

/// Does the same as [`release`] if that was called before. Any thread may call this.
pub fn release_again() {
    CONSTANT.get().into_iter().flatten().for_each(release_pages);
}

/// Releases a part of a segment that no code writes to.
fn release_pages(range: &Range<usize>) {
    if !range.is_empty() {
        // SAFETY: the range is mapped from the library's file. In a position-independent library, no code writes to a
        // segment without PF_W. So the content does not change: the kernel reads it from the file again.
        unsafe { libc::madvise(range.start as *mut c_void, range.len(), libc::MADV_DONTNEED) };
    }
}

/// Start and end of the image that has this address; zeroes if none has. Takes no lock of the dynamic linker, if there is
/// `/proc`.
#[must_use]
pub fn range(address: usize) -> [usize; 2] {
    segments::span(address).map_or([0; 2], |span| [span.start, span.end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content stays the same whenever it is released.
    #[test]
    fn what_is_released_is_mapped_again() {
        release();
        let texts: Vec<String> = (0..100)
            .map(|number| {
                release_again();
                number.to_string()
            })
            .collect();
        assert_eq!(texts.last().map(String::as_str), Some("99"));
    }

    #[test]
    fn hot_code_is_not_released() {
        release();
        let hot = hot();
        assert!(hot.contains(&(release as fn() as usize)));
        let own = CONSTANT.get().unwrap();
        assert!(
            own.iter()
                .any(|range| range.end == hot.start || range.start == hot.end)
        );
        for range in own {
            assert!(
                range.end <= hot.start || hot.end <= range.start,
                "{range:?}"
            );
        }
        let total: usize = own.iter().map(Range::len).sum();
        assert!(hot.len() < total / 4, "{} of {total}", hot.len());
    }
}
