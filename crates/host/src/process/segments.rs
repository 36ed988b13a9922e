//! The images in this process (the program and its shared libraries), and their segments.
//!
//! They are found in the kernel's list of mappings, and not with `dl_iterate_phdr`: that takes a lock of the dynamic
//! linker. A thread of the program may hold the lock in a callback of its own, and wait there for the interpreter's
//! lock, which the caller here may have. An image may also be unloaded at any time, so that its headers are read
//! through the kernel.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::maps::MapsLine;
use super::reads::Probe;
use crate::memory::page_size;

/// Images with more headers are left out.
const MOST_HEADERS: usize = 64;
/// So much of an image has its headers nearly always, in bytes.
const HEAD: usize = 1024;

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

/// Calls `visit` for each loaded segment. It may belong to an image that has just been unloaded. Takes no lock of the
/// dynamic linker, if there is `/proc`.
pub fn for_each(visit: &mut dyn FnMut(Segment)) {
    let own = for_each as fn(&mut dyn FnMut(Segment)) as usize;
    images(None, &mut |image| {
        let is_ours = image
            .loaded()
            .any(|header| image.range(header).contains(&own));
        for header in image.loaded() {
            visit(Segment {
                pages: whole_pages(image.range(header)),
                is_writable: header.p_flags & libc::PF_W != 0,
                is_code: header.p_flags & libc::PF_X != 0,
                is_ours,
            });
        }
    });
}

/// The pages that these bytes lie in.
pub(super) fn whole_pages(bytes: Range<usize>) -> Range<usize> {
    bytes.start & !(page_size() - 1)..bytes.end.next_multiple_of(page_size())
}

/// From the first byte to the last one of the image that has this address.
pub(super) fn span(address: usize) -> Option<Range<usize>> {
    let Some(find) = find_object() else {
        return span_of_images(address);
    };
    let mut object = FoundObject::default();
    // SAFETY: the function has this type, and `object` is larger than what it fills in.
    let is_found = unsafe { find(address as *mut c_void, &raw mut object) } == 0;
    is_found.then_some(object.start..object.end)
}

/// A loaded image, as the dynamic linker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// From its first byte to its last.
    pub addresses: Range<usize>,
    /// The address of the description (`struct link_map`, `link.h`). A later image's may be the same.
    pub description: usize,
}

impl LoadedImage {
    /// The image that has an address. `None` if there is none, or if the C library does not tell without a lock. It may have been
    /// unloaded meanwhile.
    pub fn at(address: usize) -> Option<Self> {
        let find = find_object_once()?;
        let mut object = FoundObject::default();
        // SAFETY: as in `span`.
        let is_found = unsafe { find(address as *mut c_void, &raw mut object) } == 0;
        is_found.then(|| Self {
            addresses: object.start..object.end,
            description: object.rest[0] as usize,
        })
    }

    /// The address of its path: the second word of the description. (glibc's descriptions begin as `link.h` has it.)
    fn path(&self) -> usize {
        self.description.wrapping_add(size_of::<usize>())
    }

    /// Its path; empty for the program.
    ///
    /// # Safety
    /// The image is not unloaded while the path is used.
    pub unsafe fn path_in_place<'a>(&self) -> &'a CStr {
        // SAFETY: the description is there as long as the image.
        let path = unsafe { *(self.path() as *const *const c_char) };
        if path.is_null() {
            return c"";
        }
        // SAFETY: the path is a terminated string, and there as long as the image.
        unsafe { CStr::from_ptr(path) }
    }

    /// Reads the path to `path`, through the kernel. `None` if it cannot be read, or is too long.
    pub fn read_path<'a>(&self, probe: &Probe, path: &'a mut [u8]) -> Option<&'a CStr> {
        let name = probe.read::<usize>(self.path())?;
        let read = probe.bytes(name, path);
        CStr::from_bytes_until_nul(&path[..read]).ok()
    }
}

/// Finds what [`LoadedImage::at`] needs of the C library.
pub fn prepare_to_find_images() {
    find_object_once();
}

/// What [`LoadedImage::at`] asks. The first call takes the dynamic linker's lock.
fn find_object_once() -> Option<FindObject> {
    static FIND: OnceLock<Option<FindObject>> = OnceLock::new();
    *FIND.get_or_init(find_object)
}

/// The same, by the headers of the images.
fn span_of_images(address: usize) -> Option<Range<usize>> {
    let mut found = None;
    images(Some(address), &mut |image| {
        let ranges = || image.loaded().map(|header| image.range(header));
        let start = ranges().map(|range| range.start).min();
        let end = ranges().map(|range| range.end).max();
        let span = start.unwrap_or(0)..end.unwrap_or(0);
        if found.is_none() && span.contains(&address) {
            found = Some(span);
        }
    });
    found
}

