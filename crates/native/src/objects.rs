//! What the dynamic linker has loaded: the program and the libraries, with their relocations that name functions.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr::null_mut;

use object::LittleEndian;
use object::elf::{
    DT_DEBUG, DT_GNU_HASH, DT_JMPREL, DT_NEEDED, DT_NULL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT,
    DT_RELASZ, DT_STRTAB, DT_SYMTAB, Dyn64, ELFMAG, FileHeader64, PF_X, PT_DYNAMIC, PT_GNU_RELRO,
    PT_LOAD, ProgramHeader64, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, Rela64,
    SHN_UNDEF, Sym64,
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
    pub relro: Range<usize>,
    /// Its table of the dynamic linker. No two objects have the same address.
    pub dynamic: Range<usize>,
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

/// `struct link_map` of `link.h`, as far as it is public.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: usize,
}

/// The table of the library with this handle (see [`Object::dynamic`]), and its base. Takes no lock.
///
/// # Safety
/// A handle of `dlopen`.
unsafe fn link_map(handle: *mut c_void) -> Option<(usize, usize)> {
    let mut map: *const LinkMap = null_mut();
    // SAFETY: by the contract; the result is a pointer.
    unsafe {
        let failed = libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) != 0;
        let map = map.as_ref().filter(|_| !failed)?;
        (map.dynamic != 0).then_some((map.dynamic, map.base))
    }
}

/// [`Object::dynamic`] of the library with this handle; 0 if it is not known.
///
/// # Safety
/// A handle of `dlopen`.
pub unsafe fn table_of_handle(handle: *mut c_void) -> usize {
    // SAFETY: by the contract.
    unsafe { link_map(handle) }.map_or(0, |(dynamic, _)| dynamic)
}

