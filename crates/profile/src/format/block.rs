//! The frame around a block: lengths, checksums, compression.

use std::io;

use super::{COLUMNS, Firsts, encode::Encoder};
use crate::varint::{put, take};

/// The first bytes of a block's header.
pub(crate) const MAGIC: [u8; 4] = *b"\xf5nbk";

/// Magic, length of the body, checksum of the body, checksum of these three.
pub(crate) const HEADER: usize = 16;

/// The longest body. The writer ends a block at a quarter of a megabyte, and the longest event
/// is a code object with a [`super::MAX_TABLE`].
pub(crate) const MAX_BODY: usize = 4 << 20;

/// The most that the columns of a block may hold together.
pub(crate) const MAX_COLUMNS: usize = 4 << 20;

/// A body never holds more than this many events a byte: keeps what a reader makes of a file
/// proportional to its length.
pub(crate) const MAX_EVENTS_A_BYTE: usize = 8;

/// Columns shorter than this are not worth a compressed frame of their own.
const MIN_COMPRESSED: usize = 64;

/// Compresses columns and puts blocks together. Keeps its buffers.
pub(crate) struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    compressed: Vec<u8>,
    block: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> io::Result<Self> {
        use zstd::zstd_safe::CParameter;
        let mut compressor = zstd::bulk::Compressor::new(1)?;
        // Bounds what the compressor itself takes: it runs in the profiled process.
        compressor.set_parameter(CParameter::WindowLog(17))?;
        compressor.set_parameter(CParameter::HashLog(12))?;
        compressor.set_parameter(CParameter::ContentSizeFlag(false))?;
        compressor.set_parameter(CParameter::ChecksumFlag(false))?;
        compressor.set_parameter(CParameter::DictIdFlag(false))?;
        Ok(Self {
            compressor,
            compressed: Vec::new(),
            block: Vec::new(),
        })
    }

    /// The bytes of a block that holds what the encoder holds.
    pub(crate) fn pack(&mut self, encoder: &Encoder) -> io::Result<&[u8]> {
        self.fill(encoder, true)?;
        if encoder.events() > MAX_EVENTS_A_BYTE * (self.block.len() - HEADER) {
            self.fill(encoder, false)?;
        }
        let body = self.block.len() - HEADER;
        let (header, stored) = self.block.split_at_mut(HEADER);
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&(body as u32).to_le_bytes());
        header[8..12].copy_from_slice(&crc32fast::hash(stored).to_le_bytes());
        let check = crc32fast::hash(&header[..12]);
        header[12..].copy_from_slice(&check.to_le_bytes());
        Ok(&self.block)
    }

    fn fill(&mut self, encoder: &Encoder, compress: bool) -> io::Result<()> {
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
        ] {
            put(&mut self.block, u64::from(first));
        }
        for column in encoder.columns() {
            put(&mut self.block, column.len() as u64);
            if column.is_empty() {
                continue;
            }
            if compress && column.len() >= MIN_COMPRESSED {
                self.compressed.clear();
                self.compressed
                    .reserve(zstd::zstd_safe::compress_bound(column.len()));
                self.compressor
                    .compress_to_buffer(column, &mut self.compressed)?;
                if self.compressed.len() < column.len() {
                    put(&mut self.block, self.compressed.len() as u64);
                    self.block.extend_from_slice(&self.compressed);
                    continue;
                }
            }
            put(&mut self.block, column.len() as u64);
            self.block.extend_from_slice(column);
        }
        Ok(())
    }
}
