//! The frame around a block: lengths, checksums, compression.

use std::io;

use super::{COLUMNS, Column, Firsts, decode::Malformed, encode::Encoder};
use crate::varint::{put, take};

/// The first bytes of a block's header.
pub(crate) const MAGIC: [u8; 4] = *b"\xf5nbk";

/// Length of a header: magic, length of the body, checksum of the body, checksum of these three.
pub(crate) const HEADER: usize = 16;

/// The longest body. The writer ends a block at 128 KiB, and its longest event contains an
/// extension of [`super::MAX_EXTENSION`]. Readers allow for a code object with a table of
/// [`super::MAX_TABLE`].
pub(crate) const MAX_BODY: usize = 4 << 20;

/// The largest total size of a block's columns.
pub(crate) const MAX_COLUMNS: usize = 4 << 20;

/// The largest number of events for each byte of a body. It keeps a reader's memory proportional to
/// the file's length.
pub(crate) const MAX_EVENTS_A_BYTE: usize = 8;

/// The texts of a block are at most this many times as long as its body, for the same reason. The
/// same limit holds for its extensions.
pub(crate) const MAX_TEXT_EXPANSION: usize = 64;

/// The largest total size of the other columns for each event, in bytes. The longest event is an
/// allocation at a new site in a new context: fourteen numbers and its kind, at most 141 bytes.
/// Without this limit 190 bytes could make a reader decompress 4 MiB.
pub(crate) const MAX_BYTES_AN_EVENT: usize = 160;

/// Shorter columns are not compressed separately.
const MIN_COMPRESSED: usize = 64;

/// Compresses columns and assembles blocks. Reuses its buffers.
#[derive(Default)]
pub(crate) struct Packer {
    /// Made by the first block.
    compressor: Option<zstd::bulk::Compressor<'static>>,
    compressed: Vec<u8>,
    block: Vec<u8>,
}

fn compressor() -> io::Result<zstd::bulk::Compressor<'static>> {
    use zstd::zstd_safe::CParameter;
    let mut compressor = zstd::bulk::Compressor::new(1)?;
    // Limits the memory of the compressor, which runs in the profiled process.
    compressor.set_parameter(CParameter::WindowLog(17))?;
    compressor.set_parameter(CParameter::HashLog(12))?;
    compressor.set_parameter(CParameter::ContentSizeFlag(false))?;
    compressor.set_parameter(CParameter::ChecksumFlag(false))?;
    compressor.set_parameter(CParameter::DictIdFlag(false))?;
    Ok(compressor)
}

impl Packer {
    /// The bytes of a block with the encoder's events.
    pub(crate) fn pack(&mut self, encoder: &Encoder) -> &[u8] {
        self.fill(encoder, true);
        let length = |column: Column| encoder.columns()[column as usize].len();
        let longest = length(Column::Texts).max(length(Column::Extensions));
        let mut body = self.block.len() - HEADER;
        if encoder.events() > MAX_EVENTS_A_BYTE * body || longest > MAX_TEXT_EXPANSION * body {
            self.fill(encoder, false);
            body = self.block.len() - HEADER;
        }
        let (header, stored) = self.block.split_at_mut(HEADER);
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&(body as u32).to_le_bytes());
        header[8..12].copy_from_slice(&crc32fast::hash(stored).to_le_bytes());
        let check = crc32fast::hash(&header[..12]);
        header[12..].copy_from_slice(&check.to_le_bytes());
        &self.block
    }

    fn fill(&mut self, encoder: &Encoder, compress: bool) {
        self.block.clear();
        self.block.resize(HEADER, 0);
        put(&mut self.block, encoder.events() as u64);
        let firsts = encoder.firsts();
        for first in [
            firsts.code,
            firsts.node,
            firsts.type_id,
            firsts.thread,
            firsts.sample,
            firsts.label_set,
        ] {
            put(&mut self.block, u64::from(first));
        }
        for column in encoder.columns() {
            put(&mut self.block, column.len() as u64);
            if column.is_empty() {
                continue;
            }
            if compress && self.compress(column) {
                put(&mut self.block, self.compressed.len() as u64);
                self.block.extend_from_slice(&self.compressed);
                continue;
            }
            put(&mut self.block, column.len() as u64);
            self.block.extend_from_slice(column);
        }
    }

    /// Compresses a column. Returns false if it is not shorter then, or if there is no memory for that.
    fn compress(&mut self, column: &[u8]) -> bool {
        if column.len() < MIN_COMPRESSED {
            return false;
        }
        if self.compressor.is_none() {
            self.compressor = compressor().ok();
        }
        let Some(compressor) = &mut self.compressor else {
            return false;
        };
        self.compressed.clear();
        self.compressed
            .reserve(zstd::zstd_safe::compress_bound(column.len()));
        let compressed = compressor.compress_to_buffer(column, &mut self.compressed);
        compressed.is_ok() && self.compressed.len() < column.len()
    }
}

/// The content of a block's header whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Length of the body.
    pub(crate) body: usize,
    check: u32,
}

impl Header {
    /// Reads a header; `None` if the bytes are not a header.
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| {
            let bytes: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let body = word(4) as usize;
        let intact = bytes[..4] == MAGIC && crc32fast::hash(&bytes[..12]) == word(12);
        (intact && body <= MAX_BODY).then_some(Self {
            body,
            check: word(8),
        })
    }

    /// Whether the checksum of the header's body is this one.
    pub(crate) fn fits(&self, check: u32) -> bool {
        check == self.check
    }
}

/// Whether a column contains texts or bytes from the caller, not numbers.
fn is_text(column: usize) -> bool {
    column == Column::Texts as usize || column == Column::Extensions as usize
}

