//! A profile in several files, of which old ones are dropped.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nthbyte_profile::Profile;
use nthbyte_profile::event::{LostKind, SampleId};
use nthbyte_profile::folder::earlier;
use nthbyte_profile::model::Lifetime;
use nthbyte_profile::segment::folder_of;

use super::{Alone, a_function, alone, an_allocation, start_with};
use crate::Session;

/// An hour: longer than a test. Parts have 60 ms.
const AN_HOUR: u64 = 3_600_000_000_000;

/// A profile in several files.
struct Divided {
    path: PathBuf,
    alone: Alone,
}

impl Divided {
    fn new() -> Self {
        let (alone, path) = alone("app.nthb");
        Self { path, alone }
    }

    /// Starts a session whose files are kept so long, in nanoseconds.
    fn keep(nanos: u64) -> (Self, Session) {
        let divided = Self::new();
        let session = divided.start(serde_json::json!({"nanos": nanos, "part_nanos": 60_000_000}));
        (divided, session)
    }

    fn start(&self, keep: serde_json::Value) -> Session {
        start_with(serde_json::json!({
            "output": self.path, "period": 1, "distances": "every", "keep": keep,
            "run": 7, "command": ["app"], "interpreter": "CPython 3.13.0",
        }))
    }

    /// All files of the profile, in their order.
    fn files(&self) -> Vec<PathBuf> {
        let mut all = earlier(&self.path);
        all.push(self.path.clone());
        all
    }
}

fn load(paths: &[PathBuf]) -> Profile {
    Profile::load_all(paths, |_, _| ()).unwrap()
}

/// Records until there are so many files, and returns what lives on, oldest first.
fn record(session: &Session, path: &Path, files: usize, kept: &mut Vec<SampleId>) {
    let mut step = 0_u64;
    while earlier(path).len() < files {
        step += 1;
        let mut recording = session.record(LostKind::Allocations).unwrap();
        let stack = a_function(&mut recording, step % 5);
        let one = an_allocation(&mut recording, stack, 100 + step).unwrap();
        let time = recording.now();
        if step.is_multiple_of(4) {
            kept.push(one);
        } else {
            recording.freed(one, time);
        }
        if step.is_multiple_of(64) && kept.len() > 4 {
            // One that is old by now.
            recording.freed(kept.remove(0), time);
        }
        recording.wake_writer();
        drop(recording);
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn files_are_whole_alone_and_together() {
    let divided = Divided::new();
    let session = divided
        .start(serde_json::json!({"nanos": AN_HOUR, "bytes": 1 << 30, "part_nanos": 60_000_000}));
    let mut kept = Vec::new();
    record(&session, &divided.path, 4, &mut kept);
    let samples = session.finish(None).samples;

    let files = divided.files();
    assert!(files.len() >= 5);
    let whole = load(&files);
    assert_eq!(whole.processes.len(), 1);
    assert_eq!(whole.samples.len() as u64, samples);
    assert!(whole.complete && whole.damage.is_empty());
    let of = |profile: &Profile, lifetime: Lifetime| {
        let ids = profile.samples.ids();
        ids.filter(|&id| profile.samples.lifetime(id) == lifetime)
            .count()
    };
    assert_eq!(of(&whole, Lifetime::StillLive), kept.len());
    assert_eq!(whole.threads.len(), 1);
    // Each sample has the stack and the size that it was recorded with, also those that were carried.
    for sample in whole.samples.iter() {
        let frame = whole.stack(sample.stack).next().unwrap();
        let step = sample.shape.size - 100;
        let name = &whole.functions[frame.function as usize].name;
        assert_eq!(name, &format!("function {}", step % 5));
    }
    // Alone, the last one has all that is alive, and what it has seen itself.
    let last = load(&files[files.len() - 1..]);
    assert_eq!(of(&last, Lifetime::StillLive), kept.len());
    assert!(last.samples.len() < whole.samples.len());
    assert_eq!(last.end, whole.end);
    assert!(
        last.meta
            .notes
            .iter()
            .any(|note| note.contains("was dropped")),
        "{:?}",
        last.meta.notes
    );
    assert!(
        whole
            .meta
            .notes
            .iter()
            .all(|note| !note.contains("was dropped"))
    );
    // Where one is missing, what was freed in it is not alive, and nothing counts twice.
    let gap: Vec<PathBuf> = files
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != 2)
        .map(|(_, path)| path.clone())
        .collect();
    let with_gap = load(&gap);
    assert_eq!(of(&with_gap, Lifetime::StillLive), kept.len());
    assert!(with_gap.samples.len() < whole.samples.len());
    // The same where one is damaged from its first block on.
    let bytes = std::fs::read(&files[2]).unwrap();
    std::fs::write(&files[2], &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(of(&load(&files), Lifetime::StillLive), kept.len());
    let mut damaged = bytes;
    let block = damaged
        .windows(4)
        .position(|four| four == b"\xf5nbk")
        .unwrap();
    damaged[block + 20] ^= 1;
    std::fs::write(&files[2], &damaged).unwrap();
    let with_damage = load(&files);
    assert_eq!(of(&with_damage, Lifetime::StillLive), kept.len());
    assert!(!with_damage.damage.is_empty());
}

/// A program that makes new code, types and threads all the time.
#[test]
fn new_definitions_without_end_need_a_bounded_memory() {
    let (divided, session) = Divided::keep(AN_HOUR);
    let (mut kept, mut most) = (Vec::new(), 0);
    for step in 0..100_000_u64 {
        let mut recording = session.record(LostKind::Allocations).unwrap();
        recording.thread_named_by_system(step).unwrap();
        let stack = a_function(&mut recording, step);
        let one = an_allocation(&mut recording, stack, 100 + step).unwrap();
        if step.is_multiple_of(1000) {
            kept.push(one);
        } else {
            let time = recording.now();
            recording.freed(one, time);
            recording.forget_function(step);
        }
        let interner = &recording.recorder.interner;
        most = most.max(interner.functions.defined() as usize + interner.threads.defined());
    }
    assert!(most < 2 * (1 << 14) + 100, "{most}");
    assert_eq!(session.finish(None).samples, 100_000);
    let whole = load(&divided.files());
    assert!(whole.complete && whole.damage.is_empty());
    assert_eq!(whole.samples.len(), 100_000);
    for sample in whole.samples.iter() {
        let frame = whole.stack(sample.stack).next().unwrap();
        let name = &whole.functions[frame.function as usize].name;
        assert_eq!(name, &format!("function {}", sample.shape.size - 100));
    }
    let alive = whole.samples.ids();
    let alive = alive.filter(|&id| whole.samples.lifetime(id) == Lifetime::StillLive);
    assert_eq!(alive.count(), kept.len());
}

/// The writer thread has a table of descriptors of its own, so the program's table still has the first file.
#[test]
fn a_file_that_was_divided_stays_open_nowhere() {
    let (divided, session) = Divided::keep(AN_HOUR);
    let mut kept = Vec::new();
    record(&session, &divided.path, 2, &mut kept);
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let all = all.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
        all.filter(|target| target.starts_with(divided.alone.folder.path()))
            .collect::<Vec<_>>()
    };
    // The next wake of the thread closes it, and a busy machine lets the thread wait.
    let begun = Instant::now();
    while !open().is_empty() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
        drop(session.record(LostKind::Other).unwrap());
    }
    assert_eq!(open(), [] as [PathBuf; 0]);
    session.finish(None);
    assert_eq!(open(), [] as [PathBuf; 0]);
}

