//! Where `libpypy3*-c.so` (or a `pypy3` linked in one piece) lies in memory, told by the loader.
//!
//! Nothing is read from the disk: segments, imports and the build id come from the program headers
//! and the dynamic section that are mapped anyway.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

use super::handler::thread_pointer;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_TLS: u32 = 7;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
/// How many relocations at the table's start refer to no symbol: 700,000 in PyPy's library.
const DT_RELACOUNT: i64 = 0x6fff_fff9;
/// Thread-local memory of all libraries together is smaller than this.
const MOST_STATIC_TLS: usize = 64 << 10;
const NT_GNU_BUILD_ID: u32 = 3;
/// `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT`: a slot that holds the address of an imported symbol.
const IMPORT_RELOCATIONS: [u32; 2] = [6, 7];
/// A symbol that only PyPy's library defines; it starts the interpreter in every embedding.
const MARKER: &CStr = c"pypy_execute_source";

/// The interpreter's library as it is mapped into this process.
#[derive(Clone, Debug)]
pub struct Library {
    base: usize,
    /// Executable memory.
    pub text: Range<usize>,
    /// Writable memory, zero-initialised part included.
    pub data: Range<usize>,
    /// The calling thread's copy of the thread-local memory, if that lies at one distance from the thread pointer
    /// in every thread.
    pub thread_local: Option<Range<usize>>,
    /// The linker's identifier of the build, in hexadecimal; empty if it has none.
    pub build_id: String,
    strings: usize,
    symbols: usize,
    relocations: Vec<Range<usize>>,
}

/// `Elf64_Rela` of the System V ABI.
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// `Elf64_Sym` of the System V ABI.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

struct Wanted {
    address: usize,
    found: Option<Library>,
}

impl Library {
    /// The library that the running interpreter comes from; `None` if this is no PyPy.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        // SAFETY: `MARKER` is a terminated string; RTLD_DEFAULT asks for no library of its own.
        let marker = unsafe { libc::dlsym(libc::RTLD_DEFAULT, MARKER.as_ptr()) };
        if marker.is_null() {
            return None;
        }
        let mut wanted = Wanted {
            address: marker as usize,
            found: None,
        };
        // SAFETY: `look` matches the type that is called, and `wanted` outlives the call.
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
        for table in &self.relocations {
            let count = table.len() / size_of::<Relocation>();
            // SAFETY: the dynamic section gives the table's address and size.
            let entries =
                unsafe { std::slice::from_raw_parts(table.start as *const Relocation, count) };
            for entry in entries {
                #[allow(clippy::cast_possible_truncation)]
                // the low half is the type, the high half the symbol
                let (kind, symbol) = (entry.info as u32, (entry.info >> 32) as usize);
                if IMPORT_RELOCATIONS.contains(&kind) && self.symbol_name(symbol) == name {
                    slots.push((self.base + entry.offset as usize) as *mut usize);
                }
            }
        }
        slots
    }

    fn symbol_name(&self, index: usize) -> &'static CStr {
        let symbol = (self.symbols as *const Symbol).wrapping_add(index);
        // SAFETY: relocations refer to symbols of the library's table, and those to its strings.
        unsafe { CStr::from_ptr((self.strings + (*symbol).name as usize) as *const _) }
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
    let Some(tables) = dynamic.map(|dynamic| Tables::read(base, &dynamic)) else {
        return 1;
    };
    let thread_local = headers
        .iter()
        .find(|header| header.p_type == PT_TLS)
        .filter(|_| size >= size_of_val(info))
        .and_then(|header| static_tls(info.dlpi_tls_data as usize, header.p_memsz as usize));
    wanted.found = Some(Library {
        base,
        text,
        data,
        thread_local,
        build_id: headers
            .iter()
            .filter(|header| header.p_type == PT_NOTE)
            .find_map(|header| build_id(&range(header)))
            .unwrap_or_default(),
        strings: tables.strings,
        symbols: tables.symbols,
        relocations: tables.relocations,
    });
    1
}

/// Libraries that are there when the program starts have their thread-local memory right below the thread pointer,
/// in every thread alike (System V ABI, "variant II"); that of later ones is allocated anywhere.
fn static_tls(start: usize, length: usize) -> Option<Range<usize>> {
    let distance = thread_pointer().checked_sub(start)?;
    (start > 0 && (length..=MOST_STATIC_TLS).contains(&distance)).then(|| start..start + length)
}

struct Tables {
    strings: usize,
    symbols: usize,
    relocations: Vec<Range<usize>>,
}

impl Tables {
    fn read(base: usize, dynamic: &Range<usize>) -> Self {
        let (mut strings, mut symbols) = (0, 0);
        let (mut plt, mut plt_size, mut rela, mut rela_size, mut relative) = (0, 0, 0, 0, 0);
        let mut at = dynamic.start;
        while at + 16 <= dynamic.end {
            // SAFETY: `at` lies in the dynamic section, an array of pairs of words.
            let (tag, value) = unsafe { *(at as *const (i64, usize)) };
            // glibc relocates these addresses in place; other loaders leave them as they are in the file.
            let address = if value < base { base + value } else { value };
            match tag {
                DT_NULL => break,
                DT_STRTAB => strings = address,
                DT_SYMTAB => symbols = address,
                DT_JMPREL => plt = address,
                DT_PLTRELSZ => plt_size = value,
                DT_RELA => rela = address,
                DT_RELASZ => rela_size = value,
                DT_RELACOUNT => relative = value * size_of::<Relocation>(),
                _ => {}
            }
            at += 16;
        }
        Self {
            strings,
            symbols,
            relocations: vec![
                plt..plt + plt_size,
                rela + relative.min(rela_size)..rela + rela_size,
            ],
        }
    }
}

fn build_id(note: &Range<usize>) -> Option<String> {
    let mut at = note.start;
    while at + 12 <= note.end {
        // SAFETY: `at` lies in a note segment, and a note begins with three 32-bit numbers.
        let [name, size, kind] = unsafe { *(at as *const [u32; 3]) };
        let text = at + 12 + (name as usize).next_multiple_of(4);
        if kind == NT_GNU_BUILD_ID {
            // SAFETY: the note gives the length of its own content.
            let bytes = unsafe { std::slice::from_raw_parts(text as *const u8, size as usize) };
            return Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        at = text + (size as usize).next_multiple_of(4);
    }
    None
}