/// Extracts the columns from a body. Reuses its buffer.
#[derive(Default)]
pub(crate) struct Unpacker {
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
    raw: Vec<u8>,
    ends: [usize; COLUMNS],
}

impl Unpacker {
    /// Decompresses a body whose checksum is right.
    ///
    /// # Errors
    /// `Malformed` if the body does not follow the format.
    pub(crate) fn unpack(&mut self, mut body: &[u8]) -> Result<Firsts, Malformed> {
        const CUT: Malformed = Malformed("a block that ends too early");
        let len = body.len();
        let events = take(&mut body).ok_or(CUT)?;
        if events > (len * MAX_EVENTS_A_BYTE) as u64 {
            return Err(Malformed("a block with too many events for its length"));
        }
        let mut first = || {
            let number = take(&mut body).ok_or(CUT)?;
            u32::try_from(number).map_err(|_| Malformed("a number beyond 32 bits"))
        };
        let firsts = Firsts {
            code: first()?,
            node: first()?,
            type_id: first()?,
            thread: first()?,
            sample: first()?,
            label_set: first()?,
        };
        self.raw.clear();
        self.ends = [0; COLUMNS];
        // `events` is proportional to the body's length, so this does not overflow.
        let mut numbers = events as usize * MAX_BYTES_AN_EVENT;
        for column in 0..COLUMNS {
            let mut length = || {
                let length = take(&mut body).ok_or(CUT)?;
                usize::try_from(length).map_err(|_| CUT)
            };
            let raw = length()?;
            let stored = if raw == 0 { 0 } else { length()? };
            let (bytes, rest) = body.split_at_checked(stored).ok_or(CUT)?;
            body = rest;
            if raw > MAX_COLUMNS - self.raw.len() {
                return Err(Malformed("a block that is too large"));
            }
            if is_text(column) {
                if raw > len * MAX_TEXT_EXPANSION {
                    return Err(Malformed("a block with too much text for its length"));
                }
            } else {
                numbers = numbers
                    .checked_sub(raw)
                    .ok_or(Malformed("a block with too many numbers for its events"))?;
            }
            if stored == raw {
                self.raw.extend_from_slice(bytes);
            } else {
                self.decompress(bytes, raw)?;
            }
            self.ends[column] = self.raw.len();
        }
        if self.ends[0] as u64 != events {
            return Err(Malformed("a block that counts its events wrong"));
        }
        Ok(firsts)
    }

    fn decompress(&mut self, bytes: &[u8], raw: usize) -> Result<(), Malformed> {
        const BAD: Malformed = Malformed("a column that cannot be decompressed");
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(|_| BAD)?),
        };
        let start = self.raw.len();
        self.raw.resize(start + raw, 0);
        match decompressor.decompress_to_buffer(bytes, &mut self.raw[start..]) {
            Ok(len) if len == raw => Ok(()),
            _ => Err(BAD),
        }
    }

    /// The columns of the last body.
    pub(crate) fn columns(&self) -> [&[u8]; COLUMNS] {
        std::array::from_fn(|at| {
            let start = if at == 0 { 0 } else { self.ends[at - 1] };
            &self.raw[start..self.ends[at]]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: [u8; 4], body: usize) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&magic);
        header[4..8].copy_from_slice(&(body as u32).to_le_bytes());
        let check = crc32fast::hash(&header[..12]);
        header[12..].copy_from_slice(&check.to_le_bytes());
        header
    }

    #[test]
    fn a_header_has_its_magic_its_checksum_and_a_possible_length() {
        let body = |header| Header::parse(&header).map(|header| header.body);
        assert_eq!(body(header(MAGIC, 100)), Some(100));
        assert_eq!(body(header(MAGIC, MAX_BODY)), Some(MAX_BODY));
        assert_eq!(body(header(MAGIC, MAX_BODY + 1)), None);
        assert_eq!(body(header(*b"blok", 100)), None);
        for at in 0..HEADER {
            let mut other = header(MAGIC, 100);
            other[at] ^= 1;
            assert_eq!(body(other), None, "byte {at}");
        }
    }

    #[test]
    fn a_block_is_compressed_as_far_as_the_number_of_its_events_allows() {
        use crate::event::{Event, LostKind};
        let packed = |events: u64| {
            let mut encoder = Encoder::new(1000);
            for number in 0..events {
                encoder.event(&Event::Lost(LostKind::Other, number % 100));
            }
            let raw: usize = encoder.columns().iter().map(Vec::len).sum();
            let packed = Packer::default().pack(&encoder).len();
            (packed - HEADER, raw)
        };
        // A reader allows more events than bytes: eight of them for each.
        let (body, raw) = packed(400);
        assert!(
            body + 100 < 400 && 400 <= MAX_EVENTS_A_BYTE * body,
            "{body}"
        );
        assert!(body < raw, "{body} of {raw}");
        let (body, raw) = packed(100_000);
        assert!(body >= raw, "{body} of {raw}");
    }

    #[test]
    fn the_length_of_a_body_limits_the_number_of_its_events() {
        let unpacked = |events: usize| {
            let mut body = Vec::new();
            put(&mut body, events as u64);
            // The numbers of the first definitions, and empty columns.
            body.resize(body.len() + 6 + COLUMNS, 0);
            Unpacker::default().unpack(&body)
        };
        let most = MAX_EVENTS_A_BYTE * (2 + 6 + COLUMNS);
        let wrong = Malformed("a block that counts its events wrong");
        assert_eq!(unpacked(most), Err(wrong));
        let many = Malformed("a block with too many events for its length");
        assert_eq!(unpacked(most + 1), Err(many));
        assert!(unpacked(0).is_ok());
    }
}
