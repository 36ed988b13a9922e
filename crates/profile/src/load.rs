//! A profile's events into tables.
//!
//! Numbers in the file are those that its writer gave. Here they are mapped: code objects become
//! functions, and stack nodes that differ only in the instruction but not in the line become one.
//! What a lost block defined has no entry in the map and reads as [`UNKNOWN`].

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::io::Read;
use std::path::Path;

use foldhash::fast::RandomState;

use crate::event::{
    Allocation, Code, Collection, CpuSample, Event, FrameKind, Label, LabelSetId, Lines, LostKind,
    Memory, Nanos, Node, NodeId, SampleId, Survival, ThreadId, TypeId,
};
use crate::lines::LineTable;
use crate::meta::Unit;
use crate::model::{
    Damage, Fate, Frame, Function, LabelSet, Profile, Sample, Shape, StackNode, ThreadNames,
    TimeSample, TypeNames,
};
use crate::reader::{Block, ReadError, Reader};
use crate::sources::Sources;

/// The name of a function whose definition was lost.
pub const UNKNOWN: &str = "[unknown]";

impl Profile {
    /// Reads a profile whole.
    ///
    /// # Errors
    /// If the file cannot be read or is not a profile. Damage is not an error: see
    /// [`Profile::damage`].
    pub fn load(path: &Path) -> Result<Self, ReadError> {
        Self::load_with(path, |_, _| ())
    }

    /// As [`load`](Self::load); calls `progress` after each block with the bytes that are read
    /// and the bytes in all.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: &Path, mut progress: impl FnMut(u64, u64)) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        Self::read_with(file, |done| progress(done, total))
    }

    /// Reads a profile from anything. `input` needs no buffer of its own.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(input: impl Read) -> Result<Self, ReadError> {
        Self::read_with(input, |_| ())
    }

    fn read_with(input: impl Read, mut progress: impl FnMut(u64)) -> Result<Self, ReadError> {
        let mut reader = Reader::from_reader(input)?;
        let mut loader = Loader::new(Self::empty(reader.meta().clone()));
        while let Some(block) = reader.next_block()? {
            loader.block(block);
            progress(reader.position());
        }
        Ok(loader.finish(reader.damage()))
    }
}

/// Numbers of one kind of definition, from those in the file to those of the tables. There is
/// one run for each stretch without a gap.
struct Numbers {
    runs: Vec<(u32, Vec<u32>)>,
    next: u32,
}

impl Numbers {
    fn starting_at(first: u32) -> Self {
        Self {
            runs: Vec::new(),
            next: first,
        }
    }

    /// The next definition has this number in the file.
    fn skip_to(&mut self, next: u32) {
        if self.next != next {
            self.next = next;
            self.runs.push((next, Vec::new()));
        }
    }

    fn define(&mut self, number: u32) {
        if self.runs.is_empty() {
            self.runs.push((self.next, Vec::new()));
        }
        if let Some((_, numbers)) = self.runs.last_mut() {
            numbers.push(number);
        }
        self.next = self.next.saturating_add(1);
    }

    #[inline]
    fn get(&self, number: u32) -> Option<u32> {
        let (first, numbers) = self.runs.last()?;
        if number >= *first {
            return numbers.get((number - first) as usize).copied();
        }
        let at = self.runs.partition_point(|(first, _)| *first <= number);
        let (first, numbers) = self.runs.get(at.checked_sub(1)?)?;
        numbers.get((number - first) as usize).copied()
    }
}

/// Distinct values, numbered in the order in which they first came.
struct Interner<T> {
    numbers: HashMap<T, u32, RandomState>,
}

impl<T: Hash + Eq + Clone> Interner<T> {
    fn new() -> Self {
        Self {
            numbers: HashMap::default(),
        }
    }

    fn intern(&mut self, table: &mut Vec<T>, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with_key(|value| {
            table.push(value.clone());
            table.len() as u32 - 1
        })
    }
}

