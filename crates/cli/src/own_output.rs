//! Whether a file is a page or an export that nthbyte has written, by how it begins.
//!
//! ```text
//! page                  <!doctype html … <title>nthbyte
//! Firefox Profiler      {… "importedFrom":"nthbyte …        or gzip with the comment "nthbyte"
//! pprof                 gzip with the comment "nthbyte"
//! speedscope            {… "exporter":"nthbyte …
//! collapsed stacks      lines that end with a number, some of them after a bracket: f (a.py:1) 512
//! ```

/// So much of a file says what it is, in bytes. The stack of a line may be long.
pub const HEAD: u64 = 64 << 10;

/// The beginning of a file in a format, and what stands in the first bytes after it.
const MARKS: [(&[u8], &[u8]); 3] = [
    (b"<!doctype html", b"<title>nthbyte"),
    (b"{", b"\"importedFrom\":\"nthbyte "),
    (b"{", b"\"exporter\":\"nthbyte "),
];

/// The largest distance of a mark from the file's beginning: a program's name may stand before it.
const MARKED: usize = 8 << 10;

/// A file of gzip with a comment, which is at byte 10.
const GZIP: &[u8] = b"\x1f\x8b\x08\x10";
const COMMENT: &[u8] = b"nthbyte\0";

/// Whether a file that begins with `head` is one that nthbyte has written.
pub fn is_own(head: &[u8]) -> bool {
    let marked = &head[..head.len().min(MARKED)];
    let has = |mark: &[u8]| marked.windows(mark.len()).any(|word| word == mark);
    let is_gzip = || head.starts_with(GZIP) && head.get(10..18) == Some(COMMENT);
    let mut marks = MARKS.iter();
    marks.any(|(start, mark)| head.starts_with(start) && has(mark))
        || is_gzip()
        || is_collapsed(head)
}

/// Whether these are collapsed stacks: the only format in which nothing can say who has written it.
fn is_collapsed(head: &[u8]) -> bool {
    // The last line may be cut.
    let Some(end) = head.iter().rposition(|&byte| byte == b'\n') else {
        return false;
    };
    let mut has_bracket = false;
    for line in head[..end].split(|&byte| byte == b'\n') {
        let digits = line.iter().rev().take_while(|byte| byte.is_ascii_digit());
        let (stack, number) = line.split_at(line.len() - digits.count());
        if number.is_empty() || !stack.ends_with(b" ") {
            return false;
        }
        has_bracket |= stack.ends_with(b") ");
    }
    has_bracket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_a_language_is_not_ours() {
        for (head, own) in [
            (&b"<!doctype html>\n<html><title>nthbyte</title>"[..], true),
            (
                b"<!doctype html>\n<html><title>About nthbyte</title>",
                false,
            ),
            (b"{\"meta\":{\"importedFrom\":\"nthbyte 0.1.0\"", true),
            (b"{\"name\":\"-c\",\"exporter\":\"nthbyte 0.1.0\"", true),
            (b"{\"name\": \"nthbyte\"}", false),
            (b"\x1f\x8b\x08\x10\0\0\0\0\0\xffnthbyte\0}Q", true),
            (b"\x1f\x8b\x08\x08\0\0\0\0\0\xffnthbyte\0}Q", false),
            (b"(no Python frame) 512\n[import];f (a.py:1) 77\ncut", true),
            (
                b"<module> (a.py:1);collection of generation 2 8\nf (a.py:1) 7\n",
                true,
            ),
            (b"import nthbyte\nprint(1)\n", false),
            (b"x = 1\ny = 2\n", false),
            (b"f(1) 2\n\n", false),
            (b"one line", false),
            (b"\n", false),
        ] {
            let text = String::from_utf8_lossy(head);
            assert_eq!(is_own(head), own, "{text}");
        }
    }
}
