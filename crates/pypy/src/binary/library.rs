//! The place of `libpypy3*-c.so` (or of a statically linked `pypy3`) in memory, from the loader's
//! data.
//!
//! No file is read: segments, imports and the build id come from the program headers and the dynamic
//! section, which are mapped already.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

use nthbyte_host::process::dynamic_section::{DynamicTables, Relocation};
use object::LittleEndian;
use object::elf::{
    ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PF_W, PF_X, PT_DYNAMIC, PT_LOAD, PT_NOTE, PT_TLS,
};
use object::read::elf::NoteIterator;

use super::architecture::IMPORT_RELOCATIONS;
use super::architecture::thread_pointer::static_thread_local;

/// A symbol that only PyPy's library defines: the function of the embedding interface that executes
/// source code.
const MARKER: &CStr = c"pypy_execute_source";

/// The interpreter's library as it is mapped into this process.
#[derive(Clone, Debug)]
pub struct Library {
    base: usize,
    /// Executable memory.
    pub text: Range<usize>,
    /// Writable memory, including the zero-initialised part.
    pub data: Range<usize>,
    /// The calling thread's copy of the thread-local memory, if it lies at the same distance from the thread pointer in
    /// every thread.
    pub thread_local: Option<Range<usize>>,
    /// The linker's identifier of the build, in hexadecimal; empty if it has none.
    pub build_id: String,
    tables: DynamicTables,
}

struct Wanted {
    address: usize,
    found: Option<Library>,
}

impl Library {
    /// The library of the running interpreter; `None` if the interpreter is not PyPy.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        // SAFETY: `MARKER` is a terminated string; RTLD_DEFAULT searches all loaded libraries.
        let marker = unsafe { libc::dlsym(libc::RTLD_DEFAULT, MARKER.as_ptr()) };
        if marker.is_null() {
            return None;
        }
        let mut wanted = Wanted {
            address: marker as usize,
            found: None,
        };
        // SAFETY: `look` has the type of the callback, and `wanted` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
        wanted.found
    }

    /// The code as bytes.
    #[must_use]
    pub fn code(&self) -> &'static [u8] {
        // SAFETY: the range is an executable segment of a library that is never unloaded (it is the
        // interpreter); the segment is readable, as position-independent code of C compilers is.
        unsafe { std::slice::from_raw_parts(self.text.start as *const u8, self.text.len()) }
    }

    /// The slots through which the library reaches an imported function.
    #[must_use]
    pub fn import_slots(&self, name: &CStr) -> Vec<*mut usize> {
        let mut slots = Vec::new();
        for table in &self.tables.relocations {
            let count = table.len() / size_of::<Relocation>();
            // SAFETY: the dynamic section gives the table's address and size.
            let entries =
                unsafe { std::slice::from_raw_parts(table.start as *const Relocation, count) };
            for entry in entries {
                let kind = entry.r_type(LittleEndian, false);
                let symbol = entry.r_sym(LittleEndian, false) as usize;
                if IMPORT_RELOCATIONS.contains(&kind) && self.symbol_name(symbol) == name {
                    slots.push(
                        (self.base + entry.r_offset.get(LittleEndian) as usize) as *mut usize,
                    );
                }
            }
        }
        slots
    }

    fn symbol_name(&self, number: usize) -> &'static CStr {
        // SAFETY: relocations refer to symbols of the library's table. The library is never unloaded.
        unsafe { self.tables.name(self.tables.symbol(number)) }
    }
}

/// One loaded object: fills in `Wanted::found` if the address lies in it.
unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    size: usize,
    wanted: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description, and `of_this_process` passes a `Wanted`.
    let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Wanted>()) };
    let base = info.dlpi_addr as usize;
    // SAFETY: the loader gives the array and its length.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let range = |header: &libc::Elf64_Phdr| {
        let start = base + header.p_vaddr as usize;
        start..start + header.p_memsz as usize
    };
    let mut loaded = headers.iter().filter(|header| header.p_type == PT_LOAD);
    if !loaded.any(|header| range(header).contains(&wanted.address)) {
        return 0;
    }
    let segment = |flag| {
        headers
            .iter()
            .filter(|header| header.p_type == PT_LOAD && header.p_flags & flag != 0)
            .map(range)
            .max_by_key(Range::len)
    };
    let (Some(text), Some(data)) = (segment(PF_X), segment(PF_W)) else {
        return 1;
    };
    let dynamic = headers
        .iter()
        .find(|header| header.p_type == PT_DYNAMIC)
        .map(range);
    let Some(dynamic) = dynamic else {
        return 1;
    };
    // SAFETY: the section of the interpreter's library, which is never unloaded.
    let tables = unsafe { DynamicTables::read(base, &dynamic) };
    let thread_local = headers
        .iter()
        .find(|header| header.p_type == PT_TLS)
        .filter(|_| size >= size_of_val(info))
        .and_then(|header| {
            static_thread_local(info.dlpi_tls_data as usize, header.p_memsz as usize)
        });
    wanted.found = Some(Library {
        base,
        text,
        data,
        thread_local,
        build_id: headers
            .iter()
            .filter(|header| header.p_type == PT_NOTE)
            .find_map(|header| build_id(&range(header), header.p_align as u32))
            .unwrap_or_default(),
        tables,
    });
    1
}

/// The build id in a segment of notes, in hexadecimal.
fn build_id(segment: &Range<usize>, align: u32) -> Option<String> {
    // SAFETY: the segment is mapped, readable and never unmapped, as the interpreter is not.
    let bytes = unsafe { std::slice::from_raw_parts(segment.start as *const u8, segment.len()) };
    type Notes<'data> = NoteIterator<'data, FileHeader64<LittleEndian>>;
    let mut notes = Notes::new(LittleEndian, u64::from(align), bytes).ok()?;
    while let Some(note) = notes.next().ok()? {
        if note.name() == ELF_NOTE_GNU && note.n_type(LittleEndian) == NT_GNU_BUILD_ID {
            return Some(
                note.desc()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            );
        }
    }
    None
}
