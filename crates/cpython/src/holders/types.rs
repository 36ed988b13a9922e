//! What a walk needs to know of each type, and reads of objects.

use super::functions::WalkFunctions;
use crate::layout::{Layout, type_flags};

/// `PyTypeObject`, offsets that are the same in 3.11 to 3.15.
pub const TRAVERSE: usize = 184;
/// `tp_iternext`.
pub const NEXT: usize = 224;
pub const MEMBERS: usize = 240;
pub const BASE: usize = 256;
pub const DICT_OFFSET: usize = 288;
/// `PyObject.ob_type`.
pub const TYPE: usize = 8;

/// What an object is, as far as a walk has to treat it on its own.
pub mod is {
    /// It may refer to others, so it is a node.
    pub const CONTAINER: u8 = 1;
    /// Its type has a function that visits its references.
    pub const TRAVERSED: u8 = 2;
    pub const CLASS: u8 = 4;
    pub const CODE: u8 = 8;
    /// `numpy.ndarray`, which shows no references.
    pub const ARRAY: u8 = 16;
    /// Text, bytes or an integer: no word of it is an address.
    pub const PLAIN: u8 = 32;
    pub const DEQUE: u8 = 64;
}

/// A word of the interpreter's memory.
///
/// # Safety
/// The address is one of the interpreter's structures, in a copy of the process that nobody else changes.
#[inline(always)]
pub unsafe fn word(address: usize, offset: usize) -> usize {
    // SAFETY: by the caller.
    unsafe { (address.wrapping_add(offset) as *const usize).read() }
}

/// A type, as far as a walk needs it.
#[derive(Clone, Copy)]
pub struct Type {
    pub address: usize,
    pub flags: u64,
    pub basic_size: usize,
    /// The bytes of a block before its object.
    pub pre_header: usize,
    pub bits: u8,
    pub traverse: usize,
}

const NO_TYPE: Type = Type {
    address: 0,
    flags: 0,
    basic_size: 0,
    pre_header: 0,
    bits: 0,
    traverse: 0,
};

/// A power of two.
const KEPT: usize = 4096;
/// The most base classes that are looked at.
const MOST_BASES: usize = 64;

/// Types that were read lately, each at a place of its address.
pub struct Types {
    layout: Layout,
    code: usize,
    array: usize,
    deque: usize,
    kept: Vec<Type>,
}

impl Types {
    pub fn new(layout: &Layout, functions: &WalkFunctions) -> Self {
        Self {
            layout: *layout,
            code: functions.code_type,
            array: functions.array_type,
            deque: functions.deque_type,
            kept: vec![NO_TYPE; KEPT],
        }
    }

    /// The type of an object.
    ///
    /// # Safety
    /// It is an object.
    #[inline]
    pub unsafe fn of(&mut self, object: usize) -> Type {
        // SAFETY: by the caller.
        unsafe {
            let address = word(object, TYPE);
            let place = (address >> 4 ^ address >> 12) % KEPT;
            let kept = self.kept[place];
            if kept.address == address {
                return kept;
            }
            let read = self.read(address);
            self.kept[place] = read;
            read
        }
    }

    /// # Safety
    /// It is a type.
    #[cold]
    unsafe fn read(&self, address: usize) -> Type {
        // SAFETY: by the caller.
        unsafe {
            let flags = word(address, self.layout.type_flags) as u64;
            let mut bits = 0;
            let mut set = |bit: u8, holds: bool| bits |= if holds { bit } else { 0 };
            let is_collected = flags & type_flags::HAVE_GC != 0;
            let is_class = flags & type_flags::TYPE_SUBCLASS != 0;
            let is_array = self.array != 0 && descends(address, self.array);
            set(is::TRAVERSED, is_collected);
            set(is::CLASS, is_class);
            set(is::CODE, address == self.code);
            set(is::ARRAY, is_array);
            set(is::DEQUE, self.deque != 0 && descends(address, self.deque));
            let is_plain = type_flags::LONG_SUBCLASS
                | type_flags::BYTES_SUBCLASS
                | type_flags::UNICODE_SUBCLASS;
            set(is::PLAIN, flags & is_plain != 0 && !is_collected);
            set(
                is::CONTAINER,
                is_collected || is_class || is_array || address == self.code,
            );
            let [none, collected, with_words] = self.layout.features.pre_headers;
            let has_words = flags & self.layout.features.flags_of_pre_header != 0;
            Type {
                address,
                flags,
                basic_size: word(address, self.layout.type_basic_size),
                pre_header: match (is_collected, has_words) {
                    (false, _) => none,
                    (true, false) => collected,
                    (true, true) => with_words,
                },
                bits,
                traverse: word(address, TRAVERSE),
            }
        }
    }
}

/// Whether a type is another one, or derives from it first.
///
/// # Safety
/// Both are types.
unsafe fn descends(mut address: usize, from: usize) -> bool {
    for _ in 0..MOST_BASES {
        if address == from {
            return true;
        }
        if address == 0 {
            break;
        }
        // SAFETY: by the caller.
        address = unsafe { word(address, BASE) };
    }
    false
}
