//! Reads a `str` without a call of Python.
//!
//! `PyUnicode_AsUTF8` allocates for text that is not ASCII. The slow path of an allocator must not allocate. The layout
//! (`Include/cpython/unicodeobject.h`) is a header, then characters of 1, 2 or 4 bytes.

use crate::layout::Layout;
use nthbyte_host::process::field;

/// Longer text, in characters, is cut: programs can create names of any length.
pub const MAX_CHARS: usize = 10_000;

/// Appends the text of the `str` at `address`. Lone surrogates become U+FFFD. Returns false if there is no memory, or
/// the string has an unknown form.
///
/// # Safety
/// `address` is a live `str` with the given layout.
pub unsafe fn append(layout: &Layout, address: usize, to: &mut String) -> bool {
    // SAFETY: the header of a `str`, by the contract.
    let (length, state) = unsafe {
        (
            field::<usize>(address, layout.str_length),
            field::<u32>(address, layout.str_state),
        )
    };
    let bits = layout.str_bits;
    if state & bits.compact == 0 {
        return false;
    }
    let length = length.min(MAX_CHARS);
    let data = address
        + if state & bits.ascii != 0 {
            layout.ascii_size
        } else {
            layout.unicode_size
        };
    let kind = (state >> bits.kind_shift & 7) as usize;
    if to.try_reserve(length * kind).is_err() {
        return false;
    }
    for at in 0..length {
        // SAFETY: `at` is within the characters of the string, whose size is `kind`.
        let character = unsafe {
            match kind {
                1 => u32::from(field::<u8>(data, at)),
                2 => u32::from((data as *const u16).add(at).read()),
                4 => (data as *const u32).add(at).read(),
                _ => return false,
            }
        };
        to.push(char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    true
}
