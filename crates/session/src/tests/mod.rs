//! Tests of sessions without an interpreter.

mod fork_state;
mod forks;
mod keep;
mod last_line;
mod libraries;
mod memory;
mod pace;
mod pending;
mod termination;
mod threads;
mod ticks;
mod touched;
mod unfinished;
mod waits;

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nthbyte_profile::event::{
    Allocation, Code, CpuSample, Event, FrameKind, LabelSetId, Lines, LostKind, Node, NodeId,
    SampleId, SourceId, Survival, ThreadId, TypeId,
};
use nthbyte_profile::{Method, Reader};

use crate::{Appearance, Config, Host, Recording, Session};

/// For what must happen some time: only against what hangs, on a slow machine too.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(600);

/// While one test forks, no other thread can record, so the tests run one at a time.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that is alone: an empty folder.
pub(crate) struct Alone {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// Waits for the turn, and names a profile that is not there yet.
pub(crate) fn alone(name: &str) -> (Alone, PathBuf) {
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (Alone { folder, _turn }, path)
}

fn start(path: &Path, distances: &str, period: u64) -> Session {
    let period = if distances == "every" { 1 } else { period };
    start_with(serde_json::json!({"output": path, "period": period, "distances": distances}))
}

fn start_with(json: serde_json::Value) -> Session {
    start_hosted(json, &PLAIN)
}

/// A session of exponential distances whose host has something to prepare.
fn start_preparing(path: &Path, prepare: fn()) -> Session {
    let json = serde_json::json!({"output": path, "period": 512, "distances": "exponential"});
    start_hosted(json, Box::leak(Box::new(Preparing(prepare))))
}

/// A session of exponential distances whose host counts threads.
fn start_counted(path: &Path, period: u64) -> Session {
    let json = serde_json::json!({"output": path, "period": period, "distances": "exponential"});
    start_hosted(json, &Counted)
}

fn start_hosted(json: serde_json::Value, host: &'static impl Host) -> Session {
    let config = Config::parse(&json.to_string()).unwrap();
    let meta = config.meta(Method::NurseryLimit, 1, Vec::new());
    Session::start(&config, meta, host).unwrap()
}

/// A host without anything.
pub(crate) struct Plain;

pub(crate) static PLAIN: Plain = Plain;

impl Host for Plain {}

/// A host with this [`Host::prepare`].
struct Preparing(fn());

impl Host for Preparing {
    fn prepare(&self) {
        (self.0)();
    }
}

/// A host whose process's threads are counted after each fork.
struct Counted;

impl Host for Counted {
    fn counts_threads(&self) -> bool {
        true
    }
}

/// A stack with one frame. A new function is defined first.
fn a_function(recording: &mut Recording<'_>, key: u64) -> NodeId {
    let known = recording.function(key).unwrap_or_else(|| {
        let code = Code {
            name: &format!("function {key}"),
            file: "f.py",
            first_line: 1,
            lines: Lines::Direct,
        };
        recording
            .define_function(key, &code, Appearance::Frame)
            .unwrap()
    });
    let Appearance::Frame(code) = known else {
        panic!("{known:?}")
    };
    let node = Node {
        parent: NodeId::ROOT,
        code,
        position: 1,
        kind: FrameKind::Interpreted,
    };
    recording.node(node).unwrap()
}

fn an_allocation(recording: &mut Recording<'_>, stack: NodeId, size: u64) -> Option<SampleId> {
    let allocation = of_size(recording, stack, size)?;
    let period = recording.period();
    recording.allocation(allocation, period)
}

/// An allocation that is not recorded yet. `None` if there is no room for its thread.
fn of_size(recording: &mut Recording<'_>, stack: NodeId, size: u64) -> Option<Allocation> {
    Some(Allocation {
        time: recording.now(),
        thread: recording.thread(1)?,
        stack,
        size,
        block: size,
        points: 1,
        type_id: TypeId::UNKNOWN,
        survival: Survival::Unsaid,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
    })
}

/// The content of a profile, as a reader finds it.
#[derive(Debug, Default)]
struct Profile {
    allocations: Vec<Allocation>,
    /// The period of each allocation, and the one in force.
    periods: Vec<u64>,
    period: u64,
    /// The samples that were freed, in the order of the frees.
    freed: Vec<SampleId>,
    cpu: Vec<CpuSample>,
    functions: Vec<String>,
    /// The nodes, numbered from 1.
    nodes: Vec<Node>,
    threads: Vec<u64>,
    lost: u64,
    /// Number of gaps and damaged places: the file may change while it is read.
    damage: usize,
    end: bool,
}

impl Profile {
    /// Reads the file and checks that each definition precedes its uses.
    fn read(path: &Path) -> Self {
        let mut found = Self::default();
        let mut reader = Reader::open(path).unwrap();
        found.period = reader.meta().period();
        while let Some(mut block) = reader.next_block().unwrap() {
            found.damage += usize::from(block.gap().any);
            while let Some(event) = block.next_event() {
                found.add(&event);
            }
        }
        found.damage += reader.damage().len();
        found
    }

