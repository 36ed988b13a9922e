//! The options that select a part of a profile, and the frames that are shown.
//!
//! `explain`, `leaks` and `diff` have the options of [`ProgramPart`]; what shows allocations, or what was alive, has all of
//! [`Selecting`]. `memory`, which is of whole processes, and `merge`, which writes them, have a domain and times of their own.

use clap::{Args, ValueEnum};
use nthbyte_profile::Domain;
use nthbyte_profile::event::Nanos;
use nthbyte_report::{At, LabelQuery, Selection};
use nthbyte_sampling::parse_size;

/// The frames that stacks have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Frames {
    /// Those that were recorded: native functions are not looked up.
    Recorded,
    /// All.
    All,
    /// All but the launcher's, which would be the root of every stack.
    WithoutLauncher,
    /// All but the launcher's and the machinery of imports'.
    Folded,
}

/// The memory that a command shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    /// The interpreter's objects and their buffers.
    Python,
    /// Calls of malloc and related functions, and mappings.
    Native,
    /// Memory of a GPU, by an imported snapshot.
    Device,
    /// All of them.
    All,
}

/// The domain of memory that a command is about.
#[derive(Args)]
pub struct OfDomain {
    /// Which memory to show: the interpreter's (python), malloc's and mappings (native), a GPU's (device), or all.
    #[arg(long, value_enum, default_value_t = Memory::All)]
    domain: Memory,
}

impl OfDomain {
    /// The only domain to show; `None` for all.
    pub fn only(&self) -> Option<Domain> {
        match self.domain {
            Memory::Python => Some(Domain::Python),
            Memory::Native => Some(Domain::Native),
            Memory::Device => Some(Domain::Device),
            Memory::All => None,
        }
    }
}

/// A range of time that becomes a profile of its own.
#[derive(Args)]
pub struct OfTime {
    /// Write only what was recorded at this time or later, as a profile that begins then: 10s, 500ms, 2min.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    since: Option<Nanos>,
    /// Write only what was recorded before this time: objects freed later are alive at its end.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    until: Option<Nanos>,
}

impl OfTime {
    /// The range; `None` if no part was asked for.
    pub fn range(&self) -> Option<(Nanos, Nanos)> {
        let is_part = self.since.is_some() || self.until.is_some();
        is_part.then(|| {
            let since = self.since.unwrap_or(Nanos(0));
            (since, self.until.unwrap_or(Nanos(u64::MAX)))
        })
    }
}

/// The part of a program that a report is about: its memory, its time, its threads, its places.
#[derive(Args)]
pub struct ProgramPart {
    #[command(flatten)]
    domain: OfDomain,
    /// Only what was allocated at this time or later: 10s, 500ms, 2min.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, help_heading = HEADING)]
    since: Option<Nanos>,
    /// Only what was allocated before this time.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, help_heading = HEADING)]
    until: Option<Nanos>,
    /// Only what this thread allocated: its name, the beginning of names with a `*` after it, or the system's number.
    /// May be given several times.
    #[arg(long = "thread", value_name = "NAME", help_heading = HEADING)]
    threads: Vec<String>,
    /// Only what this file or module allocated, or what it called. May be given several times.
    #[arg(long = "where", value_name = "FILE|MODULE", help_heading = HEADING)]
    places: Vec<String>,
    /// Only what was allocated under this label: a key with a value, or the beginning of values with a `*` after it. May be given several
    /// times: of one key, any of its values is shown.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label, help_heading = HEADING)]
    labels: Vec<LabelQuery>,
}

impl ProgramPart {
    /// The same for the reports.
    pub fn selection(&self) -> Selection {
        Selection {
            domain: self.domain.only(),
            since: self.since,
            until: self.until,
            threads: self.threads.clone(),
            places: self.places.clone(),
            labels: self.labels.clone(),
            ..Selection::default()
        }
    }

    /// The options that were given, word by word: what another command takes to show the same part.
    pub fn words(&self) -> Vec<String> {
        let domain = match self.domain.domain {
            Memory::Python => Some("--domain=python".to_owned()),
            Memory::Native => Some("--domain=native".to_owned()),
            Memory::Device => Some("--domain=device".to_owned()),
            Memory::All => None,
        };
        let time = |option: &str, time: Option<Nanos>| {
            time.map(|Nanos(nanos)| format!("--{option}={}us", nanos / 1000))
        };
        let named = |option: &str, names: &[String]| -> Vec<String> {
            names
                .iter()
                .map(|name| format!("--{option}={name}"))
                .collect()
        };
        domain
            .into_iter()
            .chain(time("since", self.since))
            .chain(time("until", self.until))
            .chain(named("thread", &self.threads))
            .chain(named("where", &self.places))
            .chain(
                self.labels
                    .iter()
                    .map(|label| format!("--label={}", label.text())),
            )
            .collect()
    }
}

