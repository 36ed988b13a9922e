//! By which name an object refers to others.
//!
//! Each object is looked through once, for all of the objects that are asked for: a dictionary may have a million entries.

use nthbyte_profile::holders::{Kind, Link};

use super::text;
use super::types::{BASE, DICT_OFFSET, MEMBERS, Type, is, word};
use super::walk::{MODULE_DICT, Walk, flag};
use crate::layout::{Values, type_flags};

/// Entries of a dictionary whose keys are named. In a larger one, a name says nothing about the others.
const MOST_KEYS: usize = 1000;
/// Items of a sequence whose indices are named.
const MOST_ITEMS: usize = 20;
/// Names of variables, attributes and members.
const MOST_NAMES: usize = 4096;
const MOST_BASES: usize = 64;

/// `PyFunctionObject`, the same in 3.11 to 3.15.
pub const FUNCTION_CODE: usize = 48;
const FUNCTION_CLOSURE: usize = 72;
/// `PyFrameObject.f_frame`.
pub const FRAME_OF_OBJECT: usize = 24;
/// `PyCellObject.ob_ref`.
const CELL_CONTENT: usize = 16;
/// Objects of C with fields that no table of the type names: a type's name, offsets, names.
const FIELDS: &[(&str, usize, &str)] = &[
    ("BaseException", 24, "args"),
    ("BaseException", 40, "__traceback__"),
    ("BaseException", 48, "__context__"),
    ("BaseException", 56, "__cause__"),
    ("traceback", 16, "tb_next"),
    ("traceback", 24, "tb_frame"),
];
/// `PyMemberDef` (`Include/descrobject.h`): its size, and types of members that are references.
const MEMBER: usize = 40;
const OBJECT_MEMBERS: [i32; 2] = [6, 16];

/// An object that is asked for, and what was found.
#[derive(Clone, Debug)]
pub struct Asked {
    pub address: usize,
    pub link: Link,
    pub name: String,
}

/// How an object refers to others, which are in the order of their addresses.
pub struct Links<'a, 'w> {
    pub walk: &'a mut Walk<'w>,
    /// Whether keys of dictionaries are named: they are the user's data.
    pub with_keys: bool,
    pub asked: Vec<Asked>,
}

impl Links<'_, '_> {
    /// Notes a reference to an object, if it is asked for and not named yet.
    fn note(&mut self, address: usize, link: Link, name: impl FnOnce() -> String) {
        if let Ok(at) = self
            .asked
            .binary_search_by_key(&address, |asked| asked.address)
            && self.asked[at].link == Link::Unknown
        {
            (self.asked[at].link, self.asked[at].name) = (link, name());
        }
    }

    /// Names references of a node. `of` says what holds it: the kind and the address of the node above it, and how that one
    /// refers to it.
    ///
    /// # Safety
    /// As for the walk.
    pub unsafe fn of_node(&mut self, node: u32, above: Above) {
        let (address, flags) = (self.walk.graph.address(node), self.walk.graph.flags(node));
        // SAFETY: by the caller.
        unsafe {
            if flags & flag::THREAD != 0 {
                for asked in &mut self.asked {
                    asked.link = Link::Call;
                }
            } else if flags & flag::FRAME != 0 {
                self.locals(address & !1);
            } else if flags & flag::LEAF == 0 {
                self.object(address, flags, above);
            }
        }
    }

