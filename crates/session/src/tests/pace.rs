//! Tests of sessions whose period changes.

use std::path::Path;
use std::time::{Duration, Instant};

use nthbyte_profile::event::{Allocation, LostKind, Nanos};

use super::{LONGEST, Profile, a_function, alone, an_allocation, in_child};
use crate::pace::FIRST_PERIOD;
use crate::ring::{Bulky, Record};
use crate::{Config, Session};

fn start(path: &Path) -> Session {
    let json = serde_json::json!({
        "output": path, "period": FIRST_PERIOD, "auto": true, "distances": "exponential",
    });
    let config = Config::parse(&json.to_string()).unwrap();
    let meta = config.meta(nthbyte_profile::Method::CutFreeLists, 1, Vec::new());
    Session::start(&config, meta, &super::PLAIN).unwrap()
}

/// Samples until the period has changed. Returns the last period, and the number of samples.
fn change(session: &Session) -> (u64, u64) {
    let mut samples = 0;
    let deadline = Instant::now() + LONGEST;
    loop {
        let mut recording = session.record(LostKind::Allocations).unwrap();
        let before = recording.period();
        if samples > 0 && before != FIRST_PERIOD {
            return (before, samples);
        }
        let stack = a_function(&mut recording, 1);
        if an_allocation(&mut recording, stack, 48).is_some() {
            samples += 1;
        }
        assert!(Instant::now() < deadline, "the period stays");
    }
}

/// A thread that takes one sample after the other has another period after the first 512 or a little later, and each
/// sample in the file has the period with which it was recorded.
#[test]
fn the_period_changes_and_each_sample_keeps_its_own() {
    let (_alone, path) = alone("auto");
    let begun = Instant::now();
    let session = start(&path);
    let (period, samples) = change(&session);
    assert!(period > FIRST_PERIOD);
    // On a slow machine, the first sample after a tenth of a second decides.
    let is_slow = begun.elapsed() >= Duration::from_millis(100);
    assert!(samples >= 500 || is_slow, "{samples}");
    // A host that has not changed its sampler yet, and one that has.
    let expected = [FIRST_PERIOD, period, period, FIRST_PERIOD, period];
    for (number, its) in expected.iter().enumerate() {
        let mut recording = session.record(LostKind::Other).unwrap();
        let stack = a_function(&mut recording, 1);
        let sample = allocation(&mut recording, stack, number as u64);
        while recording.allocation(sample, *its).is_none() {}
    }
    session.finish(None);
    let found = Profile::read(&path);
    let at = found.periods.len() - expected.len();
    assert_eq!(found.periods[at..], expected);
    assert!(
        found.periods[..at - 1]
            .iter()
            .all(|&period| period == FIRST_PERIOD)
    );
    assert!(found.end);
}

fn allocation(
    recording: &mut crate::Recording<'_>,
    stack: nthbyte_profile::event::NodeId,
    size: u64,
) -> Allocation {
    Allocation {
        time: Nanos(recording.now().0 / 1000 * 1000),
        thread: recording.thread(1).unwrap(),
        stack,
        size,
        block: size,
        points: 1,
        type_id: nthbyte_profile::event::TypeId::UNKNOWN,
        survival: nthbyte_profile::event::Survival::Unsaid,
        labels: nthbyte_profile::event::LabelSetId::NONE,
        source: nthbyte_profile::event::SourceId::ALLOCATIONS,
    }
}

/// Provisional samples have the periods with which they were published, and so have the events written after them.
#[test]
fn provisional_samples_keep_their_periods() {
    let (_alone, path) = alone("pending");
    let session = start(&path);
    let periods = [FIRST_PERIOD, 4 << 20, 4 << 20, FIRST_PERIOD, 1 << 20];
    let mut published = Vec::new();
    for (number, &period) in periods.iter().enumerate() {
        let mut recording = session.record(LostKind::Other).unwrap();
        let stack = a_function(&mut recording, 1);
        let mut sample = allocation(&mut recording, stack, 100 + number as u64);
        sample.time = Nanos(1000 * (1 + number as u64));
        assert!(recording.publish_provisionally(sample, period));
        published.push(sample);
    }
    let deadline = Instant::now() + LONGEST;
    loop {
        let found = Profile::read(&path);
        if found.allocations.len() == 5 && found.damage == 0 {
            assert_eq!(
                (&found.allocations, &found.periods[..]),
                (&published, &periods[..])
            );
            break;
        }
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    for (sample, period) in published.iter().zip(periods) {
        let mut recording = session.record(LostKind::Other).unwrap();
        assert!(recording.allocation(*sample, period).is_some());
    }
    session.finish(None);
    let found = Profile::read(&path);
    assert_eq!(
        (found.allocations, found.periods),
        (published, periods.to_vec())
    );
}

/// A child begins with the parent's period: its file says so in the header.
#[test]
fn a_child_goes_on_with_the_period() {
    let (_alone, path) = alone("parent.nthb");
    let session = start(&path);
    let (period, _) = change(&session);
    let is_well = in_child(|| {
        let mut recording = session.record(LostKind::Allocations).unwrap();
        assert_eq!(recording.period(), period);
        let stack = a_function(&mut recording, 1);
        an_allocation(&mut recording, stack, 48).unwrap();
        drop(recording);
        let child = path.with_extension(format!("{}.nthb", std::process::id()));
        session.finish(None);
        let reader = nthbyte_profile::Reader::open(&child).unwrap();
        assert_eq!(reader.meta().period(), period);
        assert_eq!(Profile::read(&child).periods, [period]);
    });
    assert!(is_well);
}

/// What became known while the session went on is a note of the profile.
#[test]
fn a_note_is_in_the_profile() {
    let (_alone, path) = alone("note");
    let session = start(&path);
    let recording = session.record(LostKind::Other).unwrap();
    let note = Record::bulky(Bulky::Note("dear"));
    recording.recorder.push_or_count(note, LostKind::Other);
    drop(recording);
    session.finish(None);
    let file = std::fs::File::open(&path).unwrap();
    let profile = nthbyte_profile::Profile::read(file).unwrap();
    assert_eq!(profile.processes[0].meta.notes, ["dear"]);
}
