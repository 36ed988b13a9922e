//! Writes pages of made-up profiles, and what they must show, for `tests/page`: `pages FOLDER`.

mod made_up;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use made_up::{labels, large, leak, service, with_compositions, with_snapshot};
use nthbyte_profile::event::Nanos;
use nthbyte_profile::synthetic::Synthetic;
use nthbyte_profile::{Distances, Profile};
use nthbyte_report::diff::write_page;
use nthbyte_report::estimate::Moments;
use nthbyte_report::flamegraph::{self, Page};
use nthbyte_report::{At, Estimator, LabelQuery, Leaks, MemoryReport, Selection, Totals};
use serde_json::json;

/// Distinct stacks of the large profile.
const STACKS: u32 = 60_000;

/// Distinct stacks of the profile that is pruned, and the weight that its page may have.
const PRUNED: u32 = 20_000;
const PRUNED_WEIGHT: usize = 60_000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: pages FOLDER")?);
    fs::create_dir_all(&folder)?;
    let session = Synthetic {
        samples: 60_000,
        ..Synthetic::default()
    };
    fs::write(folder.join("session.nthb"), session.bytes())?;
    page(&folder, "session", &read(&session)?)?;
    let before = Synthetic {
        samples: 40_000,
        ..session
    };
    difference(&folder, &read(&before)?, &read(&session)?)?;
    let exact = Synthetic {
        samples: 2_000,
        distances: Distances::Every,
        period: 1,
        ..Synthetic::default()
    };
    page(&folder, "exact", &read(&exact)?)?;
    let hostile = Synthetic {
        samples: 20_000,
        hostile: true,
        ..Synthetic::default()
    };
    page(&folder, "hostile", &with_markup(read(&hostile)?))?;
    let plain = Synthetic::default();
    page(&folder, "large", &large(read(&plain)?, STACKS, 3))?;
    let pruned = large(read(&plain)?, PRUNED, 2);
    let mut out = BufWriter::new(File::create(folder.join("pruned.html"))?);
    let small = Page {
        weight: PRUNED_WEIGHT,
        ..Page::of(&pruned)
    };
    flamegraph::write_page(&pruned, &small, &mut out, &mut |_, _| {})?;
    out.flush()?;
    fs::write(
        folder.join("pruned.json"),
        serde_json::to_vec(&expected(&pruned))?,
    )?;
    page(
        &folder,
        "service",
        &service(read(&plain)?, &environment(&folder)?),
    )?;
    memory(&folder, read(&plain)?)?;
    labelled(&folder, &labels(read(&session)?))?;
    page(&folder, "held", &with_snapshot(read(&plain)?))?;
    let leaks = Leaks::of(&[("leak.nthb".into(), leak(read(&plain)?))], true);
    let mut out = BufWriter::new(File::create(folder.join("leak.html"))?);
    flamegraph::write_leaks(&leaks, &mut out)?;
    out.flush()?;
    fs::write(folder.join("leak.json"), serde_json::to_vec(&leaks)?)?;
    let opened = read(&session)?;
    let page_at_peak = Page {
        opens: Some("peak"),
        ..Page::of(&opened)
    };
    let mut out = BufWriter::new(File::create(folder.join("peak.html"))?);
    flamegraph::write_page(&opened, &page_at_peak, &mut out, &mut |_, _| {})?;
    out.flush()?;
    let mut meta = session.meta();
    meta.sources.truncate(1);
    let empty = Profile::empty(meta);
    page(&folder, "empty", &empty)
}

/// An environment in which the package `yaml` was installed from the distribution `PyYAML`.
fn environment(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let site = folder.join("lib/python3.13/site-packages");
    let record = site.join("PyYAML-6.0.3.dist-info");
    fs::create_dir_all(&record)?;
    fs::write(record.join("METADATA"), "Name: PyYAML\n")?;
    fs::write(record.join("RECORD"), "yaml/__init__.py,,\n")?;
    Ok(site)
}

fn read(synthetic: &Synthetic) -> Result<Profile, Box<dyn Error>> {
    Ok(Profile::read(synthetic.bytes().as_slice())?)
}

fn page(folder: &Path, name: &str, profile: &Profile) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(File::create(folder.join(format!("{name}.html")))?);
    flamegraph::write(profile, &mut out)?;
    out.flush()?;
    let mut expected = expected(profile);
    expected["alive"] = alive(profile);
    let expected = serde_json::to_vec(&expected)?;
    Ok(fs::write(folder.join(format!("{name}.json")), expected)?)
}

/// Parts of time at whose ends a page must say what was alive.
const PARTS: [u64; 4] = [1, 64, 192, 255];

/// What was alive at the peak and at the ends of some of 256 parts of time, as all other reports say it; null if it is not known.
fn alive(profile: &Profile) -> serde_json::Value {
    let at = |at: At| {
        let mut alive = profile.clone();
        let selection = Selection {
            at: Some(at),
            ..Selection::default()
        };
        selection.apply(&mut alive).ok()?;
        Some(expected(&alive))
    };
    let Some(peak) = at(At::Peak) else {
        return serde_json::Value::Null;
    };
    let moments: Vec<_> = PARTS
        .iter()
        .map(|&part| {
            // The last moment before the next part begins.
            let next = (u128::from(profile.end.0) * u128::from(part)).div_ceil(256) as u64;
            json!({"part": part, "expected": at(At::Time(Nanos(next - 1)))})
        })
        .collect();
    json!({"peak": peak, "moments": moments})
}

