//! The file of a module: its build id, and its tables for unwinding.
//!
//! The tables are mapped from the file once more. The mapping stays when the program unloads the library, and its
//! resident pages are shared with the library's own. Before that, parts of the file are compared with what the process
//! has loaded: the path may lead to another file by now.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

use framehop::ModuleSectionInfo;
use nthbyte_host::memory::page_size;
use nthbyte_host::process::Probe;
use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};

use crate::cfi;
use crate::processor::{HAS_SIGNED_RETURNS, MACHINE};
use crate::signed_returns;

type Headers = Vec<ProgramHeader64<LittleEndian>>;

const ENDIAN: LittleEndian = LittleEndian;
/// File header and program headers lie within so many bytes.
const HEAD: usize = 8 << 10;
/// The largest file in memory. The kernel's code has two pages.
const MOST_IN_MEMORY: usize = 64 << 10;
/// The longest segment of notes that is read.
const NOTES: usize = 4 << 10;
/// Bytes of the table's header that are compared: its version, and where its first entries are.
const COMPARED: usize = 256;
/// `.eh_frame_hdr`: version 1, a pointer of four signed bytes relative to itself, as all linkers write it.
const TABLE_HEADER: [u8; 2] = [1, 0x1b];

/// Where the content of a module's file is.
pub(crate) enum Source {
    File(File),
    /// A copy of all of it: the kernel's code is in memory only.
    Memory(Vec<u8>),
}

/// A module's file.
#[derive(Default)]
pub(crate) struct Image {
    /// Hexadecimal digits; empty if there is none, or if the file is not the loaded one.
    pub(crate) build_id: String,
    headers: Headers,
    tables: Option<Tables>,
}

/// `.eh_frame_hdr` and `.eh_frame`.
#[derive(Clone)]
pub(crate) struct Tables {
    header: Bytes,
    header_at: Range<u64>,
    frames: Bytes,
    frames_at: Range<u64>,
}

impl Tables {
    /// Whether walks read the tables in bounded time.
    fn is_bounded(&self) -> bool {
        let (header, frames) = (&self.header, &self.frames);
        let is_bounded =
            cfi::is_bounded(header, self.header_at.start, frames, self.frames_at.start);
        // Walks need few pages of what was read.
        if frames.mapped.is_of_file {
            frames.mapped.release();
        }
        is_bounded
    }
}

#[cfg(test)]
impl Tables {
    /// A changed copy of both tables.
    pub(crate) fn changed(&self, mut change: impl FnMut(&mut [u8])) -> Self {
        let copy = |bytes: &Bytes, change: &mut dyn FnMut(&mut [u8])| {
            let mut copy = bytes.to_vec();
            change(&mut copy);
            let copy = copy.leak();
            let mapped = Arc::new(Mapped {
                start: copy.as_ptr(),
                // Nothing is unmapped.
                length: 0,
                is_of_file: false,
            });
            let range = 0..copy.len();
            Bytes { mapped, range }
        };
        Self {
            header: copy(&self.header, &mut change),
            frames: copy(&self.frames, &mut change),
            ..self.clone()
        }
    }
}

impl ModuleSectionInfo<Bytes> for Tables {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        match name {
            b".eh_frame_hdr" => Some(self.header_at.clone()),
            b".eh_frame" => Some(self.frames_at.clone()),
            _ => None,
        }
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Bytes> {
        match name {
            b".eh_frame_hdr" => Some(self.header.clone()),
            b".eh_frame" => Some(self.frames.clone()),
            _ => None,
        }
    }
}

/// Part of a mapped file.
#[derive(Clone)]
pub(crate) struct Bytes {
    mapped: Arc<Mapped>,
    range: Range<usize>,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping, which lives as long as `self`. A file that is cut short while it is
        // mapped faults here, as it does in the program, whose code is mapped from the same file.
        unsafe {
            std::slice::from_raw_parts(self.mapped.start.add(self.range.start), self.range.len())
        }
    }
}

/// A private mapping of part of a file, or of a copy.
struct Mapped {
    start: *const u8,
    length: usize,
    is_of_file: bool,
}