    fn add(&mut self, event: &Event<'_>) {
        let is_defined = |stack: NodeId, thread: ThreadId| {
            assert!(stack.0 as usize <= self.nodes.len(), "{event:?}");
            assert!((thread.0 as usize) < self.threads.len(), "{event:?}");
        };
        match event {
            Event::Code(code) => self.functions.push(code.name.to_owned()),
            Event::Node(node) => {
                assert!(node.parent.0 as usize <= self.nodes.len());
                assert!((node.code.0 as usize) < self.functions.len());
                self.nodes.push(*node);
            }
            Event::Thread(thread) => self.threads.push(thread.os_id),
            Event::Allocation(sample) => {
                is_defined(sample.stack, sample.thread);
                self.allocations.push(*sample);
                self.periods.push(self.period);
            }
            Event::Freed(sample, _) => {
                assert!((sample.0 as usize) < self.allocations.len(), "{event:?}");
                self.freed.push(*sample);
            }
            Event::Cpu(sample) => {
                is_defined(sample.stack, sample.thread);
                self.cpu.push(*sample);
            }
            Event::Period(SourceId::ALLOCATIONS, period) => self.period = *period,
            Event::Lost(_, events) => self.lost += events,
            Event::End(_) => self.end = true,
            _ => {}
        }
    }

    /// The name of the function at the innermost end of a stack.
    fn function(&self, stack: NodeId) -> &str {
        &self.functions[self.nodes[stack.0 as usize - 1].code.0 as usize]
    }
}

/// Makes a named pipe of 4 KiB, and opens its reading end. Samples compress well: a pipe of the usual 64 KiB may hold all
/// that a test writes.
fn small_pipe(path: &Path) -> File {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a terminated string. The descriptor is new, and closed by the file.
    let reader = unsafe {
        assert_eq!(libc::mkfifo(name.as_ptr(), 0o600), 0);
        let open = libc::O_RDONLY | libc::O_NONBLOCK;
        File::from_raw_fd(libc::open(name.as_ptr(), open))
    };
    // SAFETY: only changes the size of the pipe.
    let size = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(size, 4096);
    reader
}

/// Records this many samples, and returns how many succeeded.
fn record(session: &Session, samples: u64) -> u64 {
    let mut recorded = 0;
    for number in 0..samples {
        if let Some(mut recording) = session.record(LostKind::Allocations) {
            let stack = a_function(&mut recording, number % 10);
            recorded += u64::from(an_allocation(&mut recording, stack, number).is_some());
        }
    }
    recorded
}

/// Runs `child` in a forked child and waits for it. Returns whether the child succeeded.
fn in_child(child: impl FnOnce()) -> bool {
    Child::running(child).succeeds()
}

/// A forked child.
struct Child(libc::pid_t);

impl Child {
    /// Begins to run `child` in a forked child.
    fn running(child: impl FnOnce()) -> Self {
        // SAFETY: the child runs `child` and then ends, without running other code of this process.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let work = std::panic::AssertUnwindSafe(child);
            let is_well = std::panic::catch_unwind(work).is_ok();
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!is_well)) };
        }
        Self(process)
    }

    /// Waits for its end, and returns whether it succeeded.
    fn succeeds(self) -> bool {
        let status = self.status();
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    /// Waits for its end, and returns the status that the kernel gives.
    fn status(self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: waits for the child that was made.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        status
    }
}

