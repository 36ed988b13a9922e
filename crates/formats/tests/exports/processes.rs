//! Several processes in one export: told apart where the format can, and summed where it cannot.

use std::collections::BTreeMap;
use std::io::Read as _;

use nthbyte_formats::{collapsed, firefox, pprof, speedscope};
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Meta, Profile, Writer};
use serde_json::Value;

use super::{close, total};

/// Process 10 and its child 11, which began two seconds later.
fn profiles() -> (Profile, [Profile; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let made = [(10, None, 0), (11, Some(10), 2_000_000_000)];
    let paths = made.map(|(pid, parent_pid, after)| {
        let setup = Synthetic {
            samples: 2000,
            seed: pid.into(),
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
        let end = setup.events(|event| writer.write(event).unwrap());
        writer.finish(end).unwrap();
        path
    });
    let joined = Profile::load_all(&paths, |_, _| ()).unwrap();
    (joined, paths.map(|path| Profile::load(&path).unwrap()))
}

#[test]
fn the_firefox_profiler_has_tracks_for_each_process() {
    let (joined, parts) = profiles();
    let mut out = Vec::new();
    firefox::write(&joined, &mut out, &mut |_, _| ()).unwrap();
    let file: Value = serde_json::from_slice(&out).unwrap();
    let threads = file["threads"].as_array().unwrap();
    let mut bytes: BTreeMap<&str, f64> = BTreeMap::new();
    for thread in threads {
        let pid = thread["pid"].as_str().unwrap();
        assert_eq!(thread["processName"], format!("app.py {pid}"));
        let start = if pid == "10" { 0.0 } else { 2000.0 };
        assert_eq!(thread["processStartupTime"], start);
        let first = thread["samples"]["timeDeltas"][0].as_f64();
        assert!(first.is_none_or(|first| first >= start));
        if thread["samples"]["weightType"] == "bytes" {
            let weights = thread["samples"]["weight"].as_array().unwrap();
            let weights = weights.iter().map(|weight| weight.as_f64().unwrap());
            *bytes.entry(pid).or_default() += weights.sum::<f64>();
        }
    }
    assert_eq!(bytes.len(), 2);
    for (pid, part) in ["10", "11"].iter().zip(&parts) {
        assert!(close(bytes[pid], total(part)), "{pid}");
    }
    // Memory of a process is its own, beside its first track.
    let counters = file["counters"].as_array().unwrap();
    for pid in ["10", "11"] {
        let own = counters.iter().filter(|counter| counter["pid"] == pid);
        let own: Vec<&Value> = own.collect();
        assert!(!own.is_empty(), "{pid}");
        for counter in own {
            let track = counter["mainThreadIndex"].as_u64().unwrap() as usize;
            assert_eq!(threads[track]["pid"], pid);
        }
    }
}

#[test]
fn pprof_has_a_label_and_speedscope_names() {
    let (joined, parts) = profiles();
    let strings = |profile: &Profile| {
        let mut out = Vec::new();
        pprof::write(profile, &mut out, &mut |_, _| ()).unwrap();
        let mut message = Vec::new();
        flate2::read::GzDecoder::new(out.as_slice())
            .read_to_end(&mut message)
            .unwrap();
        message
    };
    // A string in the table: field 6, its length, and it.
    let has = |message: &[u8], text: &[u8]| {
        let mut field = vec![0x32, text.len() as u8];
        field.extend_from_slice(text);
        message.windows(field.len()).any(|window| window == field)
    };
    let message = strings(&joined);
    assert!(
        [&b"process"[..], b"10", b"11"]
            .iter()
            .all(|text| has(&message, text))
    );
    assert!(!has(&strings(&parts[0]), b"process"));

    let mut out = Vec::new();
    speedscope::write(&joined, &mut out, &mut |_, _| ()).unwrap();
    let file: Value = serde_json::from_slice(&out).unwrap();
    let names: Vec<&str> = file["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| profile["name"].as_str().unwrap())
        .collect();
    for pid in ["10 ", "11 "] {
        assert!(names.iter().any(|name| name.starts_with(pid)), "{names:?}");
    }
}

#[test]
fn collapsed_stacks_are_summed_unless_processes_are_put_at_the_top() {
    let (mut joined, parts) = profiles();
    let lines = |profile: &Profile| {
        let mut out = Vec::new();
        collapsed::write(profile, &mut out, &mut |_, _| ()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = text.lines().map(|line| {
            let (stack, bytes) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), bytes.parse::<f64>().unwrap())
        });
        lines.collect::<BTreeMap<_, _>>()
    };
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for (stack, bytes) in parts.iter().flat_map(&lines) {
        *expected.entry(stack).or_default() += bytes;
    }
    let found = lines(&joined);
    assert!(found.keys().eq(expected.keys()));
    for (stack, bytes) in &found {
        // Each part was rounded.
        assert!((bytes - expected[stack]).abs() <= 1.5, "{stack}");
    }
    joined.root_by_process();
    let apart = lines(&joined);
    let rest = |label: &str| {
        let own = apart.iter().filter_map(|(stack, &bytes)| {
            Some((
                stack.strip_prefix(label)?.strip_prefix(';')?.to_owned(),
                bytes,
            ))
        });
        own.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(rest("process 10"), lines(&parts[0]));
    assert_eq!(rest("process 11, child of 10"), lines(&parts[1]));
}
