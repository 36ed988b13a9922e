//! Who holds what, of snapshots that are made up: amounts, names, and what a file may contain.

use nthbyte_profile::event::{LabelSetId, Nanos, SampleId, SourceId, TypeId};
use nthbyte_profile::holders::{
    Held, Holder, Interner, Kind, Link, Reason, Snapshot, SnapshotNode, SnapshotOutcome,
};
use nthbyte_profile::meta::{Distances, Method, Source, SourceKind, Unit};
use nthbyte_profile::model::{LabelSet, Sample, Sampling, SamplingId, TypeNames};
use nthbyte_profile::synthetic::{self, Synthetic, sample};
use nthbyte_profile::{Meta, NO_LABEL, Profile};
use nthbyte_report::diff::{DiffOptions, Measure};
use nthbyte_report::holders::{HolderRow, HoldersAsked, Icicle, Naming, add_track, as_profile};
use nthbyte_report::{Aggregate, At, By, Diff, Holders, HoldersError, LabelQuery, Summary};

/// Nodes by name: parent, dominator, kind, link, reference, length.
struct Graph {
    names: Interner,
    snapshot: Snapshot,
}

impl Graph {
    fn new() -> Self {
        Self {
            names: Interner::default(),
            snapshot: Snapshot {
                period: 1000,
                ..Snapshot::empty(Nanos(5_000_000), Reason::End)
            },
        }
    }

    fn add(
        &mut self,
        (parent, dominator): (u32, u32),
        (kind, name): (Kind, &str),
        (link, reference): (Link, &str),
        len: Option<u32>,
    ) -> u32 {
        self.snapshot.nodes.push(SnapshotNode {
            dominator,
            parent,
            kind,
            held_by_c: parent == 0 && kind == Kind::Object,
            name: self.names.intern(name),
            link,
            reference: self.names.intern(reference),
            len,
            chain: 1,
        });
        self.snapshot.nodes.len() as u32
    }

    /// Blocks of 1000 bytes, each of which stands for 1582.
    fn hold(&mut self, by: Holder, count: usize) {
        let what = self.names.intern("str");
        let held = Held {
            by,
            what,
            size: 1000,
            is_drawn: true,
            counts: true,
            recorded: None,
        };
        self.snapshot
            .samples
            .extend(std::iter::repeat_n(held, count));
    }

    fn profile(self) -> Profile {
        let mut profile = Profile::empty(Synthetic::default().meta());
        profile.processes[0].snapshots.push(Snapshot {
            texts: self.names.finish(),
            ..self.snapshot
        });
        profile
    }
}

const WEIGHT: f64 = 1000.0 / 0.632_120_558_828_557_7;

/// A cache with sessions in the main module, a list of another module, models that both keep, garbage, and what C holds.
fn service() -> Graph {
    let mut graph = Graph::new();
    let root =
        |graph: &mut Graph, kind, name| graph.add((0, 0), (kind, name), (Link::Unknown, ""), None);
    let main = root(&mut graph, Kind::Module, "__main__");
    let other = root(&mut graph, Kind::Module, "app.orm");
    let cache = graph.add(
        (main, main),
        (Kind::Object, "dict"),
        (Link::Attribute, "cache"),
        Some(300),
    );
    for number in 0..100 {
        let session = graph.add(
            (cache, cache),
            (Kind::Object, "Session"),
            (Link::Key, &format!("'k{number}'")),
            None,
        );
        graph.hold(Holder::Node(session), 3);
    }
    let list = graph.add(
        (other, other),
        (Kind::Object, "list"),
        (Link::Attribute, "models"),
        Some(90),
    );
    let thread = root(&mut graph, Kind::Thread, "4711");
    let frame = graph.add(
        (thread, thread),
        (Kind::Frame, "work"),
        (Link::Call, ""),
        None,
    );
    let local = graph.add(
        (frame, frame),
        (Kind::Object, "bytearray"),
        (Link::Local, "buffer"),
        None,
    );
    graph.hold(Holder::Node(local), 50);
    for _ in 0..40 {
        let model = graph.add(
            (list, 0),
            (Kind::Object, "Model"),
            (Link::Element, ""),
            None,
        );
        graph.hold(Holder::Node(model), 1);
        graph.snapshot.others.push((model, cache));
    }
    let leaked = root(&mut graph, Kind::Object, "list");
    graph.hold(Holder::Node(leaked), 30);
    graph.hold(Holder::Garbage, 20);
    graph.hold(Holder::NotFound, 10);
    graph
}

