//! Profiles of several processes read as one, and written as one.

mod fake;
mod family;
mod follow;

use std::path::{Path, PathBuf};

use nthbyte_profile::event::{End, Event, Memory, Nanos, NodeId, SampleId, ThreadId};
use nthbyte_profile::model::{Lifetime, Process, ProcessId, Sampling};
use nthbyte_profile::{Distances, Profile, Writer};

use fake::{CHILD, FIRST, FakeProcess, Folder, load_all};

/// What a sample says, with names instead of numbers.
fn described(profile: &Profile, id: SampleId) -> String {
    let sample = profile.samples.get(id);
    let thread = &profile.threads[sample.thread.index()];
    let process = profile.process_of(sample.thread);
    let stack: Vec<_> = profile
        .stack(sample.stack)
        .map(|frame| {
            let function = &profile.functions[frame.function as usize];
            (&function.name, &function.file, frame.line, frame.kind)
        })
        .collect();
    format!(
        "{:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        sample.time,
        thread,
        profile.processes[process.index()].meta.pid,
        sample.shape.size,
        sample.shape.points,
        profile.weight(id),
        profile.types[sample.type_id.index()],
        sample.lifetime,
        sample.freed,
        stack,
        profile.labels(sample.labels),
    )
}

fn all_described(profile: &Profile) -> Vec<String> {
    let ids = profile.samples.ids();
    ids.map(|id| described(profile, id)).collect()
}

#[test]
fn a_joined_profile_has_what_its_parts_have() {
    let folder = Folder::new();
    let exact = FakeProcess {
        pid: 12,
        after: 5_000_000_000,
        period: 1,
        distances: Distances::Every,
        ..CHILD
    };
    let coarse = FakeProcess {
        pid: 13,
        after: 2_000_000_000,
        period: 4 << 20,
        ..CHILD
    };
    let made = [CHILD, exact, FIRST, coarse];
    let names = ["a.11.nthb", "a.12.nthb", "a.nthb", "a.13.nthb"];
    let paths: Vec<PathBuf> = names
        .iter()
        .zip(made)
        .map(|(name, made)| folder.make(name, made))
        .collect();
    let joined = load_all(&paths);
    let parts: Vec<Profile> = [2, 0, 3, 1].map(|at| load_all(&paths[at..=at])).into();

    // Processes are in the order of their starts, and times since the first one's.
    let pids: Vec<u32> = joined.processes.iter().map(|of| of.meta.pid).collect();
    assert_eq!(pids, [10, 11, 13, 12]);
    assert_eq!(joined.processes[1].start, Nanos(1_234_567_000));
    let mut expected = Vec::new();
    for (part, process) in parts.iter().zip(&joined.processes) {
        let mut part = part.clone();
        part.samples = part
            .samples
            .iter()
            .map(|mut sample| {
                sample.time.0 += process.start.0;
                sample.freed = sample.freed.map(|time| Nanos(time.0 + process.start.0));
                sample
            })
            .fold(
                nthbyte_profile::model::Samples::default(),
                |mut all, sample| {
                    all.push(sample).expect("room");
                    all
                },
            );
        expected.extend(all_described(&part));
        assert_eq!(process.end.0, process.start.0 + part.end.0);
        assert_eq!(process.allocated, part.allocated);
    }
    assert_eq!(all_described(&joined), expected);
    // Collections, too, are in the time and with the threads of the whole.
    let mut of_all = joined.collections.iter();
    for (number, (part, process)) in parts.iter().zip(&joined.processes).enumerate() {
        for (collection, of_all) in part.collections.iter().zip(&mut of_all) {
            assert_eq!(of_all.start.0, process.start.0 + collection.start.0);
            assert_eq!(of_all.duration, collection.duration);
            assert_eq!(joined.process_of(of_all.thread).index(), number);
        }
    }

    let sum = |of: fn(&Profile) -> u64| parts.iter().map(of).sum::<u64>();
    assert_eq!(
        joined.allocated,
        Some(sum(|of| of.allocated.expect("counted")))
    );
    assert_eq!(
        joined.collections.len() as u64,
        sum(|of| of.collections.len() as u64)
    );
    assert_eq!(joined.cpu.len() as u64, sum(|of| of.cpu.len() as u64));
    assert!(joined.complete);
    let last = joined.processes.iter().map(|of| of.end).max();
    assert_eq!(Some(joined.end), last);
    // The four share functions, sources (but for how distances are drawn) and remarks.
    let functions: std::collections::HashSet<_> = joined.functions.iter().collect();
    assert_eq!(functions.len(), joined.functions.len());
    assert_eq!(joined.sources.len(), 3);
    assert_eq!(joined.periods(), [1, 512 << 10, 4 << 20]);
    assert_eq!(joined.meta.notes[..2], ["of seed 0", "of seed 1"]);
    assert_eq!(joined.meta.pid, 10);
}

