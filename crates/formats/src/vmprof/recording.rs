//! The readable content of a VMProf file.

use std::collections::HashMap;

use super::bytes::{Bytes, Short, Widths};
use super::stacks::{Layout, MAX_DEPTH, Stacks, frames};
use crate::Progress;

/// The markers of records.
mod marker {
    pub const STACKTRACE: u8 = 1;
    pub const VIRTUAL_IP: u8 = 2;
    pub const TRAILER: u8 = 3;
    pub const HEADER: u8 = 5;
    pub const TIME_N_ZONE: u8 = 6;
    pub const META: u8 = 7;
    pub const NATIVE_SYMBOLS: u8 = 8;
    /// Only in files of the paper's fork, like the next one.
    pub const ALLOCATION: u8 = 9;
    pub const OBJECTS: u8 = 10;
}

/// Bits of the header's mode.
mod mode {
    pub const MEMORY: u8 = 1;
    pub const LINES: u8 = 2;
    pub const RPYTHON: u8 = 8;
    pub const REAL_TIME: u8 = 16;
}

/// The first file version with each feature.
mod version {
    pub const THREAD_ID: i16 = 1;
    pub const MEMORY: i16 = 3;
    pub const MODE: i16 = 4;
    pub const DURATION: i16 = 5;
    /// In `vmprof` 0.6 a sample ends with a time. The paper's fork has the same version number, but
    /// there a sample begins with a time. Its files have the key [`super::FORK_KEY`].
    pub const SAMPLE_TIME: i16 = 7;
    /// The highest version. A higher one means that the header is damaged.
    pub const HIGHEST: i16 = 7;
}

/// The longest trace, in words, that is accepted in a damaged part of the file. The search tries every
/// byte, and longer traces would make it slow.
const LIKELY_DEPTH: i64 = 2_048;

/// The longest symbol in bytes that is accepted there, for the same reason.
const LIKELY_SYMBOL: i64 = 1 << 16;

/// A key that only the paper's fork writes among the descriptions.
const FORK_KEY: &str = "start_time_offset";

/// A stack at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawSample {
    /// Number in [`Recording::stacks`].
    pub stack: u32,
    pub thread: i64,
    /// Nanoseconds of an unspecified clock, if the file has times.
    pub time: Option<i64>,
    /// Resident memory in KiB, if it was recorded.
    pub memory: Option<i64>,
}

/// The collector's record of the objects sampled since its last run, and its statistics.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    /// Nanoseconds of the clock of samples, if the file has times.
    pub time: Option<i64>,
    /// Statistics and objects, unchanged from the file.
    pub words: Vec<i64>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Recording {
    pub interpreter: String,
    pub version: i16,
    /// Whether samples follow the wall clock and not CPU time.
    pub real_time: bool,
    /// Microseconds between time samples; 0 if there are none.
    pub period: i64,
    /// Microseconds since 1970, if known.
    pub start: Option<i64>,
    pub end: Option<i64>,
    pub descriptions: HashMap<String, String>,
    pub symbols: HashMap<i64, String>,
    pub stacks: Stacks,
    pub time_samples: Vec<RawSample>,
    pub allocations: Vec<RawSample>,
    pub objects: Vec<Objects>,
    /// Whether the file is complete.
    pub complete: bool,
    pub damage: Vec<String>,
    layout: Layout,
    memory: bool,
}

/// The reason why a record could not be read.
enum Fault {
    Short,
    Bad(&'static str),
}

impl From<Short> for Fault {
    fn from(Short: Short) -> Self {
        Self::Short
    }
}

impl Recording {
    /// Reads a file as far as possible. `Err` has the reason why it is not a profile, as the end of a sentence.
    pub fn parse(data: &[u8], progress: Progress<'_>) -> Result<Self, String> {
        let (period, mut bytes) = static_header(data)?;
        let mut recording = Self::new(period);
        recording.header(&mut bytes).map_err(|fault| match fault {
            Fault::Short => "it ends within its header".to_owned(),
            Fault::Bad(why) => why.to_owned(),
        })?;
        let total = data.len() as u64;
        let mut reported = 0;
        while bytes.position() < data.len() && !recording.complete {
            let before = bytes;
            if let Err(fault) = recording.record(&mut bytes) {
                bytes = recording.skip_damage(data, before, &fault);
            }
            if bytes.position() - reported > 1 << 20 {
                reported = bytes.position();
                progress(reported as u64, total);
            }
        }
        if !recording.complete && recording.version >= version::DURATION {
            recording.damage.push(format!(
                "the file is truncated after {total} bytes: names of functions may be missing"
            ));
        }
        Ok(recording)
    }

