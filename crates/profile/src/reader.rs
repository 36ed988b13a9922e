//! Reads a profile block by block, and skips damaged parts.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::checksums::Checksums;
use crate::event::Event;
use crate::format::block::{HEADER, Header, MAGIC as BLOCK_MAGIC, Unpacker};
use crate::format::decode::Decoder;
use crate::format::{Firsts, MAGIC, MAX_META, VERSION, VERSION_IN_DEVELOPMENT};
use crate::meta::Meta;
use crate::model::Damage;
use crate::processes::extension;
use crate::window::Window;

/// The reason why a file cannot be read at all. Later damage is [`Damage`], not an error.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("the file is empty: was the program stopped before it began?")]
    Empty,
    /// The file does not begin with a profile's first bytes.
    #[error("not an nthbyte profile (.nthb)")]
    NotAProfile,
    /// The profile was written by a later version.
    #[error(
        "the profile has format version {0}, and this nthbyte reads up to {VERSION}: use a newer nthbyte"
    )]
    Newer(u32),
    /// A development version wrote the profile, before the first release.
    #[error("the profile was made by a development version of nthbyte: record it again")]
    Development,
    /// The header cannot be read. Without it the file cannot be decoded.
    #[error("the profile's header is damaged: {0}")]
    Header(&'static str),
}

/// Reads events from a profile.
///
/// Memory is limited by the largest block that the format allows, about 10 MiB, for any content of
/// the file. A block that cannot be read is skipped and noted in [`damage`](Self::damage).
pub struct Reader<R: Read> {
    window: Window<R>,
    meta: Meta,
    tick: u32,
    unpacker: Unpacker,
    /// Bytes of the columns of all blocks that were read, uncompressed.
    unpacked: u64,
    /// Used from the first damage on: before it every byte is summed once without them.
    checksums: Option<Checksums>,
    /// Numbers after the last block that was read.
    next: Firsts,
    damage: Vec<Damage>,
    /// Number of damages that are counted but not noted.
    further_damage: u64,
}

/// Where a reader is between two blocks: see [`Reader::go_on`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePlace {
    /// Offset in the file.
    pub(crate) position: u64,
    tick: u32,
    next: Firsts,
}

impl FilePlace {
    /// A place in a file with this unit of time, before which there are so many definitions and samples.
    pub(crate) const fn new(position: u64, tick: u32, next: Firsts) -> Self {
        Self {
            position,
            tick,
            next,
        }
    }

    /// The numbers of the next definitions and the next sample.
    pub(crate) const fn next(self) -> Firsts {
        self.next
    }

    /// The unit of time, in nanoseconds.
    pub(crate) const fn tick(self) -> u32 {
        self.tick
    }
}

/// Number of damages that are noted separately.
const MAX_DAMAGE: usize = 100;

