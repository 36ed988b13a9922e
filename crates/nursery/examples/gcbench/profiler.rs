//! Writes what the heap reports into a profile.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::time::Instant;

use nthbyte_nursery::{
    HeapCollection, NurseryStatistics, Observer, SampleId, SampledObject, Type, TypeId,
};
use nthbyte_profile::event::{
    self, Allocation, Code, CodeId, CollectionKind, End, Event, FrameKind, LabelSetId, Lines,
    Memory, Nanos, Node, NodeId, SourceId, Survival, Thread, ThreadId, TypeName,
};
use nthbyte_profile::{Distances, Meta, Method, Source, Writer};

use crate::trees::Stack;

/// A sample whose type and survival are not known yet.
struct Pending {
    id: SampleId,
    time: Nanos,
    stack: NodeId,
    size: u64,
    points: u32,
}

pub struct Profiler<W: Write> {
    writer: Writer<W>,
    /// The first error of the writer.
    result: io::Result<()>,
    start: Instant,
    /// The source file of all functions.
    file: &'static str,
    /// Functions that run, with their lines, outermost first.
    frames: Vec<(CodeId, u32)>,
    codes: HashMap<&'static str, CodeId>,
    nodes: HashMap<(NodeId, CodeId, u32), NodeId>,
    pending: VecDeque<Pending>,
    collection_began: Nanos,
}

impl<W: Write> Profiler<W> {
    /// # Errors
    /// If `out` cannot be written to.
    pub fn new(
        out: W,
        file: &'static str,
        types: &[Type],
        period: u64,
        distances: Distances,
    ) -> io::Result<Self> {
        let meta = Meta {
            nthbyte: env!("CARGO_PKG_VERSION").into(),
            interpreter: "nthbyte-nursery".into(),
            command: std::env::args().collect(),
            pid: std::process::id(),
            sources: Source::of_session(Method::NurseryLimit, distances, period, None),
            ..Meta::default()
        };
        let mut profiler = Self {
            writer: Writer::new(out, &meta)?,
            result: Ok(()),
            start: Instant::now(),
            file,
            frames: Vec::new(),
            codes: HashMap::new(),
            nodes: HashMap::new(),
            pending: VecDeque::new(),
            collection_began: Nanos(0),
        };
        for Type { name, .. } in types {
            profiler.write(&Event::Type(TypeName { name, native: "" }));
        }
        profiler.write(&Event::Thread(Thread {
            os_id: std::process::id().into(),
            name: "main",
        }));
        Ok(profiler)
    }

    /// Ends the profile.
    ///
    /// # Errors
    /// The first error of the writer.
    pub fn finish(self, allocated: u64) -> io::Result<W> {
        let time = self.now();
        self.result?;
        self.writer.finish(End {
            time,
            allocated: Some(allocated),
        })
    }

    fn write(&mut self, event: &Event<'_>) {
        if self.result.is_ok() {
            self.result = self.writer.write(event);
        }
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The node of the present stack. New nodes are defined.
    fn stack(&mut self) -> NodeId {
        let mut parent = NodeId::ROOT;
        for place in 0..self.frames.len() {
            let (code, position) = self.frames[place];
            let next = NodeId(u32::try_from(self.nodes.len() + 1).expect("fewer than 2^32 nodes"));
            let node = *self.nodes.entry((parent, code, position)).or_insert(next);
            if node == next {
                self.write(&Event::Node(Node {
                    parent,
                    code,
                    position,
                    kind: FrameKind::Interpreted,
                }));
            }
            parent = node;
        }
        parent
    }
}

impl<W: Write> Stack for Profiler<W> {
    fn enter(&mut self, function: &'static str, first_line: u32) {
        let next = CodeId(self.codes.len() as u32);
        let code = *self.codes.entry(function).or_insert(next);
        if code == next {
            self.write(&Event::Code(Code {
                name: function,
                file: self.file,
                first_line,
                lines: Lines::Direct,
            }));
        }
        self.frames.push((code, first_line));
    }

    fn at(&mut self, line: u32) {
        if let Some(frame) = self.frames.last_mut() {
            frame.1 = line;
        }
    }

    fn leave(&mut self) {
        self.frames.pop();
    }
}

impl<W: Write> Observer for Profiler<W> {
    fn sampled(&mut self, sample: SampledObject) {
        let stack = self.stack();
        let (id, size, points, time) = (sample.id, sample.size as u64, sample.points, self.now());
        self.pending.push_back(Pending {
            id,
            time,
            stack,
            size,
            points,
        });
    }

    fn settled(&mut self, id: SampleId, type_id: TypeId, survived: bool) {
        let sample = self.pending.pop_front().expect("it was sampled before");
        assert_eq!(
            sample.id, id,
            "nothing is pinned, so samples are settled in their order"
        );
        self.write(&Event::Allocation(Allocation {
            time: sample.time,
            thread: ThreadId(0),
            stack: sample.stack,
            size: sample.size,
            block: sample.size,
            points: sample.points,
            // Type 0 of a profile means "not known".
            type_id: event::TypeId(u32::from(type_id.0) + 1),
            labels: LabelSetId::NONE,
            source: SourceId::ALLOCATIONS,
            survival: if survived {
                Survival::Survived
            } else {
                Survival::DiedYoung
            },
        }));
    }

    fn freed(&mut self, id: SampleId) {
        let id = event::SampleId(u32::try_from(id.0).expect("fewer than 2^32 samples"));
        self.write(&Event::Freed(id, self.now()));
    }

    fn begins(&mut self, _: HeapCollection) {
        self.collection_began = self.now();
    }

    fn ended(&mut self, collection: HeapCollection, statistics: NurseryStatistics) {
        let (start, time) = (self.collection_began, self.now());
        self.write(&Event::Collection(event::Collection {
            start,
            duration: Nanos(time.0 - start.0),
            thread: ThreadId(0),
            kind: match collection {
                HeapCollection::Minor => CollectionKind::Minor,
                HeapCollection::Major => CollectionKind::Major,
            },
            freed_objects: None,
            bytes_before: None,
            bytes_after: Some(statistics.used as u64),
        }));
        self.write(&Event::Memory(Memory {
            time,
            heap_used: Some(statistics.used as u64),
            heap_reserved: Some(statistics.reserved as u64),
            rss: None,
            peak_rss: None,
            allocated: Some(statistics.allocated),
        }));
    }
}
