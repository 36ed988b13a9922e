//! How numbers and words are written for users: agents at the end of a session, reports, and the command.

/// A whole number with its digits in groups of three: `1,118`.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A word as a shell takes it.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "-_./=:+,@%".contains(sign);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        for (value, text) in [
            (0, "0"),
            (12, "12"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn a_shell_reads_a_quoted_word_as_the_word() {
        for (word, text) in [
            ("a-b_1.2=3:4,5@6%/a+.nthb", "a-b_1.2=3:4,5@6%/a+.nthb"),
            ("äöü.nthb", "äöü.nthb"),
            ("", "''"),
            ("it's my.nthb", "'it'\\''s my.nthb'"),
            ("$(a).nthb", "'$(a).nthb'"),
            ("~a\"\n.nthb", "'~a\"\n.nthb'"),
            ("a\u{a0}b", "'a\u{a0}b'"),
        ] {
            assert_eq!(quoted(word), text);
            let script = format!("printf %s {text}");
            let read = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(read.stdout, word.as_bytes());
        }
    }
}
