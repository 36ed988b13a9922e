//! Reads the end of a profile that grows, without what came before: a checkpoint has the definitions of that.
//!
//! ```text
//! file         blocks that were read before ──▶│ blocks since then │ end
//! checkpoint   their definitions, this place ──┘
//! ```
//!
//! A program that measures many parts of one recording would otherwise read all of it for each.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::event::{Event, Nanos};
use crate::format::Firsts;
use crate::load::Loader;
use crate::merge::whole_ticks;
use crate::meta::Meta;
use crate::model::Profile;
use crate::processes::extension;
use crate::reader::{FilePlace, ReadError, Reader};
use crate::writer::Writer;

/// The first bytes of a checkpoint. Only the version that wrote it reads it.
const MAGIC: [u8; 16] = *b"nthbyte-part-1\r\n";
/// The numbers behind them: see [`Known::head`].
const NUMBERS: usize = 9;
const HEAD: usize = MAGIC.len() + 8 * NUMBERS;

/// The end of a profile.
#[derive(Debug)]
pub struct Ending {
    /// What came since some moment before the one that was asked for.
    pub profile: Profile,
    /// A checkpoint of all that was read, for a later moment; `None` if something could not be read.
    pub checkpoint: Option<Vec<u8>>,
    /// Bytes of the file's blocks that were read.
    pub bytes_read: u64,
}

/// What a checkpoint knows.
struct Known<'a> {
    place: FilePlace,
    /// Nothing before the place is later than this.
    time: Nanos,
    definitions: &'a [u8],
}

impl<'a> Known<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, definitions) = bytes.split_at_checked(HEAD)?;
        let numbers = head.strip_prefix(&MAGIC)?;
        let number =
            |at: usize| u64::from_le_bytes(numbers[8 * at..][..8].try_into().expect("eight"));
        let small = |at: usize| u32::try_from(number(at)).ok();
        let next = Firsts {
            code: small(3)?,
            node: small(4)?,
            type_id: small(5)?,
            thread: small(6)?,
            sample: small(7)?,
            label_set: small(8)?,
        };
        Some(Self {
            time: Nanos(number(0)),
            place: FilePlace::new(number(1), small(2)?, next),
            definitions,
        })
    }

    fn head(place: FilePlace, time: Nanos) -> Vec<u8> {
        let Firsts {
            code,
            node,
            type_id,
            thread,
            sample,
            label_set,
        } = place.next();
        let firsts = [code, node, type_id, thread, sample, label_set].map(u64::from);
        let [a, b, c, d, e, f] = firsts;
        let numbers: [u64; NUMBERS] = [
            time.0,
            place.position,
            place.tick().into(),
            a,
            b,
            c,
            d,
            e,
            f,
        ];
        let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
        MAGIC.into_iter().chain(numbers).collect()
    }
}

/// Reads a profile from the place of a checkpoint on, if there is one of this profile from before `since`, else all of it.
///
/// # Errors
/// As [`Profile::load`].
pub fn read(path: &Path, since: Nanos, checkpoint: &[u8]) -> Result<Ending, ReadError> {
    let mut file = File::open(path)?;
    let first = Reader::from_reader(&file)?;
    let (meta, start) = (first.meta().clone(), first.place());
    let known = Known::parse(checkpoint).filter(|known| known.time < whole_ticks(since));
    let begun = known.and_then(|known| begin(&meta, &known));
    let (mut loader, mut definitions, place) = match begun {
        Some(begun) => begun,
        None => {
            let mut loader = Loader::default();
            loader.begin(&meta, Nanos(0));
            (loader, Definitions::new(&meta)?, start)
        }
    };
    file.seek(SeekFrom::Start(place.position))?;
    let mut bytes_read = 0;
    let input = Counted {
        file,
        bytes: &mut bytes_read,
    };
    let mut reader = Reader::go_on(input, meta, place);
    let mut whole = Some((place, loader.last_time()));
    let mut is_provisional = false;
    while let Some(block) = reader.next_block()? {
        is_provisional |= block.is_provisional();
        let has_gap = block.gap().any;
        match is_provisional {
            true => loader.block(block),
            false => loader.block_with(block, |event| definitions.add(event)),
        }
        if has_gap || !reader.damage().is_empty() {
            whole = None;
        } else if !is_provisional {
            whole = whole.map(|_| (reader.place(), loader.last_time()));
        }
    }
    loader.end(reader.damage());
    drop(reader);
    let checkpoint = whole.and_then(|(place, time)| definitions.checkpoint(place, time));
    Ok(Ending {
        profile: loader.finish(),
        checkpoint,
        bytes_read,
    })
}

/// A loader that knows the definitions of a checkpoint; `None` if it is of another profile, or damaged.
fn begin(meta: &Meta, known: &Known<'_>) -> Option<(Loader, Definitions, FilePlace)> {
    let mut reader = Reader::from_reader(known.definitions).ok()?;
    if reader.meta() != meta {
        return None;
    }
    let mut loader = Loader::default();
    loader.begin(meta, Nanos(0));
    let mut definitions = Definitions::new(meta).ok()?;
    while let Some(block) = reader.next_block().ok()? {
        loader.block_with(block, |event| definitions.add(event));
    }
    let sample = known.place.next().sample;
    let found = Firsts {
        sample,
        ..reader.place().next()
    };
    if !reader.damage().is_empty() || found != known.place.next() {
        return None;
    }
    loader.skip_samples(sample, known.time);
    Some((loader, definitions, known.place))
}

/// The definitions of a file, with their numbers, as a file.
struct Definitions {
    writer: Option<Writer<Vec<u8>>>,
}

impl Definitions {
    fn new(meta: &Meta) -> io::Result<Self> {
        let writer = Some(Writer::new(Vec::new(), meta)?);
        Ok(Self { writer })
    }

    fn add(&mut self, event: &Event<'_>) {
        let is_kept = match event {
            Event::Code(_)
            | Event::Node(_)
            | Event::Type(_)
            | Event::Thread(_)
            | Event::ThreadName(..)
            | Event::Label(_) => true,
            Event::Extension(one) => one.kind == extension::NOTE,
            // Each block says its sources and periods.
            _ => false,
        };
        if is_kept
            && let Some(writer) = &mut self.writer
            && writer.write(event).is_err()
        {
            self.writer = None;
        }
    }

    fn checkpoint(self, place: FilePlace, time: Nanos) -> Option<Vec<u8>> {
        let mut writer = self.writer?;
        writer.flush().ok()?;
        let mut checkpoint = Known::head(place, time);
        checkpoint.append(writer.get_mut());
        Some(checkpoint)
    }
}

/// A file of which the bytes are counted.
pub(crate) struct Counted<'a> {
    pub(crate) file: File,
    pub(crate) bytes: &'a mut u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        *self.bytes += read as u64;
        Ok(read)
    }
}
