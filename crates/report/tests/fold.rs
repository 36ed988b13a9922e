//! Stacks without the frames of imports and of the launcher, against the same made frame by frame.

use nthbyte_profile::event::{FrameKind, NodeId};
use nthbyte_profile::model::Profile;
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_report::fold::{IMPORT, LAUNCHER, fold};
use nthbyte_report::{By, Bytes, Summary, Time, Tree, summary};

const IMPORTS: &str = "<frozen importlib._bootstrap>";
const START: &str = "/usr/lib/python3.13/runpy.py";

/// A profile in which a third of the functions is of imports, and some that begin stacks start the program.
fn profile() -> Profile {
    let setup = Synthetic::default();
    let mut profile = Profile::read(&setup.bytes()[..]).expect("a profile");
    for (at, function) in profile.functions.iter_mut().enumerate() {
        if at % 3 == 1 {
            function.file = IMPORTS.to_owned();
        }
        if at % 7 == 0 {
            function.file = START.to_owned();
        }
    }
    profile
}

/// Name, file, line, and whether the frame is native.
type Seen = (String, String, u32, bool);

/// The frames of a stack from the outermost.
fn frames(profile: &Profile, stack: NodeId) -> Vec<Seen> {
    let frames = profile.stack(stack).map(|frame| {
        let function = &profile.functions[frame.function as usize];
        let is_native = frame.kind == FrameKind::Native;
        let (name, file) = (function.name.clone(), function.file.clone());
        (name, file, frame.line, is_native)
    });
    let mut frames: Vec<_> = frames.collect();
    frames.reverse();
    frames
}

fn slowly(frames: Vec<Seen>) -> Vec<Seen> {
    let mut kept = Vec::new();
    let mut last = None;
    let mut is_start = true;
    for frame in frames {
        let is_launcher = is_start && frame.1 == START;
        last = match frame.1.as_str() {
            IMPORTS => Some(IMPORT),
            START if is_launcher => Some(LAUNCHER),
            // What the interpreter does between them.
            _ if frame.3 && frame.1 != START => last,
            _ => None,
        };
        is_start &= last == Some(LAUNCHER);
        if last.is_none() {
            kept.push(frame);
        }
    }
    kept.extend(last.map(|name| (name.to_owned(), String::new(), 0, false)));
    kept
}

#[test]
fn only_these_frames_are_removed() {
    let mut before = profile();
    for frame in before.frames.iter_mut().step_by(5) {
        frame.kind = FrameKind::Native;
    }
    let mut after = before.clone();
    fold(&mut after);
    assert!(after.stacks.len() < before.stacks.len());
    let mut seen = [0; 2];
    for (one, other) in before.samples.iter().zip(after.samples.iter()) {
        let expected = slowly(frames(&before, one.stack));
        for (count, name) in seen.iter_mut().zip([IMPORT, LAUNCHER]) {
            *count += u32::from(expected.last().is_some_and(|last| last.0 == name));
        }
        assert_eq!(frames(&after, other.stack), expected);
        assert_eq!((one.time, one.shape), (other.time, other.shape));
    }
    assert!(seen[0] > 100 && seen[1] > 0, "{seen:?}");
    for (one, other) in before.cpu.iter().zip(&after.cpu) {
        assert_eq!(
            frames(&after, other.stack),
            slowly(frames(&before, one.stack))
        );
    }
    // A node has a number above its parent's.
    let stacks = after.stacks.iter().enumerate().skip(1);
    assert!(stacks.clone().all(|(at, node)| node.parent.index() < at));
}

#[test]
fn the_programs_figures_stay() {
    let before = profile();
    let mut after = before.clone();
    fold(&mut after);
    let (one, other) = (
        Summary::of(&before, By::Function),
        Summary::of(&after, By::Function),
    );
    let close = |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.max(1.0);
    assert!(close(one.all.bytes.estimate, other.all.bytes.estimate));
    let mut kept = 0;
    for row in one
        .rows
        .iter()
        .filter(|row| row.file != IMPORTS && row.file != START)
    {
        let same = |of: &&summary::SummaryRow<summary::RowBytes>| {
            (&of.name, &of.file, of.line) == (&row.name, &row.file, row.line)
        };
        let found = other.rows.iter().find(same).expect("the same row");
        assert!(close(
            row.figures.self_bytes.estimate,
            found.figures.self_bytes.estimate
        ));
        assert!(close(
            row.figures.total_bytes.estimate,
            found.figures.total_bytes.estimate
        ));
        kept += 1;
    }
    assert!(kept > 50);
    let own = |summary: &Summary, file: &str| {
        let rows = summary
            .rows
            .iter()
            .filter(|row| row.file == file || row.name == file);
        rows.map(|row| row.figures.self_bytes.estimate).sum::<f64>()
    };
    assert!(close(own(&one, IMPORTS), own(&other, IMPORT)));
    let text = other.render::<Bytes>(120);
    assert!(
        text.contains("[import] is the machinery of imports"),
        "{text}"
    );
    assert!(!one.render::<Bytes>(120).contains("machinery"));
    let by_file = Summary::of(&after, By::File);
    assert!(by_file.rows.iter().any(|row| row.name == IMPORT));
    assert!(
        !Tree::<Bytes>::of(&after, 500)
            .render(200)
            .contains("importlib")
    );
}

/// A legend of a name that no row has would explain nothing.
#[test]
fn only_names_that_are_shown_are_explained() {
    let mut profile = profile();
    fold(&mut profile);
    let mut summary = Summary::of(&profile, By::Function);
    let explained = |text: &str| {
        [IMPORT, LAUNCHER].map(|name| {
            text.lines()
                .any(|line| line.contains(&format!("{name} is")))
        })
    };
    assert_eq!(explained(&summary.render::<Bytes>(120)), [true, true]);
    assert_eq!(explained(&summary.render::<Time>(120)), [true, true]);
    summary.rows.retain(|row| row.name != LAUNCHER);
    summary.time.rows.retain(|row| row.name != IMPORT);
    assert_eq!(explained(&summary.render::<Bytes>(120)), [true, false]);
    assert_eq!(explained(&summary.render::<Time>(120)), [false, true]);
    summary.truncate(0);
    for text in [summary.render::<Bytes>(120), summary.render::<Time>(120)] {
        assert!(!text.contains("--all-frames"), "{text}");
    }
}

#[test]
fn a_program_without_such_frames_is_as_it_was() {
    let mut profile = Profile::read(&Synthetic::default().bytes()[..]).expect("a profile");
    let before = profile.clone();
    fold(&mut profile);
    assert_eq!(profile.stacks, before.stacks);
    assert_eq!(profile.functions, before.functions);
}
