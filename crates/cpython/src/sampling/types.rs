//! Finds the type of a sampled block's content.
//!
//! An object's type is stored only after its allocation. So the agent reads it later: with the next sample, at a
//! collection, or when the block is freed. The block itself is always readable. A pointer in it counts as a type only
//! if it is a known type, or if reads that cannot fault ([`Probe`]) confirm that it is a type.
//!
//! An object begins at the start of the block, after the collector's header, or after that header and the two words of
//! `_PyType_PreHeaderSize` (`Include/internal/pycore_object.h`). The type's flags must agree.

use nthbyte_heap::BlockDomain;
use nthbyte_profile::event::{TypeId, TypeName};

use crate::api::{FREE_THREADED, Gil, HEADER, OB_TYPE};
use crate::layout::{Layout, type_flags as flags};
use crate::patches::attribute_cache;
use crate::sampling::allocation_sites::AllocationSites;
use crate::sampling::attributes;
use nthbyte_host::process::{Probe, field};
use nthbyte_session::{KnownType, Recording};

/// The allocator domain of CPython that a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `OBJ`: objects, and some of their parts.
    Object,
    /// `MEM`: memory that is not an object.
    Memory,
}

impl From<BlockDomain> for Origin {
    fn from(domain: BlockDomain) -> Self {
        match domain {
            BlockDomain::Object => Self::Object,
            BlockDomain::Memory => Self::Memory,
        }
    }
}

/// Names for memory that is not an object and has an unknown allocation site.
/// So much of a block says what its type is, in bytes: the header of an object with its longest pre-header.
pub const HEAD: usize = 64;

const DICT_KEYS: &str = "dict keys";
const REFERENCES: &str = "references";
const RAW: &str = "raw memory";

/// The description of a type object at the time when its name was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    id: TypeId,
    /// The offset of an object of this type in its block.
    pre_header: usize,
    basic_size: usize,
    /// Whether the type is `str`: a `str` may be smaller than its type's basic size.
    is_str: bool,
}

/// Limit of basic sizes. A type with a larger one is not believed.
const BASIC_SIZES: u64 = 1 << 20;

impl Known {
    /// The value that the session's interner stores with a type.
    const fn detail(&self) -> u32 {
        let flags = (self.pre_header / 16) << 1 | self.is_str as usize;
        (self.basic_size << 3 | flags) as u32
    }

    const fn of(known: KnownType) -> Self {
        let detail = known.detail as usize;
        Self {
            id: known.id,
            pre_header: (detail >> 1 & 3) * 16,
            basic_size: detail >> 3,
            is_str: detail & 1 != 0,
        }
    }
}

/// Reads types.
pub struct Types {
    sites: AllocationSites,
    probe: Option<Probe>,
    type_type: usize,
    str_type: usize,
    /// The address of the interned `__module__`, a key in most classes' dictionaries.
    module_key: usize,
    /// The address of the interned `_name`, an attribute of threads.
    name_key: usize,
}

impl Types {
    /// A reader of this interpreter's types.
    #[must_use]
    pub fn new(gil: &Gil, sites: AllocationSites) -> Self {
        let api = gil.api();
        Self {
            sites,
            probe: Probe::new(),
            type_type: api.PyType_Type as usize,
            str_type: api.PyUnicode_Type as usize,
            module_key: gil.interned(c"__module__"),
            name_key: gil.interned(c"_name"),
        }
    }

    /// Whether types are readable in this process.
    #[must_use]
    pub const fn can_tell(&self) -> bool {
        self.probe.is_some()
    }

    /// A copy of as much of a block as [`Self::of_block`] reads; `None` if it is not mapped.
    pub fn head(&self, block: usize) -> Option<[u64; HEAD / 8]> {
        self.probe?.read(block)
    }

    /// Prepares for a new epoch, which may be in a forked child.
    pub fn begin(&mut self) {
        self.probe = Probe::new();
    }

    /// The type name of an allocation site's memory, if the site is known.
    pub fn of_site(&self, site: usize, recording: &mut Recording<'_>) -> Option<TypeId> {
        let name = self.sites.allocates(site)?;
        recording.named_type(name)
    }

    /// The type of a block's content.
    ///
    /// # Safety
    /// The GIL is held; the block has `size` readable bytes, or [`HEAD`] of them if it is larger; `readable` returns true
    /// only for readable addresses.
    pub unsafe fn of_block(
        &self,
        layout: &Layout,
        block: usize,
        size: usize,
        origin: Origin,
        readable: &dyn Fn(usize) -> bool,
        recording: &mut Recording<'_>,
    ) -> TypeId {
        if origin == Origin::Object {
            for pre_header in layout.features.pre_headers {
                if size < pre_header + HEADER {
                    break;
                }
                // SAFETY: within the block.
                let candidate = unsafe { field::<usize>(block, pre_header + OB_TYPE) };
                if let Some(known) = self.type_at(layout, candidate, recording)
                    && known.pre_header == pre_header
                    && (known.is_str || size >= pre_header + known.basic_size)
                {
                    // The cache has other entries without the GIL.
                    if known.is_str && !FREE_THREADED {
                        attribute_cache::sampled(size);
                    }
                    return known.id;
                }
            }
        }
        // SAFETY: by the contract.
        let name = unsafe {
            if is_dict_keys(layout, block, size) {
                DICT_KEYS
            } else if self.is_references(layout, block, size, readable, recording) {
                REFERENCES
            } else {
                RAW
            }
        };
        recording.named_type(name).unwrap_or(TypeId::UNKNOWN)
    }