fn assert_same(one: &Profile, other: &Profile) {
    assert_eq!(all_described(one), all_described(other));
    assert_eq!(one.processes, other.processes);
    assert!(one.processes.iter().all(|of| of.compositions.len() == 2));
    assert_eq!(one.arenas, other.arenas);
    assert_eq!(one.arenas.len(), 2 * one.processes.len());
    assert_eq!(one.memory, other.memory);
    assert_eq!(one.lost, other.lost);
    let lost = |of: &Process| u64::from(of.meta.pid) + 1;
    assert!(one.processes.iter().all(|of| of.lost == lost(of)));
    assert_eq!(one.end, other.end);
    assert_eq!(one.complete, other.complete);
    assert_eq!(one.allocated, other.allocated);
    assert_eq!(one.meta, other.meta);
    let threads = |profile: &Profile| {
        let named = (0..).map(ThreadId).zip(&profile.threads);
        let named = named.map(|(id, names)| (profile.process_of(id), names.clone()));
        named.collect::<Vec<_>>()
    };
    assert_eq!(threads(one), threads(other));
    assert_eq!(one.collections, other.collections);
    let cpu = |profile: &Profile| {
        let samples = profile.cpu.iter();
        let samples = samples.map(|of| {
            let stack: Vec<_> = profile.stack(of.stack).copied().collect();
            (of.time, of.thread, stack, profile.sampling(of.sampling))
        });
        samples.collect::<Vec<_>>()
    };
    assert_eq!(cpu(one), cpu(other));
}

#[test]
fn a_merged_file_reads_as_its_parts_do() {
    let folder = Folder::new();
    let killed = FakeProcess {
        pid: 12,
        after: 700_000_000,
        period: 64 << 10,
        ends: false,
        ..CHILD
    };
    let paths = [
        folder.make("a.nthb", FIRST),
        folder.make("a.11.nthb", CHILD),
        folder.make("a.12.nthb", killed),
    ];
    let merge = |paths: &[PathBuf], name: &str| {
        let joined = load_all(paths);
        let path = folder.path(name);
        let file = std::fs::File::create(&path).expect("a file");
        joined.write(file, |_| ()).expect("written");
        assert_same(&joined, &Profile::load(&path).expect("a profile"));
        path
    };
    let all = merge(&paths, "all.nthb");
    let joined = load_all(&paths);
    assert!(!joined.complete && joined.allocated.is_none());
    assert_eq!(Profile::load(&all).expect("a profile").processes.len(), 3);
    // The runs of a file begin at its own samples.
    let mut runs: Vec<u32> = joined.arenas.iter().map(|run| run.first.0).collect();
    runs.sort_unstable();
    assert_eq!(runs, [2, 100, 3002, 3100, 5002, 5100]);
    // Alone too, whether it ended or not.
    merge(&paths[..1], "one.nthb");
    merge(&paths[2..], "cut.nthb");
    // A merged file can be one of several.
    let two = merge(&paths[1..], "two.nthb");
    assert_same(&load_all(&paths), &load_all(&[two, paths[0].clone()]));
}

#[test]
fn progress_is_told_in_bytes_of_all_files() {
    let folder = Folder::new();
    let paths = [folder.make("a.nthb", FIRST), folder.make("b.nthb", CHILD)];
    let sizes = paths
        .clone()
        .map(|path| path.metadata().expect("a file").len());
    let mut told = Vec::new();
    Profile::load_all(&paths, |done, total| {
        assert_eq!(total, sizes[0] + sizes[1]);
        told.push(done);
    })
    .expect("profiles");
    assert!(told.is_sorted() && told.len() > 2);
    assert!(told.contains(&sizes[0]));
    assert_eq!(told.last(), Some(&(sizes[0] + sizes[1])));
}

