//! Parses the records of `_vmprof`'s file and buffers: the names of code objects.

use nthbyte_host::process::Probe;

use super::record::{
    BUFFER, BUFFERS, LONGEST_RECORD, MARKER_HEADER, MARKER_META, MARKER_STACKTRACE,
    MARKER_TIME_N_ZONE, MARKER_TRAILER, MARKER_VIRTUAL_IP, TRAILER, word,
};

/// The name of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeName<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Path of the file.
    pub file: &'a str,
    /// Line of the definition, from 1.
    pub line: u32,
}

impl<'a> CodeName<'a> {
    /// Parses `py:function:line:file`. PyPy has replaced colons in the parts.
    pub fn parse(text: &'a str) -> Self {
        let mut parts = text.splitn(4, ':').skip(1);
        let mut next = || parts.next().unwrap_or_default();
        Self {
            name: next(),
            line: next().parse().unwrap_or(0),
            file: next(),
        }
    }
}

/// The result of parsing the first record of a piece of the file.
pub enum Parsed<'a> {
    /// A name: the record's length in bytes, the unique id and the text for [`CodeName::parse`].
    Name(usize, u64, &'a [u8]),
    /// Another record, of this length in bytes.
    Other(usize),
    /// The piece ends before the record does.
    More,
    /// Not a record.
    Broken,
}

/// Parses the first record in a piece of the file.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let word_at = |at: usize| bytes.get(at..at + 8).map(word);
    let sized = |at: usize| word_at(at).and_then(|length| usize::try_from(length).ok());
    let whole = |length: usize| {
        if length <= bytes.len() {
            Parsed::Other(length)
        } else {
            Parsed::More
        }
    };
    let Some(&marker) = bytes.first() else {
        return Parsed::More;
    };
    match marker {
        // The header: five words, marker, version (16 bits), mode, length of the name, name.
        0 => match bytes.get(40..45) {
            Some(head) if head[0] == MARKER_HEADER => whole(45 + usize::from(head[4])),
            Some(_) => Parsed::Broken,
            None => Parsed::More,
        },
        MARKER_VIRTUAL_IP => match (word_at(1), sized(9)) {
            (Some(unique_id), Some(length)) if length <= 1024 => match bytes.get(17..17 + length) {
                Some(text) => Parsed::Name(17 + length, unique_id, text),
                None => Parsed::More,
            },
            (Some(_), Some(_)) => Parsed::Broken,
            _ => Parsed::More,
        },
        MARKER_STACKTRACE => match sized(9) {
            Some(depth) if depth <= LONGEST_RECORD / 8 => whole(17 + 8 * depth + 8),
            Some(_) => Parsed::Broken,
            None => Parsed::More,
        },
        // A `struct timeval` and eight bytes of a time zone.
        MARKER_TIME_N_ZONE | MARKER_TRAILER => whole(TRAILER),
        MARKER_META => match sized(1) {
            Some(key) if key < 1024 => match sized(9 + key) {
                Some(value) if value < 65536 => whole(17 + key + value),
                Some(_) => Parsed::Broken,
                None => Parsed::More,
            },
            Some(_) => Parsed::Broken,
            None => Parsed::More,
        },
        _ => Parsed::Broken,
    }
}

/// Calls `visit` with each name that is not in the file yet: its unique id and its text. A code object's name is in a
/// buffer before its code runs. So the record of running code is complete, even while other records are appended
/// after it.
pub fn names_in_buffers(start: usize, mut visit: impl FnMut(u64, &[u8])) {
    if start == 0 {
        return;
    }
    let memory = Probe::new();
    let mut copy = vec![0u8; LONGEST_RECORD];
    for index in 0..BUFFERS {
        // A buffer begins with the number of bytes in it.
        let buffer = start + index * BUFFER;
        let size = match memory {
            // The program may switch `_vmprof` off meanwhile, in another thread: then the buffers are gone.
            Some(memory) => memory.read::<u32>(buffer).unwrap_or(0),
            // SAFETY: `_vmprof` keeps its twenty buffers mapped until it is disabled, and the address is forgotten before
            // that.
            None => unsafe { (buffer as *const u32).read_volatile() },
        };
        let data = &mut copy[..(size as usize).min(LONGEST_RECORD)];
        let copied = match memory {
            Some(memory) => memory.bytes(buffer + 8, data),
            None => {
                let from = (buffer + 8) as *const u8;
                // SAFETY: as above; a buffer has room for as many bytes.
                unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len()) };
                data.len()
            }
        };
        let mut data = &data[..copied];
        while let Parsed::Name(length, id, text) = parse(data) {
            visit(id, text);
            data = &data[length..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_record(unique_id: u64, text: &str) -> Vec<u8> {
        let mut record = vec![MARKER_VIRTUAL_IP];
        record.extend(unique_id.to_ne_bytes());
        record.extend((text.len() as u64).to_ne_bytes());
        record.extend(text.as_bytes());
        record
    }

    #[test]
    fn names_are_read_when_they_are_whole() {
        let record = name_record(44, "py:function:12:/a/file.py");
        let Parsed::Name(length, unique_id, text) = parse(&record) else {
            panic!("a name")
        };
        let name = CodeName::parse(std::str::from_utf8(text).expect("as it was made"));
        assert_eq!((length, unique_id), (record.len(), 44));
        assert_eq!(
            (name.name, name.line, name.file),
            ("function", 12, "/a/file.py")
        );
        for cut in 0..record.len() {
            assert!(
                matches!(parse(&record[..cut]), Parsed::More),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn any_bytes_are_parsed() {
        let mut state = 1u64;
        for length in 0..4000usize {
            let bytes: Vec<u8> = (0..length % 70)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (state >> 60) as u8
                })
                .collect();
            if let Parsed::Name(used, ..) | Parsed::Other(used) = parse(&bytes) {
                assert!(used > 0 && used <= bytes.len());
            }
        }
    }
}