    unsafe fn object(&mut self, object: usize, flags: u8, above: Above) {
        // SAFETY: by the caller.
        unsafe {
            let of = self.walk.types.of(object);
            let functions = *self.walk.functions;
            let layout = *self.walk.layout;
            if of.flags & type_flags::DICT_SUBCLASS != 0 {
                let is_of_attributes =
                    flags & flag::MODULE_DICT != 0 || above.link == Link::Dictionary;
                self.entries(object, is_of_attributes);
            } else if of.flags & type_flags::LIST_SUBCLASS != 0 {
                let items = word(object, layout.containers.list_items);
                self.items(items, word(object, layout.var_size));
            } else if of.flags & type_flags::TUPLE_SUBCLASS != 0 {
                let items = object + layout.references.tuple_items;
                let count = word(object, layout.var_size);
                match above.kind {
                    Kind::Function => self.closure(items, count, above.address),
                    _ => self.items(items, count),
                }
            } else if of.bits & is::DEQUE != 0 || functions.set_types.contains(&of.address) {
                self.all(Link::Element);
            } else if of.bits & is::CLASS != 0 {
                let dict = word(object, layout.type_dict);
                self.note(dict, Link::Dictionary, String::new);
            } else if of.address == functions.module_type {
                self.note(word(object, MODULE_DICT), Link::Dictionary, String::new);
            } else if of.address == functions.cell_type {
                self.note(word(object, CELL_CONTENT), Link::Closure, String::new);
            } else if of.address == functions.function_type {
                let closure = word(object, FUNCTION_CLOSURE);
                self.note(closure, Link::Attribute, || "__closure__".to_owned());
            } else if of.address == functions.frame_type {
                self.locals(word(object, FRAME_OF_OBJECT));
            } else if functions.generator_types.contains(&of.address) {
                self.locals(object + of.basic_size - layout.frame_locals);
            } else if of.bits & is::ARRAY != 0 {
                self.note(word(object, 48), Link::Attribute, || "base".to_owned());
                self.note(word(object, 56), Link::Attribute, || "dtype".to_owned());
                self.all(Link::Element);
            }
            self.attributes(object, &of);
            self.members(object, &of);
            self.note(of.address, Link::Class, String::new);
        }
    }

    /// Names the rest.
    fn all(&mut self, link: Link) {
        for asked in &mut self.asked {
            if asked.link == Link::Unknown {
                asked.link = link;
            }
        }
    }

    unsafe fn items(&mut self, items: usize, count: usize) {
        // SAFETY: by the caller, so many items.
        unsafe {
            if count <= MOST_ITEMS {
                for at in 0..count {
                    self.note(word(items, 8 * at), Link::Element, || at.to_string());
                }
            }
        }
        self.all(Link::Element);
    }

    unsafe fn entries(&mut self, dict: usize, is_of_attributes: bool) {
        const USED: usize = 16;
        // SAFETY: it is a dictionary.
        unsafe {
            if !is_of_attributes && word(dict, USED) > MOST_KEYS {
                // Keys are rarely large: the value holds.
                self.all(Link::Key);
                return;
            }
            let mut found = Vec::new();
            self.walk
                .each_item(dict, |key, value| found.push((key, value)));
            let layout = *self.walk.layout;
            for (key, value) in found {
                let of = self.walk.types.of(key);
                let with_keys = self.with_keys;
                let (link, is_named) = match is_of_attributes {
                    true => (Link::Attribute, true),
                    false => (Link::Key, with_keys),
                };
                self.note(value, link, || match (is_named, link) {
                    (false, _) => String::new(),
                    (true, Link::Attribute) => text::of_str(&layout, key, of.flags),
                    (true, _) => text::of_key(&layout, key, &of),
                });
                self.note(key, Link::KeyItself, String::new);
            }
        }
    }

    /// Names of a code object's variables.
    unsafe fn variables(&mut self, code: usize) -> Vec<String> {
        if code == 0 {
            return Vec::new();
        }
        let layout = *self.walk.layout;
        // SAFETY: it is a code object.
        unsafe {
            let names = word(code, layout.references.code_locals);
            let count = word(names, layout.var_size).min(MOST_NAMES);
            let name = |at: usize| {
                let name = word(names, layout.references.tuple_items + 8 * at);
                let flags = word(word(name, 8), layout.type_flags) as u64;
                text::of_str(&layout, name, flags)
            };
            (0..count).map(name).collect()
        }
    }

    /// The variables of a frame.
    unsafe fn locals(&mut self, frame: usize) {
        // SAFETY: by the caller, it is a frame, or part of a generator.
        unsafe {
            let code = self.walk.code_of(frame);
            let start = frame + self.walk.layout.frame_locals;
            for (at, name) in self.variables(code).into_iter().enumerate() {
                let value = self.walk.untagged(word(start, 8 * at));
                self.note(value, Link::Local, || name);
            }
        }
    }

