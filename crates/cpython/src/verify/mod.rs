//! Does the layout hold? Asked before anything is touched.
//!
//! Each field of the layout is compared with what CPython's public functions say of the same object: what is wrong in
//! one field is found by one of the checks, which a test shows field by field. They read through the kernel, so
//! that a wrong offset is an answer and not a fault.

mod frames;
mod interpreter;
mod objects;

use crate::api::{Gil, Object};
use crate::layout::Layout;
use crate::memory::{Plain, Probe};

/// What does not agree: "… are not laid out as in the release".
pub type Subject = &'static str;

/// The module of the functions that the checks run. As a module it is compiled once, and not in each process.
pub const MODULE: &std::ffi::CStr = c"nthbyte._operations";

/// Checks the layout against the running interpreter.
///
/// # Errors
/// What does not agree.
pub fn verify(gil: &Gil, layout: &Layout) -> Result<(), Subject> {
    let reader = Reader {
        probe: Probe::new(),
    };
    frames::verify_thread(gil, layout, reader)?;
    objects::verify(gil, layout, reader)?;
    interpreter::verify(gil, layout, reader)?;
    let instance = frames::verify(gil, layout, reader)?;
    objects::verify_instance(gil, layout, reader, *instance)
}

/// Reads memory of which it is not certain that it is there.
#[derive(Clone, Copy)]
struct Reader {
    /// `None` where the system forbids a process to read itself; then all is read as it is.
    probe: Option<Probe>,
}

impl Reader {
    fn read<T: Plain>(self, address: usize, offset: usize) -> Option<T> {
        let address = address.checked_add(offset)?;
        match self.probe {
            Some(probe) => probe.read(address),
            // SAFETY: a release's own structures, as far as anyone knows; null is not followed.
            None => (address >= 4096 && address.is_multiple_of(align_of::<T>()))
                .then(|| unsafe { (address as *const T).read() }),
        }
    }

    /// Whether the field of an object is this.
    fn is<T: Plain + PartialEq>(self, object: Object<'_>, offset: usize, value: T) -> bool {
        self.read::<T>(object.address(), offset) == Some(value)
    }
}

/// `Ok` if it holds.
fn check(holds: bool, subject: Subject) -> Result<(), Subject> {
    if holds { Ok(()) } else { Err(subject) }
}