// SAFETY: the mapping is not written to once it is there.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Lets `change` write to it, and say whether it did.
    fn change(&mut self, change: impl FnOnce(&mut [u8]) -> bool) {
        let protect = |rights: i32| {
            // SAFETY: the mapping is this value's own. By the system call, as below.
            unsafe { libc::syscall(libc::SYS_mprotect, self.start, self.length, rights) == 0 }
        };
        if protect(libc::PROT_READ | libc::PROT_WRITE) {
            // SAFETY: the mapping is private, writable, and nothing else refers to it yet.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(self.start.cast_mut(), self.length) };
            // What was written is not read from the file again.
            self.is_of_file &= !change(bytes);
            protect(libc::PROT_READ);
        }
    }

    /// Gives its pages back. They are read again when they are used.
    fn release(&self) {
        // SAFETY: the mapping is this value's own, of a file, and not written to.
        unsafe {
            libc::madvise(
                self.start.cast_mut().cast(),
                self.length,
                libc::MADV_DONTNEED,
            )
        };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own. By the system call: `munmap` may be the preloaded library's.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, self.length) };
    }
}

impl Image {
    /// Reads a file. `None` if it is not an ELF file for this processor.
    pub(crate) fn open(path: &str) -> Option<(Self, Source)> {
        // What has the path by now may be a pipe, for whose other end nobody waits here.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        Self::read(Source::File(options.open(path).ok()?))
    }

    /// Reads a file that is in this part of memory as a whole. `None` as for [`Self::open`].
    pub(crate) fn of_memory(range: &Range<usize>, memory: Probe) -> Option<(Self, Source)> {
        let mut content = vec![0; range.len().min(MOST_IN_MEMORY)];
        let length = memory.bytes(range.start, &mut content);
        content.truncate(length);
        Self::read(Source::Memory(content))
    }

    fn read(file: Source) -> Option<(Self, Source)> {
        let mut head = vec![0; HEAD];
        let length = read_at(&file, &mut head, 0)?;
        let head = &head[..length];
        let header = FileHeader64::<LittleEndian>::parse(head).ok()?;
        let headers = header.program_headers(ENDIAN, head).ok()?.to_vec();
        let is_ours = header.e_machine(ENDIAN) == MACHINE;
        is_ours.then(|| {
            let image = Self {
                headers,
                ..Self::default()
            };
            (image, file)
        })
    }

    /// What has to be added to an address in the file to get that in memory, of a mapping that begins at `start` and at
    /// `offset` of the file.
    pub(crate) fn bias(&self, start: usize, offset: u64) -> Option<u64> {
        let loads = self.headers.iter().filter(|one| is(one, elf::PT_LOAD));
        let mut around = loads.filter(|load| {
            let at = load.p_offset(ENDIAN);
            // The mapping begins with a whole page, so before the segment at times.
            let end = at.checked_add(load.p_filesz(ENDIAN));
            load.p_flags(ENDIAN) & elf::PF_X != 0
                && at & !(page_size() as u64 - 1) <= offset
                && end.is_some_and(|end| offset < end)
        });
        let load = around.next()?;
        let in_file = load
            .p_vaddr(ENDIAN)
            .wrapping_sub(load.p_offset(ENDIAN))
            .wrapping_add(offset);
        Some((start as u64).wrapping_sub(in_file))
    }

    /// Reads the build id and maps the tables, if the file is the one that is loaded.
    pub(crate) fn compare_and_map(&mut self, file: &Source, bias: u64, memory: Probe) {
        let Some(build_id) = self.build_id_of(file, bias, memory) else {
            return;
        };
        self.tables = self
            .tables_of(file, bias, memory)
            .filter(Tables::is_bounded);
        self.build_id = build_id;
    }

    pub(crate) fn tables(&self) -> Option<Tables> {
        self.tables.clone()
    }