#[test]
fn old_files_become_sums_and_then_nothing() {
    // What a part of this has is dropped after 0.2 s, and its sums after 3.2 s.
    let (divided, session) = Divided::keep(200_000_000);
    let mut kept = Vec::new();
    record(&session, &divided.path, 8, &mut kept);
    let samples = session.finish(None).samples;
    let whole = load(&divided.files());
    let sums = &whole.processes[0].sums;
    assert!(!sums.is_empty());
    // One after the other, without a gap, up to where the samples begin.
    assert_eq!(sums[0].since.0, 0);
    assert!(sums.windows(2).all(|two| two[0].until == two[1].since));
    let ticks = |nanos: u64| nanos / 1000;
    let since = whole.processes[0].kept_since.unwrap();
    assert_eq!(ticks(sums.last().unwrap().until.0), ticks(since.0));
    // Each sample is in the sums or in the files, and those that are alive in both.
    let counted: u64 = sums.iter().map(|of| of.all.samples).sum();
    let new = whole
        .samples
        .iter()
        .filter(|sample| sample.time >= since)
        .count() as u64;
    assert!(
        (samples - counted).abs_diff(new) <= 1,
        "{samples} {counted} {new}"
    );
    let alive = whole
        .samples
        .iter()
        .filter(|sample| sample.lifetime == Lifetime::StillLive);
    assert_eq!(alive.count(), kept.len());
    for of in sums {
        assert!(
            of.functions
                .iter()
                .all(|(name, file, _)| name.starts_with("function ") && file == "f.py")
        );
        let bytes: f64 = of.functions.iter().map(|(_, _, sum)| sum.bytes).sum();
        assert!((bytes - of.all.bytes).abs() <= of.functions.len() as f64);
    }
    // No other files: neither prepared ones, nor some of dropped parts.
    let hidden = std::fs::read_dir(folder_of(&divided.path)).unwrap();
    let hidden =
        hidden.filter(|one| one.as_ref().unwrap().file_name().as_encoded_bytes()[0] == b'.');
    assert!(hidden.count() <= divided.files().len() - sums.len());
}

#[test]
fn a_folder_of_somebody_else_is_not_written_to() {
    let divided = Divided::new();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), folder_of(&divided.path)).unwrap();
    let session = divided.start(serde_json::json!({"part_nanos": 30_000_000}));
    for _ in 0..200 {
        let mut recording = session.record(LostKind::Allocations).unwrap();
        let stack = a_function(&mut recording, 1);
        an_allocation(&mut recording, stack, 100).unwrap();
        recording.wake_writer();
        drop(recording);
        std::thread::sleep(Duration::from_millis(1));
    }
    session.finish(None);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    let profile = load(std::slice::from_ref(&divided.path));
    assert_eq!(profile.samples.len(), 200);
    let note = profile
        .meta
        .notes
        .iter()
        .find(|note| note.contains("nothing is dropped"));
    assert!(note.is_some(), "{:?}", profile.meta.notes);
}
