//! The Python in a process, and its exported functions.

use crate::image::Image;
use crate::memory::{Memory, mappings};
use crate::refusal::{Refusal, refuse};

/// The functions that the stub calls, in the order of [`crate::x86_64::stub::Block::functions`]. All are part of the
/// public interface, or exported by every build of CPython 3.11 to 3.15; no offset of a structure is used.
pub const FUNCTIONS: [&str; 22] = [
    "Py_AddPendingCall",
    "Py_CompileString",
    "PyEval_EvalCode",
    "PyEval_GetBuiltins",
    "PyImport_GetModuleDict",
    "PyModule_GetDict",
    "PyDict_New",
    "PyDict_SetItemString",
    "PyDict_GetItemString",
    "PyUnicode_AsUTF8AndSize",
    "Py_DecRef",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyErr_Clear",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyGILState_Check",
    "PyGILState_GetThisThreadState",
    "Py_IsInitialized",
    IS_FINALIZING,
    "PyErr_SetInterrupt",
    "PyErr_ExceptionMatches",
];

/// It is public since 3.13, and was exported before with an underscore.
const IS_FINALIZING: &str = "Py_IsFinalizing";

/// A Python that was found in a process.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// `CPython 3.13.0`.
    pub name: String,
    /// The addresses of [`FUNCTIONS`].
    pub functions: [u64; FUNCTIONS.len()],
    /// `13` of `3.13.0`.
    pub minor: u8,
    /// The address of `_PyRuntime`, where a version says where its fields are.
    pub runtime: Option<u64>,
    /// The address of `PyExc_KeyboardInterrupt`, which has the address of the type.
    pub keyboard_interrupt: u64,
}

impl Interpreter {
    /// Finds the interpreter of a process.
    ///
    /// # Errors
    /// If it has none, or one that nthbyte does not support.
    pub fn find(pid: u32, memory: &Memory) -> Result<Self, Refusal> {
        let mut is_pypy = false;
        let maps = mappings(pid)?;
        for (number, mapping) in maps.iter().enumerate() {
            if mapping.name.contains("/ld-musl-") {
                return Err(refuse!(
                    "process {pid} uses musl (Alpine Linux), and nthbyte needs glibc: run the \
                     program on an image with glibc"
                ));
            }
            is_pypy |= mapping.name.contains("libpypy");
            let may_be = number == 0 || mapping.name.contains("libpython");
            if mapping.offset != 0 || !may_be {
                continue;
            }
            if let Some(image) = Image::at(memory, mapping.start)
                && image.symbol(memory, FUNCTIONS[0]).is_some()
            {
                return Self::of(pid, memory, &image);
            }
        }
        if is_pypy {
            return Err(refuse!(
                "process {pid} runs a PyPy before 7.3.18, which cannot be entered: start the program \
                 with NTHBYTE=ready, or with nthbyte run"
            ));
        }
        Err(refuse!(
            "process {pid} runs no CPython that exports its functions: start the program with \
             nthbyte run"
        ))
    }

    fn of(pid: u32, memory: &Memory, image: &Image) -> Result<Self, Refusal> {
        if image.symbol(memory, "_Py_DecRefShared").is_some() {
            return Err(refuse!(
                "process {pid} runs a CPython without the GIL, which cannot be entered: start the \
                 program with nthbyte run"
            ));
        }
        if image.symbol(memory, "_Py_NegativeRefcount").is_some() {
            return Err(refuse!(
                "process {pid} runs a debug build of CPython, which nthbyte does not support: use \
                 an ordinary build"
            ));
        }
        let version = image.symbol(memory, "Py_Version");
        let version = version.and_then(|at| memory.u32(at)).unwrap_or(0);
        let [major, minor, micro, _] = version.to_be_bytes();
        let name = format!("CPython {major}.{minor}.{micro}");
        if major != 3 || !(11..=15).contains(&minor) {
            let found = if version == 0 {
                "a CPython before 3.11"
            } else {
                &name
            };
            return Err(refuse!(
                "process {pid} runs {found}, and nthbyte supports 3.11 to 3.15"
            ));
        }
        let find = |name: &str| image.symbol(memory, name);
        let mut functions = [0; FUNCTIONS.len()];
        for (address, wanted) in functions.iter_mut().zip(FUNCTIONS) {
            let older = || find("_Py_IsFinalizing").filter(|_| wanted == IS_FINALIZING);
            *address = find(wanted).or_else(older).ok_or_else(|| {
                refuse!("process {pid} runs a {name} that does not export {wanted}")
            })?;
        }
        let keyboard_interrupt = find("PyExc_KeyboardInterrupt").unwrap_or(0);
        Ok(Self {
            name,
            minor,
            runtime: find("_PyRuntime"),
            functions,
            keyboard_interrupt,
        })
    }
}