/// A few stacks with ten thousand new frames each, at the default period.
#[test]
fn deep_new_stacks_are_not_lost() {
    let _lock = one_at_a_time();
    const DEPTH: u32 = 10_000;
    const STACKS: u32 = 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep");
    let session = start(&path, "exponential", 512 << 10);
    for number in 0..STACKS {
        let mut recording = session.record(LostKind::Allocations).unwrap();
        let mut stack = a_function(&mut recording, number.into());
        let Some(Appearance::Frame(code)) = recording.function(number.into()) else {
            panic!("it was defined")
        };
        for position in 0..DEPTH {
            let node = Node {
                parent: stack,
                code,
                position,
                kind: FrameKind::Interpreted,
            };
            stack = recording.node(node).unwrap();
        }
        assert!(an_allocation(&mut recording, stack, 100).is_some());
    }
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (STACKS.into(), 0));
    let found = Profile::read(&path);
    assert_eq!(found.nodes.len(), ((DEPTH + 1) * STACKS) as usize);
    for (number, sample) in found.allocations.iter().enumerate() {
        let mut stack = sample.stack;
        for position in (0..DEPTH).rev() {
            let node = found.nodes[stack.0 as usize - 1];
            assert_eq!(node.position, position);
            stack = node.parent;
        }
        assert_eq!(found.function(stack), format!("function {number}"));
    }
}

/// Each definition with a number reaches the file, even if the ring had no room for it at first.
#[test]
fn definitions_wait_for_room() {
    let (_alone, path) = alone("full");
    let session = start(&path, "exponential", 512 << 10);
    // Without the writer thread, no record leaves the ring.
    session.with_writer(|writer| {
        writer.stop_for_fork();
        writer.limits().has_threads = false;
    });
    let (mut recorded, mut lost) = (0, 0);
    for number in 0..3000 {
        let mut recording = session.record(LostKind::Allocations).unwrap();
        let stack = a_function(&mut recording, number);
        match an_allocation(&mut recording, stack, number) {
            Some(_) => recorded += 1,
            None => lost += 1,
        }
    }
    assert!(recorded > 100 && lost > 100, "{recorded} {lost}");
    session.with_writer(|writer| writer.limits().has_threads = true);
    // The last function was defined while the ring was full.
    let again = || {
        let mut recording = session.record(LostKind::Other)?;
        let stack = a_function(&mut recording, 2999);
        an_allocation(&mut recording, stack, 2999)
    };
    while again().is_none() {
        lost += 1;
        session.with_writer(crate::writer::Writer::wake);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let outcome = session.finish(None);
    assert_eq!((outcome.samples, outcome.lost), (recorded + 1, lost));
    let found = Profile::read(&path);
    for sample in &found.allocations {
        assert_eq!(
            found.function(sample.stack),
            format!("function {}", sample.size)
        );
    }
}

#[test]
fn a_tick_becomes_a_time_sample() {
    let _lock = one_at_a_time();
    use crate::ticks::{TICKS, TickSamples};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ticks");
    let session = start(&path, "exponential", 512);
    TICKS.begin(true).unwrap();
    for number in 0..3_u8 {
        TICKS.store(number.into(), &[number]);
    }
    TICKS.lose();
    let before = session.now();
    let mut recording = session.record(LostKind::Other).unwrap();
    let gil = recording.label(LabelSetId::NONE, "gil", "held").unwrap();
    assert_ne!(gil, LabelSetId::NONE);
    assert_eq!(recording.label(LabelSetId::NONE, "gil", "held"), Some(gil));
    assert_ne!(
        recording.label(LabelSetId::NONE, "gil", "released"),
        Some(gil)
    );
    let mut read = |most| {
        recording.ticks(most, |recording, tick| {
            assert_eq!(tick.word, u64::from(tick.stack[0]));
            (tick.word != 1).then(|| TickSamples {
                stack: a_function(recording, tick.word),
                labels: gil,
                samples: 1 + tick.word as u32 / 2,
            })
        })
    };
    assert_eq!([read(2), read(2), read(2)], [2, 1, 0]);
    // What follows cannot be trusted.
    TICKS.store(1, &[1]);
    TICKS.distrust();
    assert_eq!(read(2), 1);
    drop(recording);
    TICKS.end();
    let outcome = session.finish(None);
    let found = Profile::read(&path);
    let names = found.cpu.iter().map(|sample| found.function(sample.stack));
    assert!(names.eq(["function 0", "function 2", "function 2"]));
    assert!(
        found
            .cpu
            .iter()
            .all(|sample| sample.labels == LabelSetId(1))
    );
    assert!(found.cpu.iter().all(|sample| sample.time <= before));
    // SAFETY: no preconditions.
    let thread = unsafe { libc::gettid() }.cast_unsigned();
    assert_eq!(found.threads, [u64::from(thread)]);
    assert_eq!((outcome.lost, found.lost), (3, 3));
}
