//! Sizes as texts, in binary units, as on the command line.

/// The bytes of a text such as `512KiB`, `512K` or `524288`. `None` if it is none.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_uppercase();
    let letter = unit.chars().next();
    let power = letter.map_or(Some(0), |letter| "BKMGT".find(letter))?;
    let rest = unit.get(1..).unwrap_or_default();
    if !(rest.is_empty() || power > 0 && matches!(rest, "B" | "IB")) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(1 << (10 * power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [
            ("1", 1),
            ("524288", 524_288),
            ("64B", 64),
            ("512KiB", 524_288),
            ("512 kb", 524_288),
            ("4m", 4 << 20),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5K", "1 KiBs", "1BB", "1é", "99999999999T"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