/// A code object's lines, decoded when they are first asked for.
enum CodeLines {
    Direct,
    Raw(Box<[u8]>),
    Decoded(LineTable),
}

struct LoadedCode {
    function: u32,
    lines: CodeLines,
}

struct Loader {
    profile: Profile,
    codes: Vec<LoadedCode>,
    code_numbers: Numbers,
    node_numbers: Numbers,
    type_numbers: Numbers,
    thread_numbers: Numbers,
    label_set_numbers: Numbers,
    sources: Sources,
    functions: Interner<Function>,
    frames: Interner<Frame>,
    nodes: HashMap<StackNode, u32, RandomState>,
    unknown_thread: Option<ThreadId>,
    /// For each stretch without a gap, the number in the file of its first sample and that in the
    /// tables.
    sample_runs: Vec<(u32, u32)>,
    /// The number in the file of the next allocation.
    next_sample: u32,
    /// Samples from this one on are young.
    youth: u32,
    last_time: Nanos,
    damage: Vec<Damage>,
}

impl Loader {
    fn new(profile: Profile) -> Self {
        Self {
            sources: Sources::of(&profile),
            profile,
            codes: Vec::new(),
            code_numbers: Numbers::starting_at(0),
            node_numbers: Numbers::starting_at(1),
            type_numbers: Numbers::starting_at(1),
            thread_numbers: Numbers::starting_at(0),
            label_set_numbers: Numbers::starting_at(1),
            functions: Interner::new(),
            frames: Interner::new(),
            nodes: HashMap::default(),
            unknown_thread: None,
            sample_runs: vec![(0, 0)],
            next_sample: 0,
            youth: 0,
            last_time: Nanos(0),
            damage: Vec::new(),
        }
    }

    fn block(&mut self, mut block: Block<'_>) {
        let gap = block.gap();
        if gap.any {
            let firsts = block.firsts();
            self.code_numbers.skip_to(firsts.code);
            self.node_numbers.skip_to(firsts.node);
            self.type_numbers.skip_to(firsts.type_id);
            self.thread_numbers.skip_to(firsts.thread);
            self.label_set_numbers.skip_to(firsts.label_set);
            self.next_sample = firsts.sample;
            let here = self.profile.samples.len() as u32;
            self.sample_runs.push((firsts.sample, here));
            // A collection may have been lost too: no sample is known to be young.
            self.youth = here;
            let samples = gap.samples;
            self.damage.push(Damage {
                offset: block.offset(),
                what: format!("what came before is missing, {samples} samples among it"),
            });
        }
        while let Some(event) = block.next_event() {
            self.event(event);
        }
    }

