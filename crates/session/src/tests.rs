//! A session without an interpreter.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use nthbyte_profile::event::{
    Allocation, Code, Event, FrameKind, LabelSetId, Lines, Nanos, Node, NodeId, SourceId, Survival,
    Thread, ThreadId, TypeId,
};
use nthbyte_profile::{Method, Reader};

use super::waiting::Waiting;
use super::{Config, Recorder};

/// What a reader finds now: allocations, damages (the file may be written to meanwhile), and whether the
/// session has ended.
fn read(path: &Path) -> (Vec<Allocation>, usize, bool) {
    let (mut allocations, mut gaps, mut ended) = (Vec::new(), 0, false);
    let mut reader = Reader::open(path).unwrap();
    while let Some(mut block) = reader.next_block().unwrap() {
        gaps += usize::from(block.gap().any);
        while let Some(event) = block.next_event() {
            match event {
                Event::Allocation(allocation) => allocations.push(allocation),
                Event::End(_) => ended = true,
                _ => {}
            }
        }
    }
    (allocations, gaps + reader.damage().len(), ended)
}

fn wait_for(path: &Path, samples: usize) -> Vec<Allocation> {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let (found, damages, ended) = read(path);
        if found.len() == samples && damages == 0 {
            assert!(!ended);
            return found;
        }
        assert!(Instant::now() < patience, "{} samples", found.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Session {
    recorder: Recorder,
    sample: Allocation,
}

impl Session {
    fn start(path: &Path, distances: &str) -> Self {
        let period = if distances == "every" { 1 } else { 512 };
        let json = serde_json::json!({"output": path, "period": period, "distances": distances});
        let config = Config::parse(&json.to_string()).unwrap();
        let meta = config.meta(Method::NurseryLimit, 1, Vec::new());
        let mut recorder = Recorder::start(&config, meta).unwrap();
        let thread = recorder.thread(&Thread { os_id: 1, name: "" }).unwrap();
        let code = recorder.code(&Code {
            name: "f",
            file: "f.py",
            first_line: 1,
            lines: Lines::Direct,
        });
        let stack = recorder.node(Node {
            parent: NodeId::ROOT,
            code: code.unwrap(),
            position: 1,
            kind: FrameKind::Interpreted,
        });
        let sample = Allocation {
            time: Nanos(0),
            thread,
            stack: stack.unwrap(),
            size: 32,
            block: 32,
            points: 1,
            type_id: TypeId::UNKNOWN,
            labels: LabelSetId::NONE,
            source: SourceId::ALLOCATIONS,
            survival: Survival::Unsaid,
        };
        Self { recorder, sample }
    }

    /// Announces a sample of this size.
    fn announce(&mut self, size: u64) -> Allocation {
        let now = self.recorder.now();
        self.recorder.attend(now);
        // In microseconds, as it will be read, and no two of one time.
        let time = Nanos((now.0 / 1000 * 1000).max(self.sample.time.0 + 1000));
        self.sample.time = time;
        let sample = Allocation {
            time,
            size,
            block: size,
            ..self.sample
        };
        // The writer thread may be late, and then it is left out.
        while !self.recorder.announce(sample) {
            std::thread::sleep(Duration::from_millis(1));
        }
        sample
    }

    fn record(&mut self, sample: Allocation) -> Allocation {
        let survival = Survival::Survived;
        let sample = Allocation { survival, ..sample };
        self.recorder.allocation(sample).unwrap();
        sample
    }
}

/// One after the other: a fork is the business of the session that began last.
#[test]
fn what_waits_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    for distances in ["exponential", "every"] {
        what_waits_is_at_the_end_of_the_file(&folder.path().join(distances), distances);
    }
    what_waits_is_in_the_file_of_a_process_that_forks(&folder.path().join("fork"));
}

fn what_waits_is_at_the_end_of_the_file(path: &Path, distances: &str) {
    let mut session = Session::start(path, distances);
    let mut waiting: Vec<_> = (0..1000).map(|size| session.announce(size)).collect();
    assert_eq!(wait_for(path, 1000), waiting);
    waiting.extend((0..3).map(|size| session.announce(size)));
    assert_eq!(wait_for(path, 1003), waiting);

    // More becomes known of some.
    for sample in &mut waiting[100..200] {
        sample.size += 1_000_000;
        session.recorder.announce(*sample);
    }
    let patience = Instant::now() + Duration::from_secs(20);
    while read(path).0 != waiting {
        assert!(Instant::now() < patience);
        std::thread::sleep(Duration::from_millis(5));
    }

    // Some of them are not waiting any more.
    let mut expected = waiting;
    for sample in &mut expected[..500] {
        *sample = session.record(*sample);
    }
    let survived = |found: &[Allocation]| {
        found
            .iter()
            .filter(|one| one.survival == Survival::Survived)
            .count()
    };
    while survived(&read(path).0) < 500 {
        assert!(Instant::now() < patience);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(wait_for(path, 1003), expected);

    // So many that a block is full, and those that wait are none the less there.
    let mut many: Vec<_> = (0..20_000)
        .map(|size| session.announce(size * 77))
        .collect();
    expected.append(&mut many);
    assert_eq!(wait_for(path, 21_003), expected);
    for sample in &mut expected[500..21_000] {
        *sample = session.record(*sample);
    }
    while survived(&read(path).0) == 500 {
        assert!(Instant::now() < patience);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(wait_for(path, 21_003).len(), 21_003);

    for sample in &mut expected[21_000..] {
        *sample = session.record(*sample);
    }
    let outcome = session.recorder.finish(None);
    assert_eq!(outcome.samples, 21_003);
    assert_eq!(read(path), (expected, 0, true));
}

fn what_waits_is_in_the_file_of_a_process_that_forks(path: &Path) {
    let mut session = Session::start(path, "exponential");
    let mut expected: Vec<_> = (0..10).map(|size| session.announce(size)).collect();
    // SAFETY: the child does nothing but end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child without running anything of this process.
        unsafe { libc::_exit(0) };
    }
    assert_eq!(read(path), (expected.clone(), 0, false));
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    for sample in &mut expected {
        *sample = session.record(*sample);
    }
    let _ = session.recorder.finish(None);
    assert_eq!(read(path), (expected, 0, true));
}

/// All sequences of eight steps: one is announced, the next one is recorded, or is lost and the one after it
/// is recorded.
#[test]
fn a_sample_waits_until_it_is_recorded() {
    for sequence in 0..3_u32.pow(8) {
        let mut waiting = Waiting::default();
        let mut expected = VecDeque::new();
        for step in 0..8 {
            match sequence / 3_u32.pow(step) % 3 {
                0 => {
                    waiting.announce(at(step.into()));
                    expected.push_back(u64::from(step));
                }
                several => {
                    let done = expected.len().min(several as usize);
                    if let Some(last) = expected.drain(..done).next_back() {
                        waiting.recorded(Nanos(last));
                    }
                }
            }
            waiting.overwritten();
            let late = Nanos(8);
            let found = waiting.take_changed(late).into_iter().flatten();
            assert!(found.map(|sample| sample.time.0).eq(expected.clone()));
            assert!(waiting.take_changed(late).is_none(), "nothing has changed");
            waiting.overwritten();
            let early = expected
                .front()
                .map_or(0, |oldest| oldest.saturating_sub(1));
            let is_oldest = expected.front() == Some(&0);
            assert_eq!(
                waiting.take_changed(Nanos(early)).is_some(),
                is_oldest,
                "too young"
            );
        }
    }
}

fn at(time: u64) -> Allocation {
    Allocation {
        time: Nanos(time),
        thread: ThreadId(0),
        stack: NodeId::ROOT,
        size: 1,
        block: 1,
        points: 1,
        type_id: TypeId::UNKNOWN,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
        survival: Survival::Unsaid,
    }
}
