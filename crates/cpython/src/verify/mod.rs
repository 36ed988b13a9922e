//! Checks the layout before the agent changes anything in the interpreter.
//!
//! The checks compare each field of the layout with the results of CPython's public functions for the same object. At
//! least one check detects an error in any single field; a test changes each field to prove it. The checks read through
//! the kernel, so that a wrong offset gives an error instead of a fault.

mod frames;
mod interpreter;
mod objects;

use crate::api::{Gil, Object};
use crate::layout::Layout;
use nthbyte_host::process::{Plain, Probe};

/// The part of the layout that does not agree: "… are not laid out as in the release".
pub type Subject = &'static str;

/// The module of the functions that the checks run. A module is compiled once, not in each process.
pub const MODULE: &std::ffi::CStr = c"nthbyte._operations";

/// Checks the layout against the running interpreter.
///
/// # Errors
/// The part that does not agree.
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

/// Reads memory that may be unmapped.
#[derive(Clone, Copy)]
struct Reader {
    /// `None` where the system does not allow a process to read itself. Then the reader reads memory directly.
    probe: Option<Probe>,
}

impl Reader {
    fn read<T: Plain>(self, address: usize, offset: usize) -> Option<T> {
        let address = address.checked_add(offset)?;
        match self.probe {
            Some(probe) => probe.read(address),
            // SAFETY: the address comes from the interpreter's own structures, which match a release as far as known;
            // null is not followed.
            None => (address >= 4096 && address.is_multiple_of(align_of::<T>()))
                .then(|| unsafe { (address as *const T).read() }),
        }
    }

    /// Whether an object's field has this value.
    fn is<T: Plain + PartialEq>(self, object: Object<'_>, offset: usize, value: T) -> bool {
        self.read::<T>(object.address(), offset) == Some(value)
    }
}

/// `Ok` if the condition holds.
fn check(holds: bool, subject: Subject) -> Result<(), Subject> {
    if holds { Ok(()) } else { Err(subject) }
}
