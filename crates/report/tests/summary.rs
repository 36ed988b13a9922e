//! Summaries against the same figures worked out the slow way, sample by sample.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use crate::halves;
use nthbyte_profile::event::{Memory, Nanos};
use nthbyte_profile::model::{Lifetime, Profile, SamplingId, ThreadNames};
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_profile::{Distances, Writer};
use nthbyte_report::summary::{NO_STACK, RowBytes, SummaryRow};
use nthbyte_report::{By, Bytes, Sort, Summary, Time, Tree, text};
use proptest::prelude::*;

fn profile(setup: Synthetic) -> Profile {
    Profile::read(&setup.bytes()[..]).expect("a profile")
}

/// Own and total bytes, own allocations, own bytes that died young, samples.
type Figures = (f64, f64, f64, f64, u64);

fn slowly(profile: &Profile, by: By) -> HashMap<(String, String, u32), Figures> {
    let mut rows: HashMap<_, Figures> = HashMap::new();
    for id in profile.samples.ids() {
        let sample = profile.samples.get(id);
        let weight = profile.weight(id);
        let label = |frame: &nthbyte_profile::model::Frame| {
            let function = &profile.functions[frame.function as usize];
            let (name, file) = (function.name.clone(), function.file.clone());
            match by {
                By::Function => (name, file, function.first_line),
                By::Line => (name, file, frame.line),
                By::File => (file.clone(), file, 0),
                By::Type | By::Process | By::Label(_) => unreachable!("they are not frames"),
            }
        };
        let labels: Vec<_> = if by == By::Type {
            let name = profile.types[sample.type_id.index()].name.clone();
            vec![(name, String::new(), 0)]
        } else {
            profile.stack(sample.stack).map(label).collect()
        };
        if let Some(own) = labels.first() {
            let row = rows.entry(own.clone()).or_default();
            row.0 += weight.bytes;
            row.2 += weight.allocations;
            row.3 += if sample.lifetime == Lifetime::DiedYoung {
                weight.bytes
            } else {
                0.0
            };
            row.4 += 1;
        }
        for label in labels.into_iter().collect::<HashSet<_>>() {
            rows.entry(label).or_default().1 += weight.bytes;
        }
    }
    rows
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * one.abs().max(1.0)
}

#[test]
fn figures_are_correct() {
    for distances in [Distances::Exponential, Distances::Fixed, Distances::Every] {
        let profile = profile(Synthetic {
            samples: 4000,
            distances,
            ..Synthetic::default()
        });
        for by in [By::Function, By::Line, By::File, By::Type] {
            let summary = Summary::of(&profile, by);
            let mut slow = slowly(&profile, by);
            for row in &summary.rows {
                let label = (row.name.clone(), row.file.clone(), row.line);
                let (own, total, allocations, young, samples) =
                    slow.remove(&label).expect("a row that is in the profile");
                assert!(
                    close(row.figures.self_bytes.estimate, own),
                    "{by:?} {label:?}"
                );
                assert!(
                    close(row.figures.total_bytes.estimate, total),
                    "{by:?} {label:?}"
                );
                assert!(
                    close(row.figures.allocations.estimate, allocations),
                    "{by:?} {label:?}"
                );
                assert!(
                    close(row.figures.died_young.estimate, young),
                    "{by:?} {label:?}"
                );
                assert_eq!(row.samples, samples, "{by:?} {label:?}");
                for estimate in [
                    row.figures.self_bytes,
                    row.figures.total_bytes,
                    row.figures.allocations,
                ] {
                    assert!(
                        estimate.low <= estimate.estimate && estimate.estimate <= estimate.high
                    );
                    let exact = distances == Distances::Every;
                    assert_eq!(estimate.low == estimate.high, exact);
                }
            }
            assert!(slow.is_empty(), "{by:?}: {slow:?} are missing");
            let own: f64 = summary
                .rows
                .iter()
                .map(|row| row.figures.self_bytes.estimate)
                .sum();
            assert!(close(own, summary.all.bytes.estimate));
            let share: f64 = summary.rows.iter().map(|row| row.figures.share).sum();
            assert!(close(share, 1.0));
        }
    }
}

