//! What the resident set was made of: the rows add up, whatever the agent counted.

use std::sync::LazyLock;

use nthbyte_profile::composition::{ArenaRun, Composition, Occupancy, Part};
use nthbyte_profile::event::{Memory as Reading, Nanos, SampleId};
use nthbyte_profile::holders::{Kind, Link};
use nthbyte_profile::meta::{Distances, Meta, Method, READS_ARE_FORBIDDEN, Source, SourceKind};
use nthbyte_profile::model::{Lifetime, Profile, SamplingId};
use nthbyte_profile::synthetic::{self, Synthetic};
use nthbyte_report::explain::ExplainOptions;
use nthbyte_report::leaks::LeakPlace;
use nthbyte_report::memory::{FreeMemoryHolder, FreeMemoryHolders, MemoryError, MemoryKey};
use nthbyte_report::{At, Estimate, Explanation, MemoryReport};
use proptest::prelude::*;

/// Counts of the C library, of the heap and of PyPy.
const COUNTED: [Part; 17] = [
    Part::LibraryUsed,
    Part::LibraryFree,
    Part::LibraryMapped,
    Part::AgentBlocks,
    Part::AgentMapped,
    Part::HeapPages,
    Part::HeapBlocks,
    Part::HeapFreeBlocks,
    Part::HeapFreePages,
    Part::HeapFreeArenas,
    Part::HeapSparsePages,
    Part::HeapSparseFree,
    Part::HeapLimit,
    Part::PypyArenas,
    Part::PypyObjects,
    Part::PypyLarge,
    Part::PypyNursery,
];

fn profile(interpreter: &str, compositions: Vec<Composition>) -> Profile {
    static SYNTHETIC: LazyLock<Profile> = LazyLock::new(|| {
        let synthetic = Synthetic {
            samples: 1_000,
            nodes: 500,
            ..Synthetic::default()
        };
        Profile::read(&synthetic.bytes()[..]).expect("a profile")
    });
    let mut profile = SYNTHETIC.clone();
    profile.processes[0].meta.interpreter = interpreter.to_owned();
    profile.processes[0].compositions = compositions;
    if interpreter.starts_with("PyPy") {
        of_a_nursery(&mut profile);
    }
    profile
}

/// When its objects were freed is not known.
fn of_a_nursery(profile: &mut Profile) {
    for source in &mut profile.sources {
        source.kind = SourceKind::Nursery.name().to_owned();
        source.method = Method::NurseryLimit.name().to_owned();
    }
}

fn composition(time: Nanos, mapped: &[u64], counted: &[Option<u64>]) -> Composition {
    let mut composition = Composition::at(time);
    composition.set(Part::Resident, mapped.iter().sum());
    for (part, &bytes) in Part::MAPPED.into_iter().zip(mapped) {
        composition.set(part, bytes);
    }
    for (part, bytes) in COUNTED.into_iter().zip(counted) {
        if let Some(bytes) = bytes {
            composition.set(part, *bytes);
        }
    }
    composition
}

fn sum(memory: &MemoryReport) -> f64 {
    memory.rows.iter().map(|row| row.bytes.estimate).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_add_up_to_the_resident_set(
        mapped in proptest::collection::vec(0..1_u64 << 32, Part::MAPPED.len()),
        counted in proptest::collection::vec(proptest::option::of(0..1_u64 << 32), COUNTED.len()),
        first in proptest::collection::vec(proptest::option::of(0..1_u64 << 28), COUNTED.len()),
        is_pypy: bool,
        part in 0.0..1.0,
    ) {
        let interpreter = if is_pypy { "PyPy 8.0.1" } else { "CPython 3.13.0" };
        let mut at_start = composition(Nanos(0), &[], &first);
        // The first composition has counts only.
        at_start = {
            let mut counts = Composition::at(Nanos(0));
            at_start.parts().filter(|(of, _)| *of != Part::Resident).for_each(|(of, bytes)| counts.set(of, bytes));
            counts
        };
        let whole = profile(interpreter, Vec::new());
        let time = Nanos((whole.end.0 as f64 * part) as u64);
        let profile = profile(interpreter, vec![at_start, composition(time, &mapped, &counted)]);
        let memory = MemoryReport::of(&profile, At::Peak).expect("there is one");
        prop_assert_eq!(memory.rss, mapped.iter().sum::<u64>());
        prop_assert!((sum(&memory) - memory.rss as f64).abs() <= 1e-6 * memory.rss as f64 + 1.0,
            "{} {:?}", memory.rss, memory.rows);
        for row in &memory.rows {
            prop_assert!(row.bytes.low <= row.bytes.estimate && row.bytes.estimate <= row.bytes.high, "{row:?}");
            prop_assert_eq!(row.bytes.estimate < 0.0, row.key == MemoryKey::NotResident, "{:?}", row);
        }
        // A group is not less than nothing, though a row may be.
        let text = memory.render(80);
        let groups = text.lines().filter(|line| line.contains('%') && !line.starts_with(' '));
        prop_assert!(groups.clone().count() > 0 || memory.rows.is_empty());
        prop_assert!(groups.clone().all(|line| !line.contains('−')), "{}", text);
        for width in [60, 80] {
            let text = memory.render(width);
            prop_assert!(text.lines().all(|line| line.chars().count() <= width), "{}", text);
        }
        prop_assert!(serde_json::to_string(&memory).expect("JSON").contains("\"rows\""));
    }
}