    #[inline]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Allocation(allocation) => self.allocation(&allocation),
            Event::Freed(sample, time) => self.freed(sample, time),
            Event::Node(node) => self.node(&node),
            Event::Code(code) => self.code(&code),
            Event::Type(names) => {
                self.type_numbers.define(self.profile.types.len() as u32);
                self.profile.types.push(TypeNames {
                    name: names.name.to_owned(),
                    native: names.native.to_owned(),
                });
            }
            Event::Thread(thread) => {
                self.thread_numbers
                    .define(self.profile.threads.len() as u32);
                self.profile.threads.push(ThreadNames {
                    os_id: thread.os_id,
                    name: thread.name.to_owned(),
                });
            }
            Event::ThreadName(thread, name) => {
                if let Some(thread) = self.thread_numbers.get(thread.0) {
                    name.clone_into(&mut self.profile.threads[thread as usize].name);
                }
            }
            Event::Label(label) => self.label(&label),
            Event::Source(id, definition) => self.sources.define(&mut self.profile, id, definition),
            Event::Period(id, period) => self.sources.set_period(&mut self.profile, id, period),
            Event::Extension(extension) => self.sources.skip_event(extension.kind),
            Event::Cpu(sample) => self.cpu(&sample),
            Event::Collection(collection) => self.collection(collection),
            Event::Memory(memory) => self.memory(memory),
            Event::Lost(kind, count) => self.lost(kind, count),
            Event::End(end) => {
                self.profile.complete = true;
                self.profile.end = end.time;
                self.profile.allocated = end.allocated;
            }
        }
    }

    fn saw(&mut self, time: Nanos) {
        self.last_time = self.last_time.max(time);
    }

    fn code(&mut self, code: &Code<'_>) {
        let function = Function {
            name: code.name.to_owned(),
            file: code.file.to_owned(),
            first_line: code.first_line,
        };
        let function = self.functions.intern(&mut self.profile.functions, function);
        let lines = match code.lines {
            Lines::Direct | Lines::Image(_) => CodeLines::Direct,
            Lines::LocationTable(table) => CodeLines::Raw(table.into()),
        };
        self.code_numbers.define(self.codes.len() as u32);
        self.codes.push(LoadedCode { function, lines });
    }

    fn node(&mut self, node: &Node) {
        let parent = self.stack(node.parent);
        let frame = match self.code_numbers.get(node.code.0) {
            Some(code) => {
                let code = &mut self.codes[code as usize];
                let first_line = self.profile.functions[code.function as usize].first_line;
                Frame {
                    function: code.function,
                    line: code.lines.line(node.position, first_line),
                    kind: node.kind,
                }
            }
            None => self.unknown_frame(),
        };
        let node = self.place(parent, frame);
        self.node_numbers.define(node.0);
    }

    fn place(&mut self, parent: NodeId, frame: Frame) -> NodeId {
        let frame = self.frames.intern(&mut self.profile.frames, frame);
        let stacks = &mut self.profile.stacks;
        let node = StackNode { parent, frame };
        NodeId(*self.nodes.entry(node).or_insert_with(|| {
            stacks.push(node);
            stacks.len() as u32 - 1
        }))
    }

    fn unknown_frame(&mut self) -> Frame {
        let function = Function {
            name: UNKNOWN.to_owned(),
            file: String::new(),
            first_line: 0,
        };
        Frame {
            function: self.functions.intern(&mut self.profile.functions, function),
            line: 0,
            kind: FrameKind::Note,
        }
    }

    #[inline]
    fn stack(&mut self, stack: NodeId) -> NodeId {
        if stack == NodeId::ROOT {
            return stack;
        }
        match self.node_numbers.get(stack.0) {
            Some(node) => NodeId(node),
            None => {
                let frame = self.unknown_frame();
                self.place(NodeId::ROOT, frame)
            }
        }
    }

    #[inline]
    fn thread(&mut self, thread: ThreadId) -> ThreadId {
        if let Some(thread) = self.thread_numbers.get(thread.0) {
            return ThreadId(thread);
        }
        let threads = &mut self.profile.threads;
        *self.unknown_thread.get_or_insert_with(|| {
            threads.push(ThreadNames {
                os_id: 0,
                name: UNKNOWN.to_owned(),
            });
            ThreadId(threads.len() as u32 - 1)
        })
    }

    fn label(&mut self, label: &Label<'_>) {
        let parent = self.labels(label.parent);
        let number = self.profile.label_sets.len() as u32;
        self.label_set_numbers.define(number);
        self.profile.label_sets.push(LabelSet {
            parent,
            key: label.key.to_owned(),
            value: label.value.to_owned(),
        });
    }

    /// What a lost block defined has no labels here.
    #[inline]
    fn labels(&self, set: LabelSetId) -> LabelSetId {
        if set == LabelSetId::NONE {
            return set;
        }
        LabelSetId(self.label_set_numbers.get(set.0).unwrap_or(0))
    }

    fn cpu(&mut self, sample: &CpuSample) {
        self.saw(sample.time);
        let Some(sampling) = self.sources.sampling(sample.source, Unit::Nanoseconds) else {
            return;
        };
        let sample = TimeSample {
            time: sample.time,
            thread: self.thread(sample.thread),
            stack: self.stack(sample.stack),
            labels: self.labels(sample.labels),
            sampling,
        };
        self.profile.cpu.push(sample);
    }

    /// The sample that comes next in the file is not in the tables.
    fn leave_out(&mut self) {
        let here = self.profile.samples.len() as u32;
        match self.sample_runs.last_mut() {
            Some(run) if run.1 == here => run.0 = self.next_sample,
            _ => self.sample_runs.push((self.next_sample, here)),
        }
    }

    #[inline]
    fn allocation(&mut self, allocation: &Allocation) {
        self.saw(allocation.time);
        self.next_sample = self.next_sample.saturating_add(1);
        let Some(sampling) = self.sources.sampling(allocation.source, Unit::Bytes) else {
            return self.leave_out();
        };
        let sample = Sample {
            time: allocation.time,
            thread: self.thread(allocation.thread),
            stack: self.stack(allocation.stack),
            shape: Shape {
                size: allocation.size,
                block: allocation.block,
                points: allocation.points,
                sampling,
            },
            labels: self.labels(allocation.labels),
            type_id: TypeId(self.type_numbers.get(allocation.type_id.0).unwrap_or(0)),
            fate: match allocation.survival {
                Survival::Unsaid => Fate::StillLive,
                Survival::DiedYoung => Fate::DiedYoung,
                Survival::Survived => Fate::Survived,
            },
            freed: None,
        };
        // A file numbers its samples in 32 bits, so there is room.
        self.profile.samples.push(sample);
    }

    #[inline]
    fn freed(&mut self, sample: SampleId, time: Nanos) {
        self.saw(time);
        let Some(sample) = self.sample(sample) else {
            return;
        };
        let fate = match self.profile.samples.fate(sample) {
            Fate::StillLive if sample.0 >= self.youth => Fate::DiedYoung,
            Fate::DiedYoung => Fate::DiedYoung,
            Fate::StillLive | Fate::Survived | Fate::Freed => Fate::Freed,
        };
        self.profile.samples.set_fate(sample, fate, Some(time));
    }

    /// Where a sample is in the tables; `None` if it was lost.
    #[inline]
    fn sample(&self, sample: SampleId) -> Option<SampleId> {
        let runs = &self.sample_runs;
        let run = runs.partition_point(|&(first, _)| first <= sample.0);
        let run = run.checked_sub(1)?;
        let (first, here) = runs[run];
        let end = runs
            .get(run + 1)
            .map_or(self.profile.samples.len() as u32, |&(_, next)| next);
        let here = here.checked_add(sample.0 - first)?;
        (here < end).then_some(SampleId(here))
    }

    fn collection(&mut self, collection: Collection) {
        self.saw(Nanos(
            collection.start.0.saturating_add(collection.duration.0),
        ));
        if collection.kind.ends_youth() {
            self.youth = self.profile.samples.len() as u32;
        }
        let thread = self.thread(collection.thread);
        self.profile.collections.push(Collection {
            thread,
            ..collection
        });
    }

    fn memory(&mut self, memory: Memory) {
        self.saw(memory.time);
        self.profile.memory.push(memory);
    }

    fn lost(&mut self, kind: LostKind, count: u64) {
        let lost = &mut self.profile.lost;
        match lost.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None if count > 0 => lost.push((kind, count)),
            None => (),
        }
    }

    fn finish(mut self, damage: Vec<Damage>) -> Profile {
        if !self.profile.complete {
            self.profile.end = self.last_time;
        }
        self.profile.damage = damage;
        self.profile.damage.append(&mut self.damage);
        self.profile.damage.sort_by_key(|damage| damage.offset);
        self.profile.meta.notes.extend(self.sources.notes());
        self.profile
    }
}

impl CodeLines {
    fn line(&mut self, position: u32, first_line: u32) -> u32 {
        if let Self::Raw(table) = self {
            *self = Self::Decoded(LineTable::decode(table, first_line));
        }
        match self {
            Self::Decoded(table) => table.line(position),
            _ => position,
        }
    }
}