#[test]
fn rows_are_ordered_and_cut() {
    let profile = profile(Synthetic::default());
    let mut summary = Summary::of(&profile, By::Function);
    let own = |row: &SummaryRow<RowBytes>| row.figures.self_bytes.estimate;
    assert!(
        summary
            .rows
            .is_sorted_by(|one, other| own(one) >= own(other))
    );
    let all = summary.rows.len();
    let whole = summary.all.bytes.estimate;
    summary.truncate(30);
    summary.truncate(10);
    assert_eq!((summary.rows.len(), summary.rows_left_out), (10, all - 10));
    // The rows and the rest add up.
    let shown: f64 = summary.rows.iter().map(own).sum();
    let rest = summary.bytes_left_out;
    assert!(close(shown + rest.estimate, whole));
    assert!(rest.low < rest.estimate && rest.estimate < rest.high);
    let (from, to) = (rest.low / rest.estimate, rest.high / rest.estimate);
    // Thousands of samples: the interval is their sum's, not the sum of intervals.
    assert!(0.9 < from && to < 1.1, "{rest:?}");
    let text = summary.render::<Bytes>(200);
    let said = format!(
        "… and {} more functions: {} ({}) together",
        all - 10,
        text::bytes(rest.estimate),
        text::range(rest.low, rest.estimate, rest.high)
    );
    assert!(text.contains(&said), "{said}\n{text}");
    let least = text::bytes(summary.unlisted.high);
    let said = format!("it allocated less than {least}, at 95 %");
    assert!(text.contains(&said), "{said}\n{text}");
}

#[test]
fn rows_can_have_another_order() {
    let mut summary = Summary::of(&profile(Synthetic::default()), By::Function);
    type Figure = fn(&SummaryRow<RowBytes>) -> f64;
    let orders: [(Sort, Figure); 5] = [
        (Sort::Total, |row| row.figures.total_bytes.estimate),
        (Sort::Alive, |row| {
            row.figures.alive.expect("known").estimate
        }),
        (Sort::Young, |row| row.figures.died_young.estimate),
        (Sort::Allocs, |row| row.figures.allocations.estimate),
        (Sort::Own, |row| row.figures.self_bytes.estimate),
    ];
    for (sort, figure) in orders {
        let is_sorted = |summary: &Summary| {
            let mut rows = summary.rows.iter().map(figure);
            rows.by_ref().is_sorted_by(|one, other| one >= other)
        };
        assert!(!is_sorted(&summary), "{sort:?}");
        summary.sort(sort);
        assert!(is_sorted(&summary), "{sort:?}");
    }
}

#[test]
fn a_row_is_the_sum_of_its_lifetimes() {
    let profile = profile(Synthetic::default());
    for by in [By::Function, By::Type, By::Process] {
        let summary = Summary::of(&profile, by);
        let mut alive = 0.0;
        for row in &summary.rows {
            let survivors = row.figures.freed.estimate
                + row.figures.survived.estimate
                + row.figures.still_live.estimate;
            assert!(
                close(row.figures.survivors.estimate, survivors),
                "{}",
                row.name
            );
            let own = survivors + row.figures.died_young.estimate;
            assert!(close(row.figures.self_bytes.estimate, own), "{}", row.name);
            // At the end: allocated, and not freed.
            assert_eq!(
                row.figures.alive,
                Some(row.figures.still_live),
                "{}",
                row.name
            );
            let total = row.figures.total_alive.expect("known").estimate;
            assert!(row.figures.still_live.estimate <= total * (1.0 + 1e-9));
            alive += row.figures.still_live.estimate;
        }
        assert!(alive > 0.0 && close(alive, summary.all.still_live.estimate));
        assert_eq!(summary.all.alive, Some(summary.all.still_live));
    }
}

