//! Synthetic profiles of programs that never ran: for tests, and for measurements with any number
//! of samples.
//!
//! The imaginary program has threads that call each other's functions by a fixed call graph (with
//! recursion), types with their own sizes, and objects of which most die young. The same
//! [`Synthetic`] always gives the same events. The numbers are for a program that allocates 1 GB/s,
//! and only their order of magnitude is realistic.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, Write};

use crate::activity::Activity;
use crate::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, CpuSample, End, Event, FrameKind, Label,
    LabelSetId, Lines, Memory, Nanos, Node, NodeId, SampleId, SourceId, Survival, Thread, ThreadId,
    TypeId, TypeName,
};
use crate::meta::{Distances, Meta, Method, Source};
use crate::model::{Frame, Function, Lifetime, Profile, Sample, SamplingId, Shape, StackNode};
use crate::writer::Writer;

pub use crate::samples::rows_looked_at;

/// The settings of a synthetic profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// Number of allocation samples.
    pub samples: u32,
    /// The seed: another seed gives another program.
    pub seed: u64,
    /// Mean distance between samples, in bytes.
    pub period: u64,
    /// The distribution of distances.
    pub distances: Distances,
    /// Whether some names of functions, files, types, threads, labels and words of the command contain text that reports must
    /// escape or cut: control characters, line ends, right-to-left marks, markup, ten thousand characters. Samples have labels
    /// only then.
    pub hostile: bool,
    /// The largest size of the stack tree. The stack tree of a real program also stops growing.
    pub nodes: u32,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            samples: 10_000,
            seed: 1,
            period: 512 << 10,
            distances: Distances::Exponential,
            hostile: false,
            nodes: 60_000,
        }
    }
}

/// A sample of an object of this size that is still live, with one sample point and no rounding; nothing is known about its
/// stack, its type and its labels. Tests set what they need beside it.
#[must_use]
pub fn sample(time: Nanos, size: u64, sampling: SamplingId) -> Sample {
    Sample {
        time,
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        shape: Shape {
            size,
            block: size,
            points: 1,
            sampling,
        },
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId::NONE,
        lifetime: Lifetime::StillLive,
        freed: None,
    }
}

/// Adds a function of `/srv/app.py`, with one line that runs, and a stack of it alone. Returns the stack.
pub fn add_function(profile: &mut Profile, name: &str) -> NodeId {
    let number = profile.functions.len() as u32;
    profile.functions.push(Function {
        name: name.to_owned(),
        file: "/srv/app.py".to_owned(),
        first_line: number * 10 + 1,
    });
    profile.frames.push(Frame {
        function: number,
        line: number * 10 + 2,
        kind: FrameKind::Interpreted,
    });
    profile.stacks.push(StackNode {
        parent: NodeId::ROOT,
        frame: profile.frames.len() as u32 - 1,
    });
    NodeId(profile.stacks.len() as u32 - 1)
}

/// Makes a profile one of a service: each process waits for most of its time, from its start to its end.
pub fn wait_between_rounds(profile: &mut Profile) {
    const READINGS: u64 = 64;
    let end = profile.end.0;
    for process in &mut profile.processes {
        let (start, end) = (process.start.0, process.end.0.max(end));
        let passed = |number| (end - start) * number / READINGS;
        let reading = |number| Activity {
            time: Nanos(start + passed(number)),
            used: Nanos(passed(number) / 20),
            ready: Nanos(passed(number) / 50),
        };
        process.activity = (0..=READINGS).map(reading).collect();
    }
}

const FUNCTIONS: u32 = 600;
const FILES: u32 = 40;
const THREADS: u32 = 4;
const CALLEES: u64 = 6;
const DEEPEST: usize = 60;

