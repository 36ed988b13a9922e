//! Events into the columns of one block.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::{COLUMNS, Column, Firsts, MAX_TABLE, MAX_TEXT, Site, kind, likely_block};
use crate::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, CpuSample, Event, Lines, Memory, Nanos,
    Node, SampleId, Survival, Thread, TypeName,
};
use crate::lines::{line_at, without_columns};
use crate::varint::{put, zigzag};

/// A block is full when its columns hold this many bytes …
const FULL_BYTES: usize = 128 << 10;
/// … or this many sites: bounds the table of sites.
const FULL_SITES: usize = 4 << 10;

/// The columns of the block that is being written.
#[derive(Debug)]
pub(crate) struct Encoder {
    tick: u64,
    firsts: Firsts,
    next: Firsts,
    columns: [Vec<u8>; COLUMNS],
    len: usize,
    events: usize,
    /// First line and location table of each code object that has one. Lines are worked out here
    /// because the tables, even compressed, are larger than all else in a profile of a short run:
    /// a program uses few of the lines that it has.
    tables: Vec<Option<(u32, Box<[u8]>)>>,
    /// Numbers of the sites of this block.
    sites: HashMap<Site, u32, FixedState>,
    /// The last size that each site asked for.
    last_sizes: Vec<u64>,
    last_allocation: u64,
    last_freed: u64,
    last_cpu: u64,
    last_collection: u64,
    /// The last values of a collection's totals, absent ones as they were before.
    collection_totals: [u64; 3],
    last_memory: u64,
    memory_totals: [u64; 4],
}

impl Encoder {
    pub(crate) fn new(tick_nanos: u32) -> Self {
        Self {
            tick: u64::from(tick_nanos.max(1)),
            firsts: Firsts::START,
            next: Firsts::START,
            columns: Default::default(),
            len: 0,
            events: 0,
            tables: Vec::new(),
            sites: HashMap::default(),
            last_sizes: Vec::new(),
            last_allocation: 0,
            last_freed: 0,
            last_cpu: 0,
            last_collection: 0,
            collection_totals: [0; 3],
            last_memory: 0,
            memory_totals: [0; 4],
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
    pub(crate) fn is_full(&self) -> bool {
        self.len >= FULL_BYTES || self.last_sizes.len() >= FULL_SITES
    }

    pub(crate) fn firsts(&self) -> Firsts {
        self.firsts
    }

    pub(crate) fn columns(&self) -> &[Vec<u8>; COLUMNS] {
        &self.columns
    }

    /// Begins the next block; the numbers of definitions and samples go on.
    pub(crate) fn begin(&mut self) {
        self.firsts = self.next;
        self.columns.iter_mut().for_each(Vec::clear);
        self.len = 0;
        self.events = 0;
        self.sites.clear();
        self.last_sizes.clear();
        self.last_allocation = 0;
        self.last_freed = 0;
        self.last_cpu = 0;
        self.last_collection = 0;
        self.collection_totals = [0; 3];
        self.last_memory = 0;
        self.memory_totals = [0; 4];
    }

    /// Drops the block, and numbers as if what came since `firsts` had not been. Definitions cannot be
    /// taken back.
    pub(crate) fn take_back(&mut self, firsts: Firsts) {
        self.next = firsts;
        self.begin();
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
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

    fn code(&mut self, code: &Code<'_>) {
        self.kind(kind::CODE);
        self.next.code = self.next.code.wrapping_add(1);
        self.text(code.name);
        self.text(code.file);
        self.number(u64::from(code.first_line));
        self.number(0);
        // Not lost with the block: nodes of later blocks need it.
        self.tables.push(match code.lines {
            Lines::LocationTable(table) if table.len() <= MAX_TABLE => {
                Some((code.first_line, without_columns(table).into()))
            }
            Lines::LocationTable(_) => Some((0, Box::default())),
            Lines::Direct => None,
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
        let code = u64::from(node.code.0);
        self.put(Column::Nodes, code);
        self.put(
            Column::Nodes,
            u64::from(self.line(node.code, node.position)),
        );
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

    fn site(&mut self, allocation: &Allocation) -> usize {
        let site = (
            allocation.thread.0,
            allocation.stack.0,
            allocation.type_id.0,
        );
        if let Some(&number) = self.sites.get(&site) {
            self.put(Column::Sites, u64::from(number) + 1);
            return number as usize;
        }
        let number = self.last_sizes.len();
        // A block ends long before it has 2^32 sites.
        self.sites.insert(site, number as u32);
        self.last_sizes.push(0);
        self.put(Column::Sites, 0);
        self.put(Column::SiteDefinitions, u64::from(site.0));
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
        self.put(Column::Cpu, u64::from(sample.thread.0));
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
        let totals = [
            memory.heap_used,
            memory.heap_reserved,
            memory.rss,
            memory.allocated,
        ];
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

/// Which of the values there are: a bit each, the first the lowest.
fn present(values: &[Option<u64>]) -> u64 {
    let bit = |(at, value): (usize, &Option<u64>)| u64::from(value.is_some()) << at;
    values.iter().enumerate().map(bit).sum()
}