/// `struct dl_find_object` (dlfcn.h), of which later versions of the C library may fill in more.
#[repr(C)]
#[derive(Default)]
struct FoundObject {
    flags: u64,
    start: usize,
    end: usize,
    rest: [u64; 13],
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut FoundObject) -> c_int;

/// The C library's `_dl_find_object`, which takes no lock. It has it since version 2.35.
fn find_object() -> Option<FindObject> {
    // SAFETY: the name is a terminated string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    // SAFETY: the function of this name has this type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, FindObject>(found) })
}

/// The headers of an image.
struct Image<'a> {
    /// The difference between its addresses in memory and in the file.
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl Image<'_> {
    fn loaded(&self) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        self.headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
    }

    /// The addresses of a segment.
    fn range(&self, header: &libc::Elf64_Phdr) -> Range<usize> {
        let start = self.base.wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    }

    /// Whether these mappings belong to the image: a program may also map a library's file to read it, or that with its
    /// debug information, which has the same headers without their bytes.
    fn is_loaded(&self, first: &MapsLine<'_>, lines: &[MapsLine<'_>]) -> bool {
        self.loaded()
            .filter(|of| of.p_filesz > 0 || (of.p_memsz > 0 && of.p_flags & libc::PF_W == 0))
            .all(|header| {
                let page = self.range(header).start & !(page_size() - 1);
                let Some(line) = line_of(lines, page) else {
                    return false;
                };
                let offset = line.offset + (page - line.range.start) as u64;
                let is_file = line.inode == first.inode && line.device == first.device;
                // Code may have been moved to huge pages, which have no file.
                let is_there = if is_file {
                    offset == header.p_offset & !(page_size() as u64 - 1)
                } else {
                    line.inode == b"0"
                };
                is_there && (header.p_flags & libc::PF_X == 0 || line.rights[2] == b'x')
            })
    }
}

/// The mapping with this address. They are in the order of addresses.
fn line_of<'a, 'b>(lines: &'a [MapsLine<'b>], address: usize) -> Option<&'a MapsLine<'b>> {
    let at = lines.partition_point(|line| line.range.end <= address);
    lines.get(at).filter(|line| line.range.contains(&address))
}

/// Reads of this process's memory, which may be unmapped at any time. Some systems forbid one way, some the other.
enum MemoryReader {
    Probe(Probe),
    File(File),
}

impl MemoryReader {
    fn open() -> Option<Self> {
        let file = || File::open("/proc/self/mem").ok().map(Self::File);
        Probe::new().map(Self::Probe).or_else(file)
    }

    /// Fills `into`. `None` if that is not possible.
    fn read(&self, address: usize, into: &mut [u8]) -> Option<()> {
        match self {
            Self::Probe(probe) => (probe.bytes(address, into) == into.len()).then_some(()),
            Self::File(file) => file.read_exact_at(into, address as u64).ok(),
        }
    }
}

/// Calls `visit` for each image, but not for the kernel's own. With an address, others than the one that has it may be left
/// out.
fn images(address: Option<usize>, visit: &mut dyn FnMut(&Image<'_>)) {
    if images_of_the_kernel(address, visit).is_none() {
        images_of_the_linker(visit);
    }
}

/// `None` if the kernel does not tell the mappings, or if there is no memory.
fn images_of_the_kernel(address: Option<usize>, visit: &mut dyn FnMut(&Image<'_>)) -> Option<()> {
    let memory = MemoryReader::open()?;
    let text = std::fs::read("/proc/self/maps").ok()?;
    let mut lines = Vec::new();
    lines
        .try_reserve_exact(memchr::memchr_iter(b'\n', &text).count())
        .ok()?;
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', &text).take(lines.capacity()) {
        lines.extend(MapsLine::parse(&text[start..end]));
        start = end + 1;
    }
    // Any bytes are a header.
    let mut headers = [libc::Elf64_Phdr {
        p_type: 0,
        p_flags: 0,
        p_offset: 0,
        p_vaddr: 0,
        p_paddr: 0,
        p_filesz: 0,
        p_memsz: 0,
        p_align: 0,
    }; MOST_HEADERS];
    // The file at the address. MemoryReader without a file may be of any image.
    let wanted = address
        .and_then(|address| line_of(&lines, address))
        .filter(|line| line.inode != b"0");
    let is_wanted = |line: &MapsLine<'_>| {
        wanted.is_none_or(|of| line.inode == of.inode && line.device == of.device)
    };
    for first in &lines {
        // The header of the file is in the first segment.
        if first.offset == 0
            && first.inode != b"0"
            && first.rights[0] == b'r'
            && is_wanted(first)
            && let Some(image) = read_image(&memory, first.range.start, &mut headers)
            && image.is_loaded(first, &lines)
        {
            visit(&image);
        }
    }
    Some(())
}

