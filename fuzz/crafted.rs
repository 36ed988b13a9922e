//! Profiles that no program makes: much of one thing, in few bytes. A few numbers describe each, so a fuzzer can vary them,
//! and a small seed is a large profile.

use nthbyte_profile::composition::COMPOSITION;
use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, CpuSample, Event, Extension, FrameKind,
    Label, LabelSetId, Lines, Nanos, Node, NodeId, SampleId, SourceId, Survival, Thread, ThreadId,
    TypeId, TypeName,
};
use nthbyte_profile::{Composition, Meta, Part, Writer};

/// What there is much of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crafted {
    /// Number of nodes of the stack tree.
    pub nodes: u32,
    /// The caller of a node is the one so many before it; 0: all are outermost.
    pub back: u32,
    /// A node in so many has a function of its own; 0: one function for all.
    pub functions_every: u32,
    /// A node in so many has a sample; 0: only the last one.
    pub samples_every: u32,
    /// Whether these are time samples.
    pub is_time: bool,
    /// Threads, of which each sample has the next.
    pub threads: u32,
    /// Types, of which each sample has the next.
    pub types: u32,
    /// Label sets, each a part of the one after it, of which each sample has the next.
    pub labels: u32,
    /// Whether each sample has another size.
    pub sizes: bool,
    /// A sample in so many is freed some samples later; 0: none.
    pub frees_every: u32,
    /// Collections.
    pub collections: u32,
    /// Moments at which it is known what memory was made of.
    pub compositions: u32,
}

impl Crafted {
    /// From the bytes of a fuzzer. Numbers are powers of two, and at most `most` of anything.
    pub fn of(bytes: &[u8], most: u32) -> Self {
        let number = |at: usize| match bytes.get(at).copied().unwrap_or(0) % 32 {
            0 => 0,
            power => (1_u32 << (power - 1).min(30)).min(most),
        };
        let is = |at: usize| bytes.get(at).copied().unwrap_or(0) % 2 == 1;
        Self {
            nodes: number(0),
            back: number(1),
            functions_every: number(2),
            samples_every: number(3),
            is_time: is(4),
            threads: number(5),
            types: number(6),
            labels: number(7),
            sizes: is(8),
            frees_every: number(9),
            collections: number(10),
            compositions: number(11),
        }
    }

    /// The file.
    pub fn file(&self, meta: &Meta) -> Vec<u8> {
        let mut out = Writer::new(Vec::new(), meta).expect("writing to memory");
        self.events(|event| out.write(event).expect("writing to memory"));
        out.flush().expect("writing to memory");
        out.get_ref().clone()
    }

    fn events(&self, mut put: impl FnMut(&Event<'_>)) {
        for number in 0..self.threads.max(1) {
            put(&Event::Thread(Thread {
                os_id: number.into(),
                name: "",
            }));
        }
        for number in 0..self.types {
            put(&Event::Type(TypeName {
                name: &format!("{number:x}"),
                native: "",
            }));
        }
        for number in 0..self.labels {
            put(&Event::Label(Label {
                parent: LabelSetId(number),
                key: &format!("{number:x}"),
                value: "",
            }));
        }
        let mut codes = 0_u32;
        let mut samples = 0_u32;
        for number in 0..self.nodes.max(1) {
            let every = |each: u32| each > 0 && number.is_multiple_of(each);
            if codes == 0 || every(self.functions_every) {
                codes += 1;
                put(&Event::Code(Code {
                    name: &format!("{number:x}"),
                    file: "",
                    first_line: 0,
                    lines: Lines::Direct,
                }));
            }
            let parent = match self.back {
                0 => 0,
                back => (number + 1).saturating_sub(back),
            };
            put(&Event::Node(Node {
                parent: NodeId(parent),
                code: CodeId(codes - 1),
                position: 1,
                kind: FrameKind::Interpreted,
            }));
            if every(self.samples_every) || number + 1 == self.nodes.max(1) {
                self.sample(NodeId(number + 1), samples, &mut put);
                samples += 1;
            }
        }
        for number in 0..self.collections {
            put(&Event::Collection(Collection {
                start: Nanos(u64::from(number) * 1_000),
                duration: Nanos(1_000),
                thread: ThreadId(0),
                kind: CollectionKind::Generation(0),
                freed_objects: None,
                bytes_before: None,
                bytes_after: None,
            }));
        }
        for number in 0..self.compositions {
            let mut of = Composition::at(Nanos(u64::from(number) * 1_000));
            of.set(Part::Resident, u64::from(number % 64));
            put(&Event::Extension(Extension {
                kind: COMPOSITION,
                bytes: &of.encode(0),
            }));
        }
    }

    fn sample(&self, stack: NodeId, number: u32, put: &mut impl FnMut(&Event<'_>)) {
        let time = Nanos(u64::from(number) * 1_000);
        let thread = ThreadId(number % self.threads.max(1));
        let labels = LabelSetId(number % (self.labels + 1));
        if self.is_time {
            return put(&Event::Cpu(CpuSample {
                time,
                thread,
                stack,
                labels,
                source: SourceId::TIME,
            }));
        }
        let size = 64 + 16 * u64::from(if self.sizes { number } else { 0 });
        put(&Event::Allocation(Allocation {
            time,
            thread,
            stack,
            size,
            block: size,
            points: 1,
            type_id: TypeId(number % (self.types + 1)),
            labels,
            source: SourceId::ALLOCATIONS,
            survival: Survival::Unsaid,
        }));
        if self.frees_every > 0 && number.is_multiple_of(self.frees_every) {
            put(&Event::Freed(SampleId(number / 2), time));
        }
    }
}
