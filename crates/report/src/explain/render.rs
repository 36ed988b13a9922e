//! The answers for a terminal: at most a screen.

use super::{Answer, Explanation, of_bytes};
use crate::columns::wrap;
use crate::text::{self, Cut, NARROWEST};

/// Lines of a screen.
pub const LINES: usize = 24;

/// The columns before a command.
const INDENT: &str = "    ";

impl Explanation {
    /// The answers as text of at most [`LINES`] lines of at most `width` columns (but at least 60): details first, then the
    /// least important answers are left out. A command is one line, even if that is longer.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let width = width.max(NARROWEST);
        let mut kept: Vec<usize> = self
            .answers
            .iter()
            .map(|answer| answer.sentences.len())
            .collect();
        loop {
            let text = self.with(&kept, width);
            if text.lines().count() <= LINES || !shorten(&mut kept) {
                return text;
            }
        }
    }

    /// The text with so many sentences of each answer.
    fn with(&self, kept: &[usize], width: usize) -> String {
        let mut text = String::new();
        wrap(&mut text, &self.head(width), width);
        text.push('\n');
        for (answer, &sentences) in self.answers.iter().zip(kept) {
            if sentences > 0 {
                wrap(&mut text, &answer.sentences[..sentences].join(" "), width);
                text.push_str(&answer.command(width));
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
        if self.processes > 1 {
            parts.push(format!("{} processes", self.processes));
        }
        parts.push(text::duration(self.duration_nanos));
        let samples = text::counted(self.samples, "sample");
        if self.samples > 0 || self.bytes_allocated > 0 {
            parts.push(format!("{} allocated", self.allocated()));
            parts.push(if self.exact {
                samples
            } else {
                let periods = self.periods_text.trim_end_matches(" on average");
                format!("{samples}, one every {periods}")
            });
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
    /// The command on a line of its own. Where it would not fit, the profiles are not named.
    fn command(&self, width: usize) -> String {
        let words: Vec<String> = self.more.iter().map(|word| text::quoted(word)).collect();
        let line = format!("{INDENT}{}\n", words.join(" "));
        if text::width(&line) <= width {
            return line;
        }
        let mut short: Vec<&str> = Vec::new();
        for (number, word) in self.more.iter().enumerate() {
            if !self.profiles.contains(&number) || word.starts_with("--") {
                short.push(word);
            } else if number == self.profiles.start {
                short.push("PROFILE…");
            }
        }
        let line = format!("{INDENT}{}", short.join(" "));
        format!("{}\n", text::fit(&line, width, Cut::End))
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
