//! The code in this process, from `/proc/self/maps`.
//!
//! The dynamic linker's own list would need its lock, which the thread that takes a sample may hold already, and which
//! another thread may hold at a fork.

use std::ops::Range;

use nthbyte_host::process::MapsLine;

/// The kernel's code in each process: `clock_gettime`, for example.
pub(crate) const VDSO: &str = "[vdso]";

/// Code that is mapped from a file, or the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeMapping {
    pub(crate) range: Range<usize>,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// The device and the file's number, as the kernel writes them.
    pub(crate) file: String,
    pub(crate) path: String,
}

/// The process's code, in the order of addresses. Empty if there is no `/proc`.
pub(crate) fn read() -> Vec<CodeMapping> {
    std::fs::read("/proc/self/maps").map_or(Vec::new(), |text| parse(&text))
}

fn parse(text: &[u8]) -> Vec<CodeMapping> {
    let mut all: Vec<CodeMapping> = Vec::new();
    // Where the code ends that follows the last mapping.
    let mut copied_until = 0;
    for line in text.split(|&byte| byte == b'\n') {
        let Some(mapping) = line_of_code(line) else {
            let end = all
                .last()
                .map_or(0, |last| last.range.end.max(copied_until));
            if let Some(copied) = copied_code(line).filter(|copied| copied.start == end) {
                copied_until = copied.end;
            }
            continue;
        };
        // A different setting of some pages, such as a huge page, divides a mapping in two. So does a page of code that was
        // copied, and changed for a hook.
        match all.last_mut() {
            Some(last) if continues(last, &mapping, copied_until) => {
                last.range.end = mapping.range.end;
            }
            _ => all.push(mapping),
        }
    }
    all
}

fn continues(last: &CodeMapping, next: &CodeMapping, copied_until: usize) -> bool {
    (last.range.end == next.range.start || copied_until == next.range.start)
        && last.file == next.file
        && last.offset + (next.range.start - last.range.start) as u64 == next.offset
}

/// The addresses of a line of code that is in no file and cannot be written to.
fn copied_code(line: &[u8]) -> Option<Range<usize>> {
    let line = MapsLine::parse(line)?;
    (line.path.is_empty() && line.rights[..3] == *b"r-x").then_some(line.range)
}

/// Parses a line. `None` if it is not of code in a file or of the kernel's.
fn line_of_code(line: &[u8]) -> Option<CodeMapping> {
    let line = MapsLine::parse(line)?;
    let has_name = line.path.starts_with(b"/") || line.path == VDSO.as_bytes();
    if line.rights[2] != b'x' || !has_name {
        return None;
    }
    let text = |bytes| std::str::from_utf8(bytes).ok();
    Some(CodeMapping {
        range: line.range,
        offset: line.offset,
        file: format!("{} {}", text(line.device)?, text(line.inode)?),
        path: text(line.path)?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_and_joined() {
        let text = b"0800-0900 r-xp 00000000 00:00 0\n\
              1000-3000 r--p 00000000 08:01 5   /lib/a b\n\
              3000-4000 r-xp 00002000 08:01 5      /lib/a b\n\
              4000-6000 r-xp 00003000 08:01 5      /lib/a b\n\
              6000-7000 r-xp 00003000 08:01 6      /lib/c (deleted)\n\
              7000-7800 r-xp 00000000 00:00 0\n\
              7800-7900 r-xp 00000000 00:00 0\n\
              7900-7a00 r-xp 00004900 08:01 6      /lib/c (deleted)\n\
              7a00-7b00 rwxp 00000000 00:00 0\n\
              7b00-7c00 r-xp 00004b00 08:01 6      /lib/c (deleted)\n\
              8000-9000 rwxp 00000000 00:00 0\n\
              a000-b000 r-xp 00000000 00:00 0      [vdso]\n\
              c000-d000 --xp 00000000 00:00 0      [vsyscall]\n\
              nonsense\n\xff\n";
        let found = parse(text);
        let expected = |range, offset, file: &str, path: &str| CodeMapping {
            range,
            offset,
            file: file.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(
            found,
            [
                expected(0x3000..0x6000, 0x2000, "08:01 5", "/lib/a b"),
                expected(0x6000..0x7a00, 0x3000, "08:01 6", "/lib/c (deleted)"),
                expected(0x7b00..0x7c00, 0x4b00, "08:01 6", "/lib/c (deleted)"),
                expected(0xa000..0xb000, 0, "00:00 0", "[vdso]"),
            ]
        );
        let here = code_of_files_is_found_and_joined as *const () as usize;
        assert!(read().iter().any(|mapping| mapping.range.contains(&here)));
    }
}