/// A page with the panel of memory, and what it must show.
fn memory(folder: &Path, mut profile: Profile) -> Result<(), Box<dyn Error>> {
    with_compositions(&mut profile);
    let moments = MemoryReport::over_time(&profile, flamegraph::MOMENTS);
    let mut out = BufWriter::new(File::create(folder.join("memory.html"))?);
    let page = Page {
        memory: &moments,
        ..Page::of(&profile)
    };
    flamegraph::write_page(&profile, &page, &mut out, &mut |_, _| {})?;
    out.flush()?;
    let expected = serde_json::to_vec(&moments)?;
    Ok(fs::write(folder.join("memory.json"), expected)?)
}

/// A page with labels, and what it must show of each value.
fn labelled(folder: &Path, profile: &Profile) -> Result<(), Box<dyn Error>> {
    let mut grouped = profile.clone();
    let groups = grouped.root_by_groups(None);
    let mut out = BufWriter::new(File::create(folder.join("labels.html"))?);
    let page = Page {
        groups: groups.as_ref(),
        ..Page::of(&grouped)
    };
    flamegraph::write_page(&grouped, &page, &mut out, &mut |_, _| {})?;
    out.flush()?;
    let mut all = json!({"all": expected(profile)});
    for value in profile.label_values("endpoint").values {
        let mut part = profile.clone();
        let selection = Selection {
            labels: LabelQuery::parse(&format!("endpoint={value}"))
                .into_iter()
                .collect(),
            ..Selection::default()
        };
        selection.apply(&mut part)?;
        all[value] = expected(&part);
    }
    Ok(fs::write(
        folder.join("labels.json"),
        serde_json::to_vec(&all)?,
    )?)
}

/// A page of a difference, whose new side has two equal runs: their mean is one of them.
fn difference(folder: &Path, old: &Profile, new: &Profile) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(File::create(folder.join("difference.html"))?);
    let (old_side, new_side) = ([old.clone()], [new.clone(), new.clone()]);
    write_page(&old_side, &new_side, &[], &mut out, &mut |_, _| {})?;
    out.flush()?;
    let both = json!({"old": expected(old), "new": expected(new)});
    Ok(fs::write(
        folder.join("difference.json"),
        serde_json::to_vec(&both)?,
    )?)
}

/// What the page must come to, added up sample by sample.
fn expected(profile: &Profile) -> serde_json::Value {
    let mut bytes = [0.0; 4];
    let mut allocations = [0.0; 4];
    let mut functions: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
    for id in profile.samples.ids() {
        let weight = profile.weight(id);
        let lifetime = profile.samples.lifetime(id) as usize;
        bytes[lifetime] += weight.bytes;
        allocations[lifetime] += weight.allocations;
        let mut seen = BTreeSet::new();
        for (depth, frame) in profile.stack(profile.samples.stack(id)).enumerate() {
            let function = &profile.functions[frame.function as usize];
            let place = format!("{}:{}", function.file, function.first_line);
            let sums = functions.entry((function.name.clone(), place)).or_default();
            if depth == 0 {
                sums.0 += weight.bytes;
            }
            if seen.insert(frame.function) {
                sums.1 += weight.bytes;
            }
        }
    }
    let intervals: Vec<_> = [1, 2, 3, 10, 100, 150, 250, 1_000, usize::MAX]
        .map(|first| intervals(profile, first))
        .into();
    let functions: Vec<_> = functions
        .into_iter()
        .map(|((name, place), (own, total))| json!([name, place, own, total]))
        .collect();
    json!({
        "samples": profile.samples.len(),
        "cpu_samples": profile.cpu.len(),
        "bytes": bytes,
        "allocations": allocations,
        "functions": functions,
        "intervals": intervals,
    })
}

/// The moments of the first samples, and the estimates that follow from them.
fn intervals(profile: &Profile, first: usize) -> serde_json::Value {
    let sum = |most: usize| {
        let mut sum = Totals::default();
        for id in profile.samples.ids().take(most) {
            let shape = profile.samples.shape(profile.samples.shape_id(id));
            sum.add(&Totals::of_sample(profile, shape));
        }
        sum
    };
    let (all, some) = (sum(usize::MAX), sum(first));
    let estimator = Estimator::new(profile, &all);
    let moments = |m: &Moments| json!({"estimate": m.estimate, "seen": m.seen, "variance": m.variance, "third": m.third});
    json!({
        "heaviest_bytes": profile.periods().last(),
        "heaviest_allocations": estimator.heaviest_allocations(&some),
        "bytes": [moments(&some.bytes), estimator.bytes(&some)],
        "allocations": [moments(&some.allocations), estimator.allocations(&some)],
    })
}

/// Names that would be markup or script if anything took them for that.
fn with_markup(mut profile: Profile) -> Profile {
    let names = [
        "</script><script>window.injected=1</script>",
        "<img src=x onerror=window.injected=1>",
        "--><svg onload=window.injected=1>",
        "\u{2028}window.injected=1\u{2029}",
        "'\"`${window.injected=1}",
        "@NTHBYTE_DATA@ @SCRIPT@ $& $1",
        "<b>bold</b>",
    ];
    for (at, function) in profile.functions.iter_mut().enumerate().take(70) {
        function.name = format!("{} {at}", names[at % names.len()]);
        function.file = format!("/app/{}", names[(at + 1) % names.len()]);
    }
    for (at, name) in profile.types.iter_mut().enumerate().skip(1) {
        name.name = names[at % names.len()].into();
    }
    profile.functions[0].name = "long".repeat(2_500);
    profile.meta.command = names.map(String::from).into();
    profile.meta.notes = names.map(String::from).into();
    profile
}
