//! Writes a recording as a `.nthb` file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use nthbyte_profile::event::{
    Allocation, Code, CodeId, Collection, CollectionKind, CpuSample, End, Event, FrameKind,
    LabelSetId, Lines, Memory, Nanos, Node, NodeId, SourceId, Survival, Thread, ThreadId, TypeId,
    TypeName,
};
use nthbyte_profile::meta::Unit;
use nthbyte_profile::{Distances, Meta, Method, Source, Writer};

use super::names::{Symbol, short_type};
use super::recording::{RawSample, Recording, nanos};
use super::stacks::{RawFrame, RawKind};

/// VMProf 0.6 treats a longer gap between two samples as a pause.
const LONGEST_GAP: i64 = 1_000_000_000;

/// The most periods that one sample stands for: a damaged file may have a period of a microsecond.
const MOST_PERIODS: u64 = 10_000;

/// An event, before all are sorted by [`order`](Self::order).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Allocation(Allocation),
    Cpu(CpuSample),
    Memory(Memory),
    Collection(Collection),
}

impl Moment {
    /// The time of the event, then its rank among events of the same time: an allocation comes before
    /// the collection that examines it.
    fn order(&self) -> (Nanos, u8) {
        match self {
            Self::Allocation(allocation) => (allocation.time, 0),
            Self::Cpu(sample) => (sample.time, 1),
            Self::Memory(memory) => (memory.time, 2),
            Self::Collection(of) => (Nanos(of.start.0 + of.duration.0), 3),
        }
    }
}

/// Writes the recording and returns the number of functions.
pub(super) fn write(recording: &Recording, path: &Path, out: File) -> io::Result<u64> {
    let mut writer = Writer::new(out, &meta(recording, path))?;
    let functions = stacks(recording, &mut writer)?;
    let threads = threads(recording, &mut writer)?;
    let types = types(recording, &mut writer)?;
    let clock = Clock::of(recording);
    let mut moments = time_samples(recording, &clock, &threads);
    moments.extend(allocations(recording, &clock, &threads, &types));
    moments.extend(collections(recording, &clock));
    moments.sort_by_key(Moment::order);
    let mut end = Nanos(duration(recording).unwrap_or(0));
    for moment in &moments {
        end = end.max(moment.order().0);
        writer.write(&match *moment {
            Moment::Allocation(allocation) => Event::Allocation(allocation),
            Moment::Cpu(sample) => Event::Cpu(sample),
            Moment::Memory(memory) => Event::Memory(memory),
            Moment::Collection(collection) => Event::Collection(collection),
        })?;
    }
    if recording.complete {
        let allocated = None;
        writer.finish(End {
            time: end,
            allocated,
        })?;
    } else {
        writer.flush()?;
    }
    Ok(functions)
}

fn meta(recording: &Recording, path: &Path) -> Meta {
    let mut notes = vec![format!(
        "imported from {} (VMProf file version {})",
        path.display(),
        recording.version
    )];
    if recording.allocations.is_empty() {
        notes.push("VMProf recorded time, not allocations".to_owned());
    } else {
        notes.push(
            "sizes of objects were not recorded: each sample counts as one object of the period's size"
                .to_owned(),
        );
    }
    if recording.time_samples.iter().any(|of| of.time.is_none()) {
        notes.push("times of samples were not recorded: equal distances are assumed".to_owned());
    } else if !recording.real_time && recording.time_samples.iter().any(|of| of.time.is_some()) {
        notes.push("times of samples are CPU time".to_owned());
    }
    notes.extend(recording.damage.iter().cloned());
    let started = recording.start.unwrap_or(0).max(0) as u64;
    let command = recording.descriptions.get("argv");
    let has_time = (!recording.time_samples.is_empty()).then_some(0);
    let mut sources = Source::of_session(
        Method::Imported,
        Distances::Fixed,
        period(recording),
        has_time,
    );
    for time in sources
        .iter_mut()
        .filter(|source| source.unit() == Some(Unit::Nanoseconds))
    {
        // 0: there are time samples, but their period is unknown. A whole number of samples a second would be another period.
        time.period = recording.period as u64 * 1_000;
    }
    Meta {
        nthbyte: env!("CARGO_PKG_VERSION").to_owned(),
        interpreter: match recording.interpreter.as_str() {
            "cpython" => "CPython".to_owned(),
            "pypy" => "PyPy".to_owned(),
            other => other.to_owned(),
        },
        executable: String::new(),
        command: vec![
            command
                .cloned()
                .unwrap_or_else(|| path.display().to_string()),
        ],
        pid: 0,
        parent_pid: None,
        memory_before: None,
        segment: None,
        tags: Default::default(),
        host: None,
        run: None,
        started_unix_nanos: started.saturating_mul(1_000),
        sources,
        seed: 0,
        notes,
    }
}

