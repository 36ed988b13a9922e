//! The answers of `explain`: they fit a screen whatever the profile is, and say no more than the samples do.

use nthbyte_profile::event;
use nthbyte_profile::event::{
    Collection, CollectionKind, LabelSetId, Nanos, NodeId, ThreadId, TypeId,
};
use nthbyte_profile::meta::{Distances, Meta, Method, Source, SourceKind};
use nthbyte_profile::model::{
    LabelSet, Lifetime, Process, ProcessId, Profile, Sample, Samples, SamplingId, Shape,
    ThreadNames, TimeSample, TypeNames,
};
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_report::explain::{Answer, ExplainOptions, Style, Topic};
use nthbyte_report::text;
use nthbyte_report::{By, Estimate, Explanation, Summary};
use proptest::prelude::*;

const PERIOD: u64 = 64 << 10;
const END: u64 = 60_000_000_000;

/// Objects that a function allocates, evenly over the run: each stands for a sample.
#[derive(Clone, Copy)]
struct Objects {
    samples: u64,
    size: u64,
    type_id: u32,
    /// How long each lives, as a part of the run; `None` is to its end.
    lives: Option<f64>,
    young: bool,
}

const TYPES: [&str; 3] = ["", "str", "app.Thing"];

fn profile(functions: &[Objects]) -> Profile {
    let meta = Meta {
        sources: Source::of_session(Method::CutFreeLists, Distances::Exponential, PERIOD, None),
        interpreter: "CPython 3.11.7".to_owned(),
        command: vec!["app.py".to_owned()],
        pid: 10,
        ..Synthetic::default().meta()
    };
    let mut profile = Profile::empty(meta);
    profile.end = Nanos(END);
    profile.complete = true;
    synthetic::wait_between_rounds(&mut profile);
    for name in &TYPES[1..] {
        profile.types.push(TypeNames {
            name: (*name).to_owned(),
            native: String::new(),
        });
    }
    let mut samples = Vec::new();
    for (number, made) in functions.iter().enumerate() {
        let stack = synthetic::add_function(&mut profile, &format!("function_{number}"));
        for at in 0..made.samples {
            let time = END * (2 * at + 1) / (2 * made.samples);
            let freed = made.lives.map(|part| time + (part * END as f64) as u64);
            let freed = freed.filter(|&freed| freed < END);
            samples.push(Sample {
                time: Nanos(time),
                thread: ThreadId(0),
                stack,
                shape: Shape {
                    size: made.size,
                    block: made.size,
                    points: 1,
                    sampling: SamplingId(0),
                },
                type_id: TypeId(made.type_id),
                labels: LabelSetId::default(),
                lifetime: match freed {
                    None => Lifetime::StillLive,
                    Some(_) if made.young => Lifetime::DiedYoung,
                    Some(_) => Lifetime::Freed,
                },
                freed: freed.map(Nanos),
            });
        }
    }
    samples.sort_by_key(|sample| sample.time);
    for sample in samples {
        profile.samples.push(sample);
    }
    profile
}

/// What dies at once.
fn churn(samples: u64) -> Objects {
    Objects {
        samples,
        size: 64,
        type_id: 1,
        lives: Some(1e-5),
        young: true,
    }
}

fn asked() -> ExplainOptions {
    ExplainOptions {
        words: vec!["app.nthb".to_owned()],
        more_processes: 0,
        repeated: false,
    }
}

fn explain(profile: &Profile) -> Explanation {
    Explanation::of(profile, &asked())
}

fn answer(explanation: &Explanation, topic: Topic) -> Option<&Answer> {
    let mut answers = explanation.answers.iter();
    answers.find(|answer| answer.topic == topic)
}

fn collection(start: u64, nanos: u64) -> Collection {
    Collection {
        start: Nanos(start),
        duration: Nanos(nanos),
        thread: ThreadId(0),
        kind: CollectionKind::Generation(0),
        freed_objects: None,
        bytes_before: None,
        bytes_after: None,
    }
}

