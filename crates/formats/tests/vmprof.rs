//! VMProf files that no released VMProf writes: the paper's extension, old versions, damage.
//! What VMProf and PyPy write is tested from Python, in `tests/formats`.

use std::io::Write as _;
use std::path::Path;

use nthbyte_formats::vmprof::{self, Imported, VmprofError};
use nthbyte_profile::Profile;
use nthbyte_profile::event::{CollectionKind, FrameKind};
use nthbyte_profile::model::Lifetime;

/// Builds a file record by record, with 8-byte words.
struct Recorder(Vec<u8>);

impl Recorder {
    fn new(version: u8, mode: u8, interpreter: &str) -> Self {
        let mut file = Self(Vec::new());
        for word in [0, 3, 0, 1_000, 0] {
            file.word(word);
        }
        file.0.extend([5, 0, version]);
        if version >= 4 {
            file.0.push(mode);
        }
        file.0.push(interpreter.len() as u8);
        file.0.extend(interpreter.as_bytes());
        file
    }

    fn word(&mut self, word: i64) {
        self.0.extend(word.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as i64);
        self.0.extend(text.as_bytes());
    }

    fn symbol(&mut self, address: i64, symbol: &str) {
        self.0.push(2);
        self.word(address);
        self.text(symbol);
    }

    fn describe(&mut self, key: &str, value: &str) {
        self.0.push(7);
        self.text(key);
        self.text(value);
    }

    /// The first word of a sample is a count or a time; what follows the trace is up to the caller.
    fn trace(&mut self, marker: u8, first: [u8; 8], words: &[i64], rest: &[i64]) {
        self.0.push(marker);
        self.0.extend(first);
        self.word(words.len() as i64);
        for word in words.iter().chain(rest) {
            self.word(*word);
        }
    }

    fn trailer(&mut self) {
        self.0.push(3);
        for word in [1_700_000_000, 0, 0] {
            self.word(word);
        }
    }
}

const COUNT: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

fn import(data: &[u8]) -> Result<(Imported, Profile), VmprofError> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (
        folder.path().join("in.prof"),
        folder.path().join("out.nthb"),
    );
    std::fs::write(&input, data).unwrap();
    let imported = vmprof::import(&input, &output, &mut |_, _| ())?;
    Ok((imported, Profile::load(&output).unwrap()))
}

/// The names on a stack, outermost first.
fn stack(profile: &Profile, stack: nthbyte_profile::event::NodeId) -> Vec<&str> {
    let name =
        |of: &nthbyte_profile::model::Frame| profile.functions[of.function as usize].name.as_str();
    let mut names: Vec<&str> = profile.stack(stack).map(name).collect();
    names.reverse();
    names
}

/// A time-sampling file with a hundred samples of two functions.
fn ordinary() -> Recorder {
    let mut file = Recorder::new(6, 0, "cpython");
    for number in 0..100 {
        let words: &[i64] = if number % 4 == 0 {
            &[0x10]
        } else {
            &[0x20, 0x10]
        };
        file.trace(1, COUNT, words, &[77]);
    }
    file.symbol(0x10, "py:outer:3:/srv/app.py");
    file.symbol(0x20, "py:inner:9:/srv/app.py");
    file
}

