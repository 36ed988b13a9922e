//! The dynamic section of an image: where the dynamic linker finds its tables.

use std::ffi::CStr;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{
    DT_GNU_HASH, DT_JMPREL, DT_NULL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT, DT_RELASZ, DT_STRTAB,
    DT_SYMTAB, Dyn64, Rela64, Sym64,
};

/// An entry of a table of relocations.
pub type Relocation = Rela64<LittleEndian>;
/// An entry of the table of symbols.
pub type Symbol = Sym64<LittleEndian>;

/// The addresses of an image's tables; 0 for one that it does not have.
#[derive(Clone, Debug, Default)]
pub struct DynamicTables {
    /// The names.
    pub strings: usize,
    /// The symbols.
    pub symbols: usize,
    /// The table that finds a symbol by its name (`DT_GNU_HASH`).
    pub hashes: usize,
    /// The relocations of calls, and the others that refer to a symbol.
    pub relocations: [Range<usize>; 2],
}

/// Calls `visit` with each entry of a dynamic section: its kind and its value.
///
/// # Safety
/// The section of a loaded image, as its program header gives it; an empty range if the image has none.
pub unsafe fn for_each_entry(section: &Range<usize>, mut visit: impl FnMut(u32, usize)) {
    if section.is_empty() {
        return;
    }
    let count = section.len() / size_of::<Dyn64<LittleEndian>>();
    // SAFETY: by the contract.
    let entries = unsafe { std::slice::from_raw_parts(section.start as *const _, count) };
    for entry in entries {
        let entry: &Dyn64<LittleEndian> = entry;
        match u32::try_from(entry.d_tag.get(LittleEndian)).unwrap_or(u32::MAX) {
            DT_NULL => break,
            kind => visit(kind, entry.d_val.get(LittleEndian) as usize),
        }
    }
}

impl DynamicTables {
    /// Reads the dynamic section of an image. `base` is the difference between its addresses in memory and in the file.
    ///
    /// # Safety
    /// As for [`for_each_entry`].
    #[must_use]
    pub unsafe fn read(base: usize, section: &Range<usize>) -> Self {
        let mut tables = Self::default();
        let (mut plt, mut plt_size, mut rela, mut rela_size, mut relative) = (0, 0, 0, 0, 0);
        let visit = |kind, value| {
            // glibc relocates these addresses in place; other loaders leave them as they are in the file, and so are the
            // kernel's library's.
            let address = if value < base { base + value } else { value };
            match kind {
                DT_STRTAB => tables.strings = address,
                DT_SYMTAB => tables.symbols = address,
                DT_GNU_HASH => tables.hashes = address,
                DT_JMPREL => plt = address,
                DT_PLTRELSZ => plt_size = value,
                DT_RELA => rela = address,
                DT_RELASZ => rela_size = value,
                // The number of relocations at the table's start that refer to no symbol: 700,000 in PyPy's library.
                DT_RELACOUNT => relative = value * size_of::<Relocation>(),
                _ => {}
            }
        };
        // SAFETY: by the contract.
        unsafe { for_each_entry(section, visit) };
        tables.relocations = [
            plt..plt + plt_size,
            rela + relative.min(rela_size)..rela + rela_size,
        ];
        tables
    }

    /// The symbol with this number.
    #[must_use]
    pub const fn symbol(&self, number: usize) -> *const Symbol {
        (self.symbols as *const Symbol).wrapping_add(number)
    }

    /// The name of a symbol.
    ///
    /// # Safety
    /// A symbol of these tables, whose image is never unloaded as long as the name is used.
    #[must_use]
    pub unsafe fn name(&self, symbol: *const Symbol) -> &'static CStr {
        // SAFETY: by the contract. Symbols refer to the table of names.
        unsafe {
            let offset = (*symbol).st_name.get(LittleEndian) as usize;
            CStr::from_ptr((self.strings + offset) as *const _)
        }
    }
}