/// Name, interpreter's name, smallest and largest size.
const TYPES: [(&str, &str, u64, u64); 12] = [
    ("dict", "", 64, 64),
    ("dict keys", "", 96, 4096),
    ("list", "", 56, 56),
    ("list items", "", 32, 20_000),
    ("str", "", 50, 300),
    ("tuple", "", 48, 120),
    ("int", "", 28, 36),
    ("float", "", 24, 24),
    ("bytes", "", 40, 200_000),
    ("frame", "", 400, 600),
    ("collections.OrderedDict", "W_OrderedDict", 88, 88),
    ("app.models.Node", "", 48, 48),
];

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// A number below `end`; small numbers are much more probable.
    fn skewed(&mut self, end: u64) -> u64 {
        let unit = self.unit();
        ((unit * unit * unit * end as f64) as u64).min(end.saturating_sub(1))
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Synthetic {
    /// The session's description.
    #[must_use]
    pub fn meta(&self) -> Meta {
        Meta {
            nthbyte: env!("CARGO_PKG_VERSION").to_owned(),
            interpreter: "CPython 3.13.0".to_owned(),
            executable: "/usr/bin/python3".to_owned(),
            command: match self.hostile {
                true => hostile::NAMES.map(str::to_owned).to_vec(),
                false => vec!["app.py".to_owned(), "--fast".to_owned()],
            },
            pid: 4242,
            parent_pid: None,
            memory_before: None,
            segment: None,
            tags: Default::default(),
            host: None,
            run: None,
            started_unix_nanos: 1_790_000_000_000_000_000,
            sources: Source::of_session(
                Method::CutFreeLists,
                self.distances,
                self.period,
                Some(100),
            ),
            seed: self.seed,
            notes: match self.hostile {
                true => hostile::NAMES.map(str::to_owned).to_vec(),
                false => vec!["made up: no program ran".to_owned()],
            },
        }
    }

    /// Writes the whole profile.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write<W: Write>(&self, out: W) -> io::Result<W> {
        let mut writer = Writer::new(out, &self.meta())?;
        let mut result = Ok(());
        let end = self.events(|event| {
            if result.is_ok() {
                result = writer.write(event);
            }
        });
        result?;
        writer.finish(end)
    }

    /// The profile's file.
    ///
    /// # Panics
    /// Never: writing to memory does not fail.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.write(Vec::new()).expect("writing to memory")
    }

    /// Passes all events to `sink`, and returns the end.
    pub fn events(&self, sink: impl FnMut(&Event<'_>)) -> End {
        let mut program = Program {
            random: Random(mix(self.seed)),
            sink,
            setup: *self,
            nodes: HashMap::new(),
            stacks: vec![Vec::new(); THREADS as usize],
            pending: BinaryHeap::new(),
            now: 0.0,
            live: 0,
            samples: 0,
        };
        program.define();
        program.run();
        End {
            time: Nanos(program.now as u64),
            allocated: Some(u64::from(self.samples) * self.period),
        }
    }
}

struct Program<S> {
    random: Random,
    sink: S,
    setup: Synthetic,
    /// Parent, code, position.
    nodes: HashMap<(u32, u32, u32), u32>,
    /// The stack of each thread, outermost first: node and code.
    stacks: Vec<Vec<(u32, u32)>>,
    /// Sampled objects that will be freed: time, sample, size.
    pending: BinaryHeap<Reverse<(u64, u32, u64)>>,
    now: f64,
    live: u64,
    samples: u32,
}

