//! Checks strings, functions, types, dictionaries and instances.

use std::ffi::{CStr, c_int};

use super::{Reader, Subject, check};
use crate::api::{Gil, Object, Owned, PyObject};
use crate::layout::{Layout, UNUSED};
use crate::sampling::{attributes, strings, types};

/// `Py_tp_dealloc` of `Include/typeslots.h`.
const SLOT_DEALLOC: c_int = 52;

const STRINGS: Subject = "strings";
const TYPES: Subject = "types";
const DICTIONARIES: Subject = "dictionaries";
const INSTANCES: Subject = "instances";

/// Compares objects that every interpreter has.
pub fn verify(gil: &Gil, layout: &Layout, reader: Reader) -> Result<(), Subject> {
    // Characters of one byte (ASCII and others), of two bytes and of four bytes.
    for text in [
        c"nthbyte",
        c"n\xc3\xa4chstes",
        c"\xc5\x88byte",
        c"\xf0\x9f\x90\x8d",
    ] {
        verify_string(gil, layout, reader, text)?;
    }
    verify_function(gil, layout, reader)?;
    let api = gil.api();
    for (class, name) in [(api.PyType_Type, c"type"), (api.PyCode_Type, c"code")] {
        verify_type(gil, layout, reader, class, name)?;
    }
    for general in [false, true] {
        for length in [3, 20] {
            verify_dictionary(gil, layout, reader, general, length)?;
        }
    }
    Ok(())
}

fn verify_string(gil: &Gil, layout: &Layout, reader: Reader, text: &CStr) -> Result<(), Subject> {
    let string = gil.text(text).ok_or(STRINGS)?;
    let length = string.text_length();
    check(
        length.is_some() && reader.read::<usize>(string.address(), layout.str_length) == length,
        STRINGS,
    )?;
    // All reads below are within this distance.
    let farthest = layout.ascii_size.max(layout.unicode_size);
    reader
        .read::<[u8; 64]>(string.address(), farthest)
        .ok_or(STRINGS)?;
    reader
        .read::<u32>(string.address(), layout.str_state)
        .ok_or(STRINGS)?;
    let mut read = String::new();
    // SAFETY: the `str` is live, all fields that are read lie in readable memory, and the length is right.
    let known = unsafe { strings::append(layout, string.address(), &mut read) };
    check(known && text.to_str() == Ok(&read), STRINGS)
}

fn verify_function(gil: &Gil, layout: &Layout, reader: Reader) -> Result<(), Subject> {
    const SUBJECT: Subject = "functions";
    let built_in = gil
        .import(c"sys")
        .and_then(|sys| sys.attribute(c"getallocatedblocks"))
        .ok_or(SUBJECT)?;
    let (function, flags) = built_in.c_function().ok_or(SUBJECT)?;
    // `PyMethodDef`: the name, the function, the flags.
    let definition = reader
        .read::<usize>(built_in.address(), layout.function_definition)
        .and_then(|definition| {
            Some((
                reader.read::<usize>(definition, 8)?,
                reader.read::<u32>(definition, 16)?,
            ))
        });
    check(
        definition == Some((function as usize, flags.cast_unsigned())),
        SUBJECT,
    )
}

/// Compares the fields that every type has.
fn verify_type(
    gil: &Gil,
    layout: &Layout,
    reader: Reader,
    class: *mut PyObject,
    name: &CStr,
) -> Result<(), Subject> {
    // SAFETY: the type is never freed.
    let class = unsafe { gil.object(class) }.ok_or(TYPES)?;
    // SAFETY: it is a type.
    let (dealloc, flags) = unsafe {
        (
            (gil.api().PyType_GetSlot)(class.as_ptr(), SLOT_DEALLOC) as usize,
            class.type_flags(),
        )
    };
    let basic_size = class
        .attribute(c"__basicsize__")
        .and_then(|size| usize::try_from(size.integer()?).ok())
        .ok_or(TYPES)?;
    let first = name.to_bytes_with_nul();
    let has_name = reader
        .read::<usize>(class.address(), layout.type_name)
        .and_then(|found| reader.read::<[u8; 5]>(found, 0))
        .is_some_and(|found| found == first);
    check(
        has_name
            && dealloc != 0
            && reader.is(class, layout.type_dealloc, dealloc)
            && reader.is(class, layout.type_flags, flags)
            && reader.is(class, layout.type_basic_size, basic_size),
        TYPES,
    )
}

