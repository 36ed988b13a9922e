//! Texts of objects, read without a call of Python.

use std::fmt::Write;

use super::types::{Type, is, word};
use crate::layout::{Layout, type_flags};

/// The longest text that is read, in characters.
const LONGEST: usize = 60;
/// The longest name of a type, in bytes.
const LONGEST_TYPE: usize = 200;

/// A `str`, cut; empty if it is not one, or not readable.
///
/// # Safety
/// `object` is null or an object, and `flags` are its type's.
pub unsafe fn of_str(layout: &Layout, object: usize, flags: u64) -> String {
    let mut text = String::new();
    if object == 0 || flags & type_flags::UNICODE_SUBCLASS == 0 {
        return text;
    }
    // SAFETY: by the caller. Only compact strings are read: their characters follow the header.
    unsafe {
        let bits = layout.str_bits;
        let state = ((object + layout.str_state) as *const u32).read();
        if state & bits.compact == 0 {
            return text;
        }
        let length = word(object, layout.str_length);
        let start = object
            + match state & bits.ascii {
                0 => layout.unicode_size,
                _ => layout.ascii_size,
            };
        let width = state >> bits.kind_shift & 7;
        for at in 0..length.min(LONGEST) {
            let code = match width {
                1 => u32::from(((start + at) as *const u8).read()),
                2 => u32::from(((start + 2 * at) as *const u16).read()),
                _ => ((start + 4 * at) as *const u32).read(),
            };
            text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if length > LONGEST {
            text.push('…');
        }
    }
    text
}

/// The name of a type, as the interpreter keeps it.
///
/// # Safety
/// It is a type.
pub unsafe fn of_type(layout: &Layout, class: usize) -> String {
    // SAFETY: by the caller, the name ends with a zero.
    unsafe {
        let name = word(class, layout.type_name) as *const u8;
        let mut length = 0;
        while !name.is_null() && length < LONGEST_TYPE && name.add(length).read() != 0 {
            length += 1;
        }
        match length {
            0 => String::new(),
            _ => String::from_utf8_lossy(std::slice::from_raw_parts(name, length)).into_owned(),
        }
    }
}

/// A key of a dictionary, as Python would write it: texts, small integers, classes. Of another object, its type.
///
/// # Safety
/// It is an object of this type.
pub unsafe fn of_key(layout: &Layout, key: usize, of: &Type) -> String {
    let mut text = String::new();
    // SAFETY: by the caller.
    unsafe {
        if of.flags & type_flags::UNICODE_SUBCLASS != 0 {
            text = of_str(layout, key, of.flags).replace('\\', "\\\\");
            text = format!("'{}'", text.replace('\'', "\\'"));
        } else if of.flags & type_flags::LONG_SUBCLASS != 0 {
            match integer(layout, key) {
                Some(value) => drop(write!(text, "{value}")),
                None => text.push_str("int"),
            }
        } else if of.bits & is::CLASS != 0 {
            text = of_type(layout, key);
        } else if of.flags & type_flags::TUPLE_SUBCLASS != 0 {
            let _ = write!(text, "tuple of {}", word(key, layout.var_size));
        } else {
            text = of_type(layout, of.address);
        }
    }
    text
}

/// The value of an integer with one or two digits of 30 bits (`Include/cpython/longintrepr.h`).
///
/// # Safety
/// It is an `int`.
unsafe fn integer(layout: &Layout, object: usize) -> Option<i64> {
    const DIGITS: usize = 24;
    // SAFETY: by the caller.
    unsafe {
        let size = word(object, 16).cast_signed();
        let (count, is_negative) = match layout.references.immortal {
            // From 3.12 on: three bits of sign and state, and the number of digits.
            true => ((size >> 3).unsigned_abs(), size & 3 == 2),
            false => (size.unsigned_abs(), size < 0),
        };
        let digit = |at: usize| i64::from(((object + DIGITS + 4 * at) as *const u32).read());
        let value = match count {
            0 => 0,
            1 => digit(0),
            2 => digit(0) | digit(1) << 30,
            _ => return None,
        };
        Some(if is_negative { -value } else { value })
    }
}