    /// Whether each of the block's first words is null or points to an object, with at least one pointer.
    ///
    /// # Safety
    /// As for [`Self::of_block`].
    unsafe fn is_references(
        &self,
        layout: &Layout,
        block: usize,
        size: usize,
        readable: &dyn Fn(usize) -> bool,
        recording: &mut Recording<'_>,
    ) -> bool {
        if size < 8 || !size.is_multiple_of(8) {
            return false;
        }
        for at in 0..(size / 8).min(4) {
            // SAFETY: within the block.
            let object = unsafe { field::<usize>(block, at * 8) };
            if object == 0 {
                continue;
            }
            if !is_aligned(object) {
                return false;
            }
            let type_object = if readable(object + OB_TYPE) {
                // SAFETY: `readable` said so.
                Some(unsafe { field::<usize>(object, OB_TYPE) })
            } else {
                self.probe
                    .and_then(|probe| probe.read::<usize>(object + OB_TYPE))
            };
            return type_object
                .is_some_and(|found| self.type_at(layout, found, recording).is_some());
        }
        false
    }

    #[inline]
    fn type_at(
        &self,
        layout: &Layout,
        address: usize,
        recording: &mut Recording<'_>,
    ) -> Option<Known> {
        if !is_aligned(address) {
            return None;
        }
        if let Some(known) = recording.known_type(address as u64) {
            return Some(Known::of(known));
        }
        self.discover(layout, address, recording)
    }

    #[cold]
    fn discover(
        &self,
        layout: &Layout,
        address: usize,
        recording: &mut Recording<'_>,
    ) -> Option<Known> {
        let probe = self.probe?;
        let object = self.type_object(layout, address, probe)?;
        let name = self.name(layout, address, &object, probe)?;
        let features = &layout.features;
        let [nothing, header, header_and_words] = features.pre_headers;
        let pre_header = match object.flags {
            f if f & flags::HAVE_GC == 0 => nothing,
            f if f & features.flags_of_pre_header != 0 => header_and_words,
            _ => header,
        };
        let mut known = Known {
            id: TypeId::UNKNOWN,
            pre_header,
            basic_size: object.basic_size,
            is_str: address == self.str_type,
        };
        let name = TypeName {
            name: &name,
            native: "",
        };
        known.id = recording
            .define_type(address as u64, &name, known.detail())?
            .id;
        Some(known)
    }

    /// Reads a possible type. `None` if it is not a type.
    fn type_object(&self, layout: &Layout, address: usize, probe: Probe) -> Option<TypeObject> {
        let object = TypeObject::read(layout, probe, address)?;
        let is_type = object.metatype == self.type_type
            || TypeObject::read(layout, probe, object.metatype).is_some_and(|meta| {
                meta.metatype == self.type_type && meta.flags & flags::TYPE_SUBCLASS != 0
            });
        (is_type && object.flags & flags::READY != 0 && (object.basic_size as u64) < BASIC_SIZES)
            .then_some(object)
    }

    /// `module.Class.Inner`, without the module where Python's own messages omit it.
    fn name(
        &self,
        layout: &Layout,
        address: usize,
        object: &TypeObject,
        probe: Probe,
    ) -> Option<String> {
        if object.flags & flags::HEAP_TYPE == 0 {
            return c_text(probe, object.name)
                .map(|name| name.trim_start_matches("builtins.").to_owned());
        }
        let qualified = probe.read::<usize>(address + layout.type_qualname)?;
        let qualified = self.text(layout, qualified, probe)?;
        Some(match self.module(layout, address, probe) {
            Some(module) if module != "builtins" && module != "__main__" => {
                format!("{module}.{qualified}")
            }
            _ => qualified,
        })
    }

    /// The value of `__module__` in the type's dictionary. Read directly from memory, because the dictionary may be in
    /// the middle of a change.
    fn module(&self, layout: &Layout, address: usize, probe: Probe) -> Option<String> {
        let value = class_value(layout, probe, address, self.module_key)?;
        self.text(layout, value, probe)
    }

    /// The name of a `threading.Thread`.
    pub fn thread_name(&self, layout: &Layout, thread: usize) -> Option<String> {
        let probe = self.probe?;
        let name = attributes::read(layout, probe, thread, self.name_key)?;
        self.text(layout, name, probe)
    }