#[test]
fn more_than_another_is_said_only_where_intervals_are_apart() {
    let clear = explain(&profile(&[churn(400), churn(100)]));
    let first = answer(&clear, Topic::Churn).unwrap();
    assert!(first.sentences[0].contains("function_0"), "{first:?}");
    assert!(
        first.sentences[0].contains("more than any other line"),
        "{first:?}"
    );
    let figure = first.figures["bytes"];
    assert!(figure.low < figure.estimate && figure.estimate < figure.high);
    assert_eq!(
        first.more,
        ["nthbyte", "summary", "app.nthb", "--by", "line"]
    );
    let unclear = explain(&profile(&[churn(400), churn(390)]));
    let first = answer(&unclear, Topic::Churn).unwrap();
    assert!(
        first.sentences[0].contains("about as much as the next ones"),
        "{first:?}"
    );
}

#[test]
fn the_machinery_of_imports_counts_as_one_function() {
    let mut imports = profile(&[churn(300), churn(250), churn(200)]);
    for function in &mut imports.functions[1..] {
        function.file = "<frozen importlib._bootstrap_external>".to_owned();
    }
    let explanation = explain(&imports);
    let first = answer(&explanation, Topic::Churn).unwrap();
    let text = &first.sentences.join(" ");
    assert_eq!(text.matches("[import]").count(), 1, "{text}");
    // All of its 450 samples together are more than the other one's.
    assert!(text.starts_with("[import]"), "{text}");
}

/// A compiled module has no frames: what it makes while it is imported seems to be the machinery's.
#[test]
fn native_code_that_hides_is_said() {
    let said = |name: &str, file: &str| {
        let mut imports = profile(&[churn(300), churn(250)]);
        (imports.functions[1].name, imports.functions[1].file) = (name.to_owned(), file.to_owned());
        let explanation = explain(&imports);
        let sentences = &answer(&explanation, Topic::Churn).unwrap().sentences;
        sentences.iter().any(|one| one.contains("--native-frames"))
    };
    let machinery = "<frozen importlib._bootstrap>";
    assert!(said("_call_with_frames_removed", machinery));
    // It reads the code of modules of Python.
    assert!(!said("_compile_bytecode", machinery));
    assert!(!said("_call_with_frames_removed", "/srv/app.py"));
}

#[test]
fn what_is_alive_comes_first_if_it_is_much() {
    let order = |kept: u64| {
        let one = Objects {
            samples: 1,
            size: kept << 20,
            lives: Some(0.5),
            ..KEPT
        };
        let explanation = explain(&profile(&[churn(4000), one]));
        let topics = explanation.answers.iter().map(|answer| answer.topic);
        let topics: Vec<Topic> = topics
            .filter(|topic| [Topic::Peak, Topic::Churn].contains(topic))
            .collect();
        topics[0]
    };
    assert_eq!(order(100), Topic::Peak);
    assert_eq!(order(10), Topic::Churn);
}

#[test]
fn colours_change_no_text() {
    let explanation = explain(&profile(&[churn(2000), KEPT]));
    let plain = explanation.render(80, Style::Plain);
    let coloured = explanation.render(80, Style::Coloured);
    assert!(
        coloured.contains("\u{1b}[1mLeak\u{1b}[0m       function_1"),
        "{coloured}"
    );
    let mut bare = coloured;
    for sequence in ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m"] {
        bare = bare.replace(sequence, "");
    }
    assert_eq!(bare, plain);
}

#[test]
fn what_accumulates_comes_before_who_allocates() {
    let explanation = explain(&profile(&[churn(2000), KEPT]));
    let leak = &explanation.answers[0];
    assert_eq!(leak.topic, Topic::Leak);
    assert_eq!(leak.places[0].function, "function_1");
    assert_eq!(leak.places[0].line, 12);
    assert_eq!(leak.more, ["nthbyte", "leaks", "app.nthb"]);
    assert!(answer(&explanation, Topic::NoLeak).is_none());
    let allocates = answer(&explanation, Topic::Churn).unwrap();
    let young = allocates.places.last().unwrap();
    assert_eq!((&young.function[..], young.line), ("function_0", 2));
    let none = explain(&profile(&[churn(2000)]));
    assert!(answer(&none, Topic::Leak).is_none());
    assert!(answer(&none, Topic::NoLeak).unwrap().figures["unnoticed_per_minute"].estimate > 0.0);
}