#[test]
fn holders_fit_in_a_narrow_terminal() {
    let profile = profile(
        "CPython 3.13.0",
        vec![composition(Nanos(20), &[1 << 20], &[])],
    );
    let mut memory = MemoryReport::of(&profile, At::Peak).expect("there is one");
    let holder = |free| FreeMemoryHolder {
        place: LeakPlace {
            function: "package.module.Class.method".to_owned(),
            file: "/usr/lib/python3/package/module.py".to_owned(),
            line: 1234,
        },
        free,
        live: Estimate::exact(123.0 * 1024.0),
        samples: 5,
        held_by: None,
    };
    let (estimate, low, high) = (1_100_000.0, 987_000.0, 1_300_000.0);
    let wide = Estimate {
        estimate,
        low,
        high,
    };
    memory.holders = Some(FreeMemoryHolders {
        at_nanos: 20,
        free: 300_000,
        sparse_pages: 0,
        sparse_free: 0,
        holders: vec![holder(wide), holder(Estimate::exact(estimate))],
    });
    for width in 60..=100 {
        let text = memory.render(width);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{text}");
        assert_eq!(text.matches(":1234").count(), 2, "{text}");
    }
}

#[test]
fn the_moment_is_the_nearest_composition() {
    let sizes = [(10, 500), (20, 900), (30, 700)];
    let compositions = sizes.map(|(time, bytes)| composition(Nanos(time), &[bytes], &[]));
    let profile = profile("CPython 3.13.0", compositions.to_vec());
    let at = |at| MemoryReport::of(&profile, at).expect("there is one");
    assert_eq!((at(At::Peak).at_nanos, at(At::Peak).rss), (20, 900));
    assert_eq!(at(At::End).rss, 700);
    assert_eq!(at(At::Time(Nanos(13))).rss, 500);
    assert_eq!(at(At::Time(Nanos(17))).rss, 900);
    let within = |at, range: [u64; 2]| {
        let found = MemoryReport::within(&profile, at, &(Nanos(range[0])..Nanos(range[1])));
        found.map(|memory| memory.rss)
    };
    assert_eq!(within(At::Peak, [0, 20]), Ok(500));
    assert_eq!(within(At::End, [0, 25]), Ok(900));
    assert_eq!(within(At::Peak, [21, u64::MAX]), Ok(700));
    assert_eq!(within(At::Time(Nanos(13)), [15, u64::MAX]), Ok(900));
    assert_eq!(within(At::Peak, [11, 20]), Err(MemoryError::NotThen));
    assert!(matches!(
        MemoryReport::of(&profile, At::Time(Nanos(profile.end.0 + 1))),
        Err(MemoryError::AfterTheEnd { .. })
    ));
    let moments: Vec<u64> = MemoryReport::over_time(&profile, 10)
        .iter()
        .map(|of| of.rss)
        .collect();
    assert_eq!(moments, [500, 900, 700]);
    // The peak and the end are always among them.
    let moments: Vec<u64> = MemoryReport::over_time(&profile, 1)
        .iter()
        .map(|of| of.rss)
        .collect();
    assert_eq!(moments, [500, 900, 700]);
}