#[test]
fn each_holder_has_what_it_dominates_and_a_path() {
    let holders = Holders::of(&service().profile(), None).expect("a snapshot");
    let rows: Vec<(&str, &str, f64)> = holders
        .holders
        .iter()
        .map(|row| {
            (
                &*row.holder,
                &*row.what,
                (row.bytes.estimate / WEIGHT).round(),
            )
        })
        .collect();
    let expected = [
        ("cache", "dict of 300 Session", 300.0),
        ("thread 4711: work, local buffer", "bytearray", 50.0),
        ("app.orm.models[*]", "Model, shared", 40.0),
        ("list (held by C code)", "list", 30.0),
    ];
    assert_eq!(rows, expected);
    assert_eq!(holders.holders[2].also, ["cache"]);
    for row in &holders.holders {
        assert!(row.bytes.low < row.bytes.estimate && row.bytes.estimate < row.bytes.high);
    }
    let count = |estimate: f64| (estimate / WEIGHT).round();
    assert_eq!(count(holders.alive.estimate), 450.0);
    let besides = holders.besides;
    let besides = [besides.c_code, besides.garbage, besides.not_found];
    assert_eq!(besides.map(|of| count(of.estimate)), [30.0, 20.0, 10.0]);
    let [of_type] = &holders.types[..] else {
        panic!("one type")
    };
    let (holder, part) = of_type.held_by.clone().expect("a holder");
    assert_eq!((&*holder, (part * 100.0).round()), ("cache", 67.0));
}

#[test]
fn a_thread_alone_has_its_name_and_the_main_module_none_whatever_it_is_called() {
    let mut graph = Graph::new();
    let mut root = |kind, name| graph.add((0, 0), (kind, name), (Link::Unknown, ""), None);
    // What several calls of a thread hold is the thread's.
    let (thread, main) = (
        root(Kind::Thread, "4711"),
        root(Kind::Module, "__mp_main__"),
    );
    let rows = graph.add(
        (main, main),
        (Kind::Object, "list"),
        (Link::Attribute, "rows"),
        Some(90),
    );
    graph.hold(Holder::Node(thread), 50);
    graph.hold(Holder::Node(rows), 40);
    let holders = Holders::of(&graph.profile(), None).expect("a snapshot");
    let named: Vec<_> = holders
        .holders
        .iter()
        .map(|row| (&*row.holder, &*row.what))
        .collect();
    assert_eq!(named[0], ("thread 4711", "thread"));
    assert_eq!(named[1].0, "rows");
}