/// Bytes between two allocation samples.
fn period(recording: &Recording) -> u64 {
    let period = recording.descriptions.get("sample_allocated_bytes");
    let period = period.and_then(|text| text.trim().parse().ok());
    period.unwrap_or(1).max(1)
}

/// The time from start to end, in nanoseconds, if both are known.
fn duration(recording: &Recording) -> Option<u64> {
    let micros = recording.end?.checked_sub(recording.start?)?;
    u64::try_from(micros).ok().map(|micros| micros * 1_000)
}

/// Defines functions and stacks. Stacks keep the recording's numbers.
fn stacks(recording: &Recording, writer: &mut Writer<File>) -> io::Result<u64> {
    let mut codes: HashMap<(i64, RawKind), CodeId> = HashMap::new();
    for &(caller, frame) in &recording.stacks.list {
        let number = codes.len() as u32;
        // A function has one number, whether it runs compiled or interpreted.
        let as_defined = match frame.kind {
            RawKind::Jit => RawKind::Python,
            kind => kind,
        };
        let known = codes.get(&(frame.address, as_defined)).copied();
        let code = match known {
            Some(code) => code,
            None => {
                define(recording, frame, writer)?;
                codes.insert((frame.address, as_defined), CodeId(number));
                CodeId(number)
            }
        };
        writer.write(&Event::Node(Node {
            parent: NodeId(caller),
            code,
            position: frame.line,
            kind: match frame.kind {
                RawKind::Python => FrameKind::Interpreted,
                RawKind::Jit | RawKind::Tracing | RawKind::Blackhole => FrameKind::Jit,
                RawKind::Native => FrameKind::Native,
                RawKind::Gc => FrameKind::Gc,
            },
        }))?;
    }
    Ok(codes.len() as u64)
}

fn define(recording: &Recording, frame: RawFrame, writer: &mut Writer<File>) -> io::Result<()> {
    let unknown = match frame.kind {
        RawKind::Python | RawKind::Jit => "<unknown code>".to_owned(),
        RawKind::Native => format!("<native symbol {:#x}>", frame.address),
        RawKind::Tracing => "(tracing for the JIT)".to_owned(),
        RawKind::Blackhole => "(leaving JIT code)".to_owned(),
        RawKind::Gc => "(garbage collector)".to_owned(),
    };
    let symbol = match recording.symbols.get(&frame.address) {
        Some(text) => Symbol::parse(text),
        None => Symbol {
            name: &unknown,
            line: 0,
            file: "",
        },
    };
    writer.write(&Event::Code(Code {
        name: symbol.name,
        file: symbol.file,
        first_line: symbol.line,
        lines: Lines::Direct,
    }))
}

/// Defines the threads, ordered by their first samples.
fn threads(recording: &Recording, writer: &mut Writer<File>) -> io::Result<HashMap<i64, ThreadId>> {
    let mut threads = HashMap::new();
    let samples = recording.time_samples.iter().chain(&recording.allocations);
    for sample in samples {
        let number = threads.len() as u32;
        if let std::collections::hash_map::Entry::Vacant(place) = threads.entry(sample.thread) {
            place.insert(ThreadId(number));
            let name = format!("Thread {}", number + 1);
            writer.write(&Event::Thread(Thread {
                os_id: sample.thread as u64,
                name: &name,
            }))?;
        }
    }
    if threads.is_empty() && !recording.objects.is_empty() {
        let name = "Thread 1";
        writer.write(&Event::Thread(Thread { os_id: 0, name }))?;
    }
    Ok(threads)
}

