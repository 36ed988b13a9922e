//! The place of `libpypy3*-c.so` (or of a statically linked `pypy3`, or of another translated program) in memory, from the
//! loader's data.
//!
//! No file is read: segments, imports and the build id come from the program headers and the dynamic
//! section, which are mapped already. Only the marks of a translated program are sought in its file: its data need not
//! become resident for that.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nthbyte_host::process::dynamic_section::{DynamicTables, Relocation};
use object::LittleEndian;
use object::elf::{
    ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_LOAD,
    PT_NOTE, PT_TLS,
};
use object::read::elf::NoteIterator;

use super::architecture::{IMPORT_RELOCATIONS, static_thread_local};
use super::function_table::FunctionTable;

/// A symbol that only PyPy's library defines: the function of the embedding interface that executes
/// source code.
const MARKER: &CStr = c"pypy_execute_source";

/// The entry of a program that is translated to a library (`--shared`).
const SHARED_ENTRY: &CStr = c"pypy_main_startup";
/// Of a program with a collector in the nursery's style: the variable that sets the nursery's size.
const TRANSLATED: &[u8] = b"PYPY_GC_NURSERY";
/// Of one whose collector finds its roots on the C stack (`--gcrootfinder=asmgcc`, no longer in RPython): it knows each
/// function that may be there.
const WALKS_STACK: &[u8] = b"cannot find gc roots!";
/// Bytes of a file that are read together.
const CHUNK: usize = 1 << 16;

/// The interpreter's library as it is mapped into this process.
#[derive(Clone, Debug)]
pub struct MappedLibrary {
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
    /// Where its functions begin, if the linker has made a table.
    pub functions: Option<FunctionTable>,
    tables: DynamicTables,
    /// Its file; empty for the program's own.
    path: PathBuf,
    /// The part of the file that `data` was loaded from.
    data_in_file: Range<u64>,
}

struct Wanted {
    address: usize,
    found: Option<MappedLibrary>,
}

impl MappedLibrary {
    /// The library of the running interpreter; `None` if the interpreter is not PyPy.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        // SAFETY: `MARKER` is a terminated string; RTLD_DEFAULT searches all loaded libraries.
        let marker = unsafe { libc::dlsym(libc::RTLD_DEFAULT, MARKER.as_ptr()) };
        if marker.is_null() {
            return None;
        }
        Self::containing(marker as usize)
    }

    /// The running program, or the library that has the code of one.
    #[must_use]
    pub fn of_program() -> Option<Self> {
        // SAFETY: no preconditions. The program's headers are in its first segment.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
        let program = Self::containing(headers as usize)?;
        // A look-up that fails would leave its message on the program's heap: only an import is looked up.
        if program.import_slots(SHARED_ENTRY).is_empty() {
            return Some(program);
        }
        // SAFETY: as in `of_this_process`.
        let entry = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SHARED_ENTRY.as_ptr()) };
        Self::containing(entry as usize)
    }

    fn containing(address: usize) -> Option<Self> {
        let mut wanted = Wanted {
            address,
            found: None,
        };
        // SAFETY: `look` has the type of the callback, and `wanted` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
        wanted.found
    }

    /// Whether this is a program that was translated with RPython, with a collector that has a nursery.
    #[must_use]
    pub fn is_translated(&self) -> bool {
        self.file_contains(self.data_in_file.clone(), TRANSLATED)
    }

    /// Whether its collector looks for roots on the C stack.
    #[must_use]
    pub fn walks_c_stack(&self) -> bool {
        self.file_contains(0..u64::MAX, WALKS_STACK)
    }

    fn file_contains(&self, range: Range<u64>, text: &[u8]) -> bool {
        let path = match self.path.as_os_str().is_empty() {
            true => Path::new("/proc/self/exe"),
            false => &self.path,
        };
        let Ok(file) = File::open(path) else {
            return false;
        };
        let mut chunk = vec![0; CHUNK];
        let mut at = range.start;
        while at < range.end {
            let Ok(read) = file.read_at(&mut chunk, at) else {
                return false;
            };
            if memchr::memmem::find(&chunk[..read], text).is_some() {
                return true;
            }
            if read <= text.len() {
                return false;
            }
            // The text may lie across two chunks.
            at += (read - text.len()) as u64;
        }
        false
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
    let writable = headers
        .iter()
        .filter(|header| header.p_type == PT_LOAD && header.p_flags & PF_W != 0)
        .max_by_key(|header| header.p_memsz);
    let data_in_file = writable.map_or(0..0, |header| {
        header.p_offset..header.p_offset + header.p_filesz
    });
    let path = match info.dlpi_name.is_null() {
        true => PathBuf::new(),
        // SAFETY: the loader's string.
        false => OsStr::from_bytes(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()).into(),
    };
    let functions = headers
        .iter()
        .find(|header| header.p_type == PT_GNU_EH_FRAME)
        // SAFETY: the interpreter, or the program, is never unloaded, and its tables are never written to.
        .and_then(|header| unsafe { FunctionTable::read(&range(header)) });
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
    wanted.found = Some(MappedLibrary {
        base,
        text,
        data,
        thread_local,
        build_id: headers
            .iter()
            .filter(|header| header.p_type == PT_NOTE)
            .find_map(|header| build_id(&range(header), header.p_align as u32))
            .unwrap_or_default(),
        functions,
        tables,
        path,
        data_in_file,
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
