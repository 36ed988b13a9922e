//! Tests of samples that are published provisionally.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use nthbyte_profile::event::{
    Allocation, LabelSetId, LostKind, Nanos, NodeId, SourceId, Survival, ThreadId, TypeId,
};

use crate::Session;
use crate::writer::Pending;

use super::{LONGEST, Profile, a_function, one_at_a_time, start};

fn read(path: &Path) -> (Vec<Allocation>, usize, bool) {
    let found = Profile::read(path);
    (found.allocations, found.damage, found.end)
}

fn wait_for(path: &Path, samples: usize) -> Vec<Allocation> {
    let deadline = Instant::now() + LONGEST;
    loop {
        let (found, damages, ended) = read(path);
        if found.len() == samples && damages == 0 {
            assert!(!ended);
            return found;
        }
        assert!(Instant::now() < deadline, "{} samples", found.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Sampler {
    session: Session,
    sample: Allocation,
    period: u64,
}

impl Sampler {
    fn start(path: &Path, distances: &str) -> Self {
        let session = start(path, distances, 512);
        let mut recording = session.record(LostKind::Other).unwrap();
        let thread = recording.thread(1).unwrap();
        let stack = a_function(&mut recording, 1);
        drop(recording);
        let sample = Allocation {
            time: Nanos(0),
            thread,
            stack,
            size: 32,
            block: 32,
            points: 1,
            type_id: TypeId::UNKNOWN,
            labels: LabelSetId::NONE,
            source: SourceId::ALLOCATIONS,
            survival: Survival::Unsaid,
        };
        Self {
            session,
            sample,
            period: if distances == "every" { 1 } else { 512 },
        }
    }

    /// Publishes a sample of this size.
    fn publish(&mut self, size: u64) -> Allocation {
        // Whole microseconds, as a reader sees them, and a different time for each sample.
        let now = self.session.now().0 / 1000 * 1000;
        let time = Nanos(now.max(self.sample.time.0 + 1000));
        self.sample.time = time;
        let sample = Allocation {
            time,
            size,
            block: size,
            ..self.sample
        };
        self.publish_again(sample);
        sample
    }

    fn publish_again(&self, sample: Allocation) {
        // If the writer thread is late, the ring is half full and the sample is not published.
        let publish = || {
            let mut recording = self.session.record(LostKind::Other)?;
            recording
                .publish_provisionally(sample, self.period)
                .then_some(())
        };
        while publish().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn record(&mut self, sample: Allocation) -> Allocation {
        let survival = Survival::Survived;
        let sample = Allocation { survival, ..sample };
        let record = || {
            let mut recording = self.session.record(LostKind::Other)?;
            recording.allocation(sample, self.period)
        };
        while record().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        sample
    }
}

#[test]
fn what_is_pending_can_be_read() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    for distances in ["exponential", "every"] {
        what_is_pending_is_at_the_end_of_the_file(&folder.path().join(distances), distances);
    }
}

fn what_is_pending_is_at_the_end_of_the_file(path: &Path, distances: &str) {
    let mut sampler = Sampler::start(path, distances);
    let mut waiting: Vec<_> = (0..1000).map(|size| sampler.publish(size)).collect();
    assert_eq!(wait_for(path, 1000), waiting);
    waiting.extend((0..3).map(|size| sampler.publish(size)));
    assert_eq!(wait_for(path, 1003), waiting);

    // Some samples are published again with more details.
    for sample in &mut waiting[100..200] {
        sample.size += 1_000_000;
        sampler.publish_again(*sample);
    }
    let deadline = Instant::now() + LONGEST;
    while read(path).0 != waiting {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }

    // Some samples are no longer pending.
    let mut expected = waiting;
    for sample in &mut expected[..500] {
        *sample = sampler.record(*sample);
    }
    let survived = |found: &[Allocation]| {
        found
            .iter()
            .filter(|one| one.survival == Survival::Survived)
            .count()
    };
    while survived(&read(path).0) < 500 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(wait_for(path, 1003), expected);

    // Enough samples to fill a block. The pending samples are still in the file after that.
    let mut many: Vec<_> = (0..20_000).map(|size| sampler.publish(size * 77)).collect();
    expected.append(&mut many);
    assert_eq!(wait_for(path, 21_003), expected);
    for sample in &mut expected[500..21_000] {
        *sample = sampler.record(*sample);
    }
    while survived(&read(path).0) == 500 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(wait_for(path, 21_003).len(), 21_003);

    for sample in &mut expected[21_000..] {
        *sample = sampler.record(*sample);
    }
    let outcome = sampler.session.finish(None);
    assert_eq!(outcome.samples, 21_003);
    assert_eq!(read(path), (expected, 0, true));
}

#[test]
fn what_is_pending_is_in_the_file_of_a_process_that_forks() {
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("fork");
    let mut sampler = Sampler::start(path, "exponential");
    let mut expected: Vec<_> = (0..10).map(|size| sampler.publish(size)).collect();
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
        *sample = sampler.record(*sample);
    }
    let _ = sampler.session.finish(None);
    assert_eq!(read(path), (expected, 0, true));
}

/// All sequences of eight steps. A step publishes a sample, records the next one, or loses the next one and records the
/// one after it.
#[test]
fn a_sample_is_pending_until_it_is_recorded() {
    for sequence in 0..3_u32.pow(8) {
        let mut pending = Pending::default();
        let mut expected = VecDeque::new();
        for step in 0..8 {
            match sequence / 3_u32.pow(step) % 3 {
                0 => {
                    pending.publish(at(step.into()), 512);
                    expected.push_back(u64::from(step));
                }
                several => {
                    let done = expected.len().min(several as usize);
                    if let Some(last) = expected.drain(..done).next_back() {
                        pending.recorded(Nanos(last));
                    }
                }
            }
            pending.overwritten();
            let late = Nanos(8);
            let found = pending.take_changed(late).into_iter().flatten();
            assert!(found.map(|(sample, _)| sample.time.0).eq(expected.clone()));
            assert!(pending.take_changed(late).is_none(), "nothing has changed");
            pending.overwritten();
            let early = expected
                .front()
                .map_or(0, |oldest| oldest.saturating_sub(1));
            let is_oldest = expected.front() == Some(&0);
            assert_eq!(
                pending.take_changed(Nanos(early)).is_some(),
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