/// Defines the types of sampled objects, by the collector's numbers.
fn types(recording: &Recording, writer: &mut Writer<File>) -> io::Result<HashMap<i64, TypeId>> {
    let mut types = HashMap::new();
    for object in sampled_objects(recording) {
        let number = types.len() as u32 + 1;
        if types.contains_key(&object.type_number) {
            continue;
        }
        let key = format!("__rtype_{}", object.type_number);
        let Some(text) = recording.descriptions.get(&key) else {
            continue;
        };
        types.insert(object.type_number, TypeId(number));
        writer.write(&Event::Type(TypeName {
            name: short_type(text),
            native: "",
        }))?;
    }
    Ok(types)
}

/// Converts the file's times to times of a session.
struct Clock {
    /// The clock's value at the start of the session.
    start: i64,
    /// Nanoseconds between samples without a time.
    step: u64,
}

impl Clock {
    fn of(recording: &Recording) -> Self {
        let times = recording.time_samples.iter().chain(&recording.allocations);
        let first = times.filter_map(|sample| sample.time).min();
        let offset = recording.descriptions.get("start_time_offset");
        let offset = offset.and_then(|text| nanos(text.trim().parse().ok()?));
        let samples = recording
            .time_samples
            .len()
            .max(recording.allocations.len());
        let period = recording.period as u64 * 1_000;
        Self {
            start: offset.or(first).unwrap_or(0),
            step: duration(recording).map_or(period, |all| all / (samples as u64).max(1)),
        }
    }

    /// The time of the `number`th sample.
    fn time(&self, time: Option<i64>, number: usize) -> Nanos {
        Nanos(match time {
            Some(time) => time.saturating_sub(self.start).max(0) as u64,
            None => self.step.saturating_mul(number as u64),
        })
    }
}

/// Time samples, and the resident memory that was recorded with them. As in VMProf 0.6, a sample is
/// repeated for each period since the sample before.
fn time_samples(
    recording: &Recording,
    clock: &Clock,
    threads: &HashMap<i64, ThreadId>,
) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut weigh = Weigh::new(recording);
    for (number, sample) in recording.time_samples.iter().enumerate() {
        let time = clock.time(sample.time, number);
        let step = if recording.period > 0 {
            recording.period as u64 * 1_000
        } else {
            clock.step
        };
        for back in (0..weigh.periods(sample)).rev() {
            moments.push(Moment::Cpu(CpuSample {
                time: Nanos(time.0.saturating_sub(back.saturating_mul(step))),
                thread: threads[&sample.thread],
                stack: NodeId(sample.stack),
                labels: LabelSetId::NONE,
                source: SourceId::TIME,
            }));
        }
        if let Some(memory) = sample.memory {
            moments.push(Moment::Memory(Memory {
                time,
                rss: u64::try_from(memory).ok().map(|kib| kib * 1024),
                ..Memory::default()
            }));
        }
    }
    moments
}

/// The number of periods that a sample stands for: `LogReader.sample_weight` of VMProf 0.6, as
/// integers with the correct sum.
struct Weigh<'a> {
    recording: &'a Recording,
    /// Time of the sample before: for each thread with the wall clock, else for all threads together.
    before: HashMap<Option<i64>, i64>,
    carry: f64,
}

impl<'a> Weigh<'a> {
    fn new(recording: &'a Recording) -> Self {
        Self {
            recording,
            before: HashMap::new(),
            carry: 0.0,
        }
    }

    fn periods(&mut self, sample: &RawSample) -> u64 {
        // The fork's times are for display only; each of its samples counts as one.
        let of_fork = self
            .recording
            .descriptions
            .contains_key("start_time_offset");
        let (Some(time), false, 1..) = (sample.time, of_fork, self.recording.period) else {
            return 1;
        };
        let key = self.recording.real_time.then_some(sample.thread);
        let before = self.before.get(&key).copied();
        let latest = before.map_or(time, |before| before.max(time));
        self.before.insert(key, latest);
        let gap = before.map_or(0, |before| (time - before).clamp(0, LONGEST_GAP));
        let periods = (gap as f64 / (self.recording.period as f64 * 1_000.0)).max(1.0);
        let exact = periods + self.carry;
        let whole = exact.round().max(0.0);
        self.carry = exact - whole;
        (whole as u64).min(MOST_PERIODS)
    }
}