#[test]
fn few_collections_do_not_tell_what_dies_young() {
    for (number, is_few) in [(1, true), (3, true), (4, false)] {
        let mut profile = profile(&[churn(2000)]);
        profile.collections = vec![collection(0, 1000); number];
        let explanation = explain(&profile);
        let young = answer(&explanation, Topic::Churn).unwrap();
        let text = young.sentences.join(" ");
        assert_eq!(text.contains("may live long"), is_few, "{text}");
        let notes = Summary::of(&profile, By::Function).notes.join(" ");
        assert_eq!(notes.contains("may have lived long"), is_few, "{notes}");
    }
}

/// The samples for which `is_second` holds belong to a second process.
fn of_two(mut family: Profile, is_second: impl Fn(&Sample) -> bool) -> Profile {
    let samples: Vec<Sample> = family.samples.iter().collect();
    family.samples = Samples::default();
    for sample in samples {
        let thread = ThreadId(u32::from(is_second(&sample)));
        family.samples.push(Sample { thread, ..sample });
    }
    family.threads = vec![ThreadNames::default(); 2];
    family.thread_processes = vec![ProcessId(0), ProcessId(1)];
    let meta = Meta {
        pid: 11,
        parent_pid: Some(10),
        ..family.meta.clone()
    };
    family.processes.push(Process::new(meta, Nanos(0)));
    for process in &mut family.processes {
        process.end = Nanos(END);
        process.complete = true;
    }
    synthetic::wait_between_rounds(&mut family);
    family
}

const KEPT: Objects = Objects {
    samples: 100,
    size: 1600,
    type_id: 2,
    lives: None,
    young: false,
};

/// The samples of the first function have one label, and the second's another.
#[test]
fn a_label_pays_where_its_bytes_are() {
    let mut profile = profile(&[churn(3_000), churn(900), churn(600)]);
    assert!(answer(&explain(&profile), Topic::Labels).is_none());
    for value in ["/checkout", "/search"] {
        profile.label_sets.push(LabelSet {
            parent: LabelSetId::NONE,
            key: "endpoint".to_owned(),
            value: value.to_owned(),
        });
    }
    let samples = std::mem::take(&mut profile.samples);
    for sample in samples.iter() {
        let labels = LabelSetId(sample.stack.0 % 3);
        profile.samples.push(Sample { labels, ..sample }).unwrap();
    }
    let explanation = explain(&profile);
    let labels = answer(&explanation, Topic::Labels).expect("there are labels");
    let said = labels.sentences.join(" ");
    assert!(
        said.starts_with("endpoint /checkout pays for ")
            && said.contains("more than any other endpoint.")
            && said.contains("Next: /search ")
            && said.contains(" of all bytes have no endpoint."),
        "{said}"
    );
    let share = labels.figures["bytes"].estimate / explanation.bytes.estimate;
    assert!((share - 3_000.0 / 4_500.0).abs() < 1e-6, "{share}");
    assert_eq!(
        labels.more,
        ["nthbyte", "summary", "app.nthb", "--by", "label:endpoint"]
    );
}

#[test]
fn each_process_is_judged_by_itself() {
    let family = profile(&[churn(2000), KEPT, churn(500)]);
    let family = of_two(family, |sample| sample.stack != NodeId(1));
    let explanation = explain(&family);
    assert_eq!(explanation.processes, 2);
    let leak = answer(&explanation, Topic::Leak).unwrap();
    assert!(leak.sentences[0].starts_with("In process 11, "), "{leak:?}");
    let most = answer(&explanation, Topic::Processes).unwrap();
    assert!(most.sentences[0].contains("process 10"), "{most:?}");
}

#[test]
fn what_a_process_keeps_is_gone_when_it_ends() {
    let kept = Objects {
        samples: 200,
        ..KEPT
    };
    let middle = Nanos(END / 2);
    let mut family = of_two(profile(&[kept]), |sample| sample.time > middle);
    let peak = |profile: &Profile| {
        let explanation = explain(profile);
        answer(&explanation, Topic::Peak).unwrap().figures["bytes"]
    };
    let whole: f64 = family.samples.ids().map(|id| family.weight(id).bytes).sum();
    let holds = |of: &Estimate, truth: f64| of.low <= truth && truth <= of.high;
    let together = peak(&family);
    assert!(holds(&together, whole), "{together:?} {whole}");
    family.processes[0].end = middle;
    let alone = peak(&family);
    assert!(holds(&alone, whole / 2.0), "{alone:?} {whole}");
    assert!(alone.high < together.estimate, "{alone:?} {together:?}");
}

