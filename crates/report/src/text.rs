//! Figures and names for a terminal.
//!
//! Names come from the profiled program and may contain any character. They must not move the
//! cursor, change colours, change the direction of the text or break a table.

use nthbyte_profile::shown;
pub use nthbyte_profile::shown::grouped;
use unicode_width::UnicodeWidthChar;

/// The least width of a table. A narrower one would cut digits, and show wrong figures.
pub(crate) const NARROWEST: usize = 60;

/// The space between two columns of a table.
pub(crate) const GAP: usize = 2;

/// Replaces the part that was cut off; one column wide.
const ELLIPSIS: char = '…';

/// The end of a text at which [`fit`] cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The end is cut off.
    End,
    /// The start is cut off. The end of a path is its most useful part.
    Start,
    /// The middle is cut out.
    Middle,
}

/// Bytes in binary units with three digits: `812 B`, `1.23 KiB`, `45.6 GiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    let (scaled, unit) = scale(value);
    format!("{} {unit}", digits(scaled, unit == "B"))
}

/// A power of two as options take it: `64KiB`.
#[must_use]
pub fn whole_size(bytes: u64) -> String {
    let (value, unit) = scale(bytes as f64);
    let unit = if unit == "B" { "" } else { unit };
    format!("{value:.0}{unit}")
}

/// From `low` to `high`, in the unit of `estimate`: `1.20–1.26`.
#[must_use]
pub fn range(low: f64, estimate: f64, high: f64) -> String {
    let (_, unit) = scale(estimate);
    let power = UNITS.iter().position(|&known| known == unit).unwrap_or(0);
    let divisor = 1024_f64.powi(power as i32);
    let whole = unit == "B";
    format!(
        "{}–{}",
        digits(low / divisor, whole),
        digits(high / divisor, whole)
    )
}

/// From `low` to `high`, for an interval so wide that more digits say nothing: `0.9–5.4 MiB`, `0–422 KiB`.
#[must_use]
pub fn wide_range(low: f64, high: f64) -> String {
    let (shown, unit) = scale(high);
    let end = |value: f64| match value {
        value if unit == "B" || value >= 9.95 => format!("{value:.0}"),
        value if value < 0.05 => "0".to_owned(),
        value => format!("{value:.1}"),
    };
    let low = if high > 0.0 { low * shown / high } else { low };
    format!("{}–{} {unit}", end(low), end(shown))
}

/// Bytes with a sign: `+1.23 KiB`, `−45.6 MiB`, `0 B`.
#[must_use]
pub fn signed_bytes(value: f64) -> String {
    format!("{}{}", sign(value), bytes(value.abs()))
}

/// From `low` to `high`, with signs, in the unit that the larger of them has: `−0.20 … +1.26 MiB`.
#[must_use]
pub fn signed_range(low: f64, high: f64) -> String {
    let (_, unit) = scale(low.abs().max(high.abs()));
    let power = UNITS.iter().position(|&known| known == unit).unwrap_or(0);
    let divisor = 1024_f64.powi(power as i32);
    let end = |value: f64| {
        format!(
            "{}{}",
            sign(value),
            digits(value.abs() / divisor, unit == "B")
        )
    };
    format!("{} … {} {unit}", end(low), end(high))
}

/// The sign that is written before an amount.
#[must_use]
pub fn sign(value: f64) -> &'static str {
    match value {
        value if value > 0.0 => "+",
        value if value < 0.0 => "−",
        _ => "",
    }
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

fn scale(mut value: f64) -> (f64, &'static str) {
    let mut unit = 0;
    // From 999.5 on, rounding would give four digits.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    (value, UNITS[unit])
}

/// Three digits; without decimals if the number is an integer. Larger numbers than the largest unit has room for have an
/// exponent.
fn digits(value: f64, whole: bool) -> String {
    if value >= 99_999.5 {
        format!("{value:.2e}")
    } else if whole || value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A count with three digits and a letter for thousands: `812`, `1.23k`, `45.6M`.
#[must_use]
pub fn count(value: f64) -> String {
    const LETTERS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut value, mut letter) = (value, 0);
    while value >= 999.5 && letter + 1 < LETTERS.len() {
        value /= 1000.0;
        letter += 1;
    }
    format!("{}{}", digits(value, letter == 0), LETTERS[letter])
}