#[test]
fn a_terminals_width_is_used() {
    let mut summary = Summary::of(&profile(Synthetic::default()), By::Function);
    summary.truncate(20);
    let (mut columns, mut widest) = (0, 0);
    for width in [60, 80, 120, 200] {
        let text = summary.render::<Bytes>(width);
        let lines = || text.lines().map(text::width);
        assert!(lines().all(|columns| columns <= width), "{width}\n{text}");
        let headings = text.lines().find(|line| line.contains("own bytes"));
        let headings = headings.expect("headings");
        assert!(headings.contains("alive"), "{width}: {headings}");
        let number = headings.split("  ").filter(|part| !part.is_empty()).count();
        assert!(number >= columns, "{width}: {headings}");
        let wide = lines().max().expect("lines");
        assert!(wide > widest, "{width}\n{text}");
        (columns, widest) = (number, wide);
        assert!(!text.contains(">999%"));
    }
    assert_eq!(columns, 8);
}

#[test]
fn the_column_by_which_rows_are_sorted_is_shown() {
    let mut summary = Summary::of(&profile(Synthetic::default()), By::Function);
    for (sort, heading) in [
        (Sort::Total, "total bytes"),
        (Sort::Allocs, "allocs"),
        (Sort::Young, "young"),
    ] {
        summary.sort(sort);
        for width in [60, 80, 120] {
            let text = summary.render::<Bytes>(width);
            let headings = text.lines().find(|line| line.contains("own bytes"));
            assert!(
                headings.is_some_and(|line| line.contains(heading)),
                "{width}\n{text}"
            );
        }
    }
}

#[test]
fn rows_that_only_call_others_need_a_column_for_it() {
    let mut summary = Summary::of(&profile(Synthetic::default()), By::Function);
    let own = summary.rows.iter().filter(|row| row.samples > 0).count();
    let callers = summary.rows.len() - own;
    assert!(own > 1 && callers > 1, "{own} {callers}");
    let said = |summary: &Summary, width, number| {
        let text = summary.render::<Bytes>(width);
        let rows = text.lines().skip_while(|line| !line.contains("own bytes"));
        let rows = rows
            .skip(1)
            .take_while(|line| !line.starts_with('…') && !line.starts_with("Intervals"));
        assert_eq!(rows.count(), number, "{width}\n{text}");
        text
    };
    said(&summary, 200, own + callers);
    let text = said(&summary, 60, own);
    let line =
        format!("… and {callers} more functions that only call others (--sort total shows them)");
    assert!(text.replace("\n  ", " ").contains(&line), "{line}\n{text}");
    summary.sort(Sort::Total);
    said(&summary, 60, own + callers);
    summary.sort(Sort::Own);
    summary.truncate(own - 1);
    let text = said(&summary, 60, own - 1);
    assert!(
        text.contains(&format!("… and {} more functions: ", callers + 1)),
        "{text}"
    );
}

/// What was alive at a time, by the estimate.
fn alive_at(profile: &Profile, time: Nanos) -> f64 {
    let ids = profile.samples.ids().filter(|&id| {
        let sample = profile.samples.get(id);
        sample.time <= time && sample.freed.is_none_or(|freed| freed > time)
    });
    ids.map(|id| profile.weight(id).bytes).sum()
}

