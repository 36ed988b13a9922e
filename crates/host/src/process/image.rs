//! Releases the memory of this library's own code and constants.
//!
//! When a page is touched, the kernel maps sixteen pages around it. So most of the library is resident once it has
//! started: one megabyte, which counts as the program's memory. Most of it is not needed again, and half of the
//! remainder is needed only to write a block. So the pages of code and constants are released after a session's start
//! and after each block. The kernel maps them again on demand, in small pieces.
//!
//! The code that runs inside an allocation is never released, because an allocation must not wait for the disk: the
//! page cache may have lost the file by then. Its functions are in the section `nthbyte_hot`
//! (`#[unsafe(link_section = "nthbyte_hot")]`), which the linker places in one piece.
//!
//! The file may be replaced or removed while the library is mapped: the mapping keeps the old file, as long as it is
//! not overwritten in place. If it is cut short in place, the kernel takes the pages away from every process, resident
//! or not. No shared library survives that.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use super::segments;
use crate::memory::{SMALLEST_PAGE, page_size};

/// The kernel maps this many bytes around a touched address, instead of 64 KiB. Smaller pieces mean more mappings and a
/// slower start. With pieces of 16 KiB, 100 KiB more were resident, and a start took 0.4 ms less.
const PIECE: usize = 2 * SMALLEST_PAGE;

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
    CONSTANT.get_or_init(|| {
        let constant = find(&hot());
        constant.iter().for_each(|range| cut(range, PIECE));
        constant
    });
    release_again();
}

/// Releases the pages of this library's code and constants once, all of them: for a library that has no hot code, or has
/// not run it yet.
///
/// The pieces are larger than those of [`release`]: with the same, 40 KiB less were resident, and a start took 0.3 ms more.
pub fn release_all() {
    for range in &find(&(0..0)) {
        cut(range, 2 * PIECE);
        advise(range, libc::MADV_DONTNEED);
    }
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

/// Splits a mapping into pieces of this size; the kernel does not map pages of other pieces around a touched address.
/// Neighbouring pieces differ in a `madvise` setting that matters only for reads from the disk.
fn cut(range: &Range<usize>, piece: usize) {
    if page_size() != SMALLEST_PAGE {
        return;
    }
    for start in range.clone().step_by(2 * piece) {
        let length = piece.min(range.end - start);
        advise(&(start..start + length), libc::MADV_RANDOM);
    }
}

/// Does the same as [`release`] if that was called before. Any thread may call this.
pub fn release_again() {
    for range in CONSTANT.get().into_iter().flatten() {
        advise(range, libc::MADV_DONTNEED);
    }
}

/// Gives the kernel advice for a part of a segment that no code writes to.
fn advise(range: &Range<usize>, advice: c_int) {
    if !range.is_empty() {
        // SAFETY: the range is mapped from the library's file. In a position-independent library, no code writes to a
        // segment without PF_W. So the content does not change: the kernel reads it from the file again.
        unsafe { libc::madvise(range.start as *mut c_void, range.len(), advice) };
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

    /// The mapping that contains an address.
    fn mapping_of(address: usize) -> Option<Range<usize>> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let address_of = |text| usize::from_str_radix(text, 16).ok();
            let range = address_of(start)?..address_of(end)?;
            range.contains(&address).then_some(range)
        })
    }

    #[test]
    fn what_is_released_is_mapped_again_in_pieces() {
        release();
        let piece = mapping_of(find as fn(&Range<usize>) -> Ranges as usize).unwrap();
        assert!(piece.len() <= PIECE, "{piece:?}");
        // The content stays the same whenever it is released.
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
