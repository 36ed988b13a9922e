//! The kinds of rows, and their names.

use nthbyte_profile::Domain;
use serde::Serialize;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKey {
    /// Live objects in the heap's blocks, of the sizes that were asked for. PyPy: old objects in arenas.
    Objects,
    /// What those blocks have more.
    Slack,
    /// Large blocks of the interpreter.
    Large,
    /// PyPy: the nursery.
    Nursery,
    /// Free blocks in used pages. PyPy: free memory in arenas.
    FreeBlocks,
    /// Free pages in used arenas.
    FreePages,
    /// Arenas without a used page.
    FreeArenas,
    /// Headers, and memory of arenas that was not used yet.
    Unused,
    /// Blocks of the C library that are not the interpreter's large blocks.
    Native,
    /// Mappings of the program.
    Mappings,
    /// Memory that is pinned for a GPU.
    Pinned,
    /// Free memory that the C library keeps.
    LibraryFree,
    /// Allocated, but not in memory: never written to, or swapped out. Below zero.
    NotResident,
    /// Memory from before the session.
    Before,
    /// Code and constants of the program and its libraries.
    FileText,
    /// Data of the program and its libraries.
    FileData,
    /// Libraries of CUDA.
    CudaFiles,
    /// Stacks.
    Stacks,
    /// Code that was made at run time.
    MachineCode,
    /// Memory shared with other processes.
    Shared,
    /// nthbyte's own.
    Agent,
    /// The rest.
    Unknown,
}

impl MemoryKey {
    /// All keys, in the order of the table.
    pub const ALL: [Self; 22] = [
        Self::Objects,
        Self::Slack,
        Self::Large,
        Self::Nursery,
        Self::FreeBlocks,
        Self::FreePages,
        Self::FreeArenas,
        Self::Unused,
        Self::Native,
        Self::Mappings,
        Self::Pinned,
        Self::LibraryFree,
        Self::NotResident,
        Self::Before,
        Self::FileText,
        Self::FileData,
        Self::CudaFiles,
        Self::Stacks,
        Self::MachineCode,
        Self::Shared,
        Self::Agent,
        Self::Unknown,
    ];

    /// The row's name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Objects => "live objects",
            Self::Slack => "slack in their blocks",
            Self::Large => "live large blocks",
            Self::Nursery => "nursery",
            Self::FreeBlocks => "free blocks in used pages",
            Self::FreePages => "free pages in used arenas",
            Self::FreeArenas => "free arenas",
            Self::Unused => "headers, and arena memory not used yet",
            Self::Before => "from before the session",
            Self::Native => "native blocks (malloc)",
            Self::Mappings => "mappings of the program",
            Self::Pinned => "pinned for the GPU (CUDA)",
            Self::LibraryFree => "free memory kept by the C library",
            Self::NotResident => "allocated, but not in memory",
            Self::FileText => "files: code and constants",
            Self::FileData => "files: data",
            Self::CudaFiles => "files: libraries of CUDA",
            Self::Stacks => "stacks of threads",
            Self::MachineCode => "machine code made at run time",
            Self::Shared => "shared memory",
            Self::Agent => "nthbyte itself",
            Self::Unknown => "unknown",
        }
    }

    /// Whose memory it is: the interpreter's or native code's; `None` for neither.
    #[must_use]
    pub fn domain(self) -> Option<Domain> {
        match self.group() {
            "native" => Some(Domain::Native),
            "Python, live" | "Python, free" => Some(Domain::Python),
            _ => None,
        }
    }

    /// The group of rows that it belongs to.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Objects | Self::Slack | Self::Large | Self::Nursery => "Python, live",
            Self::FreeBlocks | Self::FreePages | Self::FreeArenas | Self::Unused => "Python, free",
            Self::Native
            | Self::Mappings
            | Self::Pinned
            | Self::LibraryFree
            | Self::NotResident => "native",
            Self::Before
            | Self::FileText
            | Self::FileData
            | Self::CudaFiles
            | Self::Stacks
            | Self::MachineCode
            | Self::Shared => "program",
            Self::Agent => "nthbyte",
            Self::Unknown => "unknown",
        }
    }
}