#[test]
fn the_collector_is_fed_by_containers_that_it_finds_alive() {
    let strings = Objects {
        lives: Some(0.2),
        young: false,
        ..churn(500)
    };
    let things = Objects {
        type_id: 2,
        ..strings
    };
    let dead = Objects {
        type_id: 2,
        ..churn(4000)
    };
    let mut profile = profile(&[strings, things, dead]);
    profile.collections = (1..100)
        .map(|number| collection(number * END / 100, END / 500))
        .collect();
    let explanation = explain(&profile);
    let collector = answer(&explanation, Topic::Collector).unwrap();
    assert!((collector.figures["share"].estimate - 0.198).abs() < 1e-9);
    assert_eq!(collector.figures["collections"].estimate, 99.0);
    // Neither strings, which it does not track, nor objects freed before it runs.
    assert_eq!(collector.places[0].function, "function_1");
    assert!(
        collector.sentences[1].contains("app.Thing 100 %"),
        "{collector:?}"
    );
    // It takes a fifth of the time: that comes before who allocates.
    let order = |topic| {
        explanation
            .answers
            .iter()
            .position(|answer| answer.topic == topic)
    };
    assert!(order(Topic::Collector) < order(Topic::Churn));
    profile.collections.truncate(1);
    let explanation = explain(&profile);
    let collector = answer(&explanation, Topic::Collector).unwrap();
    assert_eq!(collector.sentences.len(), 1, "{collector:?}");
}

/// Blocks of `malloc` have no references that a collector could follow.
#[test]
fn no_collector_is_fed_by_native_blocks() {
    let kept = Objects {
        samples: 3000,
        size: 64,
        type_id: 2,
        lives: Some(0.02),
        young: false,
    };
    let mut profile = profile(&[kept, churn(3000)]);
    profile.sources[0] = Source::allocations(
        SourceKind::Native,
        Method::Preload,
        Distances::Exponential,
        PERIOD,
    );
    profile.collections = (1..100)
        .map(|number| collection(number * END / 100, END / 500))
        .collect();
    let explanation = explain(&profile);
    let collector = answer(&explanation, Topic::Collector).unwrap();
    assert!(collector.places.is_empty(), "{collector:?}");
}

#[test]
fn a_coarse_period_is_said_with_a_better_one() {
    let explanation = explain(&profile(&[churn(5), churn(3), churn(1)]));
    let period = answer(&explanation, Topic::Period).unwrap();
    // 30 samples of 64 KiB.
    assert!(
        period.sentences[0]
            .contains("only functions that allocate 1.88 MiB (30 samples) or more can be ranked"),
        "{period:?}"
    );
    // The first has more than half of all: five samples of 64 KiB are 30 of 10.7 KiB.
    assert_eq!(period.figures["proposed_period"].estimate, 8192.0);
    assert_eq!(
        period.more,
        ["nthbyte", "run", "--every", "8KiB", "PROGRAM"]
    );
    let fine = explain(&profile(&[churn(400), churn(300)]));
    assert!(
        fine.render(80, Style::Plain)
            .contains("In brackets: 95 % intervals.")
    );
    let period = answer(&fine, Topic::Period).unwrap();
    assert!(!period.figures.contains_key("proposed_period"));
    assert_eq!(period.figures["rankable_functions"].estimate, 2.0);
}

#[test]
fn an_empty_profile_says_that_it_is_empty() {
    let explanation = explain(&profile(&[]));
    assert_eq!(explanation.answers[0].topic, Topic::Period);
    assert!(explanation.answers[0].sentences[0].starts_with("There is no sample"));
    let text = explanation.render(80, Style::Plain);
    assert!(text.lines().count() <= 24);
    // It shows no interval.
    assert!(!text.contains("In brackets"), "{text}");
}

#[test]
fn what_is_lost_is_said_by_its_kind() {
    let said = |lost: &[(event::LostKind, u64)]| {
        let mut profile = profile(&[churn(500)]);
        profile.lost.extend_from_slice(lost);
        let explanation = explain(&profile);
        let first = &explanation.answers[0];
        let is_first = first.topic == Topic::Incomplete;
        is_first.then(|| first.sentences.join(" "))
    };
    assert_eq!(
        said(&[(event::LostKind::Allocations, 1)]).unwrap(),
        "1 sample was lost: those beside them stand for them, and intervals are wider."
    );
    assert_eq!(
        said(&[(event::LostKind::CpuSamples, 2)]).unwrap(),
        "2 time samples were lost: times are too low."
    );
    assert_eq!(said(&[(event::LostKind::CpuSamples, 0)]), None);
}