fn reading(time: Nanos, rss: u64, peak_rss: u64) -> Memory {
    Memory {
        time,
        rss: Some(rss),
        peak_rss: Some(peak_rss),
        ..Memory::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_peak_of_the_resident_set_is_compared_with_the_most_that_was_alive_about_then(
        readings in proptest::collection::vec((1_u64..500_000, 970_u64..1000), 1..20),
    ) {
        static SYNTHETIC: LazyLock<Profile> =
            LazyLock::new(|| profile(Synthetic { samples: 500, nodes: 100, ..Synthetic::default() }));
        let mut profile = SYNTHETIC.clone();
        let step = profile.end.0 / 500_000 / readings.len() as u64;
        let mut time = 0;
        profile.memory.clear();
        for (after, rss) in readings {
            // More than a microsecond after the last one.
            time += (after * step).max(2000);
            profile.memory.push(reading(Nanos(time), rss << 20, 0));
        }
        let largest = profile.memory.iter().filter_map(|of| of.rss).max().expect("a reading");
        let summary = Summary::of(&profile, By::Function);
        prop_assert_eq!(summary.peak_rss, Some(largest));
        let near = profile.memory.iter().filter(|of| of.rss.is_some_and(|rss| largest - rss <= largest / 100));
        // A block freed at the time of a reading was alive when it was read. Of one reading, all samples say what was alive.
        let times: Vec<Nanos> = near.flat_map(|of| [Nanos(of.time.0 - 1), of.time]).collect();
        let (_, most) = halves::found(&profile, times.iter().copied());
        prop_assume!(most > 0.0 || times.len() == 2);
        // The same may be alive at several of them. Sums differ a little by their order, so any of these may be found.
        let are_most = times.iter().filter(|&&time| close(halves::first(&profile, time), most));
        let alive: Vec<f64> = if times.len() == 2 {
            vec![alive_at(&profile, times[0])]
        } else {
            are_most.map(|&time| halves::second(&profile, time)).collect()
        };
        let said = summary.alive_at_peak_rss.expect("known").estimate;
        prop_assert!(alive.iter().any(|&alive| close(said, alive)), "{said} {alive:?}");
        let line = format!("what was alive then had asked for {} (", text::bytes(said));
        prop_assert!(summary.render::<Bytes>(200).contains(&line));
    }
}

#[test]
fn a_peak_between_two_readings_is_where_most_was_alive_between_them() {
    let mut profile = profile(Synthetic::default());
    let part = |of: u64| Nanos(profile.end.0 / 8 * of);
    let [start, before, after] = [part(1), part(3), part(5)];
    let passed = Nanos(after.0 - Memory::PASSED.0);
    profile.memory = vec![
        reading(start, 300 << 20, 300 << 20),
        reading(before, 400 << 20, 400 << 20),
        reading(passed, 900 << 20, 900 << 20),
        reading(after, 500 << 20, 900 << 20),
    ];
    let ids = profile.samples.ids();
    let times = ids.map(|id| profile.samples.time(id)).chain([before]);
    let within = times.filter(|time| (before..=passed).contains(time));
    let (found, _) = halves::found(&profile, within);
    let most = halves::second(&profile, found);
    assert!(!close(most, halves::second(&profile, passed)));
    let said = |profile: &Profile| {
        let summary = Summary::of(profile, By::Function);
        summary.alive_at_peak_rss.expect("known").estimate
    };
    assert!(close(said(&profile), most), "{} {most}", said(&profile));
    // The size was read while the block was being freed, when it was noted as freed.
    profile.memory.truncate(2);
    profile.memory.push(reading(passed, 898 << 20, 900 << 20));
    assert!(close(said(&profile), most), "{} {most}", said(&profile));
    // The peak is from before, so this is the size at that time.
    profile.memory[1].peak_rss = Some(900 << 20);
    let then = alive_at(&profile, Nanos(passed.0 - 1));
    assert!(close(said(&profile), then), "{} {then}", said(&profile));
}

#[test]
fn more_may_be_alive_than_is_resident() {
    let mut profile = profile(Synthetic::default());
    let time = Nanos(profile.end.0 / 2);
    let mut said = |rss: u64| {
        profile.memory = vec![reading(time, rss, rss)];
        let text = Summary::of(&profile, By::Function).render::<Bytes>(300);
        let line = text.lines().find(|line| line.starts_with("peak RSS"));
        line.expect("a line").to_owned()
    };
    let line = said(1 << 40);
    assert!(line.ends_with(" %"), "{line}");
    let line = said(1 << 20);
    let why = "more than RSS, so part of it was not in memory (never written, or swapped out)";
    assert!(line.ends_with(why), "{line}");
}

#[test]
fn a_profile_without_samples_has_a_summary() {
    let profile = profile(Synthetic {
        samples: 0,
        ..Synthetic::default()
    });
    let summary = Summary::of(&profile, By::Function);
    assert!(summary.rows.is_empty());
    let text = summary.render::<Bytes>(80);
    assert!(text.contains("no samples"));
    // The first figure has an interval; of a list that is not there, nothing is said.
    let is_short = text.contains("\n0 B (0–") && text.ends_with("\n\nIntervals are 95 %.\n");
    assert!(is_short, "{text}");
    let tree = Tree::<Bytes>::of(&profile, 10).render(80);
    assert!(tree.contains("the whole program"));
}

#[test]
fn losses_damage_and_notes_are_shown() {
    let setup = Synthetic::default();
    let bytes = setup.bytes();
    let mut cut = bytes[..bytes.len() * 2 / 3].to_vec();
    let middle = cut.len() / 2;
    cut[middle] ^= 1;
    let profile = Profile::read(&cut[..]).expect("a profile");
    let text = Summary::of(&profile, By::Type).render::<Bytes>(100);
    assert!(text.contains("incomplete"), "{text}");
    assert!(text.contains("damage at byte"), "{text}");
    assert!(text.contains("made up: no program ran"), "{text}");

    let mut writer = Writer::new(Vec::new(), &setup.meta()).expect("memory");
    let mut lose = |kind, count| {
        let event = nthbyte_profile::event::Event::Lost(kind, count);
        writer.write(&event).expect("memory");
    };
    lose(nthbyte_profile::event::LostKind::Allocations, 12);
    lose(nthbyte_profile::event::LostKind::Other, 3);
    writer.flush().expect("memory");
    let profile = Profile::read(&writer.get_ref()[..]).expect("a profile");
    let summary = Summary::of(&profile, By::Function);
    assert_eq!((summary.lost, summary.lost_other), (12, 3));
    assert!(
        summary
            .render::<Bytes>(100)
            .contains("12 samples were lost")
    );
}

#[test]
fn samples_without_a_stack_have_a_row() {
    let mut profile = Profile::empty(Synthetic::default().meta());
    profile.threads.push(ThreadNames::default());
    let made = synthetic::sample(Nanos(1), 112, SamplingId::default());
    profile.samples.push(made);
    let summary = Summary::of(&profile, By::Function);
    assert_eq!(summary.rows.len(), 1);
    assert_eq!(summary.rows[0].name, NO_STACK);
    assert_eq!(
        summary.rows[0].figures.self_bytes,
        summary.rows[0].figures.total_bytes
    );
}

#[test]
fn the_json_is_as_documented() {
    let mut profile = profile(Synthetic {
        samples: 500,
        ..Synthetic::default()
    });
    profile.counted = Some(1);
    let summary = Summary::of(&profile, By::Function);
    let json = serde_json::to_value(&summary).expect("JSON");
    let schema = include_str!("../../../docs/summary-json.md");
    let mut members = 0;
    let mut check = |object: &serde_json::Value| {
        for name in object.as_object().expect("an object").keys() {
            assert!(
                schema.contains(&format!("`{name}`")),
                "{name} is not documented"
            );
            members += 1;
        }
    };
    check(&json);
    check(&json["rows"][0]);
    check(&json["all"]);
    check(&json["collections"]);
    check(&json["rows"][0]["self_bytes"]);
    check(&json["time"]);
    check(&json["time"]["rows"][0]);
    assert!(members > 55);
    assert_eq!(json["by"], "function");
    assert_eq!(json["samples"], 500);
    // No figure is infinite or not a number: JSON has neither.
    assert!(!json.to_string().contains("null"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn no_name_breaks_a_report(
        name in "(?s).{0,60}",
        file in "(?s).{0,60}",
        width in 20_usize..200,
        samples in 1_u32..200,
    ) {
        let mut profile = profile(Synthetic { samples, hostile: true, ..Synthetic::default() });
        for function in profile.functions.iter_mut().step_by(3) {
            function.name.clone_from(&name);
            function.file.clone_from(&file);
        }
        profile.types[1].name.clone_from(&name);
        profile.meta.notes.push(name.clone());
        profile.meta.command = vec![file.clone(), name.clone()];
        let shown = Tree::<Bytes>::of(&profile, 40).render(width);
        prop_assert!(shown.lines().all(|line| text::width(line) <= width.max(40)));
        let shown = Tree::<Time>::of(&profile, 40).render(width);
        prop_assert!(shown.lines().all(|line| text::width(line) <= width.max(40)));
        for by in [By::Function, By::Line, By::File, By::Type] {
            let mut summary = Summary::of(&profile, by);
            summary.truncate(30);
            let shown = summary.render::<Bytes>(width) + &summary.render::<Time>(width);
            for line in shown.lines() {
                prop_assert!(text::width(line) <= width.max(72), "{}: {line}", text::width(line));
            }
            let strange = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            prop_assert!(!shown.contains(strange));
        }
    }
}