#[test]
fn the_tables_fit_and_always_have_what_no_object_holds() {
    let holders = Holders::of(&service().profile(), None).expect("a snapshot");
    for width in [60, 90, 200] {
        for text in [
            holders.render(width),
            holders.render_tree(width),
            holders.render_types(width),
        ] {
            assert!(text.contains("held by C code") && text.contains("no holder found"));
            let table = text.split("\n\n").nth(1).expect("a table");
            for line in table.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
    assert!(
        holders
            .render(200)
            .contains("also held by cache: freed only when all let go")
    );
    assert!(holders.render_tree(200).contains("Session ×100"));
}

#[test]
fn a_profile_without_a_snapshot_says_why() {
    let error = |profile: &Profile, at| Holders::of(profile, at).expect_err("no snapshot");
    let mut profile = Profile::empty(Meta::default());
    assert_eq!(error(&profile, None), HoldersError::NotRecorded);
    let not = Snapshot::not_taken(Nanos(1), Reason::End, "the disk is\nround");
    profile.processes[0].snapshots.push(not);
    assert_eq!(
        error(&profile, None),
        HoldersError::NotTaken(r"the disk is\nround".to_owned())
    );
    let profile = service().profile();
    assert!(Holders::of(&profile, Some(At::Time(Nanos(9)))).is_ok());
}

#[test]
fn each_moment_has_its_snapshot() {
    let mut profile = service().profile();
    let end = profile.processes[0].snapshots[0].clone();
    for (number, reason) in [(1, Reason::Peak), (2, Reason::Interval)] {
        let mut other = end.clone();
        (other.time, other.reason) = (Nanos(number * 1_000_000), reason);
        if reason == Reason::Interval {
            other.samples.truncate(100);
        }
        profile.processes[0].snapshots.push(other);
    }
    profile.processes[0].snapshots[0].samples.truncate(200);
    let at = |at| {
        let of = Holders::of(&profile, at).expect("a snapshot");
        (of.at_nanos / 1_000_000, of.reason)
    };
    assert_eq!(at(None), (5, "end"));
    assert_eq!(at(Some(At::End)), (5, "end"));
    assert_eq!(at(Some(At::Peak)), (1, "peak"));
    assert_eq!(at(Some(At::Time(Nanos(3_000_000)))), (2, "interval"));
}

/// A file may contain anything: a path or a tree of any length takes a bounded time.
#[test]
fn long_chains_and_broad_trees_are_shown_in_linear_time() {
    let mut graph = Graph::new();
    let mut last = graph.add((0, 0), (Kind::Module, "m"), (Link::Unknown, ""), None);
    for number in 0..50_000_u32 {
        let name = format!("T{}", number % 2);
        // Every second one has two holders.
        let dominator = if number % 2 == 0 { last } else { 0 };
        last = graph.add(
            (last, dominator),
            (Kind::Object, &name),
            (Link::Attribute, "next"),
            None,
        );
        graph.hold(Holder::Node(last), 1);
    }
    let holders = Holders::of(&graph.profile(), None).expect("a snapshot");
    assert!(holders.holders.len() <= 20);
    assert!(holders.render_tree(100).len() < 1 << 20);
}

#[test]
fn paths_only_is_said() {
    let mut graph = service();
    graph.snapshot.outcome = SnapshotOutcome::PathsOnly("there was no time".to_owned());
    let holders = Holders::of(&graph.profile(), None).expect("a snapshot");
    assert!(holders.notes[0].starts_with("there was no time: "));
}

#[test]
fn a_snapshot_is_a_profile_with_holders_as_callers() {
    let whole = service().profile();
    let shown = Holders::of(&whole, None).expect("a snapshot");
    let samples = as_profile(&whole, None, Naming::Path).expect("a snapshot");
    let summary = Summary::of(&samples, By::Function);
    let summary = serde_json::to_value(&summary).expect("plain data");
    let of = |name: &str| {
        let mut rows = summary["rows"].as_array().into_iter().flatten();
        let row = rows.find(|row| row["name"] == name)?;
        let bytes = row["total_bytes"]["estimate"].as_f64()?;
        Some((bytes / WEIGHT).round())
    };
    // As the table has it: what each dominates, and all of what none does.
    assert_eq!(of("cache dict"), Some(300.0));
    assert_eq!(of("app.orm.models[*] Model"), Some(40.0));
    assert_eq!(of("garbage not yet collected"), Some(20.0));
    assert_eq!(of("no holder found"), Some(10.0));
    let all = Aggregate::of(&samples, nthbyte_report::selection::Moment::End);
    let all = all.estimator.bytes(&all.all.all);
    assert!((all.estimate - shown.alive.estimate).abs() < 1.0);
    assert!((all.low - shown.alive.low).abs() < 0.01 * all.low);
    // A track leaves the samples of the recording as they are.
    let mut both = whole.clone();
    add_track(&mut both, None, Naming::Short).expect("a snapshot");
    assert_eq!(
        both.samples.len(),
        samples.samples.len() + whole.samples.len()
    );
    assert_eq!(both.threads.last().map(|of| &*of.name), Some("Held by"));
}

/// Blocks of native memory whose address no object has: so many of each type.
fn with_native(mut profile: Profile, of: &[(&str, usize)]) -> Profile {
    let source = SourceId(profile.sources.len() as u16);
    let kind = SourceKind::Native;
    let native = Source::allocations(kind, Method::Preload, Distances::Exponential, 1000);
    profile.sources.push(native);
    let sampling = SamplingId(profile.samplings.len() as u32);
    profile.samplings.push(Sampling {
        source,
        unit: Unit::Bytes,
        distances: Distances::Exponential,
        period: 1000,
        lost: 0,
    });
    for &(name, count) in of {
        let type_id = TypeId(profile.types.len() as u32);
        profile.types.push(TypeNames {
            name: name.to_owned(),
            native: String::new(),
        });
        for _ in 0..count {
            let recorded = SampleId(profile.samples.len() as u32);
            let sample = nthbyte_profile::model::Sample {
                type_id,
                ..synthetic::sample(Nanos(1), 1000, sampling)
            };
            profile.samples.push(sample);
            profile.processes[0].snapshots[0].samples.push(Held {
                by: Holder::NotFound,
                what: 0,
                size: 1,
                is_drawn: false,
                counts: true,
                recorded: Some(recorded),
            });
        }
    }
    profile
}

#[test]
fn native_memory_without_a_holder_has_boxes_of_its_own() {
    let types = [("malloc (libarrow.so)", 60), ("mmap", 40), ("tiny", 1)];
    let profile = with_native(service().profile(), &types);
    let shown = Holders::of(&profile, None).expect("a snapshot");
    let rows = shown.besides.native.iter();
    let rows: Vec<_> = rows.map(|row| (&*row.name, row.bytes.estimate)).collect();
    assert_eq!(
        rows.iter().map(|row| row.0).collect::<Vec<_>>(),
        ["malloc (libarrow.so)", "mmap", "others"]
    );
    let page = serde_json::to_value(Icicle::of(&profile, None)).expect("plain data");
    let boxes = page["boxes"].as_array().expect("boxes");
    let at = boxes
        .iter()
        .position(|one| one["reference"] == "native memory without a holder");
    let at = at.expect("a box of all of it");
    let native = &boxes[at..];
    assert!(native[0]["parent"].is_null());
    let bytes = |one: &serde_json::Value| one["bytes"]["estimate"].as_f64().expect("a number");
    let sum: f64 = rows.iter().map(|row| row.1).sum();
    assert!((bytes(&native[0]) - sum).abs() < 1.0);
    for (one, row) in native[1..].iter().zip(&rows) {
        assert_eq!(
            (&one["parent"], &one["reference"]),
            (&at.into(), &row.0.into())
        );
        assert_eq!(bytes(one), row.1);
    }
    assert_eq!(native.len(), 1 + rows.len());
    // And callers of their own: small ones are with the others.
    let samples = as_profile(&profile, None, Naming::Path).expect("a snapshot");
    let summary = serde_json::to_value(Summary::of(&samples, By::Function)).expect("plain data");
    let of = |name: &str| {
        let mut rows = summary["rows"].as_array().into_iter().flatten();
        let row = rows.find(|row| row["name"] == name)?;
        row["total_bytes"]["estimate"].as_f64()
    };
    for (name, bytes) in rows {
        let found = of(name).expect("a row");
        assert!((found - bytes).abs() < 1.0, "{name}: {found}, not {bytes}");
    }
    let found = of("no holder found").expect("what is no native memory");
    assert_eq!((found / WEIGHT).round(), 10.0);
}

#[test]
fn two_snapshots_are_compared_by_holder() {
    let old = as_profile(&service().profile(), None, Naming::Path).expect("a snapshot");
    let mut grown = service();
    let cache = 3;
    grown.hold(Holder::Node(cache), 300);
    let new = as_profile(&grown.profile(), None, Naming::Path).expect("a snapshot");
    let options = DiffOptions {
        by: By::Function,
        inclusive: true,
        prefixes: Vec::new(),
        limits: Vec::new(),
    };
    let mut diff = Diff::of(&[old], &[new], &options);
    diff.sort(Measure::Alive);
    let row = diff.rows.iter().find(|row| row.name == "cache dict");
    let change = &row.expect("the cache").changes[Measure::Alive];
    assert_eq!((change.difference.estimate / WEIGHT).round(), 300.0);
    assert!(change.difference.low > 0.0);
    // The cache, and its module.
    assert_eq!(diff.significant_rows, 2);
}

/// Numbers that look random.
struct Draws(u64);

impl Draws {
    /// Whether something of this probability happens.
    fn happens(&mut self, probability: f64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64 <= probability
    }
}

/// The same heap is drawn from again and again: of a hundred intervals of holders, at least 93 have what the holder has.
#[test]
fn intervals_hold_as_often_as_they_say() {
    /// Blocks of each holder: how many, and of which sizes in turn.
    const HOLDERS: [(usize, &[u64]); 6] = [
        (120, &[1024]),
        (300, &[48, 64, 512]),
        (2000, &[32]),
        (700, &[16, 2048, 96]),
        (5000, &[48, 80, 160]),
        (50, &[2048, 1808]),
    ];
    const PERIOD: u64 = 4096;
    const TIMES: usize = 400;
    let mut draws = Draws(1);
    let (mut checked, mut held) = (0, 0);
    let mut ratios = [0.0; HOLDERS.len()];
    for _ in 0..TIMES {
        let mut graph = Graph::new();
        graph.snapshot.period = PERIOD;
        let main = (Kind::Module, "__main__");
        let main = graph.add((0, 0), main, (Link::Unknown, ""), None);
        let what = graph.names.intern("bytes");
        for (number, (count, sizes)) in HOLDERS.iter().enumerate() {
            let name = format!("holder{number}");
            let link = (Link::Attribute, name.as_str());
            let node = graph.add((main, main), (Kind::Object, "list"), link, None);
            for block in 0..*count {
                let size = sizes[block % sizes.len()];
                if draws.happens(-(-(size as f64) / PERIOD as f64).exp_m1()) {
                    graph.snapshot.samples.push(Held {
                        by: Holder::Node(node),
                        what,
                        size,
                        is_drawn: true,
                        counts: true,
                        recorded: None,
                    });
                }
            }
        }
        let shown = Holders::of(&graph.profile(), None).expect("a snapshot");
        for (number, (count, sizes)) in HOLDERS.iter().enumerate() {
            let all: u64 = (0..*count).map(|block| sizes[block % sizes.len()]).sum();
            let name = format!("holder{number}");
            let roots = shown.tree.iter();
            let mut branches = roots.flat_map(|root| std::iter::once(root).chain(&root.children));
            let branch = branches.find(|branch| branch.reference.ends_with(&name));
            let Some(branch) = branch else {
                continue;
            };
            checked += 1;
            let bytes = &branch.bytes;
            held += usize::from((bytes.low..=bytes.high).contains(&(all as f64)));
            ratios[number] += bytes.estimate / all as f64 / TIMES as f64;
        }
    }
    assert!(checked > TIMES * HOLDERS.len() * 99 / 100, "{checked}");
    assert!(held * 100 >= checked * 93, "{held} of {checked}");
    assert!(
        ratios.iter().all(|ratio| (ratio - 1.0).abs() < 0.05),
        "{ratios:?}"
    );
}

/// Large blocks are known from the recording's samples only, of which a holder may have none: intervals allow for that.
#[test]
fn intervals_allow_for_large_blocks_without_a_sample() {
    /// The large blocks and the small ones of each holder.
    const HOLDERS: [(u64, u64); 3] = [(2, 400), (0, 900), (40, 100)];
    const LARGE: u64 = 200_000;
    const SMALL: u64 = 1024;
    const PERIOD: u64 = 4096;
    const TIMES: usize = 400;
    let mut draws = Draws(2);
    let mut held = [0; HOLDERS.len()];
    for _ in 0..TIMES {
        let mut graph = Graph::new();
        graph.snapshot.period = PERIOD;
        let main = (Kind::Module, "__main__");
        let main = graph.add((0, 0), main, (Link::Unknown, ""), None);
        let mut recorded = 0;
        let of_recording = Synthetic::default().period;
        for (number, &(large, small)) in HOLDERS.iter().enumerate() {
            let name = format!("holder{number}");
            let link = (Link::Attribute, name.as_str());
            let node = graph.add((main, main), (Kind::Object, "list"), link, None);
            for block in 0..large + small {
                let is_drawn = block >= large;
                let (size, period) = match is_drawn {
                    true => (SMALL, PERIOD),
                    false => (LARGE, of_recording),
                };
                if draws.happens(-(-(size as f64) / period as f64).exp_m1()) {
                    recorded += u32::from(!is_drawn);
                    graph.snapshot.samples.push(Held {
                        by: Holder::Node(node),
                        what: 0,
                        size: if is_drawn { size } else { 1 },
                        is_drawn,
                        counts: true,
                        recorded: (!is_drawn).then(|| SampleId(recorded - 1)),
                    });
                }
            }
        }
        let mut profile = graph.profile();
        for _ in 0..recorded {
            let of = sample(Nanos(1), LARGE, SamplingId(0));
            profile.samples.push(of);
        }
        let shown = Holders::of(&profile, None).expect("a snapshot");
        let branches = || shown.tree.iter().flat_map(|root| &root.children);
        for (number, &(large, small)) in HOLDERS.iter().enumerate() {
            let all = (large * LARGE + small * SMALL) as f64;
            let name = format!("holder{number}");
            let branch = branches().find(|branch| branch.reference.ends_with(&name));
            let bytes = branch.expect("a large part of all").bytes;
            held[number] += usize::from((bytes.low..=bytes.high).contains(&all));
        }
    }
    let least = TIMES * 93 / 100;
    assert!(held.iter().all(|&held| held >= least), "{held:?}");
}

/// Two containers, and the recording's samples in them: (container, label set, number). The snapshot drew others.
fn labelled(held: &[(usize, u32, u32)], taken: usize) -> Profile {
    let mut graph = Graph::new();
    let main = graph.add(
        (0, 0),
        (Kind::Module, "__main__"),
        (Link::Unknown, ""),
        None,
    );
    let of_main = |graph: &mut Graph, name| {
        let what = (Kind::Object, "dict");
        graph.add((main, main), what, (Link::Attribute, name), Some(50))
    };
    let containers = [
        of_main(&mut graph, "sessions"),
        of_main(&mut graph, "reports"),
    ];
    graph.hold(Holder::Node(containers[0]), 1000);
    let what = graph.names.intern("bytes");
    let mut samples = Vec::new();
    for &(container, set, count) in held {
        for _ in 0..count {
            samples.push(LabelSetId(set));
            if samples.len().is_multiple_of(taken) {
                graph.snapshot.samples.push(Held {
                    by: Holder::Node(containers[container]),
                    what,
                    size: 1000,
                    is_drawn: false,
                    counts: false,
                    recorded: Some(SampleId(samples.len() as u32 - 1)),
                });
            }
        }
    }
    graph.snapshot.period = 1 << 40;
    let mut profile = graph.profile();
    let meta = Synthetic {
        period: 1000,
        ..Synthetic::default()
    };
    let snapshots = std::mem::take(&mut profile.processes[0].snapshots);
    profile = Profile::empty(meta.meta());
    profile.processes[0].snapshots = snapshots;
    for value in ["/checkout", "/report"] {
        profile.label_sets.push(LabelSet {
            parent: LabelSetId::NONE,
            key: "endpoint".to_owned(),
            value: value.to_owned(),
        });
    }
    for labels in samples {
        profile.samples.push(Sample {
            labels,
            ..sample(Nanos(1), 1000, SamplingId(0))
        });
    }
    profile
}

fn counts(rows: &[HolderRow]) -> Vec<(&str, f64)> {
    let count = |row: &HolderRow| (row.bytes.estimate / WEIGHT).round();
    rows.iter().map(|row| (&*row.holder, count(row))).collect()
}

#[test]
fn what_was_allocated_under_a_label_has_its_holders() {
    let profile = labelled(&[(0, 1, 60), (1, 1, 20), (1, 2, 40), (0, 0, 10)], 1);
    let ask = |label: Option<&str>, by| {
        let labels: Vec<LabelQuery> = label.and_then(LabelQuery::parse).into_iter().collect();
        let asked = HoldersAsked {
            labels: &labels,
            by,
            ..HoldersAsked::default()
        };
        Holders::asked(&profile, &asked)
    };
    let of_one = ask(Some("endpoint=/checkout"), None).expect("a snapshot");
    // What the snapshot drew has no label.
    assert_eq!((of_one.alive.estimate / WEIGHT).round(), 80.0);
    assert_eq!(
        counts(&of_one.holders),
        [("sessions", 60.0), ("reports", 20.0)]
    );
    let text = of_one.render(100);
    assert!(text.contains("only what was allocated under endpoint=/checkout\n"));
    let by = ask(None, Some("endpoint")).expect("a snapshot");
    let rows = by.by_label.as_ref().map(|of| &of.rows[..]).expect("rows");
    let of_rows: Vec<(&str, f64)> = rows
        .iter()
        .map(|row| (&*row.value, (row.bytes.estimate / WEIGHT).round()))
        .collect();
    assert_eq!(
        of_rows,
        [("/checkout", 80.0), ("/report", 40.0), (NO_LABEL, 10.0)]
    );
    assert_eq!(
        counts(&rows[0].holders),
        [("sessions", 60.0), ("reports", 20.0)]
    );
    assert_eq!(counts(&rows[1].holders), [("reports", 40.0)]);
    let shares = rows.iter().map(|row| row.share).sum::<f64>();
    assert!((shares - 1.0).abs() < 1e-9 && (rows[0].holders[0].share - 60.0 / 130.0).abs() < 1e-9);
    let text = by.render_labels(100);
    assert!(text.contains("/checkout\n") && text.contains("    held by sessions  dict of 50"));
    let missing = ask(Some("endpoint=/none"), None).expect_err("no such label");
    assert!(missing.to_string().contains("/checkout"), "{missing}");
    let whole = service().profile();
    let asked = HoldersAsked {
        by: Some("endpoint"),
        ..HoldersAsked::default()
    };
    let none = Holders::asked(&whole, &asked).expect_err("no samples");
    assert!(matches!(none, HoldersError::NoSamples(_)));
}

/// Of many sampled blocks that it did not draw, a snapshot has a part.
#[test]
fn amounts_by_label_allow_for_samples_that_the_snapshot_left_out() {
    let profile = labelled(&[(0, 1, 9_000), (1, 2, 3_000)], 3);
    let asked = HoldersAsked {
        by: Some("endpoint"),
        ..HoldersAsked::default()
    };
    let by = Holders::asked(&profile, &asked).expect("a snapshot");
    let rows = &by.by_label.as_ref().expect("rows").rows;
    for (row, truth) in rows.iter().zip([9_000.0, 3_000.0]) {
        assert!((row.bytes.estimate / WEIGHT / truth - 1.0).abs() < 0.01);
        assert!(row.bytes.low < 0.99 * row.bytes.estimate);
    }
}