#[test]
fn a_few_lost_time_samples_change_no_answer() {
    let mut profile = profile(&[churn(500)]);
    profile.cpu = vec![
        TimeSample {
            time: Nanos(1),
            thread: ThreadId(0),
            stack: NodeId(1),
            labels: LabelSetId::NONE,
            sampling: SamplingId(0),
        };
        200
    ];
    for (lost, topic_comes) in [(2, false), (3, true), (200, true)] {
        profile.lost = vec![(event::LostKind::CpuSamples, lost)];
        let explanation = explain(&profile);
        let found = answer(&explanation, Topic::Incomplete);
        assert_eq!(found.is_some(), topic_comes);
        // The shares of the time are of what was seen, and say so.
        let time = answer(&explanation, Topic::Time).unwrap();
        let said = time.sentences.join(" ");
        assert_eq!(said.contains("that were seen"), topic_comes, "{said}");
        let half = said.contains("50 % of the time was not seen");
        assert_eq!(half, lost == 200, "{said}");
    }
}

#[test]
fn what_is_missing_comes_first() {
    let mut profile = profile(&[churn(500)]);
    profile.complete = false;
    profile.lost.push((event::LostKind::Other, 1234));
    let asked = ExplainOptions {
        more_processes: 3,
        repeated: false,
        ..asked()
    };
    let explanation = Explanation::of(&profile, &asked);
    assert_eq!(explanation.answers[0].topic, Topic::Incomplete);
    let text = explanation.answers[0].sentences.join(" ");
    assert!(
        text.contains("is incomplete") && text.contains("1,234 events were lost"),
        "{text}"
    );
    assert_eq!(explanation.answers[1].topic, Topic::Family);
    assert_eq!(
        explanation.answers[1].more,
        ["nthbyte", "explain", "app.nthb"]
    );
}

#[test]
fn the_json_is_what_the_document_says() {
    let explanation = explain(&profile(&[churn(400)]));
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json["version"], 1);
    let page = include_str!("../../../docs/explain.md");
    let documented =
        |name: &str| page.contains(&format!("| `{name}`")) || page.contains(&format!(", `{name}`"));
    for name in json.as_object().unwrap().keys() {
        assert!(documented(name), "{name} is not in docs/explain.md");
    }
    for name in json["answers"][0].as_object().unwrap().keys() {
        assert!(documented(name), "{name} is not in docs/explain.md");
    }
}

#[test]
fn a_word_is_quoted_for_a_shell() {
    let asked = ExplainOptions {
        words: vec!["it's a.nthb".to_owned()],
        more_processes: 0,
        repeated: false,
    };
    let text = Explanation::of(&profile(&[churn(400)]), &asked).render(80, Style::Plain);
    assert!(
        text.contains("nthbyte summary 'it'\\''s a.nthb' --by line\n"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the names, the paths and the width are.
    #[test]
    fn it_is_a_screen(seed in 0_u64..1000, samples in 0_u32..1000, hostile: bool, width in 0_usize..200, path in ".{0,120}", number in 1_usize..6) {
        let setup = Synthetic { samples, seed, hostile, ..Synthetic::default() };
        let profile = Profile::read(&setup.bytes()[..]).unwrap();
        let asked = ExplainOptions { words: vec![path; number], more_processes: number, repeated: number % 2 == 1 };
        let explanation = Explanation::of(&profile, &asked);
        let shown = explanation.render(width, Style::Plain);
        prop_assert!(shown.lines().count() <= 24, "{shown}");
        for line in shown.lines() {
            prop_assert!(text::width(line) <= width.max(60), "{line}");
            prop_assert_eq!(text::clean(line), line);
        }
        for answer in &explanation.answers {
            prop_assert!(!answer.sentences.is_empty());
            for figure in answer.figures.values() {
                prop_assert!(figure.low <= figure.estimate && figure.estimate <= figure.high, "{answer:?}");
                prop_assert!(figure.estimate.is_finite());
            }
        }
    }
}