    fn new(period: i64) -> Self {
        Self {
            interpreter: String::new(),
            version: 0,
            real_time: false,
            period,
            start: None,
            end: None,
            descriptions: HashMap::new(),
            symbols: HashMap::new(),
            stacks: Stacks::new(),
            time_samples: Vec::new(),
            allocations: Vec::new(),
            objects: Vec::new(),
            complete: false,
            damage: Vec::new(),
            layout: Layout::Addresses,
            memory: false,
        }
    }

    /// The first record, which determines the layout of all others.
    fn header(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Fault> {
        if bytes.byte()? != marker::HEADER {
            return Err(Fault::Bad("its first record is not a header"));
        }
        let high = bytes.byte()?;
        self.version = i16::from_be_bytes([high, bytes.byte()?]);
        if !(0..=version::HIGHEST).contains(&self.version) {
            return Err(Fault::Bad("its version is not one from 0 to 7"));
        }
        let modes = match self.version {
            version::MODE.. => bytes.byte()?,
            version::MEMORY => mode::MEMORY,
            _ => 0,
        };
        let len = bytes.byte()?;
        let name = bytes.take(usize::from(len))?;
        self.interpreter = String::from_utf8_lossy(name).into_owned();
        self.memory = modes & mode::MEMORY != 0;
        self.real_time = modes & mode::REAL_TIME != 0;
        self.layout = if modes & mode::RPYTHON != 0 || self.interpreter == "pypy" {
            Layout::KindsAndAddresses
        } else if modes & mode::LINES != 0 {
            Layout::LinesAndAddresses
        } else {
            Layout::Addresses
        };
        Ok(())
    }

    fn record(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Fault> {
        match bytes.byte()? {
            marker::STACKTRACE => {
                let sample = self.sample(bytes)?;
                self.time_samples.push(sample);
            }
            marker::ALLOCATION => {
                let sample = self.sample(bytes)?;
                self.allocations.push(sample);
            }
            marker::OBJECTS => {
                let time = self.leading_time(bytes)?;
                let words = words(bytes, MAX_DEPTH)?;
                self.objects.push(Objects { time, words });
            }
            marker::VIRTUAL_IP => {
                let address = bytes.address()?;
                let symbol = bytes.string()?;
                self.symbols.insert(address, symbol);
            }
            marker::NATIVE_SYMBOLS => {
                let address = bytes.address()?;
                let symbol = bytes.string()?;
                // The paper's fork writes one for each address, including Python's own.
                self.symbols.entry(address).or_insert(symbol);
            }
            marker::META => {
                let key = bytes.string()?;
                let value = bytes.string()?;
                self.descriptions.insert(key, value);
            }
            marker::TIME_N_ZONE => self.start = Some(time_and_zone(bytes)?),
            marker::TRAILER => {
                if self.version >= version::DURATION {
                    self.end = Some(time_and_zone(bytes)?);
                }
                // Native symbols and more descriptions may follow.
                self.complete = bytes.clone().byte().is_err();
                if !self.complete {
                    self.after_trailer(bytes);
                }
            }
            _ => return Err(Fault::Bad("there is no record of this kind")),
        }
        Ok(())
    }

    /// The records after the trailer: symbols and descriptions. Others are ignored there, as by VMProf
    /// itself.
    fn after_trailer(&mut self, bytes: &mut Bytes<'_>) {
        loop {
            let mut ahead = *bytes;
            let Ok(marker::VIRTUAL_IP | marker::NATIVE_SYMBOLS | marker::META) = ahead.byte()
            else {
                break;
            };
            if self.record(bytes).is_err() {
                break;
            }
        }
        self.complete = true;
    }

    fn sample(&mut self, bytes: &mut Bytes<'_>) -> Result<RawSample, Fault> {
        let leading = self.leading_time(bytes)?;
        let words = words(bytes, MAX_DEPTH)?;
        let frames = frames(&words, self.layout).ok_or(Fault::Bad("a stack is malformed"))?;
        let thread = match self.version {
            version::THREAD_ID.. => bytes.address()?,
            _ => 0,
        };
        let memory = if self.memory {
            Some(bytes.address()?)
        } else {
            None
        };
        let time = if self.version >= version::SAMPLE_TIME && !self.is_of_fork() {
            Some(bytes.long()?)
        } else {
            leading
        };
        Ok(RawSample {
            stack: self.stacks.number(&frames),
            thread,
            time,
            memory,
        })
    }

    fn is_of_fork(&self) -> bool {
        self.descriptions.contains_key(FORK_KEY)
    }

    /// In the fork, a time: seconds as a floating-point number. In other files, a count: always 1.
    fn leading_time(&self, bytes: &mut Bytes<'_>) -> Result<Option<i64>, Fault> {
        if self.version >= version::SAMPLE_TIME && self.is_of_fork() {
            let seconds = f64::from_bits(bytes.long()? as u64);
            return Ok(Some(
                nanos(seconds).ok_or(Fault::Bad("a time is malformed"))?,
            ));
        }
        match bytes.word()? {
            1 => Ok(None),
            _ => Err(Fault::Bad("a sample's count is not 1")),
        }
    }

    /// Looks for the next place where two valid records follow each other, and notes the bytes skipped.
    fn skip_damage<'a>(&mut self, data: &'a [u8], from: Bytes<'a>, fault: &Fault) -> Bytes<'a> {
        let begin = from.position();
        let what = match fault {
            Fault::Short => "a record is longer than the file",
            Fault::Bad(what) => what,
        };
        for at in begin + 1..data.len() {
            let mut ahead = Bytes::new(data, at, from.widths);
            if self.skim(&mut ahead).is_ok() && self.skim(&mut ahead).is_ok() {
                let len = at - begin;
                self.damage
                    .push(format!("{what} at byte {begin}: {len} bytes were skipped"));
                return Bytes::new(data, at, from.widths);
            }
        }
        let len = data.len() - begin;
        self.damage.push(format!(
            "{what} at byte {begin}: the last {len} bytes are lost"
        ));
        Bytes::new(data, data.len(), from.widths)
    }

    /// Skips a valid record.
    fn skim(&self, bytes: &mut Bytes<'_>) -> Result<(), Fault> {
        let unlikely = Err(Fault::Bad("unlikely"));
        match bytes.byte()? {
            marker::STACKTRACE | marker::ALLOCATION => {
                self.leading_time(bytes)?;
                let words = words(bytes, LIKELY_DEPTH)?;
                if words.is_empty() || frames(&words, self.layout).is_none() {
                    return unlikely;
                }
                bytes.address()?;
                if self.memory {
                    bytes.address()?;
                }
                if self.version >= version::SAMPLE_TIME && !self.is_of_fork() {
                    bytes.long()?;
                }
                Ok(())
            }
            marker::VIRTUAL_IP | marker::NATIVE_SYMBOLS => {
                bytes.address()?;
                let len = bytes.word()?;
                if !(0..=LIKELY_SYMBOL).contains(&len) {
                    return unlikely;
                }
                let symbol = bytes.take(len as usize)?;
                match symbol.iter().filter(|&&byte| byte == b':').count() {
                    3.. => Ok(()),
                    _ => unlikely,
                }
            }
            _ => unlikely,
        }
    }
}

/// Reads the five words at the start: 0, 3, 0, the period, and 1 if addresses are wider than words.
fn static_header(data: &[u8]) -> Result<(i64, Bytes<'_>), String> {
    for word in [8, 4] {
        let mut bytes = Bytes::new(
            data,
            0,
            Widths {
                word,
                address: word,
            },
        );
        let mut next = || bytes.word().ok();
        let words = (next(), next(), next(), next(), next());
        let (Some(0), Some(3), Some(0), Some(period), Some(wide @ (0 | 1))) = words else {
            continue;
        };
        if wide == 1 {
            bytes.widths.address = 8;
        }
        // As nanoseconds, it is still a number.
        return Ok((period.clamp(0, i64::MAX / 1_000), bytes));
    }
    Err("it does not begin like one".to_owned())
}

/// A depth, at most `deepest`, and then as many words.
fn words(bytes: &mut Bytes<'_>, deepest: i64) -> Result<Vec<i64>, Fault> {
    let depth = bytes.word()?;
    if !(0..=deepest).contains(&depth) {
        return Err(Fault::Bad("a stack is deeper than VMProf allows"));
    }
    let mut words = Vec::new();
    for _ in 0..depth {
        words.push(bytes.address()?);
    }
    Ok(words)
}

/// Microseconds since 1970. The eight bytes of the time zone's name are skipped.
fn time_and_zone(bytes: &mut Bytes<'_>) -> Result<i64, Short> {
    let (seconds, micros) = (bytes.long()?, bytes.long()?);
    bytes.take(8)?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// Seconds in nanoseconds; `None` if the number is not a time.
pub(super) fn nanos(seconds: f64) -> Option<i64> {
    (0.0..9e9)
        .contains(&seconds)
        .then_some((seconds * 1e9) as i64)
}
