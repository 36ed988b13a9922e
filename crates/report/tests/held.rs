//! Who holds what grows, and that work in progress is no leak: on made-up services with made-up snapshots.

use crate::service::{MINUTE, churn, even, leak, profile};
use nthbyte_profile::event::{FrameKind, Nanos, NodeId, SampleId};
use nthbyte_profile::holders::{
    Held, Holder, Interner, Kind, Link, Reason, Snapshot, SnapshotNode,
};
use nthbyte_profile::model::{Frame, Function, Profile, StackNode, ThreadNames};
use nthbyte_report::Leaks;
use nthbyte_report::explain::{ExplainOptions, Explanation};
use nthbyte_report::leaks::Verdict;

const THREAD: u64 = 4711;

/// A node: its parent, its dominator, its kind and name, how the parent refers to it, and its length.
pub type Of<'a> = (u32, u32, Kind, &'a str, Link, &'a str, Option<u32>);

/// A snapshot in which one node holds some samples.
pub fn snapshot_of(
    nodes: &[Of<'_>],
    last: u32,
    time: Nanos,
    samples: impl Iterator<Item = SampleId>,
) -> Snapshot {
    let mut names = Interner::default();
    let mut taken = Snapshot {
        period: 1000,
        ..Snapshot::empty(time, Reason::Interval)
    };
    for &(parent, dominator, kind, name, link, reference, len) in nodes {
        taken.nodes.push(SnapshotNode {
            dominator,
            parent,
            kind,
            held_by_c: false,
            name: names.intern(name),
            link,
            reference: names.intern(reference),
            len,
            chain: 1,
        });
    }
    let what = names.intern("bytes");
    taken.samples.extend(samples.map(|sample| Held {
        by: Holder::Node(last),
        what,
        size: 2000,
        is_drawn: true,
        counts: true,
        recorded: Some(sample),
    }));
    taken.texts = names.finish();
    taken
}

/// A snapshot at a part of the run. `last`: a node that holds the samples of a function that live then.
fn snapshot(profile: &Profile, at: f64, nodes: &[Of<'_>], last: u32, function: u32) -> Snapshot {
    let time = Nanos((at * MINUTE as f64) as u64);
    let samples = (0..).map(SampleId).zip(profile.samples.iter());
    let of_function = samples.filter(|(_, sample)| {
        let is_there = sample.time <= time && sample.freed.is_none_or(|at| at > time);
        let leaf = profile.frames[profile.stacks[sample.stack.index()].frame as usize];
        is_there && leaf.function == function
    });
    snapshot_of(nodes, last, time, of_function.map(|(id, _)| id))
}

/// Function 0 allocates objects that die, and function 1 objects that stay. All of it in one thread, and in calls of `main`,
/// if there is one.
fn service(with_main: bool) -> Profile {
    let mut made = profile(&[churn(), leak(8 << 20)], MINUTE, 1);
    made.threads = vec![ThreadNames {
        os_id: THREAD,
        ..ThreadNames::default()
    }];
    if with_main {
        let function = made.functions.len() as u32;
        made.functions.push(Function {
            name: "main".to_owned(),
            file: "/srv/app.py".to_owned(),
            first_line: 900,
        });
        made.frames.push(Frame {
            function,
            line: 901,
            kind: FrameKind::Interpreted,
        });
        // Parents come first.
        let main = StackNode {
            parent: NodeId::ROOT,
            frame: made.frames.len() as u32 - 1,
        };
        let mut stacks = vec![made.stacks[0], main];
        stacks.extend(made.stacks[1..].iter().map(|node| StackNode {
            parent: NodeId(1),
            ..*node
        }));
        made.stacks = stacks;
        let samples: Vec<_> = made.samples.iter().collect();
        made.samples = nthbyte_profile::model::Samples::default();
        for sample in samples {
            made.samples.push(nthbyte_profile::model::Sample {
                stack: NodeId(sample.stack.0 + 1),
                ..sample
            });
        }
    }
    made
}

fn judge(profile: Profile) -> Leaks {
    Leaks::of(&[("app.nthb".to_owned(), profile)], false)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cache(len: u32) -> [Of<'static>; 2] {
    [
        (0, 0, Kind::Module, "app", Link::Unknown, "", None),
        (
            1,
            1,
            Kind::Object,
            "dict",
            Link::Attribute,
            "CACHE",
            Some(len),
        ),
    ]
}

#[test]
fn a_leak_has_its_holder_and_says_that_it_grows() {
    let mut made = service(false);
    let snapshots = vec![
        snapshot(&made, 0.3, &cache(12_300), 2, 1),
        snapshot(&made, 1.0, &cache(41_000), 2, 1),
    ];
    made.processes[0].snapshots = snapshots;
    let asked = ExplainOptions {
        words: vec!["app.nthb".to_owned()],
        ..ExplainOptions::default()
    };
    let explained = Explanation::of(&made, &asked);
    let said = judge(made);
    let finding = &said.profiles[0].findings[0];
    let held = finding.held_by.as_ref().unwrap();
    assert_eq!((&*held.holder, held.share), ("app.CACHE", 1.0));
    let since = held.since.as_ref().unwrap();
    assert!(since.grows && since.elements == Some((12_300, 41_000)));
    assert!(since.from.high < since.to.low);
    let line = "app.CACHE, dict of 41,000 elements, growing: it had 12,300 at 18.0 s";
    let text = words(&said.render(100));
    assert!(text.contains(&format!("held by {line}")), "{text}");
    let sentences: Vec<_> = explained
        .answers
        .iter()
        .flat_map(|one| &one.sentences)
        .collect();
    assert!(
        sentences.contains(&&format!("It is held by {line}.")),
        "{sentences:?}"
    );
}

#[test]
fn each_process_of_several_has_its_own_holder() {
    let mut made = service(false);
    let snapshots = vec![snapshot(&made, 1.0, &cache(41_000), 2, 1)];
    made.processes[0].snapshots = snapshots;
    made.processes[0].end = made.end;
    let other = made.processes[0].clone();
    made.processes.push(nthbyte_profile::model::Process {
        snapshots: Vec::new(),
        ..other
    });
    let said = judge(made);
    let held = said.profiles[0].findings[0].held_by.as_ref().unwrap();
    assert_eq!(held.holder, "app.CACHE");
}

/// A thread, its calls, the innermost first, and a list in a variable of the first one.
fn local<'a>(calls: &[&'a str], dominator: u32) -> Vec<Of<'a>> {
    let mut nodes = vec![(0, 0, Kind::Thread, "4711", Link::Unknown, "", None)];
    for &name in calls {
        nodes.push((1, 1, Kind::Frame, name, Link::Call, "", None));
    }
    nodes.push((
        2,
        dominator,
        Kind::Object,
        "list",
        Link::Local,
        "rows",
        Some(4000),
    ));
    nodes
}