/// A number of things: `1 collection`, `1,234 collections`.
#[must_use]
pub fn counted(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(number))
}

/// How many things were lost: `1 sample was lost`, `3 samples were lost`.
#[must_use]
pub fn lost(number: u64, noun: &str) -> String {
    let were = if number == 1 { "was" } else { "were" };
    format!("{} {were} lost", counted(number, noun))
}

/// A part of a whole: `71 %`, `0.3 %`, `<0.1 %`. Only the whole is `100 %`; nearly all is `>99 %`.
#[must_use]
pub fn percent(part: f64) -> String {
    let percent = part * 100.0;
    // The whole may be a sum in another order, with another rounding error.
    if (99.5..100.0 - 1e-6).contains(&percent) {
        ">99 %".to_owned()
    } else if percent >= 9.95 || percent == 0.0 {
        format!("{} %", digits(percent, true))
    } else if percent < 0.05 {
        "<0.1 %".to_owned()
    } else {
        format!("{percent:.1} %")
    }
}

/// A length of time: `12.3 s`, `4 min 5 s`, `830 µs`.
#[must_use]
pub fn duration(nanos: u64) -> String {
    let seconds = nanos as f64 / 1e9;
    if nanos == 0 {
        "0 s".to_owned()
    } else if seconds >= 3600.0 {
        let minutes = nanos / 60_000_000_000;
        format!("{} h {} min", minutes / 60, minutes % 60)
    } else if seconds >= 60.0 {
        let seconds = nanos / 1_000_000_000;
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else if seconds >= 1.0 {
        format!("{} s", digits(seconds, false))
    } else if seconds >= 1e-3 {
        format!("{} ms", digits(seconds * 1e3, false))
    } else {
        format!("{} µs", digits(seconds * 1e6, false))
    }
}

/// Escapes every character that controls the terminal or that it does not show: control characters,
/// line ends, marks of direction, invisible characters.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmless(character) {
            clean.push(character);
        } else {
            clean.extend(character.escape_default());
        }
    }
    clean
}

/// Whether a terminal shows the character, and does not obey it.
#[must_use]
pub fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{180b}'..='\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The width of a clean text in columns.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// The width of one character in columns, as most terminals count. A sequence that a font joins may
/// be narrower.
fn columns_of(character: char) -> usize {
    match character {
        // Turns the character before it into an emoji, which is two columns wide.
        '\u{fe0f}' => 1,
        _ => character.width().unwrap_or(0),
    }
}