/// The image whose file begins at this address. Its memory may be gone.
fn read_image<'a>(
    memory: &MemoryReader,
    start: usize,
    headers: &'a mut [libc::Elf64_Phdr; MOST_HEADERS],
) -> Option<Image<'a>> {
    let mut head = [0_u8; HEAD];
    memory.read(start, &mut head)?;
    // SAFETY: any bytes are such a header.
    let file = unsafe { head.as_ptr().cast::<libc::Elf64_Ehdr>().read_unaligned() };
    let is_image = file.e_ident.starts_with(b"\x7fELF")
        && file.e_ident[4] == 2 // of 64 bits
        && usize::from(file.e_phentsize) == size_of::<libc::Elf64_Phdr>();
    let headers = headers
        .get_mut(..usize::from(file.e_phnum))
        .filter(|_| is_image)?;
    // SAFETY: the bytes of the headers, which may have any values.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast::<u8>(), size_of_val(headers))
    };
    let from = file.e_phoff as usize;
    match head.get(from..from.saturating_add(bytes.len())) {
        Some(there) => bytes.copy_from_slice(there),
        None => memory.read(start.checked_add(from)?, bytes)?,
    }
    let is_first = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && header.p_offset < page_size() as u64
    };
    let first = headers.iter().find(is_first)?;
    let base = start.wrapping_sub(first.p_vaddr as usize & !(page_size() - 1));
    Some(Image { base, headers })
}

/// Where there is no `/proc`.
fn images_of_the_linker(visit: &mut dyn FnMut(&Image<'_>)) {
    let mut visit = visit;
    // SAFETY: the callback has the type that is asked for, and gets what it expects.
    unsafe { libc::dl_iterate_phdr(Some(image), (&raw mut visit).cast::<c_void>()) };
}

/// # Safety
/// `info` is what `dl_iterate_phdr` gives, and `visit` points to the argument of [`images_of_the_linker`].
unsafe extern "C" fn image(info: *mut libc::dl_phdr_info, _: usize, visit: *mut c_void) -> c_int {
    // SAFETY: by the contract. Headers are mapped as long as their image is, and no image is unloaded during the call. A
    // name is null or a C string.
    unsafe {
        let info = &*info;
        let is_kernels = !info.dlpi_name.is_null()
            && std::ffi::CStr::from_ptr(info.dlpi_name)
                .to_bytes()
                .starts_with(b"linux-"); // linux-vdso.so.1
        if !is_kernels {
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let base = info.dlpi_addr as usize;
            (*visit.cast::<&mut dyn FnMut(&Image<'_>)>())(&Image { base, headers });
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    fn segments(find: impl Fn(&mut dyn FnMut(&Image<'_>))) -> Vec<(usize, usize, u32)> {
        let mut found = Vec::new();
        find(&mut |image| {
            found.extend(image.loaded().map(|header| {
                let range = image.range(header);
                (range.start, range.end, header.p_flags)
            }));
        });
        found.sort_unstable();
        found
    }

    /// A file that is mapped to be read.
    struct Mapped(*mut c_void, usize);

    impl Mapped {
        fn new(content: &[u8]) -> Self {
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, content).unwrap();
            // SAFETY: a new mapping.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    content.len(),
                    libc::PROT_READ,
                    libc::MAP_PRIVATE,
                    std::os::fd::AsRawFd::as_raw_fd(&file),
                    0,
                )
            };
            assert_ne!(start, libc::MAP_FAILED);
            Self(start, content.len())
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: the mapping of `new`.
            unsafe { libc::munmap(self.0, self.1) };
        }
    }

    #[test]
    fn the_kernel_and_the_linker_tell_the_same() {
        // A library's file that is mapped to be read is no image, nor is one with debug information only.
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        let own = Mapped::new(&bytes);
        let header = size_of::<libc::Elf64_Ehdr>();
        for at in (header..)
            .step_by(size_of::<libc::Elf64_Phdr>())
            .take(usize::from(bytes[56]))
        {
            bytes[at + offset_of!(libc::Elf64_Phdr, p_filesz)..][..8].fill(0);
        }
        let debug = Mapped::new(&bytes);
        loop {
            let before = segments(images_of_the_linker);
            let kernel = segments(|visit| images_of_the_kernel(None, visit).unwrap());
            // Another test may load a library meanwhile.
            if segments(images_of_the_linker) == before {
                assert!(kernel.len() > 4);
                assert_eq!(kernel, before);
                break;
            }
        }
        drop((own, debug));
    }

    #[test]
    fn an_address_has_the_image_around_it() {
        for span in [span, span_of_images] {
            let own = span(for_each as fn(&mut dyn FnMut(Segment)) as usize).unwrap();
            assert!(own.contains(&(span as fn(usize) -> Option<Range<usize>> as usize)));
            assert!(!own.contains(&(libc::malloc as *const () as usize)));
            assert_eq!(span(1), None);
        }
    }
}