impl<S: FnMut(&Event<'_>)> Program<S> {
    fn define(&mut self) {
        for number in 0..FUNCTIONS {
            let mut name = match number % 3 {
                0 => format!("function_{number}"),
                1 => format!("Class{}.method_{number}", number / 7),
                _ => format!("outer_{}.<locals>.<listcomp>", number / 3),
            };
            if self.setup.hostile && number % 5 == 0 {
                hostile::NAMES[(number / 5) as usize % hostile::NAMES.len()].clone_into(&mut name);
                if number == 100 {
                    name = hostile::LONG.repeat(667);
                }
            }
            let first_line = number / FILES * 30 + 1;
            let mut file = format!("/srv/app/package/module_{}.py", number % FILES);
            if self.setup.hostile && number % 4 == 0 {
                let name = hostile::NAMES[(number % FILES / 4) as usize % hostile::NAMES.len()];
                file = format!("/srv/app/{name}/{name}_{}.py", number % FILES);
            }
            (self.sink)(&Event::Code(Code {
                name: &name,
                file: &file,
                first_line,
                lines: Lines::LocationTable(&location_table(number)),
            }));
        }
        let name_of = |number: usize| hostile::NAMES[number % hostile::NAMES.len()];
        for (number, (name, native, ..)) in TYPES.into_iter().enumerate() {
            let (name, native) = match self.setup.hostile {
                true if number == 2 => (hostile::LONG.repeat(667), hostile::LONG.to_owned()),
                true => (name_of(number).to_owned(), name_of(number + 1).to_owned()),
                false => (name.to_owned(), native.to_owned()),
            };
            let (name, native) = (&name[..], &native[..]);
            (self.sink)(&Event::Type(TypeName { name, native }));
        }
        for thread in 0..THREADS {
            let name = if thread == 0 {
                "MainThread".to_owned()
            } else {
                match self.setup.hostile {
                    true if thread == 3 => hostile::LONG.repeat(667),
                    true => format!("{}{}", name_of(0), name_of(thread as usize)),
                    false => format!("worker-{thread}"),
                }
            };
            (self.sink)(&Event::Thread(Thread {
                os_id: u64::from(4242 + thread),
                name: &name,
            }));
        }
        if self.setup.hostile {
            for number in 0..hostile::LABELS {
                let long = hostile::LONG.repeat(if number == 0 { 667 } else { 0 });
                (self.sink)(&Event::Label(Label {
                    parent: LabelSetId(number),
                    key: &format!("{long}{}", name_of(number as usize)),
                    value: name_of(number as usize + 3),
                }));
            }
        }
    }

    fn labels(&self) -> LabelSetId {
        match self.setup.hostile {
            true => LabelSetId(self.samples % (hostile::LABELS + 1)),
            false => LabelSetId::NONE,
        }
    }

    fn run(&mut self) {
        // One gigabyte per second is one byte per nanosecond.
        let gap = self.setup.period as f64;
        let mut next_collection = 0_u32;
        let mut next_cpu = 0.0;
        let mut collections = 0_u64;
        while self.samples < self.setup.samples {
            self.now += self.random.exponential(gap);
            self.free();
            let thread = self.random.skewed(u64::from(THREADS)) as usize;
            self.walk(thread);
            if self.now >= next_cpu {
                next_cpu = self.now + 10e6;
                self.cpu(thread);
            }
            self.allocate(thread, gap);
            if self.samples > next_collection {
                next_collection = self.samples + 20 + self.random.below(60) as u32;
                collections += 1;
                self.collect(collections, thread);
            }
        }
    }

    /// Returns from some functions and calls some other functions.
    fn walk(&mut self, thread: usize) {
        let stack = &mut self.stacks[thread];
        let returns = self.random.skewed(stack.len() as u64 + 1) as usize;
        stack.truncate(stack.len() - returns);
        if stack.is_empty() {
            let code = thread as u32;
            self.call(thread, 0, code, 4);
        }
        let calls = 1 + self.random.skewed(2 * returns as u64 + 3);
        for _ in 0..calls {
            let &(node, caller) = self.stacks[thread].last().unwrap_or(&(0, 0));
            if self.stacks[thread].len() >= DEEPEST {
                break;
            }
            let which = self.random.skewed(CALLEES);
            let callee = mix(u64::from(caller) * 31 + which + self.setup.seed) % 1000;
            let callee = (callee as u32 * callee as u32 / 1000).min(FUNCTIONS - 1);
            let position = 2 * (which as u32 * 9 + self.random.below(2) as u32);
            if !self.call(thread, node, callee, position) {
                break;
            }
        }
    }

    fn call(&mut self, thread: usize, parent: u32, code: u32, position: u32) -> bool {
        let next = self.nodes.len() as u32 + 1;
        let key = (parent, code, position);
        let node = match self.nodes.get(&key) {
            Some(&node) => node,
            None if next > self.setup.nodes => return false,
            None => {
                self.nodes.insert(key, next);
                (self.sink)(&Event::Node(Node {
                    parent: NodeId(parent),
                    code: CodeId(code),
                    position,
                    kind: FrameKind::Interpreted,
                }));
                next
            }
        };
        self.stacks[thread].push((node, code));
        true
    }

    fn top(&self, thread: usize) -> NodeId {
        NodeId(self.stacks[thread].last().map_or(0, |&(node, _)| node))
    }

    fn time(&self) -> Nanos {
        Nanos(self.now as u64)
    }

    fn allocate(&mut self, thread: usize, gap: f64) {
        let stack = self.top(thread);
        // A stack allocates objects of at most three types.
        let choice = self.random.skewed(3);
        let type_number = (mix(u64::from(stack.0) * 5 + choice) % TYPES.len() as u64) as usize;
        let (_, _, least, most) = TYPES[type_number];
        let size = least + self.random.skewed(most - least + 1);
        let block = size.max(1).next_multiple_of(16);
        let points = match self.setup.distances {
            Distances::Every => 1,
            _ => 1 + u32::try_from(block / self.setup.period).unwrap_or(u32::MAX - 1),
        };
        let (time, labels) = (self.time(), self.labels());
        (self.sink)(&Event::Allocation(Allocation {
            time,
            thread: ThreadId(thread as u32),
            stack,
            size,
            block,
            points,
            type_id: TypeId(type_number as u32 + 1),
            labels,
            source: SourceId::ALLOCATIONS,
            survival: Survival::Unsaid,
        }));
        self.live += size;
        let lifetime = match self.random.below(20) {
            0..=13 => Some(self.random.exponential(gap * 3.0)),
            14..=17 => Some(self.random.exponential(gap * 300.0)),
            18 => Some(self.random.exponential(gap * 20_000.0)),
            _ => None,
        };
        if let Some(lifetime) = lifetime {
            let freed = Reverse(((self.now + lifetime) as u64, self.samples, size));
            self.pending.push(freed);
        }
        self.samples += 1;
    }

    fn free(&mut self) {
        while let Some(&Reverse((time, sample, size))) = self.pending.peek() {
            if time > self.now as u64 {
                return;
            }
            self.pending.pop();
            self.live -= size;
            (self.sink)(&Event::Freed(SampleId(sample), Nanos(time)));
        }
    }

    fn cpu(&mut self, thread: usize) {
        let sample = CpuSample {
            time: self.time(),
            thread: ThreadId(thread as u32),
            stack: self.top(thread),
            labels: self.labels(),
            source: SourceId::TIME,
        };
        (self.sink)(&Event::Cpu(sample));
    }

    fn collect(&mut self, number: u64, thread: usize) {
        let generation = match number {
            _ if number.is_multiple_of(100) => 2,
            _ if number.is_multiple_of(10) => 1,
            _ => 0,
        };
        let duration = 20_000 * 10_u64.pow(generation.into()) + self.random.below(20_000);
        let (start, used) = (self.time(), self.live * 50 + (32 << 20));
        self.now += duration as f64;
        (self.sink)(&Event::Collection(Collection {
            start,
            duration: Nanos(duration),
            thread: ThreadId(thread as u32),
            kind: CollectionKind::Generation(generation),
            freed_objects: Some(self.random.below(2000)),
            bytes_before: None,
            bytes_after: None,
        }));
        let after = self.time();
        (self.sink)(&Event::Memory(Memory {
            time: after,
            heap_used: Some(used),
            heap_reserved: Some(used.next_multiple_of(2 << 20)),
            rss: Some(used.next_multiple_of(2 << 20) + (24 << 20)),
            allocated: Some(u64::from(self.samples) * self.setup.period),
            peak_rss: None,
        }));
    }
}

