//! What travels through the ring: events that own their text.

use nthbyte_profile::event::{
    Allocation, Code, Collection, CpuSample, Event, Lines, Memory, Nanos, Node, SampleId, Thread,
    ThreadId, TypeName,
};

/// One event on its way to the writer thread.
#[derive(Debug)]
pub(super) enum Record {
    Code {
        name: String,
        file: String,
        first_line: u32,
        location_table: Option<Vec<u8>>,
    },
    Node(Node),
    Type {
        name: String,
        native: String,
    },
    Thread {
        os_id: u64,
        name: String,
    },
    ThreadName(ThreadId, String),
    Allocation(Allocation),
    Freed(SampleId, Nanos),
    Cpu(CpuSample),
    Collection(Collection),
    Memory(Memory),
}

impl Record {
    pub(super) fn event(&self) -> Event<'_> {
        match self {
            Self::Code {
                name,
                file,
                first_line,
                location_table,
            } => Event::Code(Code {
                name,
                file,
                first_line: *first_line,
                lines: location_table
                    .as_deref()
                    .map_or(Lines::Direct, Lines::LocationTable),
            }),
            Self::Node(node) => Event::Node(*node),
            Self::Type { name, native } => Event::Type(TypeName { name, native }),
            Self::Thread { os_id, name } => Event::Thread(Thread {
                os_id: *os_id,
                name,
            }),
            Self::ThreadName(thread, name) => Event::ThreadName(*thread, name),
            Self::Allocation(allocation) => Event::Allocation(*allocation),
            Self::Freed(sample, time) => Event::Freed(*sample, *time),
            Self::Cpu(sample) => Event::Cpu(*sample),
            Self::Collection(collection) => Event::Collection(*collection),
            Self::Memory(memory) => Event::Memory(*memory),
        }
    }

    /// `code` with text of its own; `None` when there is no memory for it.
    pub(super) fn code(code: &Code<'_>) -> Option<Self> {
        Some(Self::Code {
            name: text(code.name)?,
            file: text(code.file)?,
            first_line: code.first_line,
            location_table: match code.lines {
                Lines::Direct => None,
                Lines::LocationTable(table) => Some(bytes(table)?),
            },
        })
    }
}

/// A copy of `text`, without the abort that the standard library's copy makes of exhausted memory.
pub(super) fn text(text: &str) -> Option<String> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).ok()?;
    copy.push_str(text);
    Some(copy)
}

fn bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}
