//! Writes a profile, block by block.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::claim::{self, Claim, Replaced};
use crate::event::{End, Event, Extension};
use crate::format::{MAGIC, MAX_META, TICK_NANOS, VERSION, block::Packer, encode::Encoder};
use crate::meta::Meta;
use crate::processes::extension;

/// Creates the file of a profile, or one in the place of this user's file of any content. Only its owner can read it (mode
/// 0600), because a profile contains private details of a program.
///
/// # Errors
/// See [`ClaimError`](crate::claim::ClaimError).
pub fn create(path: &Path) -> io::Result<File> {
    Ok(Claim::new(path, Replaced::Any, &[])?.into_file()?)
}

/// Creates the file of a profile, as [`create`] does, where no file is yet.
///
/// # Errors
/// As [`create`]; [`io::ErrorKind::AlreadyExists`] if there is a file, of any kind.
pub fn create_new(path: &Path) -> io::Result<File> {
    claim::create_new(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => error,
        _ => claim::ClaimError::of(path, error).into(),
    })
}

/// Encodes events and writes them in blocks.
///
/// [`write`](Self::write) takes some tens of nanoseconds and writes to the disk only when a block is full (2 KiB before
/// compression at first, then twice the file's length, up to 128 KiB). The caller calls [`flush`](Self::flush) at least
/// once a second: events that are not flushed are lost with the process. The writer takes about 0.8 MiB of memory, plus
/// location tables without columns, about 100 bytes for each code object.
///
/// After an error the events of that block are lost, and a reader will report the loss; later blocks can still be
/// written. `w` needs no buffer of its own: every block is one `write_all`.
pub struct Writer<W: Write> {
    out: W,
    encoder: Encoder,
    packer: Packer,
    written: u64,
    /// Where the last block begins in the file; 0 if there is none.
    last_block: u64,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("written", &self.written)
            .field("block_len", &self.block_len())
            .finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Writes the header of a profile.
    ///
    /// # Errors
    /// The errors of `out`; `InvalidInput` if `meta` is larger than a mebibyte.
    pub fn new(mut out: W, meta: &Meta) -> io::Result<Self> {
        let meta = serde_json::to_vec(meta)?;
        if meta.len() > MAX_META {
            let message = "the command line is too long for a profile's header";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&TICK_NANOS.to_le_bytes());
        header.extend_from_slice(&(meta.len() as u32).to_le_bytes());
        header.extend_from_slice(&meta);
        let check = crc32fast::hash(&header);
        header.extend_from_slice(&check.to_le_bytes());
        out.write_all(&header)?;
        out.flush()?;
        Ok(Self {
            out,
            encoder: Encoder::new(TICK_NANOS),
            packer: Packer::default(),
            written: header.len() as u64,
            last_block: 0,
        })
    }

    /// Adds an event to the block, and ends the block if it is full.
    ///
    /// Times have a precision of a microsecond, durations of a nanosecond. A text longer than 16
    /// KiB is cut. Location tables are not written: the position of a node is converted to a line
    /// (0 if the table is longer than 2 MiB), which takes well under a microsecond.
    ///
    /// # Errors
    /// The errors of the file, when the block was full.
    pub fn write(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.encoder.event(event);
        if self.encoder.is_full() {
            return self.flush();
        }
        Ok(())
    }

    /// Ends the block: after this, all events that were passed to the writer are in the file.
    /// Writes nothing if there are no new events.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.encoder.events() == 0 {
            return Ok(());
        }
        let block = self.packer.pack(&self.encoder);
        let result = self.out.write_all(block).map(|()| block.len());
        self.encoder.begin(*result.as_ref().unwrap_or(&0));
        let length = result? as u64;
        self.last_block = self.written;
        self.written += length;
        self.out.flush()
    }

    /// Ends the block, and returns provisional blocks: they contain samples whose types or lifetimes
    /// are not known yet, and the changes of their sources' periods; each says that it is one. The caller writes them at the end
    /// of the file, where the next block replaces them. They are not written here, and later events are
    /// encoded as if they did not exist.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn provisional<'a>(
        &mut self,
        events: impl IntoIterator<Item = Event<'a>>,
    ) -> io::Result<Vec<u8>> {
        self.flush()?;
        let mark = self.encoder.mark();
        let blocks = self.pack(events);
        self.encoder.take_back(mark);
        Ok(blocks)
    }

    fn pack<'a>(&mut self, events: impl IntoIterator<Item = Event<'a>>) -> Vec<u8> {
        let mut blocks = Vec::new();
        let mut events = events.into_iter().peekable();
        while let Some(event) = events.next() {
            if self.encoder.events() == 0 {
                self.encoder.event(&Event::Extension(Extension {
                    kind: extension::PROVISIONAL,
                    bytes: &[],
                }));
            }
            self.encoder.event(&event);
            if self.encoder.is_full() || events.peek().is_none() {
                let block = self.packer.pack(&self.encoder);
                blocks.extend_from_slice(block);
                self.encoder.begin(block.len());
            }
        }
        blocks
    }

    /// Records what ends the process or its session early, in one line: the name of a signal, for example.
    ///
    /// # Errors
    /// The errors of the file, when the block was full.
    pub fn ended_by(&mut self, reason: &str) -> io::Result<()> {
        self.write(&Event::Extension(Extension {
            kind: extension::ENDED_BY,
            bytes: reason.as_bytes(),
        }))
    }

    /// Returns a block that says why no more can be written, after an error of the file; it replaces the rest of the
    /// file from one of two places. At the first, an incomplete block may lie, whose space may suffice on a full disk.
    /// At the second lies the last complete block, if there is one. Events since the last block are lost.
    pub fn last_words(&mut self, reason: &str) -> (Vec<u8>, [Option<u64>; 2]) {
        self.encoder.begin(0);
        self.encoder.event(&Event::Extension(Extension {
            kind: extension::ENDED_BY,
            bytes: reason.as_bytes(),
        }));
        let block = self.packer.pack(&self.encoder).to_vec();
        self.encoder.begin(0);
        let last = (self.last_block > 0).then_some(self.last_block);
        (block, [Some(self.written), last])
    }

    /// Writes the end of the session, and the last block.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn finish(mut self, end: End) -> io::Result<W> {
        self.encoder.event(&Event::End(end));
        self.flush()?;
        Ok(self.out)
    }

    /// Bytes of events in the unfinished block, before compression.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.encoder.len()
    }

    /// Bytes written to the file.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// The file.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// The file. Bytes that are written to it directly are not counted in
    /// [`bytes_written`](Self::bytes_written).
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }
}
