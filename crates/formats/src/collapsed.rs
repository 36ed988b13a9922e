//! Collapsed stacks, the format that `flamegraph.pl`, inferno and many others read.
//!
//! A line for each distinct stack: frames, outermost first, separated by `;`, then a space and the
//! estimated bytes allocated there, a whole number. A frame is `function (file:line)`. In a profile
//! without allocation samples (one of VMProf's, say) the number is that of time samples.
//!
//! The format has no escapes, so some characters in names are replaced: `;` by `:`, and line
//! ends, tabs and other control characters by a space each. Samples without a stack are under
//! `(no Python frame)`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;

use crate::meter::Meter;
use crate::{Progress, names};

/// Writes the samples as collapsed stacks. One step of `progress` is one sample.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write, progress: Progress<'_>) -> io::Result<()> {
    let samples = &profile.samples;
    let meter = Meter::new(samples.len() as u64, progress);
    let weights = profile.shape_weights();
    let mut numbers: BTreeMap<NodeId, f64> = BTreeMap::new();
    for id in samples.ids() {
        *numbers.entry(samples.stack(id)).or_default() +=
            weights[samples.shape_id(id).0 as usize].bytes;
        meter.step();
    }
    if samples.is_empty() {
        for sample in &profile.cpu {
            *numbers.entry(sample.stack).or_default() += 1.0;
        }
    }
    let frames: Vec<String> = profile
        .frames
        .iter()
        .map(|frame| clean(&names::frame(profile, frame)))
        .collect();
    // Stacks with the same text (one has a JIT frame, the other an interpreted one) are one line.
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for (stack, number) in numbers {
        *lines.entry(line(profile, &frames, stack)).or_default() += number;
    }
    for (line, number) in lines {
        writeln!(out, "{line} {}", number.round())?;
    }
    out.flush()?;
    meter.finish();
    Ok(())
}

fn line(profile: &Profile, frames: &[String], stack: NodeId) -> String {
    let mut parts = Vec::new();
    let mut at = stack;
    while at != NodeId::ROOT {
        let node = profile.stacks[at.index()];
        parts.push(frames[node.frame as usize].as_str());
        at = node.parent;
    }
    if parts.is_empty() {
        return names::NO_FRAME.to_owned();
    }
    parts.reverse();
    parts.join(";")
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
