//! Converts a profile's events to tables.
//!
//! The writer of a file has numbered its definitions. This module maps these numbers to numbers in
//! the tables: code objects become functions, and stack nodes that differ only in the instruction,
//! but not in the line, become one node. Definitions in a lost block have no entry in the map and
//! read as [`UNKNOWN`].

mod code;
mod files;
mod forget;
mod joined;
mod lost;
mod numbers;
mod parts;
mod thin;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use foldhash::fast::RandomState;

use crate::event::{
    Allocation, Collection, CpuSample, End, Event, FrameKind, Label, LabelSetId, LostKind, Memory,
    Nanos, Node, NodeId, SampleId, Survival, ThreadId, TypeId,
};
use crate::meta::Unit;
use crate::model::{
    Damage, Frame, Function, Lifetime, Profile, Shape, ShapeId, Site, SiteId, StackNode,
    ThreadNames, TimeSample, TypeNames,
};
use crate::processes::ProcessId;
use crate::reader::{Block, ReadError, Reader};
use crate::sources::Sources;
use code::LoadedCode;
use files::Session;
use lost::Losses;
use numbers::{Interner, Numbers};
use parts::Parts;
use thin::Thinning;

/// A site of a block that has no sample yet.
const NO_SITE: (SiteId, ShapeId) = (SiteId(u32::MAX), ShapeId(u32::MAX));

/// The name of a function whose definition was lost.
pub const UNKNOWN: &str = "[unknown]";

impl Profile {
    /// Reads a whole profile.
    ///
    /// # Errors
    /// If the file cannot be read or is not a profile. Damage is not an error: see
    /// [`Profile::damage`].
    pub fn load(path: &Path) -> Result<Self, ReadError> {
        Self::load_with(path, |_, _| ())
    }

    /// Like [`load`](Self::load), but calls `progress` after each block with the number of bytes
    /// read and the total number of bytes.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(path: &Path, mut progress: impl FnMut(u64, u64)) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let total = file.metadata()?.len();
        Self::read_with(file, |done| progress(done, total))
    }

    /// Reads a profile from any input. `input` needs no buffer of its own.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(input: impl Read) -> Result<Self, ReadError> {
        Self::read_with(input, |_| ())
    }

    fn read_with(input: impl Read, progress: impl FnMut(u64)) -> Result<Self, ReadError> {
        let reader = Reader::from_reader(input)?;
        let mut loader = Loader::default();
        loader.file(reader, Nanos(0), progress)?;
        Ok(loader.finish())
    }
}

/// Reads one file after another into one profile, so that only the profile is in memory. Numbers of
/// a file are valid until its end; all files share functions, frames, stacks, types and sources.
#[derive(Clone)]
pub(crate) struct Loader {
    profile: Profile,
    /// The start of the file's session, in the profile's time.
    start: Nanos,
    /// The file's first process, and the process of the next thread definitions.
    first_process: usize,
    process: ProcessId,
    codes: Vec<LoadedCode>,
    code_numbers: Numbers,
    node_numbers: Numbers,
    type_numbers: Numbers,
    thread_numbers: Numbers,
    label_set_numbers: Numbers,
    /// The set with the tags of the file's process, which samples without labels have.
    tags: LabelSetId,
    sources: Sources,
    functions: Interner,
    /// The functions of images, by path and build id.
    images: HashMap<(String, String), u32, RandomState>,
    frames: Interner,
    types: Interner,
    nodes: HashMap<StackNode, u32, RandomState>,
    unknown_thread: Option<ThreadId>,
    /// For each part without a gap, the numbers of its first sample in the file and in the tables.
    sample_runs: Vec<(u32, u32)>,
    /// The number of the next allocation in the file.
    next_sample: u32,
    /// What continues the session of the file before.
    parts: Parts,
    /// The samples that were lost.
    losses: Losses,
    thinning: Thinning,
    /// The sites of the current block that have samples, each with the shape of its last one.
    block_sites: Vec<(SiteId, ShapeId)>,
    /// The first young sample; all later samples are young too.
    youth: u32,
    last_time: Nanos,
    /// Data of the current file.
    session: Session,
    damage: Vec<Damage>,
    /// Damage of all files, with their first processes.
    all_damage: Vec<(ProcessId, Damage)>,
    files: u32,
}

impl Default for Loader {
    fn default() -> Self {
        Self {
            sources: Sources::default(),
            start: Nanos(0),
            first_process: 0,
            process: ProcessId::FIRST,
            codes: Vec::new(),
            code_numbers: Numbers::starting_at(0),
            node_numbers: Numbers::starting_at(1),
            type_numbers: Numbers::starting_at(1),
            thread_numbers: Numbers::starting_at(0),
            label_set_numbers: Numbers::starting_at(1),
            tags: LabelSetId::NONE,
            functions: Interner::new(),
            images: HashMap::default(),
            frames: Interner::new(),
            types: Interner::new(),
            nodes: HashMap::default(),
            unknown_thread: None,
            sample_runs: vec![(0, 0)],
            next_sample: 0,
            parts: Parts::default(),
            losses: Losses::default(),
            thinning: Thinning::default(),
            block_sites: Vec::new(),
            youth: 0,
            last_time: Nanos(0),
            session: Session::default(),
            damage: Vec::new(),
            all_damage: Vec::new(),
            files: 0,
            profile: Profile::empty_of(Vec::new()),
        }
    }
}

