//! The data that `_vmprof` writes: records of stacks, and the names of code objects
//! (`rvmprof/src/shared/vmprof_unix.c`, `vmprof_stack.h`).
//!
//! ```text
//! stack:   0x01, count: i64, depth: i64, depth × word     (innermost frame first; two words a frame)
//! frame:   1 (interpreted) | 3 (compiled) | 6 (machine code of the frames that follow), value
//! name:    0x02, unique id: i64, length: i64, "py:function:line:file"
//! ```

/// `struct profbuf_s`: two 32-bit numbers and the data.
pub const BUFFER: usize = 8192;
/// Number of buffers.
pub const BUFFERS: usize = 20;
/// The longest record, in bytes.
pub const LONGEST_RECORD: usize = BUFFER - 8;
/// The shortest record of a stack: one without frames.
pub const SHORTEST_RECORD: usize = 17;
/// Length in bytes of the record that ends a profile: a marker, a time and eight bytes of a time
/// zone.
pub const TRAILER: usize = 25;

/// Begins the record of a stack.
pub const MARKER_STACKTRACE: u8 = 1;
/// Begins the record of a name.
pub const MARKER_VIRTUAL_IP: u8 = 2;
/// Begins the record that ends a profile.
pub const MARKER_TRAILER: u8 = 3;
/// Part of the record that begins a profile.
pub const MARKER_HEADER: u8 = 5;
/// Begins a record of the time.
pub const MARKER_TIME_N_ZONE: u8 = 6;
/// Begins a record of a key and a value.
pub const MARKER_META: u8 = 7;

/// The kind of an interpreted frame, in a record and in PyPy's list of frames.
pub const CODE_TAG: usize = 1;
/// The kind of a frame in code compiled by the just-in-time compiler.
pub const JITTED_TAG: usize = 3;

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Whether the just-in-time compiler has compiled the frame's code.
    pub compiled: bool,
    /// PyPy's number of the code object.
    pub unique_id: u64,
}

/// The Python frames of the record of a stack, innermost first.
pub fn decode(record: &[u8]) -> impl Iterator<Item = RawFrame> {
    let depth = record.get(9..SHORTEST_RECORD).map_or(0, word);
    let pairs = record.get(SHORTEST_RECORD..).unwrap_or_default();
    let pairs = pairs.chunks_exact(16).take(depth as usize / 2);
    pairs.filter_map(|pair| {
        let (kind, unique_id) = (word(&pair[..8]) as usize, word(&pair[8..]));
        (kind == CODE_TAG || kind == JITTED_TAG).then_some(RawFrame {
            compiled: kind == JITTED_TAG,
            unique_id,
        })
    })
}

/// Eight bytes as a number.
pub fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_of_a_record_are_decoded() {
        let mut record = vec![MARKER_STACKTRACE];
        for value in [1_u64, 8, 1, 40, 6, 99, 3, 41, 3, 42] {
            record.extend(value.to_ne_bytes());
        }
        let expected = [(false, 40), (true, 41), (true, 42)];
        let decoded = |bytes: &[u8]| -> Vec<(bool, u64)> {
            decode(bytes)
                .map(|frame| (frame.compiled, frame.unique_id))
                .collect()
        };
        assert_eq!(decoded(&record), expected);
        // The bytes after the frames are not frames, and an incomplete record has fewer frames.
        record.extend([7; 40]);
        assert_eq!(decoded(&record), expected);
        assert_eq!(decoded(&record[..SHORTEST_RECORD + 20]), expected[..1]);
        assert_eq!(decoded(&record[..12]), []);
    }
}