impl Object {
    /// The object that the dynamic linker describes. `None` if it has no relocations.
    ///
    /// # Safety
    /// The description is valid, and the object stays loaded.
    pub unsafe fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        // SAFETY: the loader gives the array and its length. The layouts are the same.
        unsafe {
            let headers = std::slice::from_raw_parts(
                info.dlpi_phdr.cast::<ProgramHeader64<LittleEndian>>(),
                usize::from(info.dlpi_phnum),
            );
            Self::new(info.dlpi_addr as usize, headers)
        }
    }

    /// The library with this handle. `None` if it has no relocations, or an image of another form.
    ///
    /// # Safety
    /// A handle of `dlopen`. The object stays loaded.
    pub unsafe fn of_handle(handle: *mut c_void) -> Option<Self> {
        // SAFETY: by the contract. An image begins with the file's header, if that is loaded; its first page is readable.
        unsafe {
            let (dynamic, base) = link_map(handle)?;
            let mut info: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(dynamic as *const c_void, &raw mut info) == 0 {
                return None;
            }
            let start = info.dli_fbase as usize;
            let header = (start as *const FileHeader64<LittleEndian>).as_ref()?;
            let (offset, count) = (
                header.e_phoff.get(LittleEndian) as usize,
                usize::from(header.e_phnum.get(LittleEndian)),
            );
            let size = size_of::<ProgramHeader64<LittleEndian>>();
            if header.e_ident.magic != ELFMAG
                || usize::from(header.e_phentsize.get(LittleEndian)) != size
                || offset.saturating_add(count * size) > PAGE
            {
                return None;
            }
            let headers = std::slice::from_raw_parts((start + offset) as *const _, count);
            Self::new(base, headers)
        }
    }

    unsafe fn new(base: usize, headers: &[ProgramHeader64<LittleEndian>]) -> Option<Self> {
        let range = |header: &ProgramHeader64<LittleEndian>| {
            let start = base.wrapping_add(header.p_vaddr.get(LittleEndian) as usize);
            start..start.wrapping_add(header.p_memsz.get(LittleEndian) as usize)
        };
        let mut object = Self {
            base,
            image: 0..0,
            text: 0..0,
            relro: 0..0,
            dynamic: 0..0,
            strings: 0,
            symbols: 0,
            hashes: 0,
            relocations: [0..0, 0..0],
        };
        for header in headers {
            let there = range(header);
            match header.p_type.get(LittleEndian) {
                PT_LOAD => {
                    // Segments are in the order of their addresses.
                    if object.image.is_empty() {
                        object.image.start = there.start;
                    }
                    object.image.end = there.end;
                    if header.p_flags.get(LittleEndian) & PF_X != 0 {
                        object.text = there;
                    }
                }
                PT_DYNAMIC => object.dynamic = there,
                PT_GNU_RELRO => object.relro = there.start & !(PAGE - 1)..there.end & !(PAGE - 1),
                _ => {}
            }
        }
        // SAFETY: by the contract.
        unsafe { object.read_dynamic() };
        (object.strings != 0 && object.symbols != 0).then_some(object)
    }

    /// Calls `visit` with each entry of the dynamic section: its kind and its value.
    ///
    /// # Safety
    /// The object is loaded.
    unsafe fn for_each_entry(&self, mut visit: impl FnMut(u32, usize)) {
        let mut place = self.dynamic.start as *const Dynamic;
        while (place as usize) < self.dynamic.end {
            // SAFETY: inside the section, whose place the program header gives.
            let entry = unsafe { &*place };
            let kind = u32::try_from(entry.d_tag.get(LittleEndian)).unwrap_or(u32::MAX);
            if kind == DT_NULL {
                break;
            }
            visit(kind, entry.d_val.get(LittleEndian) as usize);
            place = place.wrapping_add(1);
        }
    }

    /// # Safety
    /// The object is loaded.
    unsafe fn read_dynamic(&mut self) {
        let (mut plt, mut plt_size, mut rela, mut rela_size, mut relative) = (0, 0, 0, 0, 0);
        let (mut strings, mut symbols, mut hashes) = (0, 0, 0);
        let visit = |kind, value| {
            // glibc relocates these addresses in place, but not those of the kernel's library.
            let address = if value < self.base {
                self.base + value
            } else {
                value
            };
            match kind {
                DT_STRTAB => strings = address,
                DT_SYMTAB => symbols = address,
                DT_GNU_HASH => hashes = address,
                DT_JMPREL => plt = address,
                DT_PLTRELSZ => plt_size = value,
                DT_RELA => rela = address,
                DT_RELASZ => rela_size = value,
                // The relocations at the table's start that name no symbol.
                DT_RELACOUNT => relative = value * size_of::<Relocation>(),
                _ => {}
            }
        };
        // SAFETY: by the contract.
        unsafe { self.for_each_entry(visit) };
        (self.strings, self.symbols, self.hashes) = (strings, symbols, hashes);
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
                let place = self
                    .base
                    .wrapping_add(entry.r_offset.get(LittleEndian) as usize);
                if matches!(kind, R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT | R_X86_64_64)
                    && entry.r_addend.get(LittleEndian) == 0
                    // Data may be packed.
                    && place.is_multiple_of(size_of::<usize>())
                {
                    visit(&Slot {
                        place: place as *mut usize,
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

    /// Calls `visit` with the name of each library that the object needs, as it is written there.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn for_each_needed(&self, mut visit: impl FnMut(&'static CStr)) {
        // SAFETY: by the contract. The values are places in the table of strings.
        unsafe {
            self.for_each_entry(|kind, value| {
                if kind == DT_NEEDED {
                    visit(CStr::from_ptr((self.strings + value) as *const _));
                }
            });
        }
    }

    /// The address of the dynamic linker's `struct r_debug`, if this is the program; else 0.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn linker_state(&self) -> usize {
        let mut found = 0;
        let visit = |kind, value| {
            if kind == DT_DEBUG {
                found = value;
            }
        };
        // SAFETY: by the contract.
        unsafe { self.for_each_entry(visit) };
        found
    }

    /// Whether the object has a table that [`Object::defines`] can read. The dynamic linker's old table is slow to search.
    pub const fn has_hashes(&self) -> bool {
        self.hashes != 0
    }

    /// Whether the object itself defines a function of this name, whose [`gnu_hash`] is `hash`. Without a table: it may.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn defines(&self, name: &CStr, hash: u32) -> bool {
        if self.hashes == 0 {
            return true;
        }
        let words = self.hashes as *const u32;
        // SAFETY: the layout of the GNU hash table: four words, the filter (of 64-bit words), the buckets, the chains.
        unsafe {
            let (buckets, first) = (*words, *words.add(1));
            let (filter, shift) = (*words.add(2), *words.add(3));
            if buckets == 0 || filter == 0 {
                return false;
            }
            let word = *words
                .add(4)
                .cast::<u64>()
                .add((hash / 64 % filter) as usize);
            let bits = 1 << (hash % 64) | 1 << ((hash >> (shift % 32)) % 64);
            if word & bits != bits {
                return false;
            }
            let table = words.add(4 + 2 * filter as usize);
            let chains = table.add(buckets as usize);
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

/// The hash of a name in tables of the kind `DT_GNU_HASH`.
pub fn gnu_hash(name: &CStr) -> u32 {
    let step = |hash: u32, &byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(byte));
    name.to_bytes().iter().fold(5381, step)
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;

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
            if object.defines(c"malloc", gnu_hash(c"malloc")) {
                found.defining.push(name.into_owned());
            }
            let nothing = c"no function has this name";
            assert!(!object.defines(nothing, gnu_hash(nothing)));
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
