//! What the dynamic linker has loaded: the program and the libraries, with their relocations that name functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;

use object::LittleEndian;
use object::elf::{
    DT_GNU_HASH, DT_JMPREL, DT_NULL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT, DT_RELASZ, DT_STRTAB,
    DT_SYMTAB, Dyn64, PF_X, PT_DYNAMIC, PT_GNU_RELRO, PT_LOAD, R_X86_64_64, R_X86_64_GLOB_DAT,
    R_X86_64_JUMP_SLOT, Rela64, SHN_UNDEF, Sym64,
};

use crate::calls::PAGE;

type Relocation = Rela64<LittleEndian>;
type Symbol = Sym64<LittleEndian>;
type Dynamic = Dyn64<LittleEndian>;

/// A loaded program or library.
pub struct Object {
    /// The difference between its addresses in memory and in the file.
    base: usize,
    /// From its first byte to its last.
    pub image: Range<usize>,
    /// Its code.
    text: Range<usize>,
    /// The pages that the dynamic linker makes read-only once it has relocated them.
    relro: Range<usize>,
    strings: usize,
    symbols: usize,
    hashes: usize,
    relocations: [Range<usize>; 2],
}

/// A word that holds the address of a function of another library.
pub struct Slot {
    /// The word.
    pub place: *mut usize,
    /// Whether it may still hold the address of code of its own object, which finds the function at the first call.
    is_called: bool,
    symbol: *const Symbol,
}

impl Object {
    /// The object that the dynamic linker describes. `None` if it has no relocations.
    ///
    /// # Safety
    /// The description is valid, and the object stays loaded.
    pub unsafe fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        let base = info.dlpi_addr as usize;
        // SAFETY: the loader gives the array and its length.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let range = |header: &libc::Elf64_Phdr| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            start..start + header.p_memsz as usize
        };
        let mut object = Self {
            base,
            image: 0..0,
            text: 0..0,
            relro: 0..0,
            strings: 0,
            symbols: 0,
            hashes: 0,
            relocations: [0..0, 0..0],
        };
        let mut dynamic = 0..0;
        for header in headers {
            let there = range(header);
            match header.p_type {
                PT_LOAD => {
                    // Segments are in the order of their addresses.
                    if object.image.is_empty() {
                        object.image.start = there.start;
                    }
                    object.image.end = there.end;
                    if header.p_flags & PF_X != 0 {
                        object.text = there;
                    }
                }
                PT_DYNAMIC => dynamic = there,
                PT_GNU_RELRO => object.relro = there.start & !(PAGE - 1)..there.end & !(PAGE - 1),
                _ => {}
            }
        }
        // SAFETY: the program header gives the place of the dynamic section.
        unsafe { object.read_dynamic(&dynamic) };
        (object.strings != 0 && object.symbols != 0).then_some(object)
    }

    /// # Safety
    /// The range is that of the dynamic section.
    unsafe fn read_dynamic(&mut self, dynamic: &Range<usize>) {
        let (mut plt, mut plt_size, mut rela, mut rela_size, mut relative) = (0, 0, 0, 0, 0);
        let mut place = dynamic.start as *const Dynamic;
        while (place as usize) < dynamic.end {
            // SAFETY: inside the section.
            let entry = unsafe { &*place };
            let value = entry.d_val.get(LittleEndian) as usize;
            // glibc relocates these addresses in place, but not those of the kernel's library.
            let address = if value < self.base {
                self.base + value
            } else {
                value
            };
            match u32::try_from(entry.d_tag.get(LittleEndian)).unwrap_or(u32::MAX) {
                DT_NULL => break,
                DT_STRTAB => self.strings = address,
                DT_SYMTAB => self.symbols = address,
                DT_GNU_HASH => self.hashes = address,
                DT_JMPREL => plt = address,
                DT_PLTRELSZ => plt_size = value,
                DT_RELA => rela = address,
                DT_RELASZ => rela_size = value,
                // The relocations at the table's start that name no symbol.
                DT_RELACOUNT => relative = value * size_of::<Relocation>(),
                _ => {}
            }
            place = place.wrapping_add(1);
        }
        self.relocations = [
            plt..plt + plt_size,
            rela + relative.min(rela_size)..rela + rela_size,
        ];
    }

    /// Calls `visit` with the slot of each function that the object calls or refers to.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn for_each_slot(&self, mut visit: impl FnMut(&Slot)) {
        for table in &self.relocations {
            let mut place = table.start as *const Relocation;
            while (place as usize) < table.end {
                // SAFETY: inside the table.
                let entry = unsafe { &*place };
                place = place.wrapping_add(1);
                let kind = entry.r_type(LittleEndian, false);
                if matches!(kind, R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT | R_X86_64_64)
                    && entry.r_addend.get(LittleEndian) == 0
                {
                    let offset = entry.r_offset.get(LittleEndian) as usize;
                    visit(&Slot {
                        place: self.base.wrapping_add(offset) as *mut usize,
                        is_called: kind == R_X86_64_JUMP_SLOT,
                        symbol: self.symbol(entry.r_sym(LittleEndian, false) as usize),
                    });
                }
            }
        }
    }

    /// The name of the function of a slot that holds the address of the object's own code, which will find the function
    /// at the first call. `None` if `value` is not such an address.
    ///
    /// # Safety
    /// A slot of this object, which is loaded.
    pub unsafe fn name_if_lazy(&self, slot: &Slot, value: usize) -> Option<&'static CStr> {
        if !slot.is_called || !self.text.contains(&value) {
            return None;
        }
        // SAFETY: a relocation names a symbol of the object's table.
        unsafe {
            let is_undefined = (*slot.symbol).st_shndx.get(LittleEndian) == SHN_UNDEF;
            is_undefined.then(|| self.name(slot.symbol))
        }
    }

    /// Whether the object itself defines a function of this name.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn defines(&self, name: &CStr) -> bool {
        if self.hashes == 0 {
            // A table of the old kind only: it may.
            return true;
        }
        let words = self.hashes as *const u32;
        // SAFETY: the layout of the GNU hash table: four words, the filter, the buckets, the chains.
        unsafe {
            let (buckets, first, filter) = (*words, *words.add(1), *words.add(2));
            if buckets == 0 {
                return false;
            }
            let table = words.add(4 + 2 * filter as usize);
            let chains = table.add(buckets as usize);
            let hash = gnu_hash(name);
            let mut at = *table.add((hash % buckets) as usize);
            while at >= first {
                let there = *chains.add((at - first) as usize);
                let symbol = self.symbol(at as usize);
                if there | 1 == hash | 1
                    && (*symbol).st_shndx.get(LittleEndian) != SHN_UNDEF
                    && self.name(symbol) == name
                {
                    return true;
                }
                if there & 1 != 0 {
                    break;
                }
                at += 1;
            }
        }
        false
    }

    /// Whether the dynamic linker makes this address read-only.
    pub fn is_sealed(&self, address: usize) -> bool {
        self.relro.contains(&address)
    }

    const fn symbol(&self, index: usize) -> *const Symbol {
        (self.symbols as *const Symbol).wrapping_add(index)
    }

    /// # Safety
    /// A symbol of the object's table.
    unsafe fn name(&self, symbol: *const Symbol) -> &'static CStr {
        // SAFETY: by the contract.
        unsafe {
            let offset = (*symbol).st_name.get(LittleEndian) as usize;
            CStr::from_ptr((self.strings + offset) as *const _)
        }
    }
}