#[test]
fn allocation_samples_of_the_papers_fork() {
    let mut file = Recorder::new(7, 8, "pypy");
    file.describe("start_time_offset", "100.5");
    let time = |seconds: f64| seconds.to_bits().to_le_bytes();
    // A function that runs compiled, under one that does not.
    let words = [6, 0x9990, 3, 0x20, 1, 0x20, 1, 0x10];
    file.trace(9, time(100.75), &words, &[1]);
    file.trace(9, time(101.0), &[1, 0x10], &[1]);
    // The object that was sampled last comes first: type 5 died young, type 6 survived. Then the
    // statistics.
    let objects = [(6 << 2) | 1, 5 << 2, 4_096, 8_192, 0];
    file.0.push(10);
    file.0.extend(time(101.5));
    file.word(objects.len() as i64);
    objects.iter().for_each(|&word| file.word(word));
    file.trace(9, time(102.0), &[1, 0x10], &[1]);
    for (number, name) in ["total_memory_used", "total_size_of_arenas", "gc_state"]
        .iter()
        .enumerate()
    {
        file.describe(&format!("gc_stats__{number}"), name);
    }
    file.describe("sample_allocated_bytes", "32768");
    file.describe("__rtype_5", " GcStruct pypy.W_Int { super, inst_value }");
    file.describe("__rtype_6", " GcStruct pypy.W_List { super }");
    file.symbol(0x10, "py:outer:3:/srv/app.py");
    file.symbol(0x20, "py:inner:9:/srv/app.py");
    file.trailer();
    let (imported, profile) = import(&file.0).unwrap();
    assert_eq!(imported.damage, Vec::<String>::new());
    assert_eq!((imported.time_samples, imported.allocation_samples), (0, 3));
    let samples: Vec<_> = profile.samples.iter().collect();
    assert_eq!(stack(&profile, samples[0].stack), ["outer", "inner"]);
    let kinds: Vec<FrameKind> = profile.stack(samples[0].stack).map(|of| of.kind).collect();
    assert_eq!(kinds, [FrameKind::Jit, FrameKind::Interpreted]);
    let types: Vec<&str> = samples
        .iter()
        .map(|sample| profile.types[sample.type_id.index()].name.as_str())
        .collect();
    assert_eq!(types, ["pypy.W_Int", "pypy.W_List", ""]);
    assert_eq!(samples[0].lifetime, Lifetime::DiedYoung);
    assert_eq!(samples[1].lifetime, Lifetime::Survived);
    assert_eq!(samples[0].time.0, 250_000_000);
    let weights = profile.samples.ids().map(|id| profile.weight(id).bytes);
    assert_eq!(weights.sum::<f64>(), 3.0 * 32_768.0);
    assert_eq!(profile.collections.len(), 1);
    assert_eq!(profile.collections[0].kind, CollectionKind::Minor);
    assert_eq!(profile.collections[0].bytes_after, Some(4_096));
    assert_eq!(profile.memory[0].heap_reserved, Some(8_192));
}

#[test]
fn every_old_version_is_read() {
    for version in 0..=6 {
        let mut file = Recorder::new(version, 0, "cpython");
        let mut rest = Vec::new();
        if version >= 1 {
            rest.push(77);
        }
        if version == 3 {
            // Memory in KiB, which this version alone has without saying so in its mode.
            rest.push(2_048);
        }
        file.trace(1, COUNT, &[0x20, 0x10], &rest);
        file.symbol(0x10, "py:outer:3:/srv/app.py");
        file.symbol(0x20, "py:inner:9:/srv/app.py");
        if version >= 5 {
            file.trailer();
        } else {
            file.0.push(3);
        }
        let (imported, profile) = import(&file.0).unwrap();
        assert_eq!(imported.damage, Vec::<String>::new(), "version {version}");
        assert!(profile.complete);
        assert_eq!(stack(&profile, profile.cpu[0].stack), ["outer", "inner"]);
        let rss = profile.memory.first().and_then(|memory| memory.rss);
        assert_eq!(rss, (version == 3).then_some(2 << 20));
    }
}

