//! What each command makes of a profile, with a bound on its memory, on its steps and on the bytes that it writes: for the fuzz target
//! `commands`, and for `crates/cli/tests/memory_bound.rs`, which compiles it too.

use std::io::{self, Write};

use nthbyte_formats::{collapsed, firefox, pprof, speedscope};
use nthbyte_profile::synthetic::rows_looked_at;
use nthbyte_profile::{Profile, Reader};
use nthbyte_report::explain::{ExplainOptions, Style};
use nthbyte_report::{
    At, By, Bytes, Diff, Explanation, Leaks, MemoryReport, Selected, Sort, Summary, Time, Tree,
    diff, flamegraph, fold, suite,
};

use super::allocator::most_during;

/// A command takes at most so many bytes for each byte of the uncompressed events of the files that it reads.
const EACH_BYTE: u64 = 40;

/// The rows of the tables of samples, sites and shapes that a command may pass over for each byte of the events. A sample has some
/// bytes, and a row in each table at most; the dearest command passes over two to three rows for each byte. What passes
/// over a table for each row of another one, however few milliseconds that takes in a small file, is beyond it.
const ROWS_EACH_BYTE: u64 = 6;

/// Counts the bytes that are written.
#[derive(Default)]
struct Sink(u64);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Command = fn(&mut Profile, &mut Sink) -> io::Result<()>;

/// All of them, by name.
const COMMANDS: [(&str, Command); 17] = [
    ("load", |_, _| Ok(())),
    ("summary", |profile, out| {
        summary(profile, By::Function, out)
    }),
    ("summary --by line", |profile, out| {
        summary(profile, By::Line, out)
    }),
    ("summary --by file", |profile, out| {
        summary(profile, By::File, out)
    }),
    ("summary --by type", |profile, out| {
        summary(profile, By::Type, out)
    }),
    ("summary --json", |profile, out| {
        let order = (Sort::Own, usize::MAX);
        let everything = Selected::everything();
        Summary::with_json(profile, By::Function, everything, order, |summary| {
            Ok(serde_json::to_writer(out, summary)?)
        })
    }),
    ("memory", |profile, out| {
        match MemoryReport::of(profile, At::Peak) {
            Ok(memory) => Ok(serde_json::to_writer(out, &memory)?),
            // The profile does not say it.
            Err(_) => Ok(()),
        }
    }),
    ("tree", |profile, out| {
        fold::fold(profile);
        let text = match profile.samples.is_empty() {
            true => Tree::<Time>::of(profile, 60).render(80),
            false => Tree::<Bytes>::of(profile, 60).render(80),
        };
        out.write_all(text.as_bytes())
    }),
    ("explain", |profile, out| {
        let explanation = Explanation::of(profile, &ExplainOptions::default());
        out.write_all(explanation.render(80, Style::Plain).as_bytes())
    }),
    ("leaks", |profile, out| {
        Ok(serde_json::to_writer(
            out,
            &Leaks::of_one("", profile, false),
        )?)
    }),
    ("tests", |profile, out| {
        let marks = marks(profile);
        let mut builder = suite::Builder::new(marks.owners);
        for recording in &marks.recordings {
            builder.add(recording, profile);
        }
        let suite = builder.finish();
        out.write_all(suite.render(80, 5).as_bytes())?;
        Ok(serde_json::to_writer(out, &suite)?)
    }),
    ("diff", |profile, out| {
        // Two files of one content.
        let other = [profile.clone()];
        let of = std::slice::from_ref(profile);
        let mut diff = Diff::of(of, &other, &diff::DiffOptions::default());
        diff.truncate(20);
        out.write_all(diff.render(80).as_bytes())
    }),
    ("flamegraph", |profile, out| {
        let memory = MemoryReport::over_time(profile, flamegraph::MOMENTS);
        let page = flamegraph::Page {
            memory: &memory,
            ..flamegraph::Page::of(profile)
        };
        flamegraph::write_page(profile, &page, out, &mut |_, _| ())
    }),
    ("export --to firefox", |profile, out| {
        firefox::write(profile, out, &mut |_, _| ())
    }),
    ("export --to pprof", |profile, out| {
        pprof::write(profile, out, &mut |_, _| ())
    }),
    ("export --to speedscope", |profile, out| {
        speedscope::write(profile, out, &mut |_, _| ())
    }),
    ("export --to collapsed", |profile, out| {
        collapsed::write(profile, out, &mut |_, _| ())
    }),
];

