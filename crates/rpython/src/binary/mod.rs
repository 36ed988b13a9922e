//! The interpreter's machine code: where it is, its parts, and how it is changed and changed back.
//!
//! ```text
//! incminimark    constants of the collector, and the results of the search
//! library        where the library lies in memory, and its imports
//! memory_map     the protection of each page
//! imports        import slots that lead to another function for a while
//! function       facts about a function, from its instructions
//! function_table where functions begin
//! agreement      what a search does alike on every processor
//! debug_sections finds what begins and ends a section of RPython's log
//! patching       functions and calls that lead to hooks for a while
//! entry          code that passes small requests of memory on at once
//! code_pages     code that is changed without ever being writable and executable at once
//! x86_64/        what depends on the processor:
//!   search           finds the collector in the code
//!   few_sites        finds it where the code has few allocations
//!   nursery_setters  finds what sets the nursery besides a collection
//!   control_flow     what a function's instructions do, and where they lead
//!   debug_sections   calls with a constant
//!   patching         jumps, and instructions that are moved
//!   collector_memory tells the collector's own calls of malloc
//!   ignored_signals finds the count of those who want no signals of _vmprof
//!   entry            the code of `entry`
//! aarch64/       the same, but for programs of few allocations
//! unsupported    the same for a processor without a folder: nothing is found
//! ```
//!
//! To support another processor, add a folder with the files of `x86_64` and choose it below.

// Without a folder for the processor, nothing changes code, and the results of a search are unused.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod agreement;
mod code_pages;
mod debug_sections;
pub mod entry;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod function;
mod function_table;
mod imports;
mod incminimark;
mod library;
mod memory_map;
mod patching;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(target_arch = "x86_64"))]
mod unsupported;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as architecture;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use unsupported as architecture;
#[cfg(target_arch = "x86_64")]
use x86_64 as architecture;

use std::sync::OnceLock;

pub use architecture::collector_memory::{WORDS, is_collectors};
pub use architecture::ignored_signals::count_of_ignoring;
pub use architecture::nursery_setters::nursery_setters;
pub use architecture::{prefetch, thread_pointer};
pub use debug_sections::{DebugSections, debug_sections};
pub use function_table::FunctionTable;
pub use imports::Redirect;
pub use incminimark::{Collector, LARGE_OBJECT, MAJOR_STATES};
pub use library::MappedLibrary;
pub use memory_map::MemoryMap;
pub use patching::{CallSite, Detour};

/// Whether the collector can be hooked on this processor at all.
pub const CAN_HOOK: bool = architecture::CAN_HOOK;

impl Collector {
    /// Finds the collector of the library. The search takes milliseconds and runs once in a process.
    ///
    /// # Errors
    /// One clause that names the expectation that failed.
    pub fn find(library: &MappedLibrary) -> Result<Self, String> {
        static FOUND: OnceLock<Collector> = OnceLock::new();
        if let Some(&known) = FOUND.get() {
            return Ok(known);
        }
        let found =
            architecture::search::search(library.code(), library.text.start, &library.data)?;
        Ok(*FOUND.get_or_init(|| found))
    }

    /// Finds the collector of a program that may have few allocations in its code. It takes some milliseconds for each
    /// megabyte of code.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub fn find_in_program(program: &MappedLibrary) -> Result<Self, String> {
        if !architecture::IN_PROGRAMS {
            return Err("there is no search for this processor".to_owned());
        }
        let (code, text) = (program.code(), program.text.start);
        architecture::search::search(code, text, &program.data)
            .or_else(|_| architecture::few_sites::search(code, text, &program.data))
    }
}
