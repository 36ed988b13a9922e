//! What the dynamic linker has loaded: the program and the libraries, with their relocations that name functions.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ops::{ControlFlow, Range};
use std::ptr::null_mut;

use nthbyte_host::memory::{SMALLEST_PAGE, page_size};
use nthbyte_host::process::dynamic_section::{DynamicTables, Relocation, Symbol, for_each_entry};
use object::LittleEndian;
use object::elf::{
    DF_SYMBOLIC, DT_DEBUG, DT_FLAGS, DT_NEEDED, DT_SYMBOLIC, ELFMAG, FileHeader64, PF_X,
    PT_DYNAMIC, PT_GNU_RELRO, PT_LOAD, ProgramHeader64, SHN_UNDEF, STT_FUNC, STV_DEFAULT,
};

use crate::processor::{ADDRESS, GLOB_DAT, JUMP_SLOT};

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
    tables: DynamicTables,
}

/// A word that holds the address of a function of another library.
pub struct ImportSlot {
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

/// Calls `visit` with each loaded object and the linker's description of it, in the order in which functions are searched,
/// until it breaks. Objects without relocations are left out. They all stay loaded meanwhile: the linker holds a lock.
pub fn for_each(mut visit: impl FnMut(&Object, &libc::dl_phdr_info) -> ControlFlow<()>) {
    type Visit<'a> = &'a mut dyn FnMut(&Object, &libc::dl_phdr_info) -> ControlFlow<()>;
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker's description, which is valid during the call, and the caller's function.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<Visit<'_>>()) };
        // SAFETY: as above. No object is unloaded during the call.
        let object = unsafe { Object::of(info) };
        c_int::from(object.is_some_and(|object| visit(&object, info).is_break()))
    }
    let mut visit: Visit<'_> = &mut visit;
    // SAFETY: `look` has the type of the callback, and `visit` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut visit).cast()) };
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

/// Whether the library with this handle is in another namespace (`dlmopen`). There it has a C library of its own.
///
/// # Safety
/// A handle of `dlopen`.
pub unsafe fn is_apart(handle: *mut c_void) -> bool {
    /// Of `dlfcn.h`, as is the number of the program's own namespace, `LM_ID_BASE`.
    const RTLD_DI_LMID: c_int = 1;
    const BASE: c_long = 0;
    let mut namespace: c_long = BASE;
    // SAFETY: by the contract; the result is a number of this type.
    let failed = unsafe { libc::dlinfo(handle, RTLD_DI_LMID, (&raw mut namespace).cast()) != 0 };
    failed || namespace != BASE
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
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<Self> {
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
                || offset.saturating_add(count * size) > SMALLEST_PAGE
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
            tables: DynamicTables::default(),
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
                PT_GNU_RELRO => {
                    object.relro = there.start & !(page_size() - 1)..there.end & !(page_size() - 1)
                }
                _ => {}
            }
        }
        // SAFETY: by the contract.
        object.tables = unsafe { DynamicTables::read(base, &object.dynamic) };
        (object.tables.strings != 0 && object.tables.symbols != 0).then_some(object)
    }

    /// Calls `visit` with the slot of each function that the object calls or refers to.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn for_each_slot(&self, mut visit: impl FnMut(&ImportSlot)) {
        for table in &self.tables.relocations {
            let mut place = table.start as *const Relocation;
            while (place as usize) < table.end {
                // SAFETY: inside the table.
                let entry = unsafe { &*place };
                place = place.wrapping_add(1);
                let kind = entry.r_type(LittleEndian, false);
                let place = self
                    .base
                    .wrapping_add(entry.r_offset.get(LittleEndian) as usize);
                if matches!(kind, JUMP_SLOT | GLOB_DAT | ADDRESS)
                    && entry.r_addend.get(LittleEndian) == 0
                    // Data may be packed.
                    && place.is_multiple_of(size_of::<usize>())
                {
                    visit(&ImportSlot {
                        place: place as *mut usize,
                        is_called: kind == JUMP_SLOT,
                        symbol: self
                            .tables
                            .symbol(entry.r_sym(LittleEndian, false) as usize),
                    });
                }
            }
        }
    }

    /// The name of the function of a slot that holds the address of the object's own code, which will find the function
    /// at the first call. `None` if `value` is not such an address. `may_define`: also a function that the object defines
    /// itself, if the dynamic linker may still find another one's.
    ///
    /// # Safety
    /// A slot of this object, which is loaded.
    pub unsafe fn name_if_lazy(
        &self,
        slot: &ImportSlot,
        value: usize,
        may_define: bool,
    ) -> Option<&'static CStr> {
        if !slot.is_called || !self.text.contains(&value) {
            return None;
        }
        // SAFETY: a relocation names a symbol of the object's table.
        unsafe {
            let symbol = &*slot.symbol;
            let is_undefined = symbol.st_shndx.get(LittleEndian) == SHN_UNDEF;
            let own = self
                .base
                .wrapping_add(symbol.st_value.get(LittleEndian) as usize);
            let is_lazy =
                is_undefined || may_define && value != own && symbol.st_visibility() == STV_DEFAULT;
            is_lazy.then(|| self.tables.name(slot.symbol))
        }
    }

    /// The name of the function that the dynamic linker has put, or will put, into the slot.
    ///
    /// # Safety
    /// A slot of this object, which is loaded.
    pub unsafe fn name(&self, slot: &ImportSlot) -> &'static CStr {
        // SAFETY: a relocation names a symbol of the object's table.
        unsafe { self.tables.name(slot.symbol) }
    }

    /// Calls `visit` with the name of each library that the object needs, as it is written there.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn for_each_needed(&self, mut visit: impl FnMut(&'static CStr)) {
        // SAFETY: by the contract. The values are places in the table of strings.
        unsafe {
            for_each_entry(&self.dynamic, |kind, value| {
                if kind == DT_NEEDED {
                    visit(CStr::from_ptr((self.tables.strings + value) as *const _));
                }
            });
        }
    }

    /// Whether the object finds its own functions before the program's and before a preloaded library's.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn is_symbolic(&self) -> bool {
        let mut found = false;
        let visit = |kind, value| {
            found |= kind == DT_SYMBOLIC || kind == DT_FLAGS && value & DF_SYMBOLIC as usize != 0;
        };
        // SAFETY: by the contract.
        unsafe { for_each_entry(&self.dynamic, visit) };
        found
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
        unsafe { for_each_entry(&self.dynamic, visit) };
        found
    }

    /// Whether the object has a table that [`Object::defines`] can read. The dynamic linker's old table is slow to search.
    pub const fn has_hashes(&self) -> bool {
        self.tables.hashes != 0
    }

    /// Whether the object itself defines a function of this name, whose [`gnu_hash`] is `hash`. Without a table: it may.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn defines(&self, name: &CStr, hash: u32) -> bool {
        // SAFETY: by the contract.
        !self.has_hashes() || unsafe { self.symbol(name, hash) }.is_some()
    }

    /// The address of the function of this name that the object itself defines, in any version: null if it is chosen when the
    /// object is loaded (`STT_GNU_IFUNC`). `None` without a definition, or without a table.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn definition(&self, name: &CStr, hash: u32) -> Option<*mut c_void> {
        // SAFETY: by the contract.
        let symbol = unsafe { self.symbol(name, hash) }?;
        if symbol.st_type() != STT_FUNC {
            return Some(null_mut());
        }
        let address = symbol.st_value.get(LittleEndian) as usize;
        Some(self.base.wrapping_add(address) as *mut c_void)
    }

    /// The definition of a name.
    ///
    /// # Safety
    /// The object is loaded.
    unsafe fn symbol(&self, name: &CStr, hash: u32) -> Option<&Symbol> {
        if !self.has_hashes() {
            return None;
        }
        let words = self.tables.hashes as *const u32;
        // SAFETY: the layout of the GNU hash table: four words, the filter (of 64-bit words), the buckets, the chains.
        unsafe {
            let (buckets, first) = (*words, *words.add(1));
            let (filter, shift) = (*words.add(2), *words.add(3));
            if buckets == 0 || filter == 0 {
                return None;
            }
            let word = *words
                .add(4)
                .cast::<u64>()
                .add((hash / 64 % filter) as usize);
            let bits = 1 << (hash % 64) | 1 << ((hash >> (shift % 32)) % 64);
            if word & bits != bits {
                return None;
            }
            let table = words.add(4 + 2 * filter as usize);
            let chains = table.add(buckets as usize);
            let mut at = *table.add((hash % buckets) as usize);
            while at >= first {
                let there = *chains.add((at - first) as usize);
                let symbol = self.tables.symbol(at as usize);
                if there | 1 == hash | 1
                    && (*symbol).st_shndx.get(LittleEndian) != SHN_UNDEF
                    && self.tables.name(symbol) == name
                {
                    return Some(&*symbol);
                }
                if there & 1 != 0 {
                    break;
                }
                at += 1;
            }
        }
        None
    }
}