/// A run of tests that take turns, with some samples each.
fn marks(profile: &Profile) -> suite::Marks {
    const SAMPLES_OF_A_TEST: usize = 32;
    let tests = profile.samples.len() / SAMPLES_OF_A_TEST + 1;
    let owners = (0..tests).map(|test| suite::Owner {
        name: format!("test_{test}"),
        scope: (test % 8 == 0).then(|| "module".to_owned()),
    });
    let begin = |test: u64| (profile.end.0 / tests as u64 * test, test as i64);
    suite::Marks {
        nthbyte_tests: suite::VERSION,
        owners: owners.collect(),
        recordings: vec![suite::RecordedProfile {
            profile: String::new(),
            clock: 0,
            switches: (0..tests as u64).map(begin).collect(),
            unfinished: vec![0],
        }],
        measured: Vec::new(),
    }
}

fn summary(profile: &mut Profile, by: By, out: &mut Sink) -> io::Result<()> {
    fold::fold(profile);
    let summary = Summary::first_rows(profile, by, Selected::everything(), Sort::Own, 20);
    let text = match summary.is_of_time_only() {
        true => summary.render::<Time>(80),
        false => summary.render::<Bytes>(80),
    };
    out.write_all(text.as_bytes())
}

/// The bytes of the events of a file, uncompressed; `None` if it is no profile.
fn bytes_of_events(file: &[u8]) -> Option<u64> {
    let mut reader = Reader::from_reader(file).ok()?;
    while let Some(mut block) = reader.next_block().ok()? {
        while block.next_event().is_some() {}
    }
    Some(reader.bytes_unpacked())
}

/// What a command made of a file.
#[derive(Debug)]
pub struct Outcome {
    /// Its name.
    pub command: &'static str,
    /// The most memory that it took, in bytes.
    pub memory: u64,
    /// The bytes that it wrote.
    pub written: u64,
    /// The rows that it passed over: see [`rows_looked_at`].
    pub rows: u64,
    /// The bytes of the events that it read, uncompressed.
    pub events: u64,
}

impl Outcome {
    /// Whether it took at most `floor` bytes and [`EACH_BYTE`] for each byte of the events, and wrote at most a hundred times as much; and whether it passed over at most [`ROWS_EACH_BYTE`], and the rows of a small file.
    pub fn is_within(&self, floor: u64) -> bool {
        // It reads the file twice.
        let files = if self.command == "diff" { 2 } else { 1 };
        let bound = floor + EACH_BYTE * files * self.events;
        let rows = (1 << 16) + ROWS_EACH_BYTE * self.events;
        self.memory <= bound && self.written <= 100 * bound && self.rows <= rows
    }
}

/// Puts a file through all commands.
pub fn all(file: &[u8]) -> Vec<Outcome> {
    let Some(events) = bytes_of_events(file) else {
        return Vec::new();
    };
    let run = |&(name, command): &(&'static str, Command)| {
        let before = rows_looked_at();
        let (written, memory) = most_during(|| {
            let mut out = Sink::default();
            let mut profile = Profile::read(file).expect("it was read before");
            command(&mut profile, &mut out).expect("a sink takes everything");
            out.0
        });
        Outcome {
            command: name,
            memory: memory as u64,
            written,
            rows: rows_looked_at() - before,
            events,
        }
    };
    COMMANDS.iter().map(run).collect()
}
