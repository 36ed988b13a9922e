//! pprof: gzip-compressed `profile.proto`, which `go tool pprof` and most continuous profilers read.
//!
//! Sample types are named as in Go's heap profiles, so that its users find their way:
//! `alloc_objects`, `alloc_space` (the default), `inuse_objects` and `inuse_space`. *In use* is
//! what was not seen to be freed: still live, and survived where nothing later was recorded (PyPy).
//! All four are estimates, in whole numbers. The type of the object is the label `type`, so
//! that a function's own bytes stay its own; `-tagfocus type=dict` asks for one. If there are several
//! processes, the label `process` has the number of each. The labels of a sample (on
//! CPython, a time sample has `gil`: `held` or `released`) are its labels here too. Where time was sampled, too, `samples` is a fifth type.

mod message;

use std::io::{self, Write};

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;
use prost::Message as _;

use crate::depth::Depths;
use crate::meter::Meter;
use crate::strings::Strings;
use crate::window::{Key, Sums, Window, sum};
use crate::{Progress, names};
use message::{Function, Label, Line, Location, Mapping, Sample, ValueType};

/// Writes the samples, summed by stack and type. One step of `progress` is one sample.
///
/// The message is written in pieces, a sample at a time: a reader merges them.
///
/// # Errors
/// If `out` fails.
pub fn write(profile: &Profile, out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    write_part(profile, None, out, progress)
}

/// Writes what was allocated in a window, and is in use at its end. Without the command line, which may be nobody's business
/// elsewhere.
///
/// # Errors
/// As [`write()`].
pub fn write_window(profile: &Profile, window: Window, out: &mut dyn Write) -> io::Result<()> {
    write_part(profile, Some(window), out, &mut |_, _| ())
}

