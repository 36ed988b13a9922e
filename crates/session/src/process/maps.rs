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
        let number = |digits| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let mut words = line.splitn(6, |&byte| byte == b' ');
        let mut ends = words.next()?.splitn(2, |&byte| byte == b'-');
        let mut address = || usize::try_from(number(ends.next()?)?).ok();
        let range = address()?..address()?;
        let mapping = Self {
            range,
            rights: words.next()?.try_into().ok()?,
            offset: number(words.next()?)?,
            device: words.next()?,
            inode: words.next()?,
            path: words.next().unwrap_or_default().trim_ascii_start(),
        };
        (!mapping.range.is_empty()).then_some(mapping)
    }
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
