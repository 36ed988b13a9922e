//! Reports as JSON, which may go to a terminal: what a terminal would obey, or not show, is escaped in it.
//!
//! `serde_json` escapes control characters below U+0020 only. U+009B begins a command of a terminal, too, and U+202E turns
//! the rest of a line around.

use std::io::{self, Write};

use anyhow::Result;
use nthbyte_report::text::is_harmless;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Writes a value and a line end.
///
/// # Errors
/// If `out` fails.
pub fn write(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    let formatter = Escaping(PrettyFormatter::new());
    value.serialize(&mut Serializer::with_formatter(&mut *out, formatter))?;
    Ok(writeln!(out)?)
}

struct Escaping(PrettyFormatter<'static>);

/// Methods that do the same as the inner formatter's.
macro_rules! as_pretty {
    ($($name:ident($($argument:ident: $kind:ty)?)),* $(,)?) => {
        $(fn $name<W: Write + ?Sized>(&mut self, out: &mut W $(, $argument: $kind)?) -> io::Result<()> {
            self.0.$name(out $(, $argument)?)
        })*
    };
}

impl Formatter for Escaping {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|sign| !is_harmless(sign)) {
            let (clean, harmful) = rest.split_at(at);
            out.write_all(clean.as_bytes())?;
            let mut signs = harmful.chars();
            let sign = signs.next().unwrap_or_default();
            for unit in sign.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = signs.as_str();
        }
        out.write_all(rest.as_bytes())
    }

    as_pretty!(
        begin_array(),
        end_array(),
        begin_array_value(first: bool),
        end_array_value(),
        begin_object(),
        end_object(),
        begin_object_key(first: bool),
        begin_object_value(),
        end_object_value(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let value = [
            "a\u{1b}[2J\u{9b}2J\u{7f}\n\u{202e}\u{e0041}\0é\"\\",
            "plain",
        ];
        let mut out = Vec::new();
        write(&mut out, &value).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.chars().all(|sign| is_harmless(sign) || sign == '\n'),
            "{text}"
        );
        assert!(
            text.contains(r"\u009b2J\u007f\n\u202e\udb40\udc41\u0000é"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), value);
        // All else is as usual.
        let plain = serde_json::json!({"a": [1, [], {}, {"b": null}], "c": "d"});
        let mut out = Vec::new();
        write(&mut out, &plain).unwrap();
        let expected = serde_json::to_string_pretty(&plain).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected + "\n");
    }
}