/// A table with seventy code units in about twenty lines.
fn location_table(seed: u32) -> Vec<u8> {
    let mut table = vec![0x80 | 15 << 3];
    for entry in 0..35_u8 {
        if mix(u64::from(seed) * 64 + u64::from(entry)).is_multiple_of(2) {
            table.extend([0x80 | 11 << 3 | 1, 4, 20]);
        } else {
            table.extend([0x80 | 1 << 3 | 1, 0x23]);
        }
    }
    table
}

/// Text that reports must escape or cut.
mod hostile {
    /// The part of a name of ten thousand characters.
    pub const LONG: &str = "very_long_name_";

    /// Sets of labels of a hostile profile.
    pub const LABELS: u32 = 4;

    /// Names that reports must escape or cut.
    pub const NAMES: [&str; 11] = [
        "red\u{1b}[31m\u{7}",
        "two\nlines\r\tand a tab",
        "</script><script>alert(1)</script>",
        "\u{202e}txet desrever",
        "日本語の関数名はとても長いことがあります",
        "a;b;c \\ \"quoted\" 'name' & <b>",
        "\u{fffd}\u{0}nul",
        "e\u{301}\u{301}\u{301}\u{200d}🏳️‍🌈",
        "a command in one sign: \u{9b}2J\u{9c}",
        "lines of Unicode \u{2028}\u{2029}\u{85} end",
        "isolates \u{2066}\u{2067}\u{2069} tags \u{e0041} and \u{7f}",
    ];
}
