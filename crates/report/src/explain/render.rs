//! The answers for a terminal: at most a screen.

use super::{Answer, Explanation, of_bytes};
use crate::columns::wrap;
use crate::text::{self, Cut, NARROWEST};

/// Lines of a screen.
pub const LINES: usize = 24;

/// The columns of the headings, and of the space beside them.
const GUTTER: usize = 11;

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Text alone.
    Plain,
    /// With the escape sequences of a terminal: headings are bold, commands are dim.
    Coloured,
}

impl Style {
    fn heading(self, text: &str) -> String {
        self.with(anstyle::Style::new().bold(), text)
    }

    fn command(self, text: &str) -> String {
        self.with(anstyle::Style::new().dimmed(), text)
    }

    fn with(self, style: anstyle::Style, text: &str) -> String {
        match self {
            Self::Coloured if !text.is_empty() => format!("{style}{text}{style:#}"),
            _ => text.to_owned(),
        }
    }
}

impl Explanation {
    /// The answers as text of at most [`LINES`] lines of at most `width` columns (but at least 60): details are left out
    /// first, then the least important answers.
    #[must_use]
    pub fn render(&self, width: usize, style: Style) -> String {
        let width = width.max(NARROWEST);
        let mut kept: Vec<usize> = self
            .answers
            .iter()
            .map(|answer| answer.sentences.len())
            .collect();
        let fits = |kept: &[usize]| self.with(kept, width, Style::Plain).lines().count() <= LINES;
        while !fits(&kept) && shorten(&mut kept) {}
        // A sentence that was left out may have taken more lines than were missing.
        for (at, answer) in self.answers.iter().enumerate() {
            while (1..answer.sentences.len()).contains(&kept[at]) {
                kept[at] += 1;
                if !fits(&kept) {
                    kept[at] -= 1;
                    break;
                }
            }
        }
        self.with(&kept, width, style)
    }

    /// The text with so many sentences of each answer.
    fn with(&self, kept: &[usize], width: usize, style: Style) -> String {
        let mut text = String::new();
        wrap(&mut text, &self.head(width), width);
        text.push('\n');
        let beside = width - GUTTER;
        for (answer, &sentences) in self.answers.iter().zip(kept) {
            if sentences > 0 {
                let mut said = String::new();
                wrap(&mut said, &answer.sentences[..sentences].join(" "), beside);
                let mut heading = answer.topic.heading();
                for line in said.lines() {
                    let gap = GUTTER - heading.len();
                    text.push_str(&style.heading(heading));
                    text.extend(std::iter::repeat_n(' ', gap));
                    // The gutter is the indent.
                    text.push_str(line.trim_start());
                    text.push('\n');
                    heading = "";
                }
                if let Some(command) = answer.command(beside) {
                    text.push_str(&format!("{:GUTTER$}{}\n", "", style.command(&command)));
                }
            }
        }
        let mut last = Vec::new();
        if self.exact {
            last.push("Every allocation was recorded: the figures are exact.".to_owned());
        } else if text.contains('–') {
            // An interval is shown, such as (80.9–110).
            last.push("In brackets: 95 % intervals.".to_owned());
        }
        let left_out = kept.iter().filter(|&&sentences| sentences == 0).count();
        match left_out {
            0 => {}
            1 => last.push("1 more answer: --json.".to_owned()),
            number => last.push(format!("{number} more answers: --json.")),
        }
        if !last.is_empty() {
            wrap(&mut text, &last.join(" "), width);
        }
        text
    }

    fn head(&self, width: usize) -> String {
        let command = text::fit(&self.command.join(" "), width - 20, Cut::End);
        let mut parts = vec![command, text::fit(&self.interpreter, 40, Cut::End)];
        parts.push(text::fit(&self.tags.join(" "), width - 20, Cut::End));
        if self.processes > 1 {
            parts.push(format!("{} processes", self.processes));
        }
        parts.push(text::duration(self.duration_nanos));
        if self.samples > 0 || self.bytes_allocated > 0 {
            parts.push(format!("{} allocated", self.allocated()));
        }
        parts.retain(|part| !part.is_empty());
        parts.join(" · ")
    }

    /// What `summary` says of the same: the estimate. Without a sample, the agent's count.
    fn allocated(&self) -> String {
        if self.samples == 0 {
            text::bytes(self.bytes_allocated as f64)
        } else {
            of_bytes(&self.bytes)
        }
    }
}

impl Answer {
    /// The command that shows more. Where it would not fit, the profiles are not named.
    fn command(&self, width: usize) -> Option<String> {
        if self.more.is_empty() {
            return None;
        }
        let words: Vec<String> = self.more.iter().map(|word| text::quoted(word)).collect();
        let line = words.join(" ");
        if text::width(&line) <= width {
            return Some(line);
        }
        let mut short: Vec<&str> = Vec::new();
        for (number, word) in self.more.iter().enumerate() {
            if !self.profiles.contains(&number) || word.starts_with("--") {
                short.push(word);
            } else if number == self.profiles.start {
                short.push("PROFILE…");
            }
        }
        Some(text::fit(&short.join(" "), width, Cut::End))
    }
}

/// Leaves out the last sentence of the least important answer that has several; or else that answer. Returns whether
/// there is anything left to leave out.
fn shorten(kept: &mut [usize]) -> bool {
    let several = kept.iter_mut().rev().find(|sentences| **sentences > 1);
    if let Some(sentences) = several {
        *sentences -= 1;
        return true;
    }
    // The first answer stays.
    let last = kept
        .iter_mut()
        .skip(1)
        .rev()
        .find(|sentences| **sentences > 0);
    match last {
        Some(sentences) => {
            *sentences = 0;
            true
        }
        None => false,
    }
}