#[test]
fn a_file_truncated_anywhere_is_read_up_to_its_end() {
    let mut file = ordinary();
    file.trailer();
    let header = 5 * 8 + 3 + 1 + 1 + "cpython".len();
    let mut before = 0;
    for len in (0..file.0.len()).step_by(7) {
        match import(&file.0[..len]) {
            Ok((imported, profile)) => {
                assert!(len >= header);
                assert!(!imported.damage.is_empty(), "{len} bytes");
                assert!(!profile.complete);
                assert!(imported.time_samples >= before);
                before = imported.time_samples;
            }
            Err(error) => {
                assert!(len < header, "{error}");
                assert!(
                    error.to_string().contains("is not a VMProf profile: it"),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(before, 100);
}

#[test]
fn damage_in_the_middle_loses_only_the_damaged_records() {
    let mut file = ordinary();
    file.trailer();
    for at in (100..2_500).step_by(31) {
        let mut data = file.0.clone();
        data[at..at + 20].fill(0xee);
        let (imported, profile) = import(&data).unwrap();
        assert!(imported.time_samples >= 97, "{at}: {imported:?}");
        // A number of a thread or an address may be hit without notice; the rest is.
        assert!(
            imported.time_samples == 100 || !imported.damage.is_empty(),
            "{at}"
        );
        let names: Vec<&str> = profile
            .functions
            .iter()
            .map(|of| of.name.as_str())
            .collect();
        assert!(
            names.contains(&"outer") && names.contains(&"inner"),
            "{at}: {names:?}"
        );
    }
}

/// The search looks at each byte of the damaged part, and may not read the rest of the file at each of them: this test
/// would take minutes.
#[test]
fn long_damage_that_looks_like_long_symbols_is_skipped() {
    let mut file = ordinary();
    let begin = file.0.len();
    file.0.push(0xee);
    for _ in 0..200_000 {
        file.0.push(2);
        file.word(0);
        file.word(1 << 20);
    }
    let end = file.0.len();
    // Sound symbols, and longer together than what each of those claims.
    for _ in 0..100 {
        file.symbol(0x99, &format!("py:late:1:{}", "x".repeat(20_000)));
    }
    file.trailer();
    let (imported, _) = import(&file.0).unwrap();
    assert_eq!(imported.time_samples, 100);
    let len = end - begin;
    let skipped = format!("at byte {begin}: {len} bytes were skipped");
    assert!(
        imported.damage.len() == 1 && imported.damage[0].ends_with(&skipped),
        "{:?}",
        imported.damage
    );
}

#[test]
fn compressed_files_are_read_even_if_truncated() {
    let mut file = ordinary();
    file.trailer();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(&file.0).unwrap();
    let compressed = encoder.finish().unwrap();
    let (imported, _) = import(&compressed).unwrap();
    assert_eq!((imported.time_samples, imported.damage.len()), (100, 0));
    let (imported, _) = import(&compressed[..compressed.len() / 2]).unwrap();
    assert!((20..80).contains(&imported.time_samples), "{imported:?}");
    assert!(
        imported
            .damage
            .iter()
            .any(|what| what.contains("compressed file is damaged"))
    );
}

#[test]
fn a_file_of_another_format_is_refused() {
    for data in [
        &b""[..],
        b"#!/bin/sh\necho hello, this is a script\n",
        &[0; 4096],
        &[0xff; 64],
    ] {
        let error = import(data).unwrap_err().to_string();
        assert!(
            error.contains("is not a VMProf profile: it does not begin like one"),
            "{error}"
        );
        assert!(!error.contains('\n'));
    }
    let missing = vmprof::import(
        Path::new("/nonexistent/file.prof"),
        Path::new("/nonexistent/out.nthb"),
        &mut |_, _| (),
    );
    let error = missing.unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read /nonexistent/file.prof: "),
        "{error}"
    );
}

#[test]
fn hostile_names_pass() {
    let names = [
        "<script>alert(1)</script>".to_owned(),
        "quotes \" and ' and \\".to_owned(),
        "line\nend".to_owned(),
        "\u{202e}right to left".to_owned(),
        "x".repeat(10_000),
        "semicolon;and space ".to_owned(),
    ];
    let mut file = Recorder::new(6, 0, "cpython");
    let addresses: Vec<i64> = (1..=names.len() as i64).map(|number| number * 16).collect();
    file.trace(1, COUNT, &addresses, &[77]);
    for (address, name) in addresses.iter().zip(&names) {
        file.symbol(*address, &format!("py:{name}:1:/srv/<b>.py"));
    }
    // Bytes that are no UTF-8, such as a lone surrogate's.
    file.0.push(2);
    file.word(0x1000);
    file.word(10);
    file.0.extend(b"py:\xed\xa0\x80:1:f");
    file.trailer();
    let (imported, profile) = import(&file.0).unwrap();
    assert_eq!(imported.damage, Vec::<String>::new());
    let mut found = stack(&profile, profile.cpu[0].stack);
    found.reverse();
    assert_eq!(found, names);
}