/// The part of a profile that a report is about, with what became of it.
#[derive(Args)]
pub struct Selecting {
    #[command(flatten)]
    part: ProgramPart,
    /// Only what was freed before its process had allocated this many more bytes (1MiB if no number is given).
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1MiB",
        value_parser = size,
        help_heading = HEADING
    )]
    temporary: Option<u64>,
    /// Show what was alive at the peak, at the end, or at a time. The summary shows it beside what was allocated,
    /// and the page begins with it; all other reports show only what was alive then.
    #[arg(long, value_name = "peak|end|TIME", value_parser = at, allow_hyphen_values = true, help_heading = HEADING)]
    at: Option<At>,
}

const HEADING: &str = "Selection";

impl Selecting {
    /// The same for the reports.
    pub fn selection(&self) -> Selection {
        Selection {
            temporary: self.temporary,
            at: self.at,
            ..self.part.selection()
        }
    }
}

/// Whether the frames of imports and of the launcher are shown.
// The help of an option is no Markdown: `[import]` is no link.
#[allow(rustdoc::broken_intra_doc_links)]
#[derive(Args)]
pub struct FrameOptions {
    /// Show the frames of the machinery of imports and of the launcher. This is the default where JSON or a file for another program is
    /// written; the Firefox Profiler gets imports' only.
    #[arg(long, conflicts_with = "fold_frames")]
    all_frames: bool,
    /// Leave them out: what they allocated is shown as [import] and [launcher]. This is the default in the terminal and on pages.
    #[arg(long)]
    fold_frames: bool,
}

impl FrameOptions {
    /// The frames that are asked for; without an option, these.
    pub fn or(&self, default: Frames) -> Frames {
        match self {
            Self {
                fold_frames: true, ..
            } => Frames::Folded,
            Self {
                all_frames: true, ..
            } => Frames::All,
            _ => default,
        }
    }
}

/// A label that is asked for.
///
/// # Errors
/// One line, for the command line's parser.
pub fn label(text: &str) -> Result<LabelQuery, String> {
    LabelQuery::parse(text).ok_or_else(|| "write a label as endpoint=/checkout".to_owned())
}

/// A time: seconds, or with a unit.
///
/// # Errors
/// One line, for the command line's parser.
pub fn time(text: &str) -> Result<Nanos, String> {
    const UNITS: [(&str, f64); 6] = [
        ("ms", 1e6),
        ("us", 1e3),
        ("min", 60e9),
        ("m", 60e9),
        ("s", 1e9),
        ("h", 3600e9),
    ];
    let text = text.trim_ascii();
    let unit = UNITS.iter().find_map(|&(unit, nanos)| {
        let number = text.strip_suffix(unit)?;
        Some((number.trim_ascii_end(), nanos))
    });
    let (number, nanos) = unit.unwrap_or((text, 1e9));
    // Digits with at most one point: no sign, no exponent, no `inf`.
    let is_plain = number
        .bytes()
        .all(|sign| sign.is_ascii_digit() || sign == b'.');
    let number: Option<f64> = number.parse().ok().filter(|_| is_plain);
    let nanos = number.map(|number| number * nanos);
    match nanos.filter(|&nanos| nanos <= LONGEST) {
        Some(nanos) => Ok(Nanos(nanos as u64)),
        None => Err("write a time as 10s, 500ms, 2min or 1.5h".to_owned()),
    }
}

/// A year.
const LONGEST: f64 = 366.0 * 86_400.0 * 1e9;

/// A size in bytes, in binary units, written as for `nthbyte run --every`.
fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "write a size as 512KiB, 0.5MiB or 524288".to_owned())
}

/// Whether a text is a size with a unit.
pub fn is_size(text: &str) -> bool {
    text.ends_with(|end: char| end.is_ascii_alphabetic()) && size(text).is_ok()
}

/// A moment: `peak`, `end`, or a time.
///
/// # Errors
/// One line, for the command line's parser.
pub fn at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        text => time(text)
            .map(At::Time)
            .map_err(|_| "write peak, end, or a time as 10s, 500ms or 2min".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_everywhere() {
        let table = include_str!("../../../../tests/amounts.json");
        let table: serde_json::Value = serde_json::from_str(table).expect("JSON");
        let pairs = |name: &str| {
            let pairs = table[name].as_array().expect("a list").iter();
            pairs.map(|pair| (pair[0].as_str().expect("a text"), pair[1].as_u64()))
        };
        for (text, bytes) in pairs("sizes") {
            assert_eq!(size(text).ok(), bytes, "{text}");
        }
        for (text, nanos) in pairs("times") {
            assert_eq!(time(text).ok(), nanos.map(Nanos), "{text}");
        }
        assert_eq!(at("peak"), Ok(At::Peak));
        assert_eq!(at("end"), Ok(At::End));
        assert_eq!(at("3 s"), Ok(At::Time(Nanos(3_000_000_000))));
        assert!(at("top").is_err());
    }
}