#[test]
fn of_nearly_equal_compositions_the_one_at_which_most_was_alive_is_the_peak() {
    let mut profile = profile("CPython 3.13.0", Vec::new());
    let alive = |profile: &Profile, time| {
        let ids = profile.samples.ids();
        let lives = ids.filter(|&id| {
            let sample = profile.samples.get(id);
            sample.time <= time && sample.freed.is_none_or(|freed| freed > time)
        });
        lives.map(|id| profile.weight(id).bytes).sum::<f64>()
    };
    let tenths = (1..10).map(|part| Nanos(profile.end.0 / 10 * part));
    let mut times: Vec<Nanos> = tenths.collect();
    let of = |time: &Nanos| alive(&profile, *time);
    times.sort_by(|one, other| of(one).total_cmp(&of(other)));
    let [.., much, most] = times[..] else {
        unreachable!("there are nine")
    };
    let largest = times[0];
    assert!(of(&largest) < of(&much));
    // A little is alive at the largest one, more at one that is nearly as large, most at one that is not.
    let mut compositions = vec![
        composition(largest, &[1000 << 20], &[]),
        composition(much, &[995 << 20], &[]),
        composition(most, &[980 << 20], &[]),
    ];
    compositions.sort_by_key(|of| of.time);
    profile.processes[0].compositions = compositions;
    let peak = |profile: &Profile| {
        MemoryReport::of(profile, At::Peak)
            .expect("there is one")
            .at_nanos
    };
    assert_eq!(peak(&profile), much.0);
    // Without the times of frees, it is the first.
    profile.processes[0].meta.interpreter = "PyPy 8.0.1".to_owned();
    of_a_nursery(&mut profile);
    assert_eq!(peak(&profile), largest.min(much).0);
}

#[test]
fn a_reading_that_missed_the_peak_is_not_called_the_peak() {
    let mut profile = profile(
        "CPython 3.13.0",
        vec![composition(Nanos(20), &[1 << 20], &[])],
    );
    let text = |profile: &Profile| {
        MemoryReport::of(profile, At::Peak)
            .expect("there is one")
            .render(80)
    };
    let reading = profile.memory.last_mut().expect("the profile has readings");
    (reading.rss, reading.peak_rss) = (None, Some(1 << 20));
    profile.memory = vec![*reading];
    assert!(text(&profile).starts_with("1.00 MiB of RSS at its peak, "));
    profile.memory[0].peak_rss = Some(3 << 20);
    let missed = text(&profile);
    assert!(
        missed.starts_with("1.00 MiB of RSS in the largest reading, "),
        "{missed}"
    );
    assert!(missed.contains("RSS was 3.00 MiB for a moment"), "{missed}");
}

#[test]
fn a_report_says_how_far_its_reading_is_from_the_moment() {
    const SECOND: u64 = 1_000_000_000;
    let seconds = |tenths: u64| Nanos(tenths * SECOND / 10);
    let sizes = [(10, 500 << 20), (50, 900 << 20), (100, 700 << 20)];
    let compositions = sizes.map(|(tenths, bytes)| composition(seconds(tenths), &[bytes], &[]));
    let mut profile = profile("PyPy 8.0.1", compositions.to_vec());
    profile.end = seconds(100);
    profile.processes[0].end = profile.end;
    let first = profile.memory[0];
    let set = |profile: &mut Profile, readings: &[(u64, u64)]| {
        let reading = |&(tenths, mib): &(u64, u64)| Reading {
            time: seconds(tenths),
            rss: Some(mib << 20),
            peak_rss: None,
            ..first
        };
        profile.memory = readings.iter().map(reading).collect();
    };
    let far = |profile: &Profile, at| {
        let report = MemoryReport::of(profile, at).expect("there is one");
        let mut notes = report.notes.into_iter();
        notes.find(|note| note.contains("what it was made of"))
    };
    // The size was the same a tenth of a second before.
    set(&mut profile, &[(10, 500), (49, 905), (50, 890), (100, 700)]);
    assert_eq!(far(&profile, At::Peak), None);
    let explained = |profile: &Profile| {
        let asked = ExplainOptions::default();
        let explanation = Explanation::of(profile, &asked);
        let answers = explanation.answers.into_iter();
        let sentences: Vec<String> = answers.flat_map(|answer| answer.sentences).collect();
        sentences.join(" ")
    };
    assert!(explained(&profile).contains("RSS was 905 MiB at most: "));
    assert_eq!(far(&profile, At::End), None);
    assert_eq!(far(&profile, At::Time(seconds(51))), None);
    // The largest one was much earlier, or much larger.
    set(
        &mut profile,
        &[(10, 500), (47, 905), (50, 890), (95, 600), (100, 700)],
    );
    let said = "the peak of RSS, 905 MiB, was at 4.70 s; what it was made of was read 300 ms later";
    assert_eq!(far(&profile, At::Peak).as_deref(), Some(said));
    set(&mut profile, &[(10, 500), (51, 950), (100, 700)]);
    let said =
        "the peak of RSS, 950 MiB, was at 5.10 s; what it was made of was read 100 ms earlier";
    assert_eq!(far(&profile, At::Peak).as_deref(), Some(said));
    let said = "RSS was 950 MiB at most, and 900 MiB after 5.00 s: ";
    assert!(
        explained(&profile).contains(said),
        "{}",
        explained(&profile)
    );
    // A time, and an end that was not read.
    set(&mut profile, &[(10, 500), (47, 905), (95, 600), (110, 650)]);
    let said = "at 4.00 s, RSS was 500 MiB; what it was made of was read 1.00 s later";
    assert_eq!(far(&profile, At::Time(seconds(40))).as_deref(), Some(said));
    profile.end = seconds(110);
    let said = "at the end, 11.0 s, RSS was 650 MiB; what it was made of was read 1.00 s earlier";
    assert_eq!(far(&profile, At::End).as_deref(), Some(said));
}

