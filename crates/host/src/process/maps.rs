//! Lines of `/proc/self/maps`, which are also the first lines of the mappings in `/proc/self/smaps`.

use std::ops::Range;

/// A mapping, as the kernel writes it (proc_pid_maps(5)): `start-end rwxp offset device inode   path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// Its addresses; never empty.
    pub range: Range<usize>,
    /// `r`, `w` and `x`, or `-` in their places; then `p` (private) or `s` (shared).
    pub rights: [u8; 4],
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// The device of the file, in digits.
    pub device: &'a [u8],
    /// The file's number on the device, in digits; `0` if there is no file.
    pub inode: &'a [u8],
    /// The file's path, which need not be UTF-8, or a name in brackets; often empty.
    pub path: &'a [u8],
}

impl<'a> MapsLine<'a> {
    /// Parses a line without its end. `None` if it is none of these. Does not allocate.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = Some(line);
        let mut word = || {
            let text = rest?;
            let (word, after) = split(text, b' ');
            rest = after;
            Some(word)
        };
        let (start, end) = split(word()?, b'-');
        let address = |digits| usize::try_from(hexadecimal(digits)?).ok();
        let mapping = Self {
            range: address(start)?..address(end?)?,
            rights: word()?.try_into().ok()?,
            offset: hexadecimal(word()?)?,
            device: word()?,
            inode: word()?,
            path: rest.unwrap_or_default().trim_ascii_start(),
        };
        (!mapping.range.is_empty()).then_some(mapping)
    }
}

/// The text before the first such byte, and the one after it, if there is one.
fn split(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    // The words are short: a search of many bytes at once begins too slowly.
    match text.iter().position(|&byte| byte == at) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

/// Lines come by the hundred, so that this is simpler than the standard library's.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if !(1..=16).contains(&digits.len()) {
        return None;
    }
    digits.iter().try_fold(0, |number, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_kernels_fields() {
        let line = b"7f00-8f00 r-xs 00002000 08:01 5      /lib/a b\xff (deleted)";
        let expected = MapsLine {
            range: 0x7f00..0x8f00,
            rights: *b"r-xs",
            offset: 0x2000,
            device: b"08:01",
            inode: b"5",
            path: b"/lib/a b\xff (deleted)",
        };
        assert_eq!(MapsLine::parse(line), Some(expected));
        let unnamed = MapsLine::parse(b"1000-2000 rw-p 00000000 00:00 0");
        assert_eq!(unnamed.map(|mapping| mapping.path), Some(&b""[..]));
        for other in [
            &b""[..],
            b"Rss:   4 kB",
            b"2000-1000 rw-p 0 00:00 0",
            b"1000-2000 rw 0 00:00 0",
            b"1000-2000 rw-p 0 00:00",
        ] {
            assert_eq!(MapsLine::parse(other), None);
        }
    }

    #[test]
    fn every_line_of_this_process_is_one() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let lines = text.split(|&byte| byte == b'\n');
        assert!(
            lines
                .filter(|line| !line.is_empty())
                .all(|line| MapsLine::parse(line).is_some())
        );
    }
}