fn verdict(mut made: Profile, nodes: &[Of<'_>], others: &[u32]) -> Verdict {
    let last = nodes.len() as u32;
    let mut taken = snapshot(&made, 0.95, nodes, last, 1);
    taken.others = others.iter().map(|&other| (last, other)).collect();
    made.processes[0].snapshots = vec![taken];
    let said = judge(made);
    let report = &said.profiles[0];
    let found = report.findings.iter().chain(&report.undecided);
    let found = found.filter(|one| one.place.function == "function_1");
    let verdicts: Vec<_> = found.map(|one| one.verdict).collect();
    if verdicts == [Verdict::InProgress] {
        assert!(words(&said.render(100)).contains("Work in progress: only running calls hold it"));
    }
    verdicts[0]
}

#[test]
fn what_a_young_call_holds_is_no_leak_and_the_cache_of_main_is_one() {
    assert_eq!(verdict(service(false), &cache(4000), &[]), Verdict::Leak);
    // Function 0 runs all the time: no call of function 1 is as old as the growth.
    let young = local(&["function_1"], 2);
    assert_eq!(verdict(service(false), &young, &[]), Verdict::InProgress);
    // `main` is in each stack.
    let old = local(&["main"], 2);
    assert_eq!(verdict(service(true), &old, &[]), Verdict::Leak);
    // It gives its cache to a function.
    let both = local(&["function_1", "main"], 1);
    assert_eq!(verdict(service(true), &both, &[3]), Verdict::Leak);
    let both_young = local(&["function_1", "function_2"], 1);
    assert_eq!(
        verdict(service(true), &both_young, &[3]),
        Verdict::InProgress
    );
    // There may be more calls that hold it.
    let more = local(&["function_1", "function_2", "function_3"], 1);
    assert_eq!(verdict(service(true), &more, &[3, 4]), Verdict::Leak);
}

#[test]
fn what_one_pass_gathers_is_no_leak_and_what_batches_leave_is_one() {
    // `main` has taken so many elements of a list, and its own list has 4,000.
    let pass = |taken| {
        let mut nodes = local(&["main"], 2);
        nodes[1].6 = taken;
        nodes
    };
    for (taken, expected) in [
        (Some(4001), Verdict::InProgress),
        (Some(2000), Verdict::InProgress),
        (Some(50), Verdict::Leak),
        (None, Verdict::Leak),
    ] {
        assert_eq!(verdict(service(true), &pass(taken), &[]), expected);
    }
    // What a module holds outlives the pass.
    let mut both = pass(Some(4001));
    both[2].1 = 0;
    assert_eq!(verdict(service(true), &both, &[1]), Verdict::Leak);
}

#[test]
fn a_job_that_keeps_little_is_no_leak_where_its_own_variable_holds_it() {
    // A tenth of what it allocates, all in one call.
    let mut objects = leak(8_000_000);
    objects.extend(even(36_000).map(|at| (at, Some(at + 1e-5), 2000, 1)));
    let mut made = profile(&[Vec::new(), objects], MINUTE, 5);
    made.threads = vec![ThreadNames {
        os_id: THREAD,
        ..ThreadNames::default()
    }];
    assert_eq!(verdict(made.clone(), &cache(4000), &[]), Verdict::Leak);
    let own = local(&["function_1"], 2);
    assert_eq!(verdict(made, &own, &[]), Verdict::InProgress);
}