/// An address in the dynamic linker.
pub fn linker() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_BASE) as usize }
}

/// What to search for in all objects.
struct Search<'a> {
    name: &'a CStr,
    own: usize,
    linker: usize,
    /// The file's name of the first object that defines the function; null if there is none. The program has none, or
    /// an empty one.
    file: *const c_char,
    is_found: bool,
    /// Whether this library came before the dynamic linker.
    is_first: Option<bool>,
}

impl Search<'_> {
    fn run(name: &CStr) -> Search<'_> {
        let mut search = Search {
            name,
            own: linker as *const () as usize,
            linker: linker(),
            file: std::ptr::null(),
            is_found: false,
            is_first: None,
        };
        // SAFETY: `look` has the type of the callback, and `search` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search
    }
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the linker's description, and the caller's search.
    unsafe {
        let (info, search) = (&*info, &mut *search.cast::<Search<'_>>());
        let Some(object) = Object::of(info) else {
            return 0;
        };
        let (is_own, is_linker) = (
            object.image.contains(&search.own),
            object.image.contains(&search.linker),
        );
        if is_own || is_linker {
            search.is_first.get_or_insert(is_own);
        } else if !search.is_found && object.hashes != 0 && object.defines(search.name) {
            search.is_found = true;
            search.file = info.dlpi_name;
        }
    }
    0
}

/// Whether the dynamic linker loaded this library with the program. Libraries that are loaded later come after it.
pub fn is_preloaded() -> bool {
    Search::run(c"").is_first == Some(true)
}

/// The function that the libraries of the program call, which have not this library before them; null if there is none.
///
/// `dlsym` does not always tell: in a program that is not position-independent and takes a function's address, its
/// answer is the program's own code that calls the function through a slot.
pub fn definition(name: &CStr) -> *mut c_void {
    let search = Search::run(name);
    // SAFETY: the names are C strings. The object stays loaded: it was found in the order in which the program's own
    // libraries come first.
    unsafe {
        let is_library = search.is_found && !search.file.is_null() && *search.file != 0;
        let handle = if is_library {
            libc::dlopen(search.file, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        } else {
            libc::RTLD_DEFAULT
        };
        if is_library && handle.is_null() {
            return std::ptr::null_mut();
        }
        libc::dlsym(handle, name.as_ptr())
    }
}

/// The hash of a name in tables of the kind `DT_GNU_HASH`.
fn gnu_hash(name: &CStr) -> u32 {
    let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(byte));
    name.to_bytes().iter().fold(5381, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Found {
        /// The names of the objects that define `malloc`.
        defining: Vec<String>,
        /// Slots of `malloc` that lead to the C library's function, or to the object's own code.
        slots: usize,
        others: usize,
    }

    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description; the caller's value.
        unsafe {
            let (info, found) = (&*info, &mut *found.cast::<Found>());
            let Some(object) = Object::of(info) else {
                return 0;
            };
            let name = CStr::from_ptr(info.dlpi_name).to_string_lossy();
            if name.contains("vdso") {
                return 0;
            }
            if object.defines(c"malloc") {
                found.defining.push(name.into_owned());
            }
            assert!(!object.defines(c"no function has this name"));
            let malloc = libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) as usize;
            object.for_each_slot(|slot| {
                let value = slot.place.read();
                if object.name(slot.symbol) == c"malloc" {
                    if value == malloc || object.name_if_lazy(slot, value) == Some(c"malloc") {
                        found.slots += 1;
                    } else {
                        found.others += 1;
                    }
                }
            });
        }
        0
    }

    #[test]
    fn the_c_library_defines_malloc_and_others_have_slots_for_it() {
        let mut found = Found::default();
        // SAFETY: `look` has the type of the callback.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        assert!(found.defining.iter().any(|name| name.contains("libc.so")));
        assert!(found.defining.len() <= 2, "{:?}", found.defining);
        // This test's own slot, and one in the C library.
        assert!(found.slots >= 2, "{}", found.slots);
        assert_eq!(found.others, 0);
    }
}