/// The text cleaned and cut to at most `columns`, with an ellipsis in the place of the missing part.
#[must_use]
pub fn fit(text: &str, columns: usize, cut: Cut) -> String {
    // A name of megabytes must not cost more than its visible part. Combining marks have no width,
    // but real names have only a few of them on each character.
    let most = columns.saturating_mul(8) + 64;
    if cut == Cut::Middle {
        // Nothing is to be cut out, or there is no room for two ends.
        if columns < 3 || (text.len() <= most && width(&clean(text)) <= columns) {
            return fit(text, columns, Cut::End);
        }
        let end = fit(text, columns / 2 + 1, Cut::Start);
        let start = fit(text, columns - (width(&end) - 1), Cut::End);
        // Each has an ellipsis, and one of them is enough.
        return start + end.strip_prefix(ELLIPSIS).unwrap_or(&end);
    }
    let part: String = match cut {
        Cut::End => text.chars().take(most).collect(),
        Cut::Start => {
            let skipped = text.chars().count().saturating_sub(most);
            text.chars().skip(skipped).collect()
        }
        Cut::Middle => unreachable!("it is made of the other two"),
    };
    let cleaned = clean(&part);
    if part.len() == text.len() && width(&cleaned) <= columns {
        return cleaned;
    }
    if columns == 0 {
        return String::new();
    }
    let mut left = columns - 1;
    let fits = |character: &char| {
        let width = columns_of(*character);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    match cut {
        Cut::End => {
            let mut kept: String = cleaned.chars().take_while(fits).collect();
            kept.push(ELLIPSIS);
            kept
        }
        Cut::Start => {
            let mut kept: Vec<char> = cleaned.chars().rev().take_while(fits).collect();
            kept.push(ELLIPSIS);
            kept.iter().rev().collect()
        }
        Cut::Middle => unreachable!("it is made of the other two"),
    }
}

/// The text cut or padded to exactly `columns`.
#[must_use]
pub fn pad(text: &str, columns: usize, cut: Cut) -> String {
    let mut text = fit(text, columns, cut);
    let missing = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// A word as a shell takes it.
#[must_use]
pub fn quoted(word: &str) -> String {
    shown::quoted(&clean(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures() {
        for (value, text) in [
            (0.0, "0 B"),
            (812.0, "812 B"),
            (1023.0, "1.00 KiB"),
            (1536.0, "1.50 KiB"),
            (524_288.0, "512 KiB"),
            (1_048_575.0, "1.00 MiB"),
            (45.6 * 1073741824.0, "45.6 GiB"),
            (9_223_372_036_854_775_808.0, "8.00 EiB"),
            (1e30, "8.67e11 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(range(1500.0, 1536.0, 2048.0), "1.46–2.00");
        assert_eq!(wide_range(943_718.4, 5_662_310.4), "0.9–5.4 MiB");
        assert_eq!(wide_range(56.0, 432_128.0), "0.1–422 KiB");
        assert_eq!(wide_range(0.0, 432_128.0), "0–422 KiB");
        assert_eq!(wide_range(1.0, 90.0), "1–90 B");
        assert_eq!(signed_bytes(-1536.0), "−1.50 KiB");
        assert_eq!(signed_range(-1536.0, 2_097_152.0), "−0.00 … +2.00 MiB");
        assert_eq!(count(999.6), "1.00k");
        assert_eq!(count(1e18), "1.00e6T");
        assert_eq!(percent(178.965), "17896 %");
        assert_eq!(percent(1e12), "1.00e14 %");
        assert_eq!(whole_size(65_536), "64KiB");
        assert_eq!(whole_size(512), "512");
        assert_eq!(percent(0.0034), "0.3 %");
        assert_eq!(percent(0.0004), "<0.1 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.999), ">99 %");
        assert_eq!(percent(1.0 - 1e-12), "100 %");
        assert_eq!(duration(62_500_000_000), "1 min 2 s");
    }

    /// The page writes the same: its test reads the same table.
    #[test]
    fn figures_are_those_of_the_page() {
        let table = include_str!("../../../tests/numbers.json");
        let table: Vec<serde_json::Value> = serde_json::from_str(table).expect("JSON");
        assert!(table.len() > 50);
        for entry in &table {
            let value = entry["value"].as_f64().expect("a number");
            let text = match entry["kind"].as_str() {
                Some("bytes") => bytes(value),
                Some("share") => percent(value),
                Some("count") => count(value),
                Some("time") => duration((value * 1e9).round() as u64),
                Some("rate") => format!("{} a minute", bytes(value)),
                kind => panic!("{kind:?}"),
            };
            assert_eq!(entry["text"], text, "{entry}");
        }
    }

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        assert_eq!(
            clean("a\u{1b}[31m\nb\u{202e}c"),
            "a\\u{1b}[31m\\nb\\u{202e}c"
        );
        assert_eq!(clean("naïve 日本"), "naïve 日本");
    }

    #[test]
    fn cutting() {
        assert_eq!(fit("abcdef", 6, Cut::End), "abcdef");
        assert_eq!(fit("abcdef", 4, Cut::End), "abc…");
        assert_eq!(fit("abcdef", 4, Cut::Start), "…def");
        assert_eq!(fit("abcdefgh", 5, Cut::Middle), "ab…gh");
        assert_eq!(fit("abcdefgh", 8, Cut::Middle), "abcdefgh");
        assert_eq!(fit("abcdefgh", 2, Cut::Middle), "a…");
        assert_eq!(fit("日本語", 4, Cut::End), "日…");
        assert_eq!(pad("日本語", 4, Cut::End), "日… ");
    }

    proptest! {
        #[test]
        fn nothing_breaks_a_line(text in "\\PC{0,40}|[\\x00-\\u{2fff}]{0,40}", columns in 0_usize..30, cut in 0_usize..3) {
            let shown = pad(&text, columns, [Cut::Start, Cut::Middle, Cut::End][cut]);
            prop_assert_eq!(width(&shown), columns);
            prop_assert!(shown.chars().all(is_harmless));
        }
    }
}
