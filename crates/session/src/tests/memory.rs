//! Every allocation of a session fails in turn: no crash, and each sample is recorded or counted as lost.

use std::path::Path;
use std::process::Command;

use nthbyte_host::memory::{self, failing};
use nthbyte_profile::Method;
use nthbyte_profile::event::{
    Allocation, Code, FrameKind, LabelSetId, Lines, LostKind, Node, NodeId, SourceId, Survival,
    TypeName,
};

use super::{Child, Profile, in_child};
use crate::{Appearance, Config, Recording, Session};

const SAMPLES: u64 = 60;

/// Records a sample with a function, a type and a thread of its own; `None` if a definition fails.
fn define(recording: &mut Recording<'_>, number: u64) -> Option<Allocation> {
    let name = format!("function {number}");
    let code = Code {
        name: &name,
        file: "a file",
        first_line: 1,
        lines: Lines::LocationTable(&[1, 2, 3]),
    };
    let known = recording.define_function(number, &code, Appearance::Frame)?;
    let Appearance::Frame(code) = known else {
        panic!("{known:?}")
    };
    let node = Node {
        parent: NodeId::ROOT,
        code,
        position: 1,
        kind: FrameKind::Interpreted,
    };
    let type_name = TypeName {
        name: &name,
        native: "",
    };
    Some(Allocation {
        time: recording.now(),
        thread: recording.thread(number)?,
        stack: recording.node(node)?,
        size: number,
        block: number,
        points: 1,
        type_id: recording.define_type(number, &type_name, 0)?.id,
        survival: Survival::Unsaid,
        labels: LabelSetId::NONE,
        source: SourceId::ALLOCATIONS,
    })
}

fn record(session: &Session) {
    for number in 0..SAMPLES {
        let Some(mut recording) = session.record(LostKind::Allocations) else {
            continue;
        };
        match define(&mut recording, number) {
            Some(allocation) => {
                let _ = recording.allocation(allocation, 512);
            }
            None => recording.lost(LostKind::Allocations, 1),
        }
    }
}

/// Ends a session and checks its profile. Returns the number of samples, and whether the session has a file.
fn finish(session: &Session) -> (u64, bool) {
    let outcome = session.finish(None);
    failing::fail(u64::MAX, u64::MAX);
    let Some(path) = &outcome.path else {
        return (0, false);
    };
    assert_eq!(outcome.samples + outcome.lost, SAMPLES, "{outcome:?}");
    assert!(outcome.notes.is_empty(), "{outcome:?}");
    let found = Profile::read(path);
    assert_eq!((found.damage, found.end), (0, true));
    assert_eq!(found.lost, outcome.lost);
    assert_eq!(found.allocations.len() as u64, outcome.samples);
    for sample in &found.allocations {
        assert_eq!(
            found.function(sample.stack),
            format!("function {}", sample.size)
        );
    }
    (outcome.samples, true)
}

/// A session in which the allocations from `first` to `end` fail; it forks in the middle. Returns false if fewer than
/// `first` allocations were made.
fn session(path: &Path, first: u64, end: u64) -> bool {
    let json = serde_json::json!({"output": path, "period": 512, "distances": "exponential"});
    let config = Config::parse(&json.to_string()).unwrap();
    let meta = config.meta(Method::NurseryLimit, 1, Vec::new());
    failing::fail(first, end);
    let session = match Session::start(&config, meta, &super::PLAIN) {
        Ok(session) => session,
        Err(why) => {
            failing::fail(u64::MAX, u64::MAX);
            assert!(why.contains("no memory"), "{why}");
            return true;
        }
    };
    // A child continues with the allocations that fail.
    assert!(in_child(|| {
        record(&session);
        finish(&session);
    }));
    record(&session);
    let outcome = session.finish(None);
    let made = failing::fail(u64::MAX, u64::MAX);
    assert_eq!(outcome.samples + outcome.lost, SAMPLES, "{outcome:?}");
    assert!(end < u64::MAX || first > 0 || outcome.samples == 0);
    let found = Profile::read(&outcome.path.unwrap());
    assert_eq!(
        (found.damage, found.end, found.lost),
        (0, true, outcome.lost)
    );
    made > first
}

/// Processes that run at once: a session that has no memory waits much.
const AT_ONCE: usize = 4;

/// The environment variable of a process in which only one of these tests runs.
const ALONE: &str = "NTHBYTE_TEST_ALONE";

/// Fails `more` allocations at once: from the first one on, then from the one of number `step`, and so on.
///
/// The test of this name runs in a process of its own. In the process of all tests, sessions have mapped the code again
/// in hundreds of pieces, and each of the forked children copies those mappings and writes them into its profile.
fn each_fails(test: &str, more: u64, step: usize) {
    if std::env::var_os(ALONE).is_none() {
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("tests::memory::{test}")])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(text.contains("test result: ok. 1 passed"), "{text}");
        return;
    }
    let mut firsts = (0_u64..).step_by(step);
    loop {
        // Each in a process and a folder of its own: a session that has failed may leave things behind.
        let children: Vec<_> = firsts
            .by_ref()
            .take(AT_ONCE)
            .map(|first| {
                let folder = tempfile::tempdir().unwrap();
                let child = Child::running(|| {
                    let path = folder.path().join("profile.nthb");
                    if !session(&path, first, first.saturating_add(more)) {
                        std::fs::write(folder.path().join("enough"), "").unwrap();
                    }
                });
                (first, folder, child)
            })
            .collect();
        let mut over = None;
        for (first, folder, child) in children {
            assert!(child.succeeds(), "allocation {first}");
            if over.is_none() && folder.path().join("enough").exists() {
                over = Some(first);
            }
        }
        if let Some(first) = over {
            assert!(
                first > 100,
                "a session makes more than a hundred allocations"
            );
            return;
        }
    }
}

#[test]
fn one_allocation_fails() {
    each_fails("one_allocation_fails", 1, 1);
}

#[test]
fn many_allocations_fail() {
    each_fails("many_allocations_fail", 50, 25);
}

#[test]
fn all_later_allocations_fail() {
    each_fails("all_later_allocations_fail", u64::MAX, 1);
}

#[test]
fn what_the_system_does_not_have_is_no_room() {
    assert!(memory::Room::hold(1 << 20).is_some());
    // More than all addresses of a process.
    assert!(memory::Room::hold(1 << 48).is_none());
    assert!(!memory::has(1 << 48));
}
