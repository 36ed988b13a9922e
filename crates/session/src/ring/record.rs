//! The records in the ring: events that own their text.

use nthbyte_profile::compilation::{COMPILATION, Compilation};
use nthbyte_profile::event::{
    Allocation, Code, Collection, CollectionKind, CpuSample, Event, Extension, Label, LabelSetId,
    Lines, Memory, Nanos, Node, SampleId, SourceId, Thread, ThreadId, TypeName,
};
use nthbyte_profile::extension::NOTE;
use rtrb::Consumer;

/// An event on its way to the writer thread. A record has 56 bytes; the ring holds thousands.
#[derive(Debug)]
pub(crate) enum Record {
    Node(Node),
    /// Any number of nodes in one slot.
    Nodes(Vec<Node>),
    /// An allocation, and the arena in which its block would lie if it had not been sampled; 0 if that is not known.
    Allocation(Allocation, u32),
    /// An allocation that is recorded again later, with more details.
    Provisional(Allocation),
    Freed(SampleId, Nanos),
    Cpu(CpuSample),
    /// The period of a source from here on.
    Period(SourceId, u64),
    /// A [`Collection`] without `Option`s, which take twice the space. There may be thousands per second.
    Collection {
        start: Nanos,
        duration: Nanos,
        thread: ThreadId,
        kind: CollectionKind,
        /// [`UNKNOWN`] for a total that is not known; so below.
        freed_objects: u64,
        bytes_before: u64,
        bytes_after: u64,
    },
    /// A piece of a JIT compiler's work.
    Compilation(Compilation),
    /// No later event refers to functions, types and nodes that were defined before, but for a few under way. `threads`: nor to
    /// threads.
    Renewed {
        threads: bool,
    },
    /// Larger and rarer events. A single event is in a `Vec` too, because a `Vec` reports exhausted memory and `Box`
    /// aborts.
    Bulky(Vec<Bulky>),
    /// All records that follow are in another ring; one in a `Vec` for the same reason.
    Ring(Vec<Consumer<Record>>),
}

/// Events that are large or own text.
#[derive(Debug)]
pub(crate) enum Bulky {
    Code {
        name: String,
        file: String,
        first_line: u32,
        lines: OwnedLines,
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
    Label {
        parent: LabelSetId,
        key: &'static str,
        value: String,
    },
    Memory(Memory),
    /// A note on the run.
    Note(&'static str),
}

const _: () = assert!(size_of::<Record>() <= 56);

/// Stands for a total that is not known.
const UNKNOWN: u64 = u64::MAX;

impl Record {
    /// `None` when there is no memory for it.
    #[unsafe(link_section = "nthbyte_hot")]
    pub(crate) fn bulky(bulky: Bulky) -> Option<Self> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(bulky);
        Some(Self::Bulky(one))
    }

    pub(crate) fn collection(collection: Collection) -> Self {
        Self::Collection {
            start: collection.start,
            duration: collection.duration,
            thread: collection.thread,
            kind: collection.kind,
            freed_objects: collection.freed_objects.unwrap_or(UNKNOWN),
            bytes_before: collection.bytes_before.unwrap_or(UNKNOWN),
            bytes_after: collection.bytes_after.unwrap_or(UNKNOWN),
        }
    }

    /// Calls `write` with each event of the record, in order.
    pub(crate) fn for_each_event(&self, mut write: impl FnMut(&Event<'_>)) {
        match self {
            Self::Node(node) => write(&Event::Node(*node)),
            Self::Nodes(nodes) => nodes.iter().for_each(|node| write(&Event::Node(*node))),
            Self::Allocation(allocation, _) => write(&Event::Allocation(*allocation)),
            Self::Provisional(_) | Self::Ring(_) | Self::Renewed { .. } => {}
            Self::Freed(sample, time) => write(&Event::Freed(*sample, *time)),
            Self::Cpu(sample) => write(&Event::Cpu(*sample)),
            Self::Period(source, period) => write(&Event::Period(*source, *period)),
            &Self::Collection {
                start,
                duration,
                thread,
                kind,
                freed_objects,
                bytes_before,
                bytes_after,
            } => {
                let known = |total| (total != UNKNOWN).then_some(total);
                write(&Event::Collection(Collection {
                    start,
                    duration,
                    thread,
                    kind,
                    freed_objects: known(freed_objects),
                    bytes_before: known(bytes_before),
                    bytes_after: known(bytes_after),
                }));
            }
            Self::Compilation(compilation) => write(&Event::Extension(Extension {
                kind: COMPILATION,
                bytes: &compilation.encode(0),
            })),
            Self::Bulky(several) => several.iter().for_each(|one| write(&one.event())),
        }
    }
}

/// [`Lines`] that own their content.
#[derive(Debug)]
pub(crate) enum OwnedLines {
    Direct,
    LocationTable(Vec<u8>),
    Image(String),
}

impl Bulky {
    /// A copy of `code` that owns its text. `None` when there is no memory for it.
    pub(crate) fn code(code: &Code<'_>) -> Option<Self> {
        Some(Self::Code {
            name: text(code.name)?,
            file: text(code.file)?,
            first_line: code.first_line,
            lines: match code.lines {
                Lines::Direct => OwnedLines::Direct,
                Lines::Image(build_id) => OwnedLines::Image(text(build_id)?),
                Lines::LocationTable(table) => OwnedLines::LocationTable(bytes(table)?),
            },
        })
    }

    /// A copy of a definition of a type or a thread that owns its text. `None` when there is no memory for it.
    pub(crate) fn copy(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            Event::Type(of) => Self::Type {
                name: text(of.name)?,
                native: text(of.native)?,
            },
            Event::Thread(of) => Self::Thread {
                os_id: of.os_id,
                name: text(of.name)?,
            },
            _ => return None,
        })
    }

    pub(crate) fn event(&self) -> Event<'_> {
        match self {
            Self::Code {
                name,
                file,
                first_line,
                lines,
            } => Event::Code(Code {
                name,
                file,
                first_line: *first_line,
                lines: match lines {
                    OwnedLines::Direct => Lines::Direct,
                    OwnedLines::Image(build_id) => Lines::Image(build_id),
                    OwnedLines::LocationTable(table) => Lines::LocationTable(table),
                },
            }),
            Self::Type { name, native } => Event::Type(TypeName { name, native }),
            Self::Thread { os_id, name } => Event::Thread(Thread {
                os_id: *os_id,
                name,
            }),
            Self::ThreadName(thread, name) => Event::ThreadName(*thread, name),
            Self::Label { parent, key, value } => Event::Label(Label {
                parent: *parent,
                key,
                value,
            }),
            Self::Memory(memory) => Event::Memory(*memory),
            Self::Note(text) => Event::Extension(Extension {
                kind: NOTE,
                bytes: text.as_bytes(),
            }),
        }
    }
}

/// A copy of `text`. `None` when there is no memory for it; the standard library's copy would abort.
pub(crate) fn text(text: &str) -> Option<String> {
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