impl Reader<File> {
    /// Opens a profile.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a profile that this version reads.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::from_reader(File::open(path)?)
    }

    /// Reads the description of a profile, and no more of the file than its header.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn describe(path: &Path) -> Result<Meta, ReadError> {
        let mut file = File::open(path)?;
        let mut header = Vec::new();
        file.by_ref().take(20).read_to_end(&mut header)?;
        if let Some(length) = header.last_chunk().filter(|_| header.len() == 20) {
            // A wrong length is noticed below.
            let length = u64::from(u32::from_le_bytes(*length)).min(MAX_META as u64);
            file.take(length + 4).read_to_end(&mut header)?;
        }
        Ok(Reader::from_reader(&header[..])?.meta().clone())
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a profile. `input` needs no buffer of its own.
    ///
    /// # Errors
    /// If it cannot be read, or is not a profile that this version reads.
    pub fn from_reader(input: R) -> Result<Self, ReadError> {
        let mut window = Window::new(input);
        let fixed = window.peek(20)?;
        if fixed.is_empty() {
            return Err(ReadError::Empty);
        }
        let start = &fixed[..fixed.len().min(MAGIC.len())];
        if !MAGIC.starts_with(start) {
            return Err(ReadError::NotAProfile);
        }
        const CUT: ReadError = ReadError::Header("it is cut off");
        let word = |at: usize| {
            let bytes = fixed.get(at..at + 4).ok_or(CUT)?;
            Ok::<_, ReadError>(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
        };
        let version = word(8)?;
        match version {
            VERSION_IN_DEVELOPMENT => return Err(ReadError::Development),
            newer if newer > VERSION => return Err(ReadError::Newer(newer)),
            _ => {}
        }
        let tick = word(12)?;
        let meta = word(16)? as usize;
        if version == 0 || meta > MAX_META || !(1..=1_000_000_000).contains(&tick) {
            return Err(ReadError::Header("its figures make no sense"));
        }
        let header = window.peek(20 + meta + 4)?;
        let Some((checked, check)) = header.split_at_checked(20 + meta) else {
            return Err(CUT);
        };
        if check.len() < 4 {
            return Err(CUT);
        }
        if crc32fast::hash(checked).to_le_bytes() != check[..4] {
            return Err(ReadError::Header("its checksum is wrong"));
        }
        let meta_bytes = &checked[20..];
        let meta = Meta::parse(meta_bytes).ok_or(ReadError::Header(
            "its description of the session makes no sense",
        ))?;
        let len = header.len();
        window.consume(len);
        Ok(Self {
            window,
            meta,
            tick,
            unpacker: Unpacker::default(),
            unpacked: 0,
            checksums: None,
            next: Firsts::START,
            damage: Vec::new(),
            further_damage: 0,
        })
    }

    /// Goes on where a reader of the same file was. `input` stands at that place. Damage from before is not known here.
    pub(crate) fn go_on(input: R, meta: Meta, place: FilePlace) -> Self {
        Self {
            window: Window::at(input, place.position),
            meta,
            tick: place.tick,
            unpacker: Unpacker::default(),
            unpacked: 0,
            checksums: None,
            next: place.next,
            damage: Vec::new(),
            further_damage: 0,
        }
    }

    /// Where it is. All events of the last block were read.
    pub(crate) fn place(&self) -> FilePlace {
        FilePlace {
            position: self.window.position(),
            tick: self.tick,
            next: self.next,
        }
    }

    /// The session's description.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Number of bytes of the file that were read.
    pub fn position(&self) -> u64 {
        self.window.position()
    }

    /// Number of bytes of the events that were read, uncompressed. What reading and reporting takes is in proportion to it.
    #[must_use]
    pub fn bytes_unpacked(&self) -> u64 {
        self.unpacked
    }

    /// Number of bytes that were summed to find blocks after the first damage: proportional to the
    /// bytes read, for any content.
    #[must_use]
    pub fn bytes_summed(&self) -> u64 {
        self.checksums.as_ref().map_or(0, Checksums::work)
    }

    /// The parts that could not be read until now. The list is complete only after all events of
    /// the last block were read.
    pub fn damage(&self) -> Vec<Damage> {
        let mut damage = self.damage.clone();
        if self.further_damage > 0 {
            damage.push(Damage {
                offset: self.window.position(),
                what: format!("{} more damaged places", self.further_damage),
            });
        }
        damage
    }

    fn note(&mut self, offset: u64, what: impl Into<String>) {
        if self.damage.len() < MAX_DAMAGE {
            let what = what.into();
            self.damage.push(Damage { offset, what });
        } else {
            self.further_damage += 1;
        }
    }

    /// The next block that can be read; `None` at the end of the file.
    ///
    /// # Errors
    /// Only if the file cannot be read.
    pub fn next_block(&mut self) -> io::Result<Option<Block<'_>>> {
        loop {
            let Some((offset, header)) = self.find_block()? else {
                return Ok(None);
            };
            let Self {
                window, unpacker, ..
            } = self;
            let body = &window.peek(HEADER + header.body)?[HEADER..];
            let found = unpacker.unpack(body);
            self.window.consume(HEADER + header.body);
            match found {
                Ok(firsts) if !firsts.follows(self.next) => {
                    self.note(offset, "a block that was there before is repeated; skipped");
                }
                Ok(firsts) => return Ok(Some(self.block(offset, firsts))),
                Err(malformed) => {
                    let what = format!("a block was skipped: it holds {}", malformed.0);
                    self.note(offset, what);
                }
            }
        }
    }

    /// Finds the next intact block, without reading past it. The time is proportional to the bytes
    /// that it skips plus the length of one block, for any content.
    fn find_block(&mut self) -> io::Result<Option<(u64, Header)>> {
        let mut skipped_from = None;
        loop {
            let offset = self.window.position();
            let bytes = self.window.peek(HEADER)?;
            if bytes.is_empty() {
                if let Some(from) = skipped_from {
                    self.note_skipped(from, offset, true);
                }
                return Ok(None);
            }
            let header = bytes.first_chunk().and_then(Header::parse);
            if let Some(header) = header {
                let block = self.window.peek(HEADER + header.body)?;
                // An incomplete body does not need a checksum.
                let is_whole = block.len() == HEADER + header.body;
                let check = match &mut self.checksums {
                    _ if !is_whole => None,
                    Some(checksums) => Some(checksums.of(offset, block, HEADER)),
                    None => Some(crc32fast::hash(&block[HEADER..])),
                };
                if check.is_some_and(|check| header.fits(check)) {
                    if let Some(from) = skipped_from {
                        self.note_skipped(from, offset, false);
                    }
                    return Ok(Some((offset, header)));
                }
            }
            self.checksums.get_or_insert_default();
            skipped_from.get_or_insert(offset);
            self.window.consume(1);
            self.window.skip_to(BLOCK_MAGIC)?;
        }
    }

    fn note_skipped(&mut self, from: u64, to: u64, at_end: bool) {
        let len = to - from;
        self.note(
            from,
            if at_end {
                format!("the profile breaks off: its last {len} bytes are not a whole block")
            } else {
                format!("{len} bytes are damaged and were skipped")
            },
        );
    }

    fn block(&mut self, offset: u64, firsts: Firsts) -> Block<'_> {
        let gap = Gap::between(self.next, firsts);
        self.next = firsts;
        let columns = self.unpacker.columns();
        self.unpacked += columns.iter().map(|of| of.len() as u64).sum::<u64>();
        let Self {
            unpacker,
            next,
            tick,
            damage,
            ..
        } = self;
        Block {
            offset,
            firsts,
            gap,
            decoder: Decoder::new(*tick, firsts, unpacker.columns()),
            next,
            damage,
        }
    }
}