/// The collector's record of a sampled object.
struct SampledObject {
    type_number: i64,
    survived: bool,
}

/// The objects in the order of allocation samples. The word of each is `type << 2 | external << 1 |
/// survived`. A record has them in reverse order.
fn sampled_objects(recording: &Recording) -> impl Iterator<Item = SampledObject> + '_ {
    let statistics = statistics(recording).len();
    recording.objects.iter().flat_map(move |objects| {
        let count = objects.words.len().saturating_sub(statistics);
        let words = objects.words[..count].iter().rev();
        words.map(|&word| SampledObject {
            type_number: word >> 2,
            survived: word & 1 == 1,
        })
    })
}

fn allocations(
    recording: &Recording,
    clock: &Clock,
    threads: &HashMap<i64, ThreadId>,
    types: &HashMap<i64, TypeId>,
) -> Vec<Moment> {
    let period = period(recording);
    let mut objects = sampled_objects(recording);
    let samples = recording.allocations.iter().enumerate();
    samples
        .map(|(number, sample)| {
            let object = objects.next();
            let type_number = object.as_ref().map(|object| object.type_number);
            let type_id = type_number.and_then(|number| types.get(&number));
            Moment::Allocation(Allocation {
                time: clock.time(sample.time, number),
                thread: threads[&sample.thread],
                stack: NodeId(sample.stack),
                size: period,
                block: period,
                points: 1,
                type_id: type_id.copied().unwrap_or(TypeId::UNKNOWN),
                labels: LabelSetId::NONE,
                source: SourceId::ALLOCATIONS,
                survival: match object.map(|object| object.survived) {
                    Some(true) => Survival::Survived,
                    Some(false) => Survival::DiedYoung,
                    None => Survival::Unsaid,
                },
            })
        })
        .collect()
}

/// The names of the collector's statistics, in the order in which a record ends with them.
fn statistics(recording: &Recording) -> Vec<&str> {
    let name = |number| recording.descriptions.get(&format!("gc_stats__{number}"));
    (0..).map_while(name).map(String::as_str).collect()
}

/// A minor collection for each record of objects, with the record's memory totals; and a major
/// collection from the record in which the collector is not in its first phase, until it is again.
fn collections(recording: &Recording, clock: &Clock) -> Vec<Moment> {
    let names = statistics(recording);
    let mut moments = Vec::new();
    let mut major = None;
    for (number, objects) in recording.objects.iter().enumerate() {
        let time = clock.time(objects.time, number);
        let first = objects.words.len().saturating_sub(names.len());
        let values = &objects.words[first..];
        let value = |wanted: &str| {
            let at = names
                .iter()
                .position(|name| name.eq_ignore_ascii_case(wanted))?;
            u64::try_from(*values.get(at)?).ok()
        };
        let memory = Memory {
            time,
            heap_used: value("total_memory_used"),
            heap_reserved: value("total_size_of_arenas"),
            rss: value("VmRSS"),
            allocated: None,
            peak_rss: None,
        };
        let minor = Collection {
            start: time,
            duration: Nanos(0),
            thread: ThreadId(0),
            kind: CollectionKind::Minor,
            freed_objects: None,
            bytes_before: None,
            bytes_after: memory.heap_used,
        };
        moments.push(Moment::Collection(minor));
        match (value("gc_state"), major) {
            (Some(1..), None) => major = Some((time, memory.heap_used)),
            (Some(0), Some((start, bytes_before))) => {
                moments.push(Moment::Collection(Collection {
                    start,
                    duration: Nanos(time.0.saturating_sub(start.0)),
                    kind: CollectionKind::Major,
                    bytes_before,
                    ..minor
                }));
                major = None;
            }
            _ => {}
        }
        if !names.is_empty() {
            moments.push(Moment::Memory(memory));
        }
    }
    moments
}
