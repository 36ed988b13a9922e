//! Decodes the columns of a block into events.

use super::{
    COLUMNS, Column, Context, Firsts, MAX_EXTENSION, MAX_TABLE, MAX_TEXT, Site, kind, likely_block,
};
use crate::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, CpuSample, End, Event, Extension,
    FrameKind, Label, LabelSetId, Lines, LostKind, MajorPhase, Memory, Nanos, Node, NodeId,
    SampleId, SourceDefinition, SourceId, Survival, Thread, ThreadId, TypeId, TypeName,
};
use crate::processes::{TOTALS, of_totals};
use crate::varint::{take, unzigzag};

#[cfg(test)]
mod tests;

/// The reason why a column with the right checksum cannot be read: the writer of the file did not
/// follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

const UNKNOWN_KIND: Malformed = Malformed("an unknown kind of event");

type Result<T> = std::result::Result<T, Malformed>;

/// Reads events from the columns of one block.
///
/// The decoder checks everything that could make it fail: that numbers fit, that texts are valid,
/// that every definition can be numbered. The caller checks whether a reference has a definition,
/// because the definition may have been in a lost block.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    tick: u64,
    next: Firsts,
    columns: [&'a [u8]; COLUMNS],
    contexts: Vec<Context>,
    /// The sites of this block, with indexes into `contexts`, each with the last requested size.
    sites: Vec<(Site, u64)>,
    /// The index of the last allocation's site.
    last_site: usize,
    last_allocation: u64,
    last_freed: u64,
    last_cpu: u64,
    last_collection: u64,
    collection_totals: [u64; 3],
    last_memory: u64,
    memory_totals: [u64; TOTALS],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(tick_nanos: u32, firsts: Firsts, columns: [&'a [u8]; COLUMNS]) -> Self {
        Self {
            tick: u64::from(tick_nanos),
            next: firsts,
            columns,
            contexts: Vec::new(),
            sites: Vec::new(),
            last_site: 0,
            last_allocation: 0,
            last_freed: 0,
            last_cpu: 0,
            last_collection: 0,
            collection_totals: [0; 3],
            last_memory: 0,
            memory_totals: [0; TOTALS],
        }
    }

    /// The numbers of the next definitions and the next sample.
    pub(crate) fn next_numbers(&self) -> Firsts {
        self.next
    }

    /// The kind of the next event.
    pub(crate) fn next_kind(&self) -> Option<u8> {
        self.columns[Column::Kinds as usize].first().copied()
    }

    /// The number of the last allocation's site, in the order of the sites of this block. Allocations of one number agree in
    /// their thread, stack, type, labels and source.
    #[inline]
    pub(crate) fn last_site(&self) -> usize {
        self.last_site
    }

    /// The next event; `None` at the end of the block.
    #[inline]
    pub(crate) fn event(&mut self) -> Result<Option<Event<'a>>> {
        let kinds = &mut self.columns[Column::Kinds as usize];
        let Some((&kind, rest)) = kinds.split_first() else {
            return Ok(None);
        };
        *kinds = rest;
        Ok(Some(match kind {
            kind::ALLOCATION => Event::Allocation(self.allocation(Survival::Unsaid)?),
            kind::ALLOCATION_DIED_YOUNG => Event::Allocation(self.allocation(Survival::DiedYoung)?),
            kind::ALLOCATION_SURVIVED => Event::Allocation(self.allocation(Survival::Survived)?),
            kind::FREED => self.freed()?,
            kind::NODE => Event::Node(self.node()?),
            kind::CODE => Event::Code(self.code()?),
            kind::TYPE => {
                count(&mut self.next.type_id)?;
                Event::Type(TypeName {
                    name: self.text()?,
                    native: self.text()?,
                })
            }
            kind::THREAD => {
                count(&mut self.next.thread)?;
                Event::Thread(Thread {
                    os_id: self.number()?,
                    name: self.text()?,
                })
            }
            kind::THREAD_NAME => Event::ThreadName(ThreadId(narrow(self.number()?)?), self.text()?),
            kind::CPU => Event::Cpu(self.cpu()?),
            kind::COLLECTION => Event::Collection(self.collection()?),
            kind::MEMORY => Event::Memory(self.memory()?),
            kind::LOST => {
                let kind = match self.number()? {
                    0 => LostKind::Allocations,
                    1 => LostKind::CpuSamples,
                    2 => LostKind::Other,
                    _ => return Err(Malformed("an unknown kind of lost events")),
                };
                Event::Lost(kind, self.number()?)
            }
            kind::END => {
                let time = self.number()?;
                let allocated = match self.number()? {
                    0 => None,
                    _ => Some(self.number()?),
                };
                Event::End(End {
                    time: self.nanos(time),
                    allocated,
                })
            }
            kind::SOURCE => Event::Source(
                SourceId(source(self.number()?)?),
                SourceDefinition {
                    kind: self.text()?,
                    unit: self.text()?,
                    method: self.text()?,
                    distances: self.text()?,
                    period: self.number()?,
                },
            ),
            kind::PERIOD => Event::Period(SourceId(source(self.number()?)?), self.number()?),
            kind::LABEL => Event::Label(self.label()?),
            kind::EXTENSIONS.. => Event::Extension(self.extension(kind)?),
            _ => return Err(UNKNOWN_KIND),
        }))
    }

    #[inline]
    fn take(&mut self, column: Column) -> Result<u64> {
        take(&mut self.columns[column as usize]).ok_or(Malformed("a column that ends too early"))
    }

    #[inline]
    fn signed(&mut self, column: Column, base: u64) -> Result<u64> {
        Ok(base.wrapping_add(unzigzag(self.take(column)?) as u64))
    }

    fn number(&mut self) -> Result<u64> {
        self.take(Column::Numbers)
    }

    fn nanos(&self, ticks: u64) -> Nanos {
        Nanos(ticks.saturating_mul(self.tick))
    }

    fn bytes(&mut self, most: usize) -> Result<&'a [u8]> {
        let len = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let texts = &mut self.columns[Column::Texts as usize];
        if len > most || len > texts.len() {
            return Err(Malformed("a text that is too long"));
        }
        let (bytes, rest) = texts.split_at(len);
        *texts = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(MAX_TEXT)?)
            .map_err(|_| Malformed("a text that is not UTF-8"))
    }

    fn code(&mut self) -> Result<Code<'a>> {
        count(&mut self.next.code)?;
        Ok(Code {
            name: self.text()?,
            file: self.text()?,
            first_line: narrow(self.number()?)?,
            lines: match self.number()? {
                0 => Lines::Direct,
                1 => Lines::LocationTable(self.bytes(MAX_TABLE)?),
                2 => Lines::Image(self.text()?),
                _ => return Err(Malformed("an unknown kind of line table")),
            },
        })
    }

    fn node(&mut self) -> Result<Node> {
        let own = u64::from(self.next.node);
        count(&mut self.next.node)?;
        let back = self.take(Column::Nodes)?;
        let parent = own.checked_sub(back).filter(|_| back > 0);
        Ok(Node {
            parent: NodeId(narrow(
                parent.ok_or(Malformed("a stack that calls itself"))?,
            )?),
            code: CodeId(narrow(self.take(Column::Nodes)?)?),
            position: narrow(self.take(Column::Nodes)?)?,
            kind: match self.take(Column::Nodes)? {
                0 => FrameKind::Interpreted,
                1 => FrameKind::Jit,
                2 => FrameKind::Native,
                3 => FrameKind::Gc,
                // A remark (4), or what a later writer knows.
                _ => FrameKind::Note,
            },
        })
    }

    #[inline]
    fn allocation(&mut self, survival: Survival) -> Result<Allocation> {
        count(&mut self.next.sample)?;
        let time = self.signed(Column::Times, self.last_allocation)?;
        self.last_allocation = time;
        let site = match self.take(Column::Sites)? {
            0 => self.site()?,
            number => usize::try_from(number - 1).unwrap_or(usize::MAX),
        };
        let last = self.sites.get(site).ok_or(Malformed("an unknown site"))?;
        let ((context, stack, type_id), last) = *last;
        let context = self.contexts[context as usize];
        let size = self.signed(Column::Sizes, last)?;
        self.sites[site].1 = size;
        self.last_site = site;
        let block = self.signed(Column::Blocks, likely_block(size))?;
        let points = narrow(self.take(Column::Points)?)?.wrapping_add(1);
        Ok(Allocation {
            time: self.nanos(time),
            thread: context.thread,
            stack: NodeId(stack),
            size,
            block,
            points,
            type_id: TypeId(type_id),
            labels: context.labels,
            source: context.source,
            survival,
        })
    }

    /// Reads a context from a column, as an index into `contexts`.
    fn context(&mut self, column: Column) -> Result<u32> {
        let said = self.take(column)?;
        if let Some(index) = said.checked_sub(1) {
            let known = usize::try_from(index).is_ok_and(|index| index < self.contexts.len());
            return if known {
                Ok(index as u32)
            } else {
                Err(Malformed("an unknown context"))
            };
        }
        let thread = ThreadId(narrow(self.take(Column::Contexts)?)?);
        let source = SourceId(source(self.take(Column::Contexts)?)?);
        let back = unzigzag(self.take(Column::Contexts)?) as u64;
        let labels = u64::from(self.next.label_set).wrapping_sub(back);
        self.contexts.push(Context {
            thread,
            source,
            labels: LabelSetId(narrow(labels)?),
        });
        Ok(self.contexts.len() as u32 - 1)
    }

    fn label(&mut self) -> Result<Label<'a>> {
        let own = u64::from(self.next.label_set);
        count(&mut self.next.label_set)?;
        let back = self.number()?;
        let parent = own.checked_sub(back).filter(|_| back > 0);
        let parent = parent.ok_or(Malformed("a label set that is part of itself"))?;
        Ok(Label {
            parent: LabelSetId(narrow(parent)?),
            key: self.text()?,
            value: self.text()?,
        })
    }

    fn extension(&mut self, kind: u8) -> Result<Extension<'a>> {
        let len = usize::try_from(self.take(Column::Extensions)?).unwrap_or(usize::MAX);
        let column = &mut self.columns[Column::Extensions as usize];
        if len > MAX_EXTENSION || len > column.len() {
            return Err(Malformed("an event that is too long"));
        }
        let (bytes, rest) = column.split_at(len);
        *column = rest;
        Ok(Extension { kind, bytes })
    }

    fn site(&mut self) -> Result<usize> {
        let context = self.context(Column::SiteDefinitions)?;
        let back = self.take(Column::SiteDefinitions)?;
        let stack = u64::from(self.next.node).wrapping_sub(unzigzag(back) as u64);
        let type_id = narrow(self.take(Column::SiteDefinitions)?)?;
        self.sites.push(((context, narrow(stack)?, type_id), 0));
        Ok(self.sites.len() - 1)
    }

    #[inline]
    fn freed(&mut self) -> Result<Event<'a>> {
        let ago = self.take(Column::FreedSamples)?;
        let sample = u64::from(self.next.sample).checked_sub(ago);
        let sample = sample.filter(|_| ago > 0);
        let sample = narrow(sample.ok_or(Malformed("a free of a sample that is not yet there"))?)?;
        let time = self.signed(Column::FreedTimes, self.last_freed)?;
        self.last_freed = time;
        Ok(Event::Freed(SampleId(sample), self.nanos(time)))
    }

    fn cpu(&mut self) -> Result<CpuSample> {
        let time = self.signed(Column::Cpu, self.last_cpu)?;
        self.last_cpu = time;
        let context = self.context(Column::Cpu)?;
        let context = self.contexts[context as usize];
        Ok(CpuSample {
            time: self.nanos(time),
            thread: context.thread,
            stack: NodeId(narrow(self.take(Column::Cpu)?)?),
            labels: context.labels,
            source: context.source,
        })
    }

    fn collection(&mut self) -> Result<Collection> {
        let what = self.take(Column::Collections)?;
        let detail = self.take(Column::Collections)?;
        let kind = match (what, detail) {
            (0, generation) => {
                let generation = u8::try_from(generation);
                CollectionKind::Generation(generation.map_err(|_| Malformed("a generation > 255"))?)
            }
            (1, 0) => CollectionKind::Minor,
            (2, 0) => CollectionKind::MajorStep(MajorPhase::Scanning),
            (2, 1) => CollectionKind::MajorStep(MajorPhase::Marking),
            (2, 2) => CollectionKind::MajorStep(MajorPhase::Sweeping),
            (2, 3) => CollectionKind::MajorStep(MajorPhase::Finalizing),
            (3, 0) => CollectionKind::Major,
            _ => return Err(Malformed("an unknown kind of collection")),
        };
        let thread = ThreadId(narrow(self.take(Column::Collections)?)?);
        let present = self.take(Column::Collections)?;
        let start = self.signed(Column::CollectionTimes, self.last_collection)?;
        self.last_collection = start;
        let duration = Nanos(self.take(Column::CollectionTimes)?);
        let mut totals = self.collection_totals;
        let [freed_objects, bytes_before, bytes_after] =
            self.totals(Column::CollectionTotals, present, &mut totals)?;
        self.collection_totals = totals;
        Ok(Collection {
            start: self.nanos(start),
            duration,
            thread,
            kind,
            freed_objects,
            bytes_before,
            bytes_after,
        })
    }

    fn memory(&mut self) -> Result<Memory> {
        let present = self.take(Column::Memory)?;
        let time = self.signed(Column::Memory, self.last_memory)?;
        self.last_memory = time;
        let mut totals = self.memory_totals;
        let present = self.totals(Column::Memory, present, &mut totals)?;
        self.memory_totals = totals;
        Ok(of_totals(self.nanos(time), present))
    }

    /// The totals that are present. Each is relative to the last value of its kind.
    fn totals<const N: usize>(
        &mut self,
        column: Column,
        present: u64,
        last: &mut [u64; N],
    ) -> Result<[Option<u64>; N]> {
        let mut totals = [None; N];
        for (at, total) in totals.iter_mut().enumerate() {
            if present >> at & 1 == 1 {
                last[at] = self.signed(column, last[at])?;
                *total = Some(last[at]);
            }
        }
        Ok(totals)
    }
}

fn narrow(value: u64) -> Result<u32> {
    u32::try_from(value).map_err(|_| Malformed("a number beyond 32 bits"))
}

fn source(number: u64) -> Result<u16> {
    u16::try_from(number).map_err(|_| Malformed("a source's number beyond 16 bits"))
}

fn count(number: &mut u32) -> Result<()> {
    *number = number
        .checked_add(1)
        .ok_or(Malformed("more than 2^32 of a kind"))?;
    Ok(())
}