    /// The build id; empty if there is none. `None` if the loaded module has another one.
    fn build_id_of(&self, file: &Source, bias: u64, memory: Probe) -> Option<String> {
        for header in self.headers.iter().filter(|one| is(one, elf::PT_NOTE)) {
            let size = usize::try_from(header.p_filesz(ENDIAN)).ok()?.min(NOTES);
            let mut notes = vec![0; size];
            if read_at(file, &mut notes, header.p_offset(ENDIAN))? != size {
                continue;
            }
            let align = header.p_align(ENDIAN);
            let mut all =
                NoteIterator::<FileHeader64<LittleEndian>>::new(ENDIAN, align, &notes).ok()?;
            while let Ok(Some(note)) = all.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID {
                    let same = is_loaded(&notes, header.p_vaddr(ENDIAN), bias, memory);
                    let digits = note.desc().iter().take(64);
                    return same.then(|| digits.map(|byte| format!("{byte:02x}")).collect());
                }
            }
        }
        Some(String::new())
    }

    pub(crate) fn tables_of(&self, file: &Source, bias: u64, memory: Probe) -> Option<Tables> {
        let found = |kind| self.headers.iter().find(move |one| is(one, kind));
        let header = found(elf::PT_GNU_EH_FRAME)?;
        let (at, offset) = (header.p_vaddr(ENDIAN), header.p_offset(ENDIAN));
        let size = header.p_filesz(ENDIAN);
        let mut first = vec![0; usize::try_from(size).ok()?.min(COMPARED)];
        if read_at(file, &mut first, offset)? != first.len()
            || !is_loaded(&first, at, bias, memory)
            || *first.get(..2)? != TABLE_HEADER
        {
            return None;
        }
        let distance = i32::from_le_bytes(first.get(4..8)?.try_into().ok()?);
        let frames = (at + 4).checked_add_signed(distance.into())?;
        // Both lie in one segment. How long `.eh_frame` is, no program header says: it ends with an entry of length 0.
        let holds = |load: &&ProgramHeader64<LittleEndian>| {
            let range =
                load.p_vaddr(ENDIAN)..load.p_vaddr(ENDIAN).saturating_add(load.p_filesz(ENDIAN));
            is(load, elf::PT_LOAD) && range.contains(&at) && range.contains(&frames)
        };
        let load = self.headers.iter().find(holds)?;
        let end = load.p_vaddr(ENDIAN) + load.p_filesz(ENDIAN);
        let start = at.min(frames);
        let mut mapped = map(
            file,
            load.p_offset(ENDIAN) + (start - load.p_vaddr(ENDIAN)),
            end - start,
        )?;
        if HAS_SIGNED_RETURNS {
            let skipped = mapped.length - (end - frames) as usize;
            mapped.change(|bytes| signed_returns::blank(&mut bytes[skipped..]) > 0);
        }
        let mapped = Arc::new(mapped);
        let part = |range: &Range<u64>| {
            let skipped = mapped.length - (end - start) as usize;
            let within = |at: u64| skipped + (at - start) as usize;
            Bytes {
                mapped: mapped.clone(),
                range: within(range.start)..within(range.end),
            }
        };
        let header_at = at..at.checked_add(size)?.min(end);
        let frames_at = frames..end;
        Some(Tables {
            header: part(&header_at),
            frames: part(&frames_at),
            header_at,
            frames_at,
        })
    }
}

fn is(header: &ProgramHeader64<LittleEndian>, kind: u32) -> bool {
    header.p_type(ENDIAN) == kind
}

/// Whether these bytes of the file are in memory too.
fn is_loaded(bytes: &[u8], address: u64, bias: u64, memory: Probe) -> bool {
    let mut loaded = vec![0; bytes.len()];
    let got = memory.bytes(bias.wrapping_add(address) as usize, &mut loaded);
    got == bytes.len() && loaded == bytes
}

/// Maps part of a file. The mapping begins with a whole page; the part is at its end.
fn map(file: &Source, offset: u64, length: u64) -> Option<Mapped> {
    // A part that is not in the file would fault.
    let size = match file {
        Source::File(file) => file.metadata().ok()?.len(),
        Source::Memory(content) => content.len() as u64,
    };
    if offset.checked_add(length)? > size || length == 0 {
        return None;
    }
    let file = match file {
        Source::File(file) => file,
        Source::Memory(content) => return copy(&content[offset as usize..][..length as usize]),
    };
    let skipped = offset % page_size() as u64;
    let length = usize::try_from(length + skipped).ok()?;
    // SAFETY: a new mapping, at a place that the kernel chooses. By the system call: `mmap` may be the preloaded
    // library's.
    let start = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            std::ptr::null::<u8>(),
            length,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            offset - skipped,
        )
    };
    (start != -1).then_some(Mapped {
        start: start as *const u8,
        length,
        is_of_file: true,
    })
}

/// A copy in memory of its own.
fn copy(bytes: &[u8]) -> Option<Mapped> {
    // SAFETY: a new mapping, as above.
    let start = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            std::ptr::null::<u8>(),
            bytes.len(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == -1 {
        return None;
    }
    // SAFETY: the mapping has room for the bytes, and nothing else refers to it yet.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
    Some(Mapped {
        start: start as *const u8,
        length: bytes.len(),
        is_of_file: false,
    })
}

/// Reads until the buffer is full or the file ends.
fn read_at(file: &Source, buffer: &mut [u8], offset: u64) -> Option<usize> {
    let file = match file {
        Source::File(file) => file,
        Source::Memory(content) => {
            let rest = content.get(usize::try_from(offset).ok()?..)?;
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            return Some(length);
        }
    };
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(_) => return None,
        }
    }
    Some(done)
}
