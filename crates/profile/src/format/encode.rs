//! Encodes events into the columns of one block.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::changed_sources::ChangedSources;
use super::{
    COLUMNS, Column, Context, Firsts, MAX_EXTENSION, MAX_TABLE, MAX_TEXT, Site, kind, likely_block,
};
use crate::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, CpuSample, Event, Extension, Label,
    Lines, Memory, Nanos, Node, SampleId, SourceDefinition, SourceId, Survival, Thread, TypeName,
};
use crate::lines::{line_at, without_columns};
use crate::processes::{self, TOTALS};
use crate::varint::{put, zigzag};

/// A block is full when its columns have twice as many bytes as all earlier blocks in the file (in the file the block
/// is then about as long as these), but at least this many. So only a part of a file is lost if it ends early.
const FIRST_BYTES: usize = 2 << 10;
/// The upper limit of the same size.
const FULL_BYTES: usize = 128 << 10;
/// A block is also full when it has this many sites or contexts. This limits their tables.
const FULL_SITES: usize = 4 << 10;

/// A state to which the encoder can return: the end of the blocks that are written.
#[derive(Debug)]
pub(crate) struct Mark {
    next: Firsts,
    written: usize,
    changed: ChangedSources,
}

/// The columns of the current block.
#[derive(Debug)]
pub(crate) struct Encoder {
    tick: u64,
    firsts: Firsts,
    next: Firsts,
    columns: [Vec<u8>; COLUMNS],
    len: usize,
    /// The block is full from this `len` on: 0 once it has [`FULL_SITES`].
    full_len: usize,
    events: usize,
    /// Total length of all earlier blocks in the file.
    written: usize,
    /// Sources that each block must repeat.
    changed: ChangedSources,
    /// First line and location table of each code object that has a table. Lines are computed here and not stored as
    /// tables, because the tables, even compressed, are larger than all other data in a profile of a short run.
    tables: Vec<Option<(u32, Box<[u8]>)>>,
    /// Numbers of the contexts of this block, and the last one.
    contexts: HashMap<Context, u32, FixedState>,
    last_context: Option<(Context, u32)>,
    /// Numbers of the sites of this block.
    sites: HashMap<Site, u32, FixedState>,
    /// The last requested size of each site.
    last_sizes: Vec<u64>,
    last_allocation: u64,
    last_freed: u64,
    last_cpu: u64,
    last_collection: u64,
    /// The last values of a collection's totals; an absent total keeps its previous value.
    collection_totals: [u64; 3],
    last_memory: u64,
    memory_totals: [u64; TOTALS],
}

impl Encoder {
    pub(crate) fn new(tick_nanos: u32) -> Self {
        Self {
            tick: u64::from(tick_nanos.max(1)),
            firsts: Firsts::START,
            next: Firsts::START,
            columns: Default::default(),
            len: 0,
            full_len: FIRST_BYTES,
            events: 0,
            written: 0,
            changed: ChangedSources::default(),
            tables: Vec::new(),
            contexts: HashMap::default(),
            last_context: None,
            sites: HashMap::default(),
            last_sizes: Vec::new(),
            last_allocation: 0,
            last_freed: 0,
            last_cpu: 0,
            last_collection: 0,
            collection_totals: [0; 3],
            last_memory: 0,
            memory_totals: [0; TOTALS],
        }
    }

