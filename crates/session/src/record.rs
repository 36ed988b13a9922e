//! What travels through the ring: events that own their text.

use nthbyte_profile::event::{
    Allocation, Code, Collection, CollectionKind, CpuSample, Event, Lines, Memory, Nanos, Node,
    SampleId, Thread, ThreadId, TypeName,
};

/// One event on its way to the writer thread: 56 bytes, of which the ring has thousands.
#[derive(Debug)]
pub(super) enum Record {
    Node(Node),
    Allocation(Allocation),
    /// An allocation that will be recorded when more is known of it.
    Announced(Allocation),
    Freed(SampleId, Nanos),
    Cpu(CpuSample),
    /// A collection of which no more is known, and there may be thousands in a second: start, duration, thread.
    Collection(Nanos, Nanos, ThreadId, CollectionKind),
    /// One of the larger and rarer events. A `Vec`, for it can be had without the abort that `Box`
    /// makes of exhausted memory.
    Seldom(Vec<Seldom>),
}

/// Events that are large, or own text.
#[derive(Debug)]
pub(super) enum Seldom {
    Code {
        name: String,
        file: String,
        first_line: u32,
        location_table: Option<Vec<u8>>,
    },
    Type {
        name: String,
        native: String,
    },
    Thread {
        os_id: u64,
        name: String,
    },
    ThreadName(ThreadId, String),
    Collection(Collection),
    Memory(Memory),
}

impl Record {
    /// `None` when there is no memory for it.
    pub(super) fn seldom(seldom: Seldom) -> Option<Self> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(seldom);
        Some(Self::Seldom(one))
    }

    pub(super) fn event(&self) -> Option<Event<'_>> {
        Some(match self {
            Self::Node(node) => Event::Node(*node),
            Self::Allocation(allocation) => Event::Allocation(*allocation),
            Self::Announced(_) => return None,
            Self::Freed(sample, time) => Event::Freed(*sample, *time),
            Self::Cpu(sample) => Event::Cpu(*sample),
            &Self::Collection(start, duration, thread, kind) => Event::Collection(Collection {
                start,
                duration,
                thread,
                kind,
                freed_objects: None,
                bytes_before: None,
                bytes_after: None,
            }),
            Self::Seldom(one) => one.first()?.event(),
        })
    }

    /// `None` when there is no memory for it.
    pub(super) fn collection(collection: Collection) -> Option<Self> {
        let totals = [
            collection.freed_objects,
            collection.bytes_before,
            collection.bytes_after,
        ];
        if totals == [None; 3] {
            let Collection {
                start,
                duration,
                thread,
                kind,
                ..
            } = collection;
            return Some(Self::Collection(start, duration, thread, kind));
        }
        Self::seldom(Seldom::Collection(collection))
    }
}

impl Seldom {
    /// `code` with text of its own; `None` when there is no memory for it.
    pub(super) fn code(code: &Code<'_>) -> Option<Self> {
        Some(Self::Code {
            name: text(code.name)?,
            file: text(code.file)?,
            first_line: code.first_line,
            location_table: match code.lines {
                Lines::Direct | Lines::Image(_) => None,
                Lines::LocationTable(table) => Some(bytes(table)?),
            },
        })
    }

    fn event(&self) -> Event<'_> {
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
            Self::Type { name, native } => Event::Type(TypeName { name, native }),
            Self::Thread { os_id, name } => Event::Thread(Thread {
                os_id: *os_id,
                name,
            }),
            Self::ThreadName(thread, name) => Event::ThreadName(*thread, name),
            Self::Collection(collection) => Event::Collection(*collection),
            Self::Memory(memory) => Event::Memory(*memory),
        }
    }
}

const _: () = assert!(size_of::<Record>() <= 56);

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