/// The hash of a name in tables of the kind `DT_GNU_HASH`.
pub fn gnu_hash(name: &CStr) -> u32 {
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

    #[test]
    fn the_c_library_defines_malloc_and_others_have_slots_for_it() {
        let mut found = Found::default();
        for_each(|object, info| {
            // SAFETY: the loader's name, and an object that stays loaded during the call.
            unsafe {
                let name = CStr::from_ptr(info.dlpi_name).to_string_lossy();
                if name.contains("vdso") {
                    return ControlFlow::Continue(());
                }
                let malloc = libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) as usize;
                let own = object.definition(c"malloc", gnu_hash(c"malloc"));
                let own = own.map_or(0, |function| function as usize);
                if object.defines(c"malloc", gnu_hash(c"malloc")) {
                    assert!(object.image.contains(&own) || !object.has_hashes());
                    assert!(own == malloc || !name.contains("libc.so"));
                    found.defining.push(name.into_owned());
                } else {
                    assert_eq!(own, 0);
                }
                let nothing = c"no function has this name";
                assert!(!object.defines(nothing, gnu_hash(nothing)));
                object.for_each_slot(|slot| {
                    let value = slot.place.read();
                    if object.tables.name(slot.symbol) == c"malloc" {
                        if value == malloc
                            || object.name_if_lazy(slot, value, false) == Some(c"malloc")
                        {
                            found.slots += 1;
                        } else {
                            found.others += 1;
                        }
                    }
                });
            }
            ControlFlow::Continue(())
        });
        assert!(found.defining.iter().any(|name| name.contains("libc.so")));
        assert!(found.defining.len() <= 2, "{:?}", found.defining);
        // This test's own slot, and one in the C library.
        assert!(found.slots >= 2, "{}", found.slots);
        assert_eq!(found.others, 0);
    }
}