/// The largest sizes in bytes of the description of a process in a joined file, and of all of them.
const LONGEST: usize = 1 << 20;
const TOGETHER: usize = 16 << 20;

/// The descriptions of processes are limited, each and together, so that a hostile file cannot take much memory.
#[test]
fn processes_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    let paths = [folder.make("a.nthb", FIRST), folder.make("b.nthb", CHILD)];
    let write = |long: usize, more: usize| {
        let mut joined = load_all(&paths);
        let mut last = joined.processes[1].clone();
        last.meta.notes = vec!["x".repeat(long)];
        joined.processes[1] = last.clone();
        joined.processes.extend(std::iter::repeat_n(last, more));
        let mut bytes = Vec::new();
        let result = joined.write(&mut bytes, |_| ());
        result.map(|()| {
            Profile::read(&bytes[..])
                .expect("a profile")
                .processes
                .len()
        })
    };
    assert_eq!(write(60_000, 0).expect("written"), 2);
    assert_eq!(write(LONGEST - 10_000, 12).expect("written"), 14);
    for (long, more) in [(LONGEST + 1, 0), (LONGEST - 10_000, TOGETHER / LONGEST + 2)] {
        let error = write(long, more).expect_err("too long");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_merged_file_that_breaks_off_says_so() {
    let folder = Folder::new();
    let paths = [folder.make("a.nthb", FIRST), folder.make("b.nthb", CHILD)];
    let mut bytes = Vec::new();
    load_all(&paths).write(&mut bytes, |_| ()).expect("written");
    bytes.truncate(bytes.len() * 2 / 3);
    let cut = Profile::read(&bytes[..]).expect("a profile");
    assert!(!cut.complete);
    assert_eq!(cut.processes.len(), 2);
    assert!(!cut.samples.is_empty());
}

#[test]
fn processes_can_be_told_apart_in_the_stacks() {
    let folder = Folder::new();
    let paths = [folder.make("a.nthb", FIRST), folder.make("b.nthb", CHILD)];
    let joined = load_all(&paths);
    let mut apart = joined.clone();
    apart.root_by_process();
    for id in joined.samples.ids() {
        let before: Vec<_> = joined.stack(joined.samples.stack(id)).collect();
        let after: Vec<_> = apart.stack(apart.samples.stack(id)).collect();
        let (root, rest) = after.split_last().expect("a frame of the process");
        assert_eq!(before, rest);
        let process = joined.process_of(joined.samples.thread(id));
        assert_eq!(
            apart.functions[root.function as usize].name,
            ["process 10", "process 11, child of 10"][process.index()]
        );
    }
    for (at, node) in apart.stacks.iter().enumerate().skip(1) {
        assert!(node.parent < NodeId(at as u32));
    }
    // One process needs no frame of its own.
    let mut one = load_all(&paths[..1]);
    let before = one.stacks.clone();
    one.root_by_process();
    assert_eq!(one.stacks, before);
}

/// Writes a profile that has memory totals only.
fn with_memory(path: &Path, made: FakeProcess, totals: &[(u64, u64, u64, u64)], end: (u64, u64)) {
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = Writer::new(file, &made.meta()).expect("a header");
    for &(time, heap_used, rss, allocated) in totals {
        let memory = Memory {
            time: Nanos(time),
            heap_used: Some(heap_used),
            heap_reserved: None,
            rss: Some(rss),
            allocated: Some(allocated),
            peak_rss: Some(rss + 5),
        };
        writer.write(&Event::Memory(memory)).expect("an event");
    }
    let end = End {
        time: Nanos(end.0),
        allocated: Some(end.1),
    };
    writer.finish(end).expect("an end");
}

#[test]
fn memory_over_time_is_summed_and_what_was_inherited_counts_once() {
    let folder = Folder::new();
    let (first, child) = (folder.path("a.nthb"), folder.path("a.11.nthb"));
    let child_made = FakeProcess {
        after: 2_000_000,
        ..CHILD
    };
    with_memory(
        &first,
        FIRST,
        &[(0, 100, 50, 0), (5_000_000, 300, 70, 200)],
        (9_000_000, 250),
    );
    // It was forked with 100 bytes in use, and had allocated 20 when its totals were first taken. The last ones were
    // taken after its end was noted.
    with_memory(
        &child,
        child_made,
        &[(1_000_000, 120, 40, 20), (2_000_000, 90, 60, 30)],
        (1_500_000, 35),
    );
    let sums = |profile: &Profile| {
        let sums = profile.memory.iter();
        let sums = sums.map(|of| (of.time.0 / 1_000_000, of.heap_used, of.rss, of.allocated));
        sums.collect::<Vec<_>>()
    };
    let all = |used, rss, allocated| (Some(used), Some(rss), Some(allocated));
    let row = |time, (used, rss, allocated)| (time, used, rss, allocated);
    let joined = load_all(&[first.clone(), child.clone()]);
    assert_eq!(
        sums(&joined),
        [
            row(0, all(100, 50, 0)),
            row(3, all(120, 90, 20)),
            // It freed 10 bytes of what it had from its parent.
            row(4, all(100, 110, 30)),
            // The child is gone; what it allocated is not.
            row(4, all(100, 50, 35)),
            row(5, all(300, 70, 235)),
            row(9, all(0, 0, 285)),
        ]
    );
    assert_eq!(joined.allocated, Some(285));
    let is_told = |profile: &Profile| {
        let mut notes = profile.meta.notes.iter();
        notes.any(|note| note.contains("is the sum of 2 processes"))
    };
    assert!(is_told(&joined));
    assert!(joined.memory.iter().all(|of| of.peak_rss.is_none()));
    // Of one process alone, the totals are its own.
    let single = load_all(std::slice::from_ref(&first));
    assert!(!is_told(&single));
    assert_eq!(single.memory_of(ProcessId::FIRST), single.memory);
    assert_eq!(single.memory[1].peak_rss, Some(75));
    // Each process's own view stays as it was.
    let own = joined.memory_of(ProcessId(1));
    assert_eq!(own[0].heap_used, Some(120));
    assert_eq!(own[0].time, Nanos(3_000_000));
    // Without its parent beside it, all that it has is its own.
    let alone = load_all(&[
        child.clone(),
        folder.make("b.nthb", FakeProcess { pid: 77, ..FIRST }),
    ]);
    let child_alone = alone.memory_of(ProcessId(1));
    assert_eq!(child_alone[0].heap_used, Some(120));
    assert!(alone.memory.iter().any(|of| of.time == Nanos(3_000_000)));
}

#[test]
fn fates_do_not_depend_on_another_processs_collections() {
    let folder = Folder::new();
    let paths = [folder.make("a.nthb", FIRST), folder.make("b.nthb", CHILD)];
    let count = |profile: &Profile, fate| {
        let ids = profile.samples.ids();
        ids.filter(|&id| profile.samples.lifetime(id) == fate)
            .count()
    };
    let joined = load_all(&paths);
    let parts = [load_all(&paths[..1]), load_all(&paths[1..])];
    for fate in Lifetime::ALL {
        let sum: usize = parts.iter().map(|part| count(part, fate)).sum();
        assert_eq!(count(&joined, fate), sum, "{fate:?}");
    }
}

/// The tags of a process are labels of its samples, outside of its threads', also in a joined file and in one that was
/// written again.
#[test]
fn each_sample_has_the_tags_of_its_process() {
    let folder = Folder::new();
    let paths = [
        folder.make("app.nthb", FIRST),
        folder.make("app.11.nthb", CHILD),
    ];
    let written = |profile: &Profile| {
        let mut bytes = Vec::new();
        profile.write(&mut bytes, |_| ()).expect("a file");
        Profile::read(&bytes[..]).expect("a profile")
    };
    let check = |profile: &Profile, own: &[u32]| {
        let mut seen = std::collections::BTreeSet::new();
        for id in profile.samples.ids() {
            let sample = profile.samples.get(id);
            let process = profile.process_of(sample.thread);
            let pid = profile.processes[process.index()].meta.pid.to_string();
            let labels = profile.labels(sample.labels);
            assert_eq!(labels[0], ("worker", pid.as_str()), "{labels:?}");
            assert!(labels[1..].iter().all(|(key, _)| *key != "worker"));
            seen.insert(pid);
        }
        let own = own.iter().map(ToString::to_string);
        assert_eq!(seen, own.collect());
    };
    let one = Profile::load(&paths[0]).expect("a profile");
    check(&one, &[10]);
    assert_eq!(one.common_tags(), ["worker=10"]);
    let again = written(&one);
    check(&again, &[10]);
    assert_eq!(again.label_sets, one.label_sets);
    let both = load_all(&paths);
    check(&both, &[10, 11]);
    assert!(both.common_tags().is_empty());
    check(&written(&both), &[10, 11]);
    check(&written(&written(&both)), &[10, 11]);
}

/// The weights of all samples, and of one worker's.
fn weights(profile: &Profile) -> (f64, f64) {
    let of = |pid: Option<u32>| -> f64 {
        let is = |thread: ThreadId| {
            profile.processes[profile.process_of(thread).index()]
                .meta
                .pid
        };
        let ids = profile.samples.ids();
        let ids = ids.filter(|&id| pid.is_none_or(|pid| is(profile.samples.thread(id)) == pid));
        ids.map(|id| profile.weight(id).bytes).sum()
    };
    (of(None), of(Some(11)))
}

#[test]
fn of_very_many_samples_a_part_stands_for_the_others() {
    let folder = Folder::new();
    let made = [FIRST, CHILD, FakeProcess { pid: 12, ..CHILD }];
    let exact = FakeProcess {
        pid: 13,
        samples: 500,
        period: 1,
        distances: Distances::Every,
        ..CHILD
    };
    let made = [made[0], made[1], exact, made[2]];
    let made = made.map(|one| folder.make(&format!("{}.nthb", one.pid), one));
    let whole = load_all(&made);
    let thin = |most| Profile::load_some(&made, most, |_, _| ()).expect("profiles");
    // The exact ones stay, also where they alone are too many.
    for (most, part) in [(4000, 2.0), (2000, 8.0), (100, f64::INFINITY)] {
        let thin = thin(most);
        let count = thin.samples.len();
        // Of a few others, a halving may leave all.
        assert!(count <= most.max(520), "{count}");
        let of_exact = |profile: &Profile| {
            let ids = profile.samples.ids();
            let is_exact = |&id: &SampleId| {
                profile
                    .sampling(profile.samples.shape(profile.samples.shape_id(id)).sampling)
                    .distances
                    == Distances::Every
            };
            ids.filter(is_exact).count()
        };
        assert_eq!(of_exact(&thin), 500);
        let (all, of_one) = weights(&thin);
        let (true_all, true_one) = weights(&whole);
        if part.is_finite() {
            // Six standard deviations of a Poisson count.
            let near = |found: f64, truth: f64, samples: f64| {
                (found / truth - 1.0).abs() < 6.0 * (part / samples).sqrt()
            };
            assert!(near(all, true_all, 7000.0), "{all} for {true_all}");
            assert!(near(of_one, true_one, 2000.0), "{of_one} for {true_one}");
            assert!(count as f64 > 0.7 * 7000.0 / part, "{count}");
        }
        // What the agents counted stays.
        assert_eq!(thin.allocated, whole.allocated);
        let mut notes = thin.meta.notes.iter();
        let note = notes.find_map(|note| {
            note.strip_prefix("one of ")?
                .split_once(" samples was read, so that all fit")
        });
        let (halved, _) = note.expect("a note says it");
        // No interval allows for a sample that is heavier than one of those that stay.
        let heaviest = |of: &Profile| of.samplings.iter().map(Sampling::taken).fold(0.0, f64::max);
        let halved: f64 = halved.parse().expect("a number");
        assert_eq!(heaviest(&thin), halved * heaviest(&whole));
    }
    let all = thin(10_000);
    assert_eq!(all_described(&all), all_described(&whole));
    assert!(
        !all.meta
            .notes
            .iter()
            .any(|note| note.contains("so that all fit"))
    );
}