    /// The text of an address that should hold a `str`.
    fn text(&self, layout: &Layout, address: usize, probe: Probe) -> Option<String> {
        const HEADER_AND_TEXT: usize = 640;
        if !is_aligned(address) || probe.read::<usize>(address + OB_TYPE)? != self.str_type {
            return None;
        }
        let mut copy = [0u64; HEADER_AND_TEXT / 8];
        // SAFETY: the array has this length in bytes, and any bytes are valid `u64`s.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(copy.as_mut_ptr().cast::<u8>(), HEADER_AND_TEXT)
        };
        let got = read_across_pages(probe, address, bytes);
        let length = usize::try_from(copy[layout.str_length / 8]).ok()?;
        // At most four bytes per character, after the longer of the two headers.
        if got < layout.unicode_size || length.saturating_mul(4) > got - layout.unicode_size {
            return None;
        }
        let mut text = String::new();
        // SAFETY: `copy` has the header of a `str` and room for all its characters.
        unsafe { crate::sampling::strings::append(layout, copy.as_ptr() as usize, &mut text) }
            .then_some(text)
    }
}

/// The needed fields of a `PyTypeObject`.
struct TypeObject {
    metatype: usize,
    name: usize,
    basic_size: usize,
    flags: u64,
}

impl TypeObject {
    /// Number of words that one read fetches.
    const WORDS: usize = 22 + (HEADER - 16) / 8;

    fn read(layout: &Layout, probe: Probe, address: usize) -> Option<Self> {
        let words = probe.read::<[u64; Self::WORDS]>(address)?;
        let word = |offset: usize| words.get(offset / 8).copied();
        Some(Self {
            metatype: words[OB_TYPE / 8] as usize,
            name: word(layout.type_name)? as usize,
            basic_size: word(layout.type_basic_size)? as usize,
            flags: word(layout.type_flags)?,
        })
    }
}

/// The value of a name in a class's dictionary.
pub fn class_value(layout: &Layout, probe: Probe, class: usize, key: usize) -> Option<usize> {
    let dict = probe.read::<usize>(class.checked_add(layout.type_dict)?)?;
    let keys = probe.read::<usize>(dict.checked_add(layout.dict_keys)?)?;
    let (_, value) = attributes::position(layout, probe, keys, key)?;
    Some(value)
}

/// Whether an object may have this address: not in the first page, and a multiple of 8.
const fn is_aligned(address: usize) -> bool {
    address >= 4096 && address.is_multiple_of(8) && address < 1 << 56
}

/// Whether a block is the table of a dictionary (`PyDictKeysObject`): the sizes in its header must add up to exactly
/// the requested size (`Objects/dictobject.c`, `new_keys_object`).
///
/// # Safety
/// The block has `size` readable bytes.
pub unsafe fn is_dict_keys(layout: &Layout, block: usize, size: usize) -> bool {
    if size < layout.keys_size + 8 {
        return false;
    }
    // SAFETY: within the block.
    let ([log2_size, log2_index_bytes, kind, ..], usable, entries) = unsafe {
        (
            field::<[u8; 8]>(block, layout.keys_log2_size),
            field::<usize>(block, layout.keys_entries - 8),
            field::<usize>(block, layout.keys_entries),
        )
    };
    if !(3..48).contains(&log2_size) || log2_index_bytes >= 48 || kind > 2 {
        return false;
    }
    let fraction = (2usize << log2_size) / 3;
    let entry = if kind == 0 { 24 } else { 16 };
    usable
        .checked_add(entries)
        .is_some_and(|both| both <= fraction)
        && size == layout.keys_size + (1 << log2_index_bytes) + fraction * entry
}

/// A C string of at most 255 printable ASCII characters.
fn c_text(probe: Probe, address: usize) -> Option<String> {
    let mut bytes = [0u8; 256];
    let got = read_across_pages(probe, address, &mut bytes);
    let end = bytes[..got].iter().position(|&byte| byte == 0)?;
    let text = &bytes[..end];
    (end > 0 && text.iter().all(u8::is_ascii_graphic))
        .then(|| String::from_utf8_lossy(text).into_owned())
}

/// Reads as many bytes as are readable, with one read per page.
fn read_across_pages(probe: Probe, address: usize, into: &mut [u8]) -> usize {
    use nthbyte_host::memory::SMALLEST_PAGE as PAGE;
    let mut done = 0;
    while done < into.len() {
        let at = address + done;
        let piece = (PAGE - at % PAGE).min(into.len() - done);
        let got = probe.bytes(at, &mut into[done..done + piece]);
        done += got;
        if got < piece {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_holds_what_is_known_of_a_type() {
        for pre_header in [0, 16, 32] {
            for (basic_size, is_str) in [(16, false), (56, true), (BASIC_SIZES as usize - 1, false)]
            {
                let known = Known {
                    id: TypeId(7),
                    pre_header,
                    basic_size,
                    is_str,
                };
                let kept = KnownType {
                    id: known.id,
                    detail: known.detail(),
                };
                assert_eq!(Known::of(kept), known);
            }
        }
    }
}