fn write_part(
    profile: &Profile,
    window: Option<Window>,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> io::Result<()> {
    let meter = Meter::new(profile.samples.len() as u64, progress);
    let out = GzBuilder::new()
        // So that a later export knows the file again.
        .comment("nthbyte")
        .write(out, Compression::default());
    let mut pieces = Pieces {
        out,
        bytes: Vec::new(),
    };
    convert(profile, window, &meter, &mut pieces)?;
    pieces.finish()?;
    meter.finish();
    Ok(())
}

/// A message whose fields are written one after the other, as messages that have only these: to a reader they are one.
struct Pieces<W: Write> {
    out: GzEncoder<W>,
    bytes: Vec<u8>,
}

/// Bytes that are compressed at once.
const PIECE: usize = 1 << 18;

impl<W: Write> Pieces<W> {
    fn put(&mut self, piece: &message::Profile) -> io::Result<()> {
        piece.encode(&mut self.bytes)?;
        if self.bytes.len() >= PIECE {
            self.out.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.out.finish()?.flush()
    }
}

/// In the order of [`VALUES`].
const fn values_of(sums: &Sums) -> [f64; VALUES.len()] {
    [sums.allocations, sums.bytes, sums.in_use, sums.in_use_bytes]
}

fn convert<W: Write>(
    profile: &Profile,
    window: Option<Window>,
    meter: &Meter<'_>,
    out: &mut Pieces<W>,
) -> io::Result<()> {
    let whole = Window {
        since: Nanos(0),
        until: profile.end,
    };
    let Window { since, until } = window.unwrap_or(whole);
    let mut strings = Strings::default();
    // The format's index 0.
    strings.index::<i64>("");
    let mut value_type = |kind, unit| ValueType {
        r#type: strings.index(kind),
        unit: strings.index(unit),
    };
    let mut sample_type = vec![
        value_type("alloc_objects", "count"),
        value_type("alloc_space", "bytes"),
        value_type("inuse_objects", "count"),
        value_type("inuse_space", "bytes"),
    ];
    let with_time = !profile.cpu.is_empty();
    if with_time {
        sample_type.push(value_type("samples", "count"));
    }
    let period_type = value_type("space", "bytes");
    let default_sample_type = strings.index(if profile.samples.is_empty() && with_time {
        "samples"
    } else {
        "alloc_space"
    });
    out.put(&message::Profile {
        sample_type,
        time_nanos: i64::try_from(profile.meta.started_unix_nanos.saturating_add(since.0))
            .unwrap_or_default(),
        duration_nanos: i64::try_from(until.0.saturating_sub(since.0)).unwrap_or(i64::MAX),
        period_type: Some(period_type),
        // 0 is "not said": the values do not need it.
        period: match profile.periods()[..] {
            [period] => i64::try_from(period).unwrap_or(i64::MAX),
            _ => 0,
        },
        default_sample_type,
        ..message::Profile::default()
    })?;
    let sums = sum(profile, window, meter);
    let divisors = divisors(&sums);
    let note = samples(profile, sums, divisors, &mut strings, out)?;
    functions(profile, note.as_deref(), &mut strings, out)?;
    locations(profile, note.is_some(), out)?;
    mappings(profile, &mut strings, out)?;
    let mut comments = match window {
        None => comments(profile),
        Some(_) => vec![format!("nthbyte {}", profile.meta.nthbyte)],
    };
    for (name, divisor) in VALUES.into_iter().zip(divisors) {
        if divisor > 1.0 {
            comments.push(format!(
                "{name} is divided by {divisor}: the sum would be larger than pprof can hold"
            ));
        }
    }
    comments.extend(note.map(|note| format!("deep stacks are cut: {note}")));
    out.put(&message::Profile {
        comment: comments.iter().map(|text| strings.index(text)).collect(),
        ..message::Profile::default()
    })?;
    for text in strings.list {
        out.put(&message::Profile {
            string_table: vec![text],
            ..message::Profile::default()
        })?;
    }
    Ok(())
}

/// Writes the samples, which all have the stacks of the profile, cut where they are too deep together. Returns the note that
/// stands for cut frames, if a stack has it.
fn samples<W: Write>(
    profile: &Profile,
    sums: Vec<(Key, Sums)>,
    divisors: [f64; VALUES.len()],
    strings: &mut Strings,
    out: &mut Pieces<W>,
) -> io::Result<Option<String>> {
    let type_key = strings.index("type");
    let has_several = profile.processes.len() > 1;
    let process_key = strings.index(if has_several { "process" } else { "" });
    let rows = sums.iter().map(|((stack, ..), _)| *stack);
    let cut = Depths::of(profile).cut(rows, MOST_FRAMES);
    let mut frames = Vec::new();
    for ((stack, type_id, process, set), sums) in sums {
        let values = values_of(&sums).into_iter().zip(divisors);
        let values = values.map(|(value, divisor)| (value / divisor).round() as i64);
        let mut value: Vec<i64> = values.collect();
        if !profile.cpu.is_empty() {
            value.push(i64::try_from(sums.time_samples).unwrap_or(i64::MAX));
        }
        let label = type_id.map(|type_id| Label {
            key: type_key,
            str: strings.index(names::type_name(profile, type_id)),
        });
        let process = has_several.then(|| {
            let pid = profile.processes[process.index()].meta.pid;
            Label {
                key: process_key,
                str: strings.index(&pid.to_string()),
            }
        });
        let own: Vec<Label> = profile
            .labels(set)
            .into_iter()
            .map(|(key, value)| Label {
                key: strings.index(key),
                str: strings.index(value),
            })
            .collect();
        let is_cut = cut.innermost(profile, stack, &mut frames);
        // Innermost first. A location has the number of its frame plus 1.
        let mut location_id: Vec<u64> = frames.iter().map(|&frame| u64::from(frame) + 1).collect();
        if location_id.is_empty() {
            location_id.push(no_frame(profile));
        } else if is_cut {
            location_id.push(no_frame(profile) + 1);
        }
        out.put(&message::Profile {
            sample: vec![Sample {
                location_id,
                value,
                label: label.into_iter().chain(process).chain(own).collect(),
            }],
            ..message::Profile::default()
        })?;
    }
    Ok(cut.note())
}

/// The values of allocations, in the order of the file.
const VALUES: [&str; 4] = [
    "alloc_objects",
    "alloc_space",
    "inuse_objects",
    "inuse_space",
];

/// What the values of each kind are divided by. Readers add them up in 63 bits: a larger sum would turn negative.
fn divisors(sums: &[(Key, Sums)]) -> [f64; VALUES.len()] {
    // Half of the room, as the sum of rounded values is a little more.
    const ROOM: f64 = (1_u64 << 62) as f64;
    let mut all = [0.0; VALUES.len()];
    for (_, sums) in sums {
        for (all, value) in all.iter_mut().zip(values_of(sums)) {
            *all += value;
        }
    }
    all.map(|all| (all / ROOM).ceil().max(1.0))
}

/// The frames that the samples of a file have together before stacks are cut to less than they have.
const MOST_FRAMES: u64 = 16 << 20;

/// The location of the empty stack, after the locations of all frames: pprof drops samples without locations. The one of the note in
/// cut stacks follows it.
fn no_frame(profile: &Profile) -> u64 {
    profile.frames.len() as u64 + 1
}

fn locations<W: Write>(profile: &Profile, with_note: bool, out: &mut Pieces<W>) -> io::Result<()> {
    let frames = profile.frames.iter();
    let lines = frames.map(|frame| (u64::from(frame.function) + 1, i64::from(frame.line)));
    let functions = profile.functions.len() as u64;
    let added = (1..=1 + u64::from(with_note)).map(|added| (functions + added, 0));
    for ((function_id, line), id) in lines.chain(added).zip(1..) {
        let place = profile.code_places.get(&(id as u32 - 1));
        let (mapping_id, address) = place.map_or((0, 0), |place| {
            let start = FIRST_START + u64::from(place.image) * DISTANCE;
            (u64::from(place.image) + 1, start + u64::from(place.address))
        });
        let location = Location {
            id,
            mapping_id,
            address,
            line: vec![Line { function_id, line }],
        };
        out.put(&message::Profile {
            location: vec![location],
            ..message::Profile::default()
        })?;
    }
    Ok(())
}

/// A profile has addresses relative to the image, and pprof wants them in a memory of its own: each image has its place
/// there, as large as its addresses can be.
const FIRST_START: u64 = 1 << 40;
const DISTANCE: u64 = 1 << 32;

fn mappings<W: Write>(
    profile: &Profile,
    strings: &mut Strings,
    out: &mut Pieces<W>,
) -> io::Result<()> {
    for (image, number) in profile.images.iter().zip(0..) {
        let memory_start = FIRST_START + u64::from(number) * DISTANCE;
        let mapping = Mapping {
            id: u64::from(number) + 1,
            memory_start,
            memory_limit: memory_start + DISTANCE,
            filename: strings.index(profile.image_path(number)),
            build_id: strings.index(&image.build_id),
            has_functions: true,
            has_inline_frames: true,
        };
        out.put(&message::Profile {
            mapping: vec![mapping],
            ..message::Profile::default()
        })?;
    }
    Ok(())
}

fn functions<W: Write>(
    profile: &Profile,
    note: Option<&str>,
    strings: &mut Strings,
    out: &mut Pieces<W>,
) -> io::Result<()> {
    let mut put = |function: Function| {
        out.put(&message::Profile {
            function: vec![function],
            ..message::Profile::default()
        })
    };
    for (function, id) in profile.functions.iter().zip(1..) {
        put(Function {
            id,
            name: strings.index(names::function(function)),
            // If the system name is equal to the name, pprof demangles it as a C++ name, and
            // removes `<lambda>` and `<locals>` as template arguments.
            system_name: 0,
            filename: strings.index(&function.file),
            start_line: i64::from(function.first_line),
        })?;
    }
    let added = [Some(names::NO_FRAME), note].into_iter().flatten();
    for (name, id) in added.zip(profile.functions.len() as u64 + 1..) {
        put(Function {
            id,
            name: strings.index(name),
            ..Function::default()
        })?;
    }
    Ok(())
}

fn comments(profile: &Profile) -> Vec<String> {
    let meta = &profile.meta;
    let mut comments = vec![
        format!("nthbyte {}", meta.nthbyte),
        format!("command: {}", meta.command.join(" ")),
        format!("interpreter: {}", meta.interpreter),
        format!("{} allocation samples", profile.samples.len()),
    ];
    for (kind, count) in &profile.lost {
        comments.push(format!("lost: {count} events ({kind:?})"));
    }
    comments.extend(meta.notes.iter().cloned());
    comments
}
