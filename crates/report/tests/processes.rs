//! Reports of several processes: figures of each, and sums of all.

use std::path::PathBuf;

use nthbyte_profile::event::Event;
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Meta, Profile, Writer};
use nthbyte_report::{By, Bytes, Summary, Time, Tree};

/// Parent and child, the child with an eighth of the parent's period and without an end.
fn files(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let made = |pid: u32, parent_pid, after: u64, period, ends| {
        let setup = Synthetic {
            samples: 2000,
            seed: pid.into(),
            period,
            ..Synthetic::default()
        };
        let meta = Meta {
            pid,
            parent_pid,
            started_unix_nanos: setup.meta().started_unix_nanos + after,
            ..setup.meta()
        };
        let path = folder.path().join(format!("{pid}.nthb"));
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap(), &meta).unwrap();
        let end = setup.events(|event: &Event<'_>| writer.write(event).unwrap());
        if ends {
            writer.finish(end).unwrap();
        } else {
            writer.flush().unwrap();
        }
        path
    };
    vec![
        made(10, None, 0, 512 << 10, true),
        made(11, Some(10), 2_000_000_000, 64 << 10, false),
    ]
}

fn load(paths: &[PathBuf]) -> Profile {
    Profile::load_all(paths, |_, _| ()).unwrap()
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(1.0)
}

#[test]
fn figures_are_the_sums_of_the_parts() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(&folder);
    for by in [By::Function, By::Line, By::File, By::Type, By::Process] {
        let joined = Summary::of(&load(&files), by);
        let parts: Vec<Summary> = files
            .iter()
            .map(|path| Summary::of(&load(std::slice::from_ref(path)), by))
            .collect();
        let sum = |of: &dyn Fn(&Summary) -> f64| parts.iter().map(of).sum::<f64>();
        let same = |of: &dyn Fn(&Summary) -> f64| assert!(close(of(&joined), sum(of)), "{by:?}");
        same(&|of| of.samples as f64);
        same(&|of| of.all.bytes.estimate);
        same(&|of| of.all.allocations.estimate);
        same(&|of| of.all.died_young.estimate);
        same(&|of| of.all.freed.estimate);
        same(&|of| of.all.still_live.estimate);
        same(&|of| of.collections.count as f64);
        same(&|of| of.time.samples as f64);
        for row in &joined.rows {
            let of_row = |of: &Summary| {
                let mut rows = of.rows.iter();
                let found = rows.find(|one| {
                    (&one.name, &one.file, one.line) == (&row.name, &row.file, row.line)
                });
                found.map_or(0.0, |found| found.figures.self_bytes.estimate)
            };
            assert!(
                close(row.figures.self_bytes.estimate, sum(&of_row)),
                "{}",
                row.name
            );
        }
        // The uncertainty of each adds up: variances do, so a width is no more than the widths' sum.
        let width = |of: &Summary| of.all.bytes.high - of.all.bytes.low;
        assert!(width(&joined) < parts.iter().map(width).sum());
        assert!(
            parts
                .iter()
                .all(|part| width(part) <= 1.01 * width(&joined))
        );
    }
}

#[test]
fn each_process_has_a_row_and_a_description() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(&folder);
    let joined = Summary::of(&load(&files), By::Process);
    let parts: Vec<Summary> = files
        .iter()
        .map(|path| Summary::of(&load(std::slice::from_ref(path)), By::Process))
        .collect();
    assert_eq!(joined.rows.len(), 2);
    let pids: Vec<u32> = joined.processes.iter().map(|of| of.pid).collect();
    assert_eq!(pids, [10, 11]);
    for (process, part) in joined.processes.iter().zip(&parts) {
        assert_eq!(process.samples, part.samples);
        assert!(close(process.bytes.estimate, part.all.bytes.estimate));
        assert_eq!(process.duration_nanos, part.duration_nanos);
        assert_eq!(process.bytes_allocated, part.bytes_allocated);
        assert_eq!(process.complete, part.complete);
        let [alone] = &part.processes[..] else {
            panic!("one process")
        };
        assert_eq!(alone.peak_rss, process.peak_rss);
        assert_eq!(alone.duration_nanos, process.duration_nanos);
        let row = joined.rows.iter().find(|row| row.name == process.label());
        let row = row.expect("a row for each");
        assert!(close(
            row.figures.self_bytes.estimate,
            process.bytes.estimate
        ));
        assert_eq!(part.rows.len(), 1);
    }
    assert_eq!(joined.processes[1].start_nanos, 2_000_000_000);
    let text = joined.render::<Bytes>(100);
    for said in [
        " · 2 processes",
        "process 11, child of 10",
        "that of process 11 is incomplete",
        "the sum of 2 processes",
        "peak RSS",
        "from 2.00 s",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(!text.contains("not listed"), "{text}");
    let alone = parts[0].render::<Bytes>(100);
    assert!(!alone.contains("processes"), "{alone}");
}

#[test]
fn a_tree_can_have_a_branch_for_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut profile = load(&files(&folder));
    let before = Tree::<Bytes>::of(&profile, 60).render(100);
    assert!(!before.contains("child of"));
    profile.root_by_process();
    let after = Tree::<Bytes>::of(&profile, 60).render(100);
    assert_eq!(before.lines().next(), after.lines().next());
    for label in ["process 10", "process 11, child of 10"] {
        assert!(after.contains(label), "{after}");
    }
    let time = Tree::<Time>::of(&profile, 60).render(100);
    assert!(time.contains("process 11, child of 10"), "{time}");
    let by_process = Summary::of(&profile, By::Process).time;
    assert_eq!(by_process.rows.len(), 2);
}
