//! The data that a small profile makes.

use super::*;
use nthbyte_profile::event::{FrameKind, LabelSetId, Nanos, NodeId, ThreadId, TypeId};
use nthbyte_profile::model::{
    Frame, Function, Sample, Samples, SamplingId, Shape, StackNode, TimeSample, TypeNames,
};
use nthbyte_profile::{Method, Source};

/// A session of 1000 ns: 400 samples on the stacks `main` and `main → work`, a stack that
/// nothing refers to, and 10 time samples.
pub fn small() -> Profile {
    let mut samples = Samples::default();
    for i in 0..400_u64 {
        let sample = Sample {
            time: Nanos(i * 5 / 2),
            thread: ThreadId(0),
            stack: NodeId(1 + (i % 2) as u32),
            shape: Shape {
                size: 40 + 8 * (i % 3),
                block: 64,
                points: 1,
                sampling: SamplingId(0),
            },
            labels: LabelSetId::NONE,
            type_id: TypeId((i % 3) as u32),
            lifetime: Lifetime::ALL[i as usize % 4],
            freed: None,
        };
        samples.push(sample).expect("there is room");
    }
    let function = |name: &str| Function {
        name: name.into(),
        file: "/app/a.py".into(),
        first_line: 1,
    };
    let node = |parent, frame| StackNode {
        parent: NodeId(parent),
        frame,
    };
    let meta = Meta {
        nthbyte: "0".into(),
        interpreter: "CPython 3.13.0".into(),
        executable: "python".into(),
        command: vec!["app.py".into()],
        pid: 1,
        parent_pid: None,
        memory_before: None,
        segment: None,
        tags: Default::default(),
        host: None,
        run: None,
        started_unix_nanos: 0,
        sources: Source::of_session(
            Method::CutFreeLists,
            Distances::Exponential,
            4096,
            Some(100),
        ),
        seed: 0,
        notes: Vec::new(),
    };
    Profile {
        functions: ["unused", "main", "work"].map(function).into(),
        frames: (0..3)
            .map(|function| Frame {
                function,
                line: 10 + function,
                kind: FrameKind::Interpreted,
            })
            .collect(),
        stacks: vec![node(0, 0), node(0, 1), node(1, 2), node(2, 0)],
        types: ["", "dict", "list"]
            .map(|name| TypeNames {
                name: name.into(),
                native: String::new(),
            })
            .into(),
        samples,
        cpu: (0..10)
            .map(|i| TimeSample {
                time: Nanos(i * 100),
                thread: ThreadId(0),
                stack: NodeId(2),
                labels: LabelSetId::NONE,
                sampling: SamplingId(1),
            })
            .collect(),
        end: Nanos(1000),
        complete: true,
        ..Profile::empty(meta)
    }
}

#[test]
fn unused_stacks_and_names_are_left_out() {
    let mut bytes = Vec::new();
    let mut steps = Vec::new();
    write(
        &small(),
        &Page {
            weight: usize::MAX,
            ..Page::default()
        },
        &mut bytes,
        &mut |done, total| {
            steps.push((done, total));
        },
    )
    .unwrap();
    let (done, total) = *steps.last().unwrap();
    assert_eq!(done, total);
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[4..4 + length]).unwrap();
    assert_eq!(
        header["functions"]["name"],
        serde_json::json!(["main", "work"])
    );
    assert_eq!(header["files"], serde_json::json!(["/app/a.py"]));
    let columns = header["columns"].as_array().unwrap();
    let stacks = columns
        .iter()
        .find(|c| c["name"] == "stack.parent")
        .unwrap();
    assert_eq!(stacks["count"], 2);
    let bytes_of_columns: u64 = columns.iter().map(|c| c["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes_of_columns as usize, bytes.len() - 4 - length);
}

#[test]
fn pruning_keeps_sums_and_whatever_is_large_in_some_view() {
    use super::super::prune::{SMALL, Scores, Stacks};

    let mut profile = small();
    // Calls of `work`, one after another, of which each has its own small samples; the last one's are the only ones
    // of all that are alive at the end.
    profile.samples = Samples::default();
    let sample = small().samples.iter().next().expect("there are samples");
    for number in 0..100_u32 {
        let leaf = profile.stacks.len() as u32;
        profile.stacks.push(StackNode {
            parent: NodeId(1),
            frame: number % 3,
        });
        let last = number == 99;
        for time in 0..if number == 50 { 10_000 } else { 1 } {
            let made = Sample {
                stack: NodeId(leaf),
                lifetime: if last {
                    Lifetime::StillLive
                } else {
                    Lifetime::DiedYoung
                },
                time: Nanos(time % 1000),
                ..sample
            };
            profile.samples.push(made).expect("there is room");
        }
    }
    profile.cpu.clear();
    let scores = Scores::of(&[&profile], None);
    let stacks = Stacks::highest(&[&profile], false, &scores, 3);
    let named = |stack: u32| {
        let frame = stacks.nodes[stack as usize].frame;
        stacks.functions[stacks.frames[frame as usize].function as usize]
            .name
            .as_str()
    };
    let first = small().stacks.len() as u32;
    // The caller, the large one and the one that is alive at the end are kept.
    for kept in [1, first + 50, first + 99] {
        assert_eq!(stacks.of(NodeId(kept)), kept);
    }
    let small_calls = stacks.of(NodeId(first));
    assert_eq!(named(small_calls), SMALL);
    assert_eq!(stacks.nodes[small_calls as usize].parent, NodeId(1));
    assert_eq!(stacks.of(NodeId(first + 98)), small_calls);
    let pruned = stacks.pruned.expect("something is pruned");
    assert_eq!((pruned.stacks, pruned.kept), (101, 3));
    let share = 98.0 / profile.samples.len() as f64;
    assert!((pruned.samples - share).abs() < 1e-9);
    assert!(pruned.share < 0.01, "{}", pruned.share);
}