    /// Bytes in the columns.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Events in the block.
    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// Whether the block should end here.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.full_len
    }

    pub(crate) fn firsts(&self) -> Firsts {
        self.firsts
    }

    pub(crate) fn columns(&self) -> &[Vec<u8>; COLUMNS] {
        &self.columns
    }

    /// Begins the next block; numbers continue. `stored`: the length of the previous block in the file.
    pub(crate) fn begin(&mut self, stored: usize) {
        self.firsts = self.next;
        self.columns.iter_mut().for_each(Vec::clear);
        self.set_written(self.written.saturating_add(stored));
        self.len = 0;
        self.events = 0;
        self.contexts.clear();
        self.last_context = None;
        self.sites.clear();
        self.last_sizes.clear();
        self.last_allocation = 0;
        self.last_freed = 0;
        self.last_cpu = 0;
        self.last_collection = 0;
        self.collection_totals = [0; 3];
        self.last_memory = 0;
        self.memory_totals = [0; TOTALS];
    }

    /// Returns a mark. Events that are encoded after it can be removed again. The block must be empty.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            next: self.next,
            written: self.written,
            changed: self.changed.clone(),
        }
    }

    /// Removes all events since `mark`, as if they had not been encoded. Definitions cannot be removed.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        self.next = mark.next;
        self.changed = mark.changed;
        self.begin(0);
        self.set_written(mark.written);
    }

    /// Sets the length of all earlier blocks, and the length at which this empty block will be full.
    fn set_written(&mut self, written: usize) {
        self.written = written;
        self.full_len = written.saturating_mul(2).clamp(FIRST_BYTES, FULL_BYTES);
    }

    /// Makes the block full if a table has too many entries.
    fn end_block_at(&mut self, entries: usize) {
        if entries >= FULL_SITES {
            self.full_len = 0;
        }
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        if self.events == 0 {
            self.repeat_sources();
        }
        self.events += 1;
        match event {
            Event::Code(code) => self.code(code),
            Event::Node(node) => self.node(node),
            Event::Type(names) => self.type_name(names),
            Event::Thread(thread) => self.thread(thread),
            Event::ThreadName(thread, name) => {
                self.kind(kind::THREAD_NAME);
                self.number(u64::from(thread.0));
                self.text(name);
            }
            Event::Label(label) => self.label(label),
            Event::Source(id, definition) => {
                self.source(*id, definition);
                self.changed.define(*id, *definition);
            }
            Event::Period(id, period) => {
                self.period(*id, *period);
                self.changed.set_period(*id, *period);
            }
            Event::Extension(extension) => self.extension(extension),
            Event::Allocation(allocation) => self.allocation(allocation),
            Event::Freed(sample, time) => self.freed(*sample, *time),
            Event::Cpu(sample) => self.cpu(sample),
            Event::Collection(collection) => self.collection(collection),
            Event::Memory(memory) => self.memory(memory),
            Event::Lost(lost, count) => {
                self.kind(kind::LOST);
                self.number(*lost as u64);
                self.number(*count);
            }
            Event::End(end) => {
                self.kind(kind::END);
                self.number(self.ticks(end.time));
                self.number(u64::from(end.allocated.is_some()));
                if let Some(allocated) = end.allocated {
                    self.number(allocated);
                }
            }
        }
    }

    fn put(&mut self, column: Column, value: u64) {
        let column = &mut self.columns[column as usize];
        let before = column.len();
        put(column, value);
        self.len += column.len() - before;
    }

    fn signed(&mut self, column: Column, value: u64, base: u64) {
        self.put(column, zigzag(value.wrapping_sub(base) as i64));
    }

    fn kind(&mut self, kind: u8) {
        self.columns[Column::Kinds as usize].push(kind);
        self.len += 1;
    }

    fn number(&mut self, value: u64) {
        self.put(Column::Numbers, value);
    }

    fn ticks(&self, time: Nanos) -> u64 {
        time.0 / self.tick
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.columns[Column::Texts as usize].extend_from_slice(bytes);
        self.len += bytes.len();
    }

    fn text(&mut self, text: &str) {
        let end = (0..=MAX_TEXT.min(text.len()))
            .rev()
            .find(|&end| text.is_char_boundary(end));
        self.bytes(&text.as_bytes()[..end.unwrap_or(0)]);
    }

    /// Repeats each source that differs from the header.
    fn repeat_sources(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        for source in changed.iter() {
            self.events += 1;
            match source.definition() {
                Some(definition) => self.source(source.id, &definition),
                None => self.period(source.id, source.period),
            }
        }
        self.changed = changed;
    }

    fn source(&mut self, id: SourceId, definition: &SourceDefinition<'_>) {
        self.kind(kind::SOURCE);
        self.number(u64::from(id.0));
        self.text(definition.kind);
        self.text(definition.unit);
        self.text(definition.method);
        self.text(definition.distances);
        self.number(definition.period);
    }

    fn period(&mut self, id: SourceId, period: u64) {
        self.kind(kind::PERIOD);
        self.number(u64::from(id.0));
        self.number(period);
    }

    fn label(&mut self, label: &Label<'_>) {
        self.kind(kind::LABEL);
        let own = self.next.label_set;
        self.next.label_set = own.wrapping_add(1);
        self.number(u64::from(own.wrapping_sub(label.parent.0)));
        self.text(label.key);
        self.text(label.value);
    }

    fn extension(&mut self, extension: &Extension<'_>) {
        if extension.kind < kind::EXTENSIONS || extension.bytes.len() > MAX_EXTENSION {
            self.events -= 1;
            return;
        }
        self.kind(extension.kind);
        self.put(Column::Extensions, extension.bytes.len() as u64);
        self.columns[Column::Extensions as usize].extend_from_slice(extension.bytes);
        self.len += extension.bytes.len();
    }

    fn code(&mut self, code: &Code<'_>) {
        self.kind(kind::CODE);
        self.next.code = self.next.code.wrapping_add(1);
        self.text(code.name);
        self.text(code.file);
        self.number(u64::from(code.first_line));
        match code.lines {
            Lines::Image(build_id) => {
                self.number(2);
                self.text(build_id);
            }
            Lines::Direct | Lines::LocationTable(_) => self.number(0),
        }
        // Nodes of later blocks need the table.
        self.tables.push(match code.lines {
            Lines::LocationTable(table) if table.len() <= MAX_TABLE => {
                Some((code.first_line, without_columns(table).into()))
            }
            Lines::LocationTable(_) => Some((0, Box::default())),
            Lines::Direct | Lines::Image(_) => None,
        });
    }

    /// The line at a position in a code object.
    fn line(&self, code: CodeId, position: u32) -> u32 {
        match self.tables.get(code.index()) {
            Some(Some((first_line, table))) => line_at(table, *first_line, position),
            _ => position,
        }
    }

    fn node(&mut self, node: &Node) {
        self.kind(kind::NODE);
        let own = self.next.node;
        self.next.node = own.wrapping_add(1);
        self.put(Column::Nodes, u64::from(own.wrapping_sub(node.parent.0)));
        self.put(Column::Nodes, u64::from(node.code.0));
        let line = self.line(node.code, node.position);
        self.put(Column::Nodes, u64::from(line));
        self.put(Column::Nodes, node.kind as u64);
    }

    fn type_name(&mut self, names: &TypeName<'_>) {
        self.kind(kind::TYPE);
        self.next.type_id = self.next.type_id.wrapping_add(1);
        self.text(names.name);
        self.text(names.native);
    }

    fn thread(&mut self, thread: &Thread<'_>) {
        self.kind(kind::THREAD);
        self.next.thread = self.next.thread.wrapping_add(1);
        self.number(thread.os_id);
        self.text(thread.name);
    }

    fn allocation(&mut self, allocation: &Allocation) {
        self.kind(match allocation.survival {
            Survival::Unsaid => kind::ALLOCATION,
            Survival::DiedYoung => kind::ALLOCATION_DIED_YOUNG,
            Survival::Survived => kind::ALLOCATION_SURVIVED,
        });
        self.next.sample = self.next.sample.wrapping_add(1);
        let time = self.ticks(allocation.time);
        self.signed(Column::Times, time, self.last_allocation);
        self.last_allocation = time;
        let site = self.site(allocation);
        let last = std::mem::replace(&mut self.last_sizes[site], allocation.size);
        self.signed(Column::Sizes, allocation.size, last);
        let likely = likely_block(allocation.size);
        self.signed(Column::Blocks, allocation.block, likely);
        self.put(Column::Points, u64::from(allocation.points.wrapping_sub(1)));
    }

    /// The number of a context in this block, and its form in a column: 0 if it is new; then it is defined now.
    #[inline]
    fn context(&mut self, context: Context) -> (u32, u64) {
        if let Some((last, number)) = self.last_context
            && last == context
        {
            return (number, u64::from(number));
        }
        self.other_context(context)
    }

    #[inline(never)]
    fn other_context(&mut self, context: Context) -> (u32, u64) {
        let new = self.contexts.len() as u32 + 1;
        let number = *self.contexts.entry(context).or_insert(new);
        self.last_context = Some((context, number));
        if number < new {
            return (number, u64::from(number));
        }
        self.put(Column::Contexts, u64::from(context.thread.0));
        self.put(Column::Contexts, u64::from(context.source.0));
        let newest = u64::from(self.next.label_set);
        self.signed(Column::Contexts, newest, u64::from(context.labels.0));
        self.end_block_at(self.contexts.len());
        (number, 0)
    }

    fn site(&mut self, allocation: &Allocation) -> usize {
        // A known site has a known context, so no context is defined for it.
        let (context, said) = self.context(Context {
            thread: allocation.thread,
            source: allocation.source,
            labels: allocation.labels,
        });
        let site = (context, allocation.stack.0, allocation.type_id.0);
        if let Some(&number) = self.sites.get(&site) {
            self.put(Column::Sites, u64::from(number) + 1);
            return number as usize;
        }
        let number = self.last_sizes.len();
        // A block ends long before it has 2^32 sites.
        self.sites.insert(site, number as u32);
        self.last_sizes.push(0);
        self.end_block_at(self.last_sizes.len());
        self.put(Column::Sites, 0);
        self.put(Column::SiteDefinitions, said);
        let newest = u64::from(self.next.node);
        self.signed(Column::SiteDefinitions, newest, u64::from(site.1));
        self.put(Column::SiteDefinitions, u64::from(site.2));
        number
    }

    fn freed(&mut self, sample: SampleId, time: Nanos) {
        self.kind(kind::FREED);
        let ago = self.next.sample.wrapping_sub(sample.0);
        self.put(Column::FreedSamples, u64::from(ago));
        let time = self.ticks(time);
        self.signed(Column::FreedTimes, time, self.last_freed);
        self.last_freed = time;
    }

    fn cpu(&mut self, sample: &CpuSample) {
        self.kind(kind::CPU);
        let time = self.ticks(sample.time);
        self.signed(Column::Cpu, time, self.last_cpu);
        self.last_cpu = time;
        let (_, said) = self.context(Context {
            thread: sample.thread,
            source: sample.source,
            labels: sample.labels,
        });
        self.put(Column::Cpu, said);
        self.put(Column::Cpu, u64::from(sample.stack.0));
    }

    fn collection(&mut self, collection: &Collection) {
        self.kind(kind::COLLECTION);
        let (what, detail) = match collection.kind {
            CollectionKind::Generation(generation) => (0, u64::from(generation)),
            CollectionKind::Minor => (1, 0),
            CollectionKind::MajorStep(phase) => (2, phase as u64),
            CollectionKind::Major => (3, 0),
        };
        let totals = [
            collection.freed_objects,
            collection.bytes_before,
            collection.bytes_after,
        ];
        self.put(Column::Collections, what);
        self.put(Column::Collections, detail);
        self.put(Column::Collections, u64::from(collection.thread.0));
        self.put(Column::Collections, present(&totals));
        let start = self.ticks(collection.start);
        self.signed(Column::CollectionTimes, start, self.last_collection);
        self.last_collection = start;
        self.put(Column::CollectionTimes, collection.duration.0);
        for (at, &total) in totals.iter().enumerate() {
            let Some(total) = total else { continue };
            let last = std::mem::replace(&mut self.collection_totals[at], total);
            self.signed(Column::CollectionTotals, total, last);
        }
    }

    fn memory(&mut self, memory: &Memory) {
        self.kind(kind::MEMORY);
        let totals = processes::totals(memory);
        self.put(Column::Memory, present(&totals));
        let time = self.ticks(memory.time);
        self.signed(Column::Memory, time, self.last_memory);
        self.last_memory = time;
        for (at, &total) in totals.iter().enumerate() {
            let Some(total) = total else { continue };
            let last = std::mem::replace(&mut self.memory_totals[at], total);
            self.signed(Column::Memory, total, last);
        }
    }
}

/// A bit for each value, set if the value is present; the first value has the lowest bit.
fn present(values: &[Option<u64>]) -> u64 {
    let bit = |(at, value): (usize, &Option<u64>)| u64::from(value.is_some()) << at;
    values.iter().enumerate().map(bit).sum()
}
