//! An executable or a library as it lies in another process's memory: its exported symbols.
//!
//! No file is read: a container has other files, a binary may be deleted or replaced, and every build works alike. The
//! program headers lead to the dynamic section, and that to the symbols, their names and their hash table (the format
//! `DT_GNU_HASH`, which every distribution's linker writes).

use crate::memory::Memory;

/// Where an image says what processor it is for (`e_machine`), and that it is this one.
const MACHINE: usize = 18;
const EM_X86_64: [u8; 2] = [62, 0];
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// The size of a symbol (`Elf64_Sym`), of a program header, and of an entry of the dynamic section.
const SYMBOL: u64 = 24;
const PROGRAM_HEADER: u64 = 56;
const DYNAMIC: u64 = 16;
/// More entries than any dynamic section has, and more symbols than one chain has.
const MOST: u64 = 4096;

/// An image in memory.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The difference of an address and a symbol's value.
    bias: u64,
    symbols: u64,
    names: u64,
    hash: u64,
}

impl Image {
    /// The image whose first page lies at `base`; `None` if none does, or it exports nothing.
    pub fn at(memory: &Memory, base: u64) -> Option<Self> {
        let head = memory.bytes(base, 64)?;
        // 64 bits, little-endian. In an emulator, the program's images are for another processor: nothing of them can be called.
        if head[..6] != *b"\x7fELF\x02\x01" || head[MACHINE..MACHINE + 2] != EM_X86_64 {
            return None;
        }
        let headers = u64::from_le_bytes(head[32..40].try_into().ok()?);
        let count = u64::from(u16::from_le_bytes(head[56..58].try_into().ok()?));
        let (mut lowest, mut dynamic) = (u64::MAX, None);
        for at in (0..count).map(|number| base + headers + number * PROGRAM_HEADER) {
            let address = memory.u64(at + 16)?;
            match memory.u32(at)? {
                PT_LOAD => lowest = lowest.min(address & !4095),
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let bias = base.wrapping_sub(lowest);
        let mut at = dynamic?.wrapping_add(bias);
        let (mut symbols, mut names, mut hash) = (None, None, None);
        for _ in 0..MOST {
            let (tag, value) = (memory.u64(at)?, memory.u64(at + 8)?);
            // glibc has added the bias; musl leaves the value as it is.
            let address = if value < bias { value + bias } else { value };
            match tag {
                0 => break,
                DT_SYMTAB => symbols = Some(address),
                DT_STRTAB => names = Some(address),
                DT_GNU_HASH => hash = Some(address),
                _ => {}
            }
            at += DYNAMIC;
        }
        Some(Self {
            bias,
            symbols: symbols?,
            names: names?,
            hash: hash?,
        })
    }

    /// The address of an exported symbol.
    pub fn symbol(&self, memory: &Memory, name: &str) -> Option<u64> {
        let wanted = hash(name);
        let head: Vec<u32> = (0..4)
            .map(|word| memory.u32(self.hash + 4 * word))
            .collect::<Option<_>>()?;
        let [buckets, first, filter, _] = head[..] else {
            return None;
        };
        let table = self.hash + 16 + 8 * u64::from(filter);
        let chains = table + 4 * u64::from(buckets);
        let begin = memory.u32(table + 4 * u64::from(wanted.checked_rem(buckets)?))?;
        for index in begin..begin.saturating_add(MOST as u32) {
            let value = memory.u32(chains + 4 * u64::from(index.checked_sub(first)?))?;
            if value | 1 == wanted | 1 {
                let symbol = self.symbols + SYMBOL * u64::from(index);
                let is_defined = memory.u32(symbol + 4)? >> 16 != 0;
                if is_defined && memory.has_text(self.names + u64::from(memory.u32(symbol)?), name)
                {
                    return Some(memory.u64(symbol + 8)?.wrapping_add(self.bias));
                }
            }
            if value & 1 == 1 {
                return None;
            }
        }
        None
    }
}

/// The hash of a name (`dl_new_hash`).
fn hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::mappings;

    #[test]
    fn the_c_library_of_this_process_has_its_functions() {
        let pid = std::process::id();
        let memory = Memory::open(pid).unwrap();
        let maps = mappings(pid).unwrap();
        let library = maps
            .iter()
            .find(|one| one.offset == 0 && one.name.contains("libc.so"));
        let image = Image::at(&memory, library.unwrap().start).unwrap();
        // A function that is no indirect one.
        let found = image.symbol(&memory, "getpid").unwrap();
        assert_eq!(found, libc::getpid as *const () as u64);
        assert_eq!(image.symbol(&memory, "no_such_function"), None);
    }

    /// As in an emulator: such a process was ended by what was called in it.
    #[test]
    fn an_image_for_another_processor_is_none() {
        let memory = Memory::open(std::process::id()).unwrap();
        let maps = mappings(std::process::id()).unwrap();
        let Some(kernels) = maps.iter().find(|one| one.name == "[vdso]") else {
            return;
        };
        let size = (kernels.end - kernels.start) as usize;
        let mut copy = memory.bytes(kernels.start, size).unwrap();
        if Image::at(&memory, copy.as_ptr() as u64).is_some() {
            copy[MACHINE] = 183;
            assert!(Image::at(&memory, copy.as_ptr() as u64).is_none());
        }
    }

    #[test]
    fn no_image_begins_inside_of_one() {
        let memory = Memory::open(std::process::id()).unwrap();
        assert!(Image::at(&memory, 4096).is_none());
    }
}