#[test]
fn a_heap_that_could_not_be_read_is_said() {
    let with_heap = |is_read: bool| {
        let mut composition = composition(Nanos(20), &[1 << 20], &[]);
        if is_read {
            composition.set(Part::HeapBlocks, 1);
        }
        profile("CPython 3.13.0", vec![composition])
    };
    let said = |profile: &Profile| {
        let report = MemoryReport::of(profile, At::Peak).expect("there is one");
        report.notes.into_iter().find(|note| note.contains("heap"))
    };
    assert_eq!(said(&with_heap(true)), None);
    let mut profile = with_heap(false);
    let what = "Python's heap could not be read, so its objects, free blocks and free pages are part of what is unknown";
    assert_eq!(said(&profile).as_deref(), Some(what));
    let notes = &mut profile.processes[0].meta.notes;
    notes.push(format!("types are not known: {READS_ARE_FORBIDDEN}"));
    let what = format!("{what}: {READS_ARE_FORBIDDEN}");
    assert_eq!(said(&profile), Some(what));
}

#[test]
fn an_old_profile_says_what_it_lacks() {
    let profile = profile("CPython 3.13.0", Vec::new());
    let error = MemoryReport::of(&profile, At::Peak).expect_err("nothing was recorded");
    assert_eq!(error, MemoryError::NotRecorded);
    assert!(error.to_string().contains("older nthbyte"));
    assert!(MemoryReport::over_time(&profile, 10).is_empty());
}

#[test]
fn native_memory_from_before_the_session_is_not_native_blocks() {
    let mut first = Composition::at(Nanos(0));
    first.set(Part::LibraryUsed, 300);
    first.set(Part::LibraryMapped, 100);
    let mut later = composition(Nanos(1), &[], &[]);
    later.set(Part::Resident, 2000);
    later.set(Part::LibraryHeap, 1000);
    later.set(Part::Anonymous, 900);
    later.set(Part::Earlier, 100);
    later.set(Part::LibraryUsed, 700);
    later.set(Part::LibraryMapped, 600);
    let mut profile = profile("CPython 3.13.0", vec![first, later]);
    profile.samples = Default::default();
    let memory = MemoryReport::of(&profile, At::Peak).expect("there is one");
    let bytes = |key| memory.row(key).map_or(0.0, |row| row.bytes.estimate);
    assert_eq!(bytes(MemoryKey::Before), 400.0);
    assert_eq!(bytes(MemoryKey::Native), 900.0);
    assert_eq!(bytes(MemoryKey::LibraryFree), 300.0);
    assert_eq!(bytes(MemoryKey::Unknown), 400.0);
    assert!((memory.unknown() - 0.2).abs() < 1e-9);
}

