//! The description of code objects in the profile.
//!
//! A code object's address identifies it during its life. The session's interner stores its number and removes it when
//! the code object is freed (`patches/dealloc.rs`). The agent holds no reference, so it does not delay the free.

use std::sync::OnceLock;

use nthbyte_profile::event::{Code, CodeId, Lines};

use crate::api::Api;
use crate::labels;
use crate::layout::Layout;
use crate::sampling::strings;
use nthbyte_host::process::field;
use nthbyte_session::{Appearance, Recording};

/// Longer position tables are left out, and their frames have no line numbers.
pub const MAX_TABLE: usize = 4 << 20;

/// `CO_COROUTINE` and `CO_ASYNC_GENERATOR` of `co_flags`.
const OF_TASKS: u32 = 0x80 | 0x200;

/// Reads code objects.
pub struct Codes {
    code_type: usize,
    name: String,
    file: String,
}

impl Codes {
    /// A reader of this interpreter's code objects.
    #[must_use]
    pub fn new(api: &Api) -> Self {
        // Looks it up now.
        own_folder();
        Self {
            code_type: api.PyCode_Type as usize,
            name: String::new(),
            file: String::new(),
        }
    }

    /// A reader that takes objects of this type for code objects.
    #[cfg(test)]
    pub const fn for_test(code_type: usize) -> Self {
        Self {
            code_type,
            name: String::new(),
            file: String::new(),
        }
    }

    /// Whether a code object belongs to `threading.Thread._bootstrap`. Asked once in each thread.
    ///
    /// # Safety
    /// As for [`Self::appearance`].
    #[cold]
    pub unsafe fn is_thread_bootstrap(&mut self, layout: &Layout, code: usize) -> bool {
        // SAFETY: by the contract.
        code != 0
            && unsafe {
                self.read_names(layout, code);
                self.name == "Thread._bootstrap" && self.file.ends_with("/threading.py")
            }
    }

    /// # Safety
    /// As for [`Self::appearance`].
    unsafe fn read_names(&mut self, layout: &Layout, code: usize) {
        self.name.clear();
        self.file.clear();
        // SAFETY: in every code object, these fields hold two `str`.
        unsafe {
            strings::append(layout, field(code, layout.code_qualname), &mut self.name);
            strings::append(layout, field(code, layout.code_filename), &mut self.file);
        }
    }

    /// The type of code objects, as their second word has it.
    #[inline]
    pub const fn code_type(&self) -> usize {
        self.code_type
    }

    /// How frames of a code object appear. A new code object is defined first. `None` if there is no room.
    ///
    /// # Safety
    /// `code` is a live code object with this layout, and the GIL is held.
    #[inline]
    pub unsafe fn appearance(
        &mut self,
        layout: &Layout,
        code: usize,
        recording: &mut Recording<'_>,
    ) -> Option<Appearance> {
        if let Some(appearance) = recording.function(code as u64) {
            return Some(appearance);
        }
        // SAFETY: by the contract.
        unsafe { self.define(layout, code, recording) }
    }

    /// # Safety
    /// As for [`Self::appearance`].
    #[cold]
    unsafe fn define(
        &mut self,
        layout: &Layout,
        code: usize,
        recording: &mut Recording<'_>,
    ) -> Option<Appearance> {
        // SAFETY: in every code object, these fields hold two `int` and a `bytes`.
        let (first_line, flags, table) = unsafe {
            self.read_names(layout, code);
            (
                field::<u32>(code, layout.code_first_line),
                field::<u32>(code, layout.code_flags),
                table(layout, code),
            )
        };
        labels::meet_function(layout, &self.name, &self.file, flags & OF_TASKS != 0);
        let Some(appearance) = appearance_of(&self.name, &self.file, own_folder()) else {
            return recording.hide_function(code as u64);
        };
        let definition = Code {
            name: &self.name,
            file: &self.file,
            first_line,
            lines: Lines::LocationTable(table.unwrap_or_default()),
        };
        recording.define_function(code as u64, &definition, appearance)
    }
}

/// How frames of a function appear, by its name and file. `None` if they are hidden.
pub fn appearance_of(name: &str, file: &str, own_folder: &str) -> Option<fn(CodeId) -> Appearance> {
    if is_invisible(name, file, own_folder) {
        return None;
    }
    let is_runpy = file == "<frozen runpy>" || file.ends_with("/runpy.py");
    Some(if is_runpy {
        // `runpy` starts programs: its frames are at the outer end of their stacks.
        Appearance::FrameWithin
    } else {
        Appearance::Frame
    })
}

/// Whether a code object belongs to nthbyte, or is the one that CPython 3.13 and later run between a class and its
/// `__init__` (`_Py_InitCleanup`, which has no file).
fn is_invisible(name: &str, file: &str, own_folder: &str) -> bool {
    let is_own = !own_folder.is_empty()
        && file
            .strip_prefix(own_folder)
            .is_some_and(|rest| rest.starts_with('/'));
    is_own || (file == "__init__" && name == "__init__")
}

/// The folder of nthbyte's own Python modules, where this library's file is; empty if it is not known. The dynamic linker is
/// asked once, when the agent is created: later, another thread may hold its lock for as long as it loads a library.
pub fn own_folder() -> &'static str {
    static FOLDER: OnceLock<String> = OnceLock::new();
    FOLDER.get_or_init(|| find_own_folder().unwrap_or_default())
}

fn find_own_folder() -> Option<String> {
    // SAFETY: a zeroed `Dl_info` is a valid place for the answer; the library's name is never freed.
    let path = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(find_own_folder as *const libc::c_void, &raw mut info) == 0 {
            return None;
        }
        std::ffi::CStr::from_ptr(info.dli_fname)
    };
    Some(path.to_str().ok()?.rsplit_once('/')?.0.to_owned())
}

/// The position table of a code object.
///
/// # Safety
/// `code` is a live code object with this layout, and lives as long as the table is used.
unsafe fn table<'a>(layout: &Layout, code: usize) -> Option<&'a [u8]> {
    // SAFETY: `co_linetable` is a `bytes`, whose characters are as many as its size says.
    unsafe {
        let bytes = field::<usize>(code, layout.code_linetable);
        let length = field::<usize>(bytes, layout.var_size);
        (length <= MAX_TABLE)
            .then(|| std::slice::from_raw_parts((bytes + layout.bytes_value) as *const u8, length))
    }
}
