//! Collapsed stacks, the format that `flamegraph.pl`, inferno and many others read.
//!
//! A line for each distinct stack: frames, outermost first, separated by `;`, then a space and the
//! estimated bytes allocated there, a whole number. A frame is `function (file:line)`. In a profile
//! without allocation samples (one of VMProf's, say) the number counts time samples.
//!
//! The format has no escapes, so some characters in names are replaced: `;` by `:`, and line
//! ends, tabs and other control characters by a space each. A frame's text is cut at [`LONGEST`] bytes. Samples without a
//! stack are under `(no Python frame)`.
//!
//! The file is written line by line: in memory there is a number for each stack, and the texts of the frames. Stacks are cut
//! as in [`crate::depth`].

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use foldhash::fast::RandomState;
use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;

use crate::depth::Depths;
use crate::meter::Meter;
use crate::{Progress, names};

/// The longest text of a frame, in bytes.
const LONGEST: usize = 2_000;

/// So many bytes of lines are written before stacks are cut to less than they have.
const MOST_BYTES: u64 = 64 << 20;

/// Writes the samples as collapsed stacks. One step of `progress` is one sample.
///
/// # Errors
/// If `out` fails.
pub fn write(profile: &Profile, out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    let samples = &profile.samples;
    let meter = Meter::new(samples.len() as u64, progress);
    let texts = Texts::of(profile);
    let alike = texts.alike(profile);
    let weights = profile.shape_weights();
    // A number for each stack, without a search.
    let mut numbers = vec![0.0_f64; profile.stacks.len()];
    let mut seen = vec![false; profile.stacks.len()];
    let mut add = |stack: NodeId, number: f64| {
        let stack = alike[stack.index()].index();
        numbers[stack] += number;
        seen[stack] = true;
    };
    for id in samples.ids() {
        let weight = weights[samples.shape_id(id).0 as usize];
        add(samples.stack(id), weight.bytes);
        meter.step();
    }
    if samples.is_empty() {
        for sample in &profile.cpu {
            add(sample.stack, 1.0);
        }
    }
    let rows = || (0..).map(NodeId).zip(&seen).filter(|(_, seen)| **seen);
    let most = MOST_BYTES / texts.longest().max(1);
    let cut = Depths::of(profile).cut(rows().map(|(stack, _)| stack), most);
    let note = cut.note().unwrap_or_default();
    let mut out = BufWriter::with_capacity(1 << 18, out);
    let mut frames = Vec::new();
    for (stack, _) in rows() {
        let is_cut = cut.innermost(profile, stack, &mut frames);
        if is_cut {
            write!(out, "{note};")?;
        }
        let mut outermost_first = frames.iter().rev();
        match outermost_first.next() {
            Some(&frame) => out.write_all(texts.of_frame(frame).as_bytes())?,
            None => out.write_all(names::NO_FRAME.as_bytes())?,
        }
        for &frame in outermost_first {
            out.write_all(b";")?;
            out.write_all(texts.of_frame(frame).as_bytes())?;
        }
        writeln!(out, " {}", numbers[stack.index()].round())?;
    }
    out.flush()?;
    meter.finish();
    Ok(())
}

/// The texts of frames, each once.
struct Texts {
    /// By frame.
    numbers: Vec<u32>,
    list: Vec<String>,
}

impl Texts {
    fn of(profile: &Profile) -> Self {
        let mut known: HashMap<String, u32, RandomState> = HashMap::default();
        let mut list = Vec::new();
        let numbers = profile.frames.iter().map(|frame| {
            let mut text = clean(&names::frame(profile, frame));
            let mut ends = (0..=LONGEST.min(text.len())).rev();
            text.truncate(ends.find(|&end| text.is_char_boundary(end)).unwrap_or(0));
            *known.entry(text).or_insert_with_key(|text| {
                list.push(text.clone());
                list.len() as u32 - 1
            })
        });
        let numbers = numbers.collect();
        Self { numbers, list }
    }

    fn of_frame(&self, frame: u32) -> &str {
        &self.list[self.numbers[frame as usize] as usize]
    }

    /// The longest one, in bytes.
    fn longest(&self) -> u64 {
        let longest = self.list.iter().map(String::len).max();
        longest.unwrap_or(0) as u64
    }

    /// By stack, the first one with the same text (one has a JIT frame, the other an interpreted one): they are one line.
    fn alike(&self, profile: &Profile) -> Vec<NodeId> {
        let mut alike = vec![NodeId::ROOT; profile.stacks.len()];
        let is_distinct = self.list.len() == self.numbers.len();
        let mut known: HashMap<(NodeId, u32), NodeId, RandomState> = HashMap::default();
        // Callers come before what they call.
        for (at, node) in profile.stacks.iter().enumerate().skip(1) {
            let here = NodeId(at as u32);
            alike[at] = if is_distinct {
                here
            } else {
                let caller = alike[node.parent.index()];
                let text = self.numbers[node.frame as usize];
                *known.entry((caller, text)).or_insert(here)
            };
        }
        alike
    }
}

fn clean(name: &str) -> String {
    let plain = |character: char| match character {
        ';' => ':',
        '\u{2028}' | '\u{2029}' => ' ',
        character if character.is_control() => ' ',
        character => character,
    };
    name.chars().map(plain).collect()
}