    /// The cells of a function: the last of its code's variables.
    unsafe fn closure(&mut self, items: usize, count: usize, function: usize) {
        // SAFETY: by the caller.
        unsafe {
            let names = self.variables(word(function, FUNCTION_CODE));
            let first = names.len().saturating_sub(count);
            for (at, name) in names[first..].iter().enumerate() {
                let cell = word(items, 8 * at);
                self.note(cell, Link::Closure, || name.clone());
            }
        }
    }

    /// Attributes that are not in a dictionary of their own.
    unsafe fn attributes(&mut self, object: usize, of: &Type) {
        const INLINE: u64 = 1 << 2;
        let layout = *self.walk.layout;
        if of.flags & type_flags::MANAGED_DICT == 0 {
            return;
        }
        // SAFETY: an object of this type, with words before it.
        unsafe {
            let at = layout.features.dictionary_before.wrapping_neg();
            let dictionary = word(object, at);
            let values = match layout.features.values {
                Values::BesideDictionary => {
                    word(object, layout.features.array_before.wrapping_neg())
                }
                Values::Tagged if dictionary & 1 != 0 => dictionary + 1,
                Values::Tagged => 0,
                Values::Inline => {
                    let values = object + of.basic_size;
                    let has = of.flags & INLINE != 0 && ((values + 3) as *const u8).read() == 1;
                    if has {
                        values + layout.values_header
                    } else {
                        0
                    }
                }
            };
            if dictionary & 1 == 0 {
                self.note(dictionary, Link::Dictionary, String::new);
            }
            let keys = word(of.address, layout.type_cached_keys);
            if values == 0 || keys == 0 {
                return;
            }
            let byte = |at: usize| ((keys + at) as *const u8).read();
            let count = word(keys, layout.keys_entries).min(MOST_NAMES);
            let index_bytes = 1_usize << (byte(layout.keys_log2_size + 1) & 31);
            let entries = keys + layout.keys_size + index_bytes;
            let (entry, skip) = match byte(layout.keys_log2_size + 2) {
                0 => (24, 8),
                _ => (16, 0),
            };
            for at in 0..count {
                let key = word(entries, entry * at + skip);
                if key == 0 {
                    continue;
                }
                let value = word(values, 8 * at);
                let flags = word(word(key, 8), layout.type_flags) as u64;
                self.note(value, Link::Attribute, || text::of_str(&layout, key, flags));
            }
        }
    }

    /// Slots, and members of types of C.
    unsafe fn members(&mut self, object: usize, of: &Type) {
        let layout = *self.walk.layout;
        let mut class = of.address;
        // SAFETY: the types that an object's type derives from, and their tables.
        unsafe {
            for _ in 0..MOST_BASES {
                if class == 0 {
                    break;
                }
                let mut member = word(class, MEMBERS);
                for _ in 0..MOST_NAMES {
                    if member == 0 || word(member, 0) == 0 {
                        break;
                    }
                    let kind = ((member + 8) as *const i32).read();
                    if OBJECT_MEMBERS.contains(&kind) {
                        let value = word(object, word(member, 16));
                        let name = word(member, 0);
                        self.note(value, Link::Attribute, || of_c(name));
                    }
                    member += MEMBER;
                }
                let name = text::of_type(&layout, class);
                for &(_, at, field) in FIELDS.iter().filter(|(of, ..)| *of == name) {
                    self.note(word(object, at), Link::Attribute, || field.to_owned());
                }
                class = word(class, BASE);
            }
            let at = word(of.address, DICT_OFFSET).cast_signed();
            if at > 0 {
                self.note(
                    word(object, at.unsigned_abs()),
                    Link::Dictionary,
                    String::new,
                );
            }
        }
    }
}

/// What refers to a node whose references are named.
#[derive(Clone, Copy)]
pub struct Above {
    pub kind: Kind,
    pub address: usize,
    pub link: Link,
}

/// A text of C.
unsafe fn of_c(address: usize) -> String {
    // SAFETY: by the caller, it ends with a zero.
    let text = unsafe { std::ffi::CStr::from_ptr(address as *const std::ffi::c_char) };
    text.to_string_lossy().into_owned()
}