impl Loader {
    /// Reads a file to its end. `start`: the start of its session, in the profile's time.
    pub(crate) fn file(
        &mut self,
        mut reader: Reader<impl Read>,
        start: Nanos,
        mut progress: impl FnMut(u64),
    ) -> Result<(), ReadError> {
        self.begin(reader.meta(), start);
        while let Some(block) = reader.next_block()? {
            self.block(block);
            progress(reader.position());
        }
        self.end(reader.damage());
        Ok(())
    }

    /// Reads a block.
    pub(crate) fn block(&mut self, block: Block<'_>) {
        self.block_with(block, |_| ());
    }

    /// The same; passes each event but allocations to `seen`, too.
    #[inline]
    pub(crate) fn block_with(&mut self, mut block: Block<'_>, mut seen: impl FnMut(&Event<'_>)) {
        let gap = block.gap();
        if gap.any {
            let firsts = block.firsts();
            self.code_numbers.skip_to(firsts.code);
            self.node_numbers.skip_to(firsts.node);
            self.type_numbers.skip_to(firsts.type_id);
            self.thread_numbers.skip_to(firsts.thread);
            self.label_set_numbers.skip_to(firsts.label_set);
            self.next_sample = firsts.sample;
            self.parts.skip_to(firsts.sample);
            let here = self.profile.samples.len() as u32;
            self.sample_runs.push((firsts.sample, here));
            // A collection may have been lost too: no sample is known to be young.
            self.youth = self.youth.max(here);
            let samples = match gap.samples {
                1 => "1 sample".to_owned(),
                several => format!("{several} samples"),
            };
            self.damage.push(Damage {
                offset: block.offset(),
                what: format!("what came before is missing, {samples} among it"),
            });
        }
        self.block_sites.clear();
        while let Some(event) = block.next_event() {
            match event {
                Event::Allocation(allocation) => self.allocation(&allocation, block.last_site()),
                event => {
                    seen(&event);
                    self.event(event);
                }
            }
        }
        self.end_block();
    }

    #[inline]
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Allocation(_) => unreachable!("a block's own pass takes them"),
            Event::Freed(sample, time) => self.freed(sample, time),
            Event::Node(node) => self.node(&node),
            Event::Code(code) => self.code(&code),
            Event::Type(names) => {
                let names = TypeNames {
                    name: names.name.to_owned(),
                    native: names.native.to_owned(),
                };
                let number = self.types.intern(&mut self.profile.types, names);
                self.type_numbers.define(number);
            }
            Event::Thread(thread) => {
                if let Some(known) = self.thread_of_session(&thread) {
                    self.thread_numbers.define(known.0);
                    return;
                }
                let names = ThreadNames {
                    os_id: thread.os_id,
                    name: thread.name.to_owned(),
                };
                let number = self.profile.push_thread(self.process, names);
                self.thread_numbers.define(number.0);
            }
            Event::ThreadName(thread, name) => {
                if let Some(thread) = self.thread_numbers.get(thread.0) {
                    name.clone_into(&mut self.profile.threads[thread as usize].name);
                }
            }
            Event::Label(label) => self.label(&label),
            Event::Source(id, definition) => self.sources.define(&mut self.profile, id, definition),
            Event::Period(id, period) => self.sources.set_period(&mut self.profile, id, period),
            Event::Extension(extension) => self.extension(&extension),
            Event::Cpu(sample) => self.cpu(&sample),
            Event::Collection(collection) => self.collection(collection),
            Event::Memory(memory) => self.memory(memory),
            Event::Lost(kind, count) => {
                self.lost(kind, count);
                if kind == LostKind::Allocations {
                    self.scale_for(count);
                }
            }
            Event::End(end) => {
                self.session.end = Some(End {
                    time: self.at(end.time),
                    ..end
                });
            }
        }
    }

    /// Converts a time of the file to the profile's time.
    #[inline]
    fn at(&self, time: Nanos) -> Nanos {
        Nanos(time.0.saturating_add(self.start.0))
    }

    /// Converts the time of an event, and notes that the profile lasts at least until then.
    #[inline]
    fn saw(&mut self, time: Nanos) -> Nanos {
        let time = self.at(time);
        self.last_time = self.last_time.max(time);
        time
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
        let (profile, process) = (&mut self.profile, self.process);
        *self.unknown_thread.get_or_insert_with(|| {
            let names = ThreadNames {
                os_id: 0,
                name: UNKNOWN.to_owned(),
            };
            profile.push_thread(process, names)
        })
    }

    fn label(&mut self, label: &Label<'_>) {
        let parent = self.labels(label.parent);
        let set = self.profile.push_label(parent, label.key, label.value);
        self.label_set_numbers.define(set.0);
    }

    /// Label sets from a lost block become the empty set, which has the process's tags.
    #[inline]
    fn labels(&self, set: LabelSetId) -> LabelSetId {
        let known = || self.label_set_numbers.get(set.0).map(LabelSetId);
        (set != LabelSetId::NONE)
            .then(known)
            .flatten()
            .unwrap_or(self.tags)
    }

    /// The site of an allocation in the tables. The block remembers it under its number there, unless what it refers to may
    /// still be defined.
    #[cold]
    fn site(&mut self, allocation: &Allocation, number: usize) -> SiteId {
        let type_id = self.type_numbers.get(allocation.type_id.0);
        let is_defined = self.thread_numbers.get(allocation.thread.0).is_some()
            && (allocation.stack == NodeId::ROOT
                || self.node_numbers.get(allocation.stack.0).is_some())
            && (allocation.labels == LabelSetId::NONE
                || self.label_set_numbers.get(allocation.labels.0).is_some())
            && (allocation.type_id == TypeId::UNKNOWN || type_id.is_some());
        let site = Site {
            thread: self.thread(allocation.thread),
            stack: self.stack(allocation.stack),
            labels: self.labels(allocation.labels),
            type_id: TypeId(type_id.unwrap_or(0)),
        };
        let site = self.profile.samples.intern_site(site);
        if is_defined {
            let len = self.block_sites.len().max(number + 1);
            self.block_sites.resize(len, NO_SITE);
            self.block_sites[number].0 = site;
        }
        site
    }

    fn cpu(&mut self, sample: &CpuSample) {
        let time = self.saw(sample.time);
        let Some(sampling) = self.sources.sampling(sample.source, Unit::Nanoseconds) else {
            return;
        };
        let sample = TimeSample {
            time,
            thread: self.thread(sample.thread),
            stack: self.stack(sample.stack),
            labels: self.labels(sample.labels),
            sampling,
        };
        self.profile.cpu.push(sample);
    }

    /// Notes that the next sample of the file is not in the tables.
    fn leave_out(&mut self) {
        let here = self.profile.samples.len() as u32;
        match self.sample_runs.last_mut() {
            Some(run) if run.1 == here => run.0 = self.next_sample,
            _ => self.sample_runs.push((self.next_sample, here)),
        }
    }

    /// `site`: its number in the block.
    #[inline]
    fn allocation(&mut self, allocation: &Allocation, site: usize) {
        let time = self.saw(allocation.time);
        if self.parts.is_carrying() && self.is_known_carried() {
            return;
        }
        self.next_sample = self.next_sample.saturating_add(1);
        let Some(sampling) = self.sources.sampling(allocation.source, Unit::Bytes) else {
            return self.leave_out();
        };
        let shape = Shape {
            size: allocation.size,
            block: allocation.block,
            points: allocation.points,
            sampling: self.said_to_be_lost(sampling),
        };
        let lifetime = match allocation.survival {
            Survival::Unsaid => Lifetime::StillLive,
            Survival::DiedYoung => Lifetime::DiedYoung,
            Survival::Survived => Lifetime::Survived,
        };
        let known = self.block_sites.get(site).copied().unwrap_or(NO_SITE);
        let (number, mut last) = match known {
            NO_SITE => (self.site(allocation, site), known.1),
            known => known,
        };
        let samples = &mut self.profile.samples;
        let pushed = samples.push_at(time, number, shape, &mut last, lifetime);
        if let Some((_, of_site)) = self.block_sites.get_mut(site) {
            *of_site = last;
        }
        // A file numbers its samples in 32 bits, so the samples of one file always fit.
        if pushed.is_none() {
            self.leave_out();
            self.lost(LostKind::Allocations, 1);
        }
    }

    #[inline]
    fn freed(&mut self, sample: SampleId, time: Nanos) {
        let time = self.saw(time);
        let Some(sample) = self.sample(sample) else {
            return;
        };
        let lifetime = match self.profile.samples.lifetime(sample) {
            Lifetime::StillLive if sample.0 >= self.youth => Lifetime::DiedYoung,
            Lifetime::DiedYoung => Lifetime::DiedYoung,
            Lifetime::StillLive | Lifetime::Survived | Lifetime::Freed => Lifetime::Freed,
        };
        self.profile
            .samples
            .set_lifetime(sample, lifetime, Some(time));
    }

    /// The place of a sample in the tables; `None` if it was lost.
    #[inline]
    fn sample(&self, sample: SampleId) -> Option<SampleId> {
        if let Some(&here) = self.parts.carried.get(sample.index()) {
            return here;
        }
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
        self.saw(collection.end());
        if collection.kind.ends_youth() {
            self.youth = self.profile.samples.len() as u32;
        }
        let thread = self.thread(collection.thread);
        self.profile.collections.push(Collection {
            start: self.at(collection.start),
            thread,
            ..collection
        });
    }

    fn memory(&mut self, memory: Memory) {
        let time = self.saw(memory.time);
        self.session.memory.push(Memory { time, ..memory });
    }

    fn lost(&mut self, kind: LostKind, count: u64) {
        if kind != LostKind::CpuSamples {
            self.lost_of_process(count);
        }
        let lost = &mut self.profile.lost;
        match lost.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None if count > 0 => lost.push((kind, count)),
            None => (),
        }
    }
}