/// The survivors of each size share the free blocks of their arenas; the sums are the counts.
#[test]
fn free_blocks_are_shared_out_among_survivors() {
    let mut profile = profile("CPython 3.13.0", Vec::new());
    let time = profile.end;
    let alive: Vec<SampleId> = profile
        .samples
        .ids()
        .filter(|&id| profile.samples.lifetime(id) == Lifetime::StillLive)
        .filter(|&id| profile.samples.shape(profile.samples.shape_id(id)).block == 64)
        .collect();
    assert!(
        alive.len() > 2,
        "the synthetic program keeps some blocks of 64 bytes"
    );
    profile.arenas = alive
        .iter()
        .enumerate()
        .map(|(at, &first)| ArenaRun {
            first,
            count: 1,
            arena: 7 + u32::from(at == 0),
        })
        .collect();
    let mut composition = composition(time, &[1 << 30], &[]);
    composition.set(Part::HeapFreeBlocks, 2 * 64 * 3000);
    let of = |arena, used, free| Occupancy {
        arena,
        block: 64,
        used,
        free,
    };
    // The first survivor's arena is nearly empty. Half of the arenas were looked at.
    composition.occupancy = vec![of(7, 1000, 1000), of(8, 1, 2000)];
    profile.processes[0].compositions = vec![composition];
    let cache = [
        (0, 0, Kind::Module, "app", Link::Unknown, "", None),
        (
            1,
            1,
            Kind::Object,
            "dict",
            Link::Attribute,
            "CACHE",
            Some(9),
        ),
    ];
    let snapshot = crate::held::snapshot_of(&cache, 2, time, alive.iter().copied());
    profile.processes[0].snapshots = vec![snapshot];
    let memory = MemoryReport::of(&profile, At::End).expect("there is one");
    let holders = memory.holders.expect("they are known");
    let mut kept = holders.holders.iter().filter(|of| of.samples >= 3);
    assert!(kept.all(|of| {
        of.held_by
            .as_ref()
            .is_some_and(|by| by.holder == "app.CACHE")
    }));
    let sum: f64 = holders.holders.iter().map(|of| of.free.estimate).sum();
    assert!(holders.holders.len() < 2 || holders.holders[0].free.estimate > 0.5 * sum);
    // Only the ten lines that hold most are named.
    let all = 2.0 * 64.0 * 3000.0;
    assert!(sum > 0.9 * all && sum < all + 1.0, "{sum}");
    for of in &holders.holders {
        assert!(of.free.low <= of.free.estimate && of.free.estimate <= of.free.high + 1.0);
        assert!(of.free.high <= 2.0 * 64.0 * 3000.0 + 1.0);
    }
}

/// CUDA maps what it pins as a program maps memory, so it is among the samples; its row has it once.
#[test]
fn what_is_pinned_is_no_other_mapping_of_the_program() {
    let mut composition = Composition::at(Nanos(1_000));
    for (part, mebibytes) in [
        (Part::Anonymous, 30),
        (Part::CudaFiles, 3),
        (Part::Pinned, 40),
        (Part::Resident, 73),
    ] {
        composition.set(part, mebibytes << 20);
    }
    composition.set(Part::LibraryUsed, 0);
    composition.set(Part::LibraryMapped, 0);
    let mapping = Source::allocations(
        SourceKind::Mapping,
        Method::Preload,
        Distances::Exponential,
        64 << 10,
    );
    let mut profile = Profile::empty(Meta {
        sources: vec![mapping],
        ..Synthetic::default().meta()
    });
    for mebibytes in [40, 20] {
        let made = synthetic::sample(Nanos(500), mebibytes << 20, SamplingId(0));
        profile.samples.push(made);
    }
    (profile.end, profile.complete) = (Nanos(1_000), true);
    profile.processes[0].end = profile.end;
    profile.processes[0].compositions = vec![composition];
    let memory = MemoryReport::of(&profile, At::End).expect("it was recorded");
    let rows: Vec<(MemoryKey, f64, bool)> = memory
        .rows
        .iter()
        .map(|row| {
            (
                row.key,
                (row.bytes.estimate / 1048576.0).round(),
                row.counted,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (MemoryKey::Mappings, 20.0, false),
            (MemoryKey::Pinned, 40.0, true),
            (MemoryKey::CudaFiles, 3.0, true),
            (MemoryKey::Unknown, 10.0, false),
        ]
    );
}
