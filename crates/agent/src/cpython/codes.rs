//! Code objects that have been seen, and their death.
//!
//! A code object is known by its address, for as long as it lives. Its death is noticed because the
//! agent puts a function of its own before `tp_dealloc` of the code type: code objects die rarely,
//! and no reference to them is kept, so they die when they would.

use nthbyte_profile::event::{Code, CodeId, Lines};
use rustc_hash::FxHashMap;

use super::api::Api;
use super::layout::{Layout, fixed};
use super::memory::field;
use super::strings;
use crate::session::Recorder;

/// Position tables longer than this are left out, and their frames show no line.
const MAX_TABLE: usize = 4 << 20;

/// Code objects by address.
pub struct Codes {
    known: FxHashMap<usize, CodeId>,
    code_type: usize,
    name: String,
    file: String,
}

impl Codes {
    /// Knows none yet.
    #[must_use]
    pub fn new(api: &Api) -> Self {
        Self {
            known: FxHashMap::default(),
            code_type: api.PyCode_Type as usize,
            name: String::new(),
            file: String::new(),
        }
    }

    /// Forgets all.
    pub fn reset(&mut self) {
        self.known.clear();
    }

    /// A code object dies. Whether it was known.
    pub fn died(&mut self, code: usize) -> bool {
        self.known.remove(&code).is_some()
    }

    /// Whether the object at an address is a code object.
    ///
    /// # Safety
    /// `object` is a live object.
    #[inline]
    #[must_use]
    pub unsafe fn is_code(&self, object: usize) -> bool {
        // SAFETY: every object has a type.
        unsafe { field::<usize>(object, 8) == self.code_type }
    }

    /// The number of a code object, which is defined if it is new; `None` if there is no room.
    ///
    /// # Safety
    /// `code` is a live code object with this layout, and the GIL is held.
    #[inline]
    pub unsafe fn id(
        &mut self,
        layout: &Layout,
        code: usize,
        recorder: &mut Recorder,
    ) -> Option<CodeId> {
        if let Some(&id) = self.known.get(&code) {
            return Some(id);
        }
        // SAFETY: by the contract.
        unsafe { self.define(layout, code, recorder) }
    }

    /// # Safety
    /// As for [`Self::id`].
    #[cold]
    unsafe fn define(
        &mut self,
        layout: &Layout,
        code: usize,
        recorder: &mut Recorder,
    ) -> Option<CodeId> {
        self.known.try_reserve(1).ok()?;
        self.name.clear();
        self.file.clear();
        // SAFETY: these fields of a code object hold two `str`, an `int` and a `bytes`, always.
        let (first_line, table) = unsafe {
            strings::append(layout, field(code, layout.code_qualname), &mut self.name);
            strings::append(layout, field(code, layout.code_filename), &mut self.file);
            (
                field::<u32>(code, layout.code_first_line),
                table(layout, code),
            )
        };
        let id = recorder.code(&Code {
            name: &self.name,
            file: &self.file,
            first_line,
            lines: Lines::LocationTable(table.unwrap_or_default()),
        })?;
        self.known.insert(code, id);
        Some(id)
    }
}

/// The position table of a code object.
///
/// # Safety
/// `code` is a live code object with this layout, and stays so while the table is used.
unsafe fn table<'a>(layout: &Layout, code: usize) -> Option<&'a [u8]> {
    // SAFETY: `co_linetable` is a `bytes`, whose characters are as many as its size says.
    unsafe {
        let bytes = field::<usize>(code, layout.code_linetable);
        let length = field::<usize>(bytes, fixed::VAR_SIZE);
        (length <= MAX_TABLE)
            .then(|| std::slice::from_raw_parts((bytes + fixed::BYTES_VALUE) as *const u8, length))
    }
}
