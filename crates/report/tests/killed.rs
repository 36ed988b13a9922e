//! A process that was killed near a limit of its memory.

use nthbyte_profile::event::{Memory, Nanos};
use nthbyte_profile::meta::{Distances, Meta, Method, Source, SourceKind};
use nthbyte_profile::model::{Profile, SamplingId};
use nthbyte_profile::pressure::{Alarm, MemoryLimit, Pressure};
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_report::explain::{ExplainOptions, Topic};
use nthbyte_report::{By, Bytes, Explanation, Killed, Selected, Sort, Summary};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
/// 14:00:00 UTC.
const START: u64 = (20_000 * 86_400 + 14 * 3600) * SECOND;

/// A session of three minutes that ended at 14:03:00. From the second minute on, `load_batch` took a MiB each second; before,
/// `start_up` took 40 MiB.
fn killed() -> Profile {
    let meta = Meta {
        started_unix_nanos: START,
        sources: vec![Source::allocations(
            SourceKind::ObjectHeap,
            Method::CutFreeLists,
            Distances::Every,
            1,
        )],
        ..Synthetic::default().meta()
    };
    let mut profile = Profile::empty(meta);
    let [start_up, load_batch] =
        ["start_up", "load_batch"].map(|name| synthetic::add_function(&mut profile, name));
    let mut rss = 10 * MIB;
    for second in 0..180 {
        let time = Nanos(second * SECOND);
        let (stack, size) = match second {
            0..40 => (start_up, MIB),
            60.. => (load_batch, MIB),
            _ => (start_up, 0),
        };
        if size > 0 {
            let mut sample = synthetic::sample(time, size, SamplingId(0));
            sample.stack = stack;
            profile.samples.push(sample);
        }
        rss += size;
        profile.memory.push(Memory {
            time,
            rss: Some(rss),
            ..Memory::default()
        });
    }
    let end = Nanos(180 * SECOND);
    profile.end = end;
    profile.complete = false;
    let process = &mut profile.processes[0];
    process.end = end;
    process.complete = false;
    process.pressure.push(pressure(end, 0.98));
    profile
}

fn pressure(time: Nanos, part: f64) -> Pressure {
    Pressure {
        time,
        limit: MemoryLimit::Group,
        alarm: Alarm::None,
        most: 173 * MIB,
        used: (173.0 * MIB as f64 * part) as u64,
        kills: 0,
    }
}

fn said(profile: &Profile) -> Option<String> {
    let asked = ExplainOptions::default();
    let explanation = Explanation::of(profile, &asked);
    let first = &explanation.answers[0];
    (first.topic == Topic::Killed).then(|| first.sentences.join(" "))
}

#[test]
fn it_says_when_how_near_and_who() {
    let profile = killed();
    let expected = "Last seen at 14:03:00 UTC, RSS 170 MiB of 173 MiB (the limit of its control group): probably killed for \
                    memory; 86.0 MiB of it since 14:01:34 from load_batch";
    let expected = [
        expected,
        "In its last minute: 60.0 MiB of it since 14:02:00 from load_batch",
    ];
    let sentences = said(&profile).expect("an answer at the top");
    for part in expected {
        assert!(sentences.contains(part), "{sentences}");
    }
    // The summary says the same, in place of what it says of other profiles without an end.
    let everything = Selected::everything();
    let mut summary = Summary::first_rows(&profile, By::Function, everything, Sort::Own, 10);
    summary.killed = Killed::of(&profile).expect("a verdict").sentences();
    let text = summary.render::<Bytes>(600);
    assert!(text.contains(expected[0]), "{text}");
    assert!(!text.contains("or is still running"), "{text}");
}

#[test]
fn others_are_not_said_to_be_killed_for_memory() {
    let is_said = |change: fn(&mut Profile)| {
        let mut profile = killed();
        change(&mut profile);
        said(&profile).is_some()
    };
    assert!(is_said(|_| ()));
    assert!(!is_said(|profile| profile.processes[0].pressure.clear()));
    assert!(!is_said(|profile| profile.processes[0].complete = true));
    assert!(!is_said(|profile| {
        profile.processes[0].ended_by = Some("SIGTERM".to_owned());
    }));
    // It was near its limit, and had given memory back.
    let gave_back = |profile: &mut Profile| {
        let of = &mut profile.processes[0].pressure;
        of[0].time = Nanos(100 * SECOND);
        of[0].alarm = Alarm::Near;
        of.push(pressure(Nanos(110 * SECOND), 0.5));
    };
    assert!(!is_said(gave_back));
    // It grew so fast that no reading is near.
    let leaped = |profile: &mut Profile| {
        profile.processes[0].pressure = vec![Pressure {
            alarm: Alarm::Growth,
            ..pressure(Nanos(179 * SECOND), 0.6)
        }];
    };
    assert!(is_said(leaped));
}