/// Compares a dictionary with this many names, optionally with one number: a number makes its table a general one.
fn verify_dictionary(
    gil: &Gil,
    layout: &Layout,
    reader: Reader,
    general: bool,
    length: isize,
) -> Result<(), Subject> {
    let dict = gil.dict().ok_or(DICTIONARIES)?;
    let number = gil.integer(length).ok_or(DICTIONARIES)?;
    if general && !dict.set(*number, *number) {
        return Err(DICTIONARIES);
    }
    let names: Vec<Owned<'_>> = (0..length)
        .map_while(|at| {
            let name = gil.text(&std::ffi::CString::new(format!("name {at}")).ok()?)?;
            dict.set(*name, *name).then_some(name)
        })
        .collect();
    let keys = reader
        .read::<usize>(dict.address(), layout.dict_keys)
        .ok_or(DICTIONARIES)?;
    let size = dict
        .attribute(c"__sizeof__")
        .and_then(|function| function.call())
        .and_then(|size| usize::try_from(size.integer()?).ok())
        .ok_or(DICTIONARIES)?;
    // `sizeof(PyDictObject)`: its header, three words, and the values.
    let basic_size = layout.dict_keys.wrapping_add(16);
    let table = size.checked_sub(basic_size).ok_or(DICTIONARIES)?;
    check((64..4096).contains(&table), DICTIONARIES)?;
    // A wrong offset may lie outside the table, and `is_dict_keys` reads these fields directly.
    for field in [layout.keys_log2_size, layout.keys_entries] {
        reader.read::<[u8; 8]>(keys, field).ok_or(DICTIONARIES)?;
    }
    check(
        reader.read::<usize>(keys, layout.keys_entries) == dict.length()
            // SAFETY: the table has so many bytes, by its `__sizeof__`.
            && unsafe { types::is_dict_keys(layout, keys, table) },
        DICTIONARIES,
    )?;
    let Some(probe) = reader.probe else {
        return Ok(());
    };
    let entries = attributes::Table::read(layout, probe, keys).ok_or(DICTIONARIES)?;
    check(
        names.iter().all(|name| {
            let found = entries.position(name.address());
            found.is_some_and(|(_, value)| value == name.address())
        }),
        DICTIONARIES,
    )
}

/// Compares an instance of a Python class, and the class. Where the system does not allow a process to read itself, the
/// agent does not read instances later, so there is nothing to check.
pub fn verify_instance(
    gil: &Gil,
    layout: &Layout,
    reader: Reader,
    instance: Object<'_>,
) -> Result<(), Subject> {
    let Some(probe) = reader.probe else {
        return Ok(());
    };
    let class = instance.attribute(c"__class__").ok_or(TYPES)?;
    let name = class.attribute(c"__qualname__").ok_or(TYPES)?;
    let module = class.attribute(c"__module__").ok_or(TYPES)?;
    check(
        reader.is(*class, layout.type_qualname, name.address())
            && types::class_value(layout, probe, class.address(), gil.interned(c"__module__"))
                == Some(module.address()),
        TYPES,
    )?;
    let keys = layout.type_cached_keys;
    check(keys != UNUSED, TYPES)?;
    let agrees = |name: &CStr| {
        let value = instance.attribute(name).map(|value| value.address());
        value.is_some()
            && attributes::read(layout, probe, instance.address(), gil.interned(name)) == value
    };
    check(agrees(c"first") && agrees(c"second"), INSTANCES)?;
    // The same instance with a dictionary: the dictionary uses the array, or has taken over its values.
    let dictionary = instance.attribute(c"__dict__").ok_or(INSTANCES)?;
    check(agrees(c"first") && agrees(c"second"), INSTANCES)?;
    // The same instance with a dictionary that has its own table.
    let key = gil.text(c"extra").ok_or(INSTANCES)?;
    check(dictionary.set(*key, *key) && agrees(c"second"), INSTANCES)
}