/// The content that must have been between two readable blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Whether definitions or samples are missing.
    pub any: bool,
    /// Number of missing samples.
    pub samples: u32,
}

impl Gap {
    fn between(expected: Firsts, found: Firsts) -> Self {
        Self {
            any: expected != found,
            samples: found.sample.saturating_sub(expected.sample),
        }
    }
}

impl Firsts {
    /// Whether a block with these numbers can come after a block that ended at `earlier`.
    fn follows(self, earlier: Self) -> bool {
        self.code >= earlier.code
            && self.node >= earlier.node
            && self.type_id >= earlier.type_id
            && self.thread >= earlier.thread
            && self.sample >= earlier.sample
            && self.label_set >= earlier.label_set
    }
}

/// A block of events.
pub struct Block<'a> {
    offset: u64,
    firsts: Firsts,
    gap: Gap,
    decoder: Decoder<'a>,
    next: &'a mut Firsts,
    damage: &'a mut Vec<Damage>,
}

impl<'a> Block<'a> {
    /// The offset of the block in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The numbers of its first definitions and its first sample. If blocks were lost, they are
    /// larger than the numbers after the previous block.
    #[must_use]
    pub fn firsts(&self) -> Firsts {
        self.firsts
    }

    /// The content that is missing between the previous block and this one.
    #[must_use]
    pub fn gap(&self) -> Gap {
        self.gap
    }

    /// Whether it ends a file that still grows: it is overwritten then.
    pub(crate) fn is_provisional(&self) -> bool {
        self.decoder.next_kind() == Some(extension::PROVISIONAL)
    }

    /// See [`Decoder::last_site`].
    #[inline]
    pub(crate) fn last_site(&self) -> usize {
        self.decoder.last_site()
    }

    /// The next event. Definitions that it refers to may be missing, if blocks were lost.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event<'a>> {
        match self.decoder.event() {
            Ok(Some(event)) => Some(event),
            Ok(None) => {
                *self.next = self.decoder.next_numbers();
                None
            }
            Err(malformed) => {
                self.broken(malformed.0);
                None
            }
        }
    }

    #[cold]
    fn broken(&mut self, what: &str) {
        *self.next = self.decoder.next_numbers();
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage {
                offset: self.offset,
                what: format!("the rest of a block was skipped: it holds {what}"),
            });
        }
        // All events of the block up to this point were read; there are no more.
        self.decoder = Decoder::new(1, *self.next, [&[]; crate::format::COLUMNS]);
    }
}
