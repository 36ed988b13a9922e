//! The names of code objects that `_vmprof` has written, for the thread with a recording.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::Ordering;

use nthbyte_session::{KeyMap, Recording, RecordingCell};

use super::handler::{BUFFERS_AT, NAMES};
use super::names::{Parsed, names_in_buffers, parse};

/// The number of bytes of the file that are read at once.
const BLOCK: usize = 1 << 16;

/// The names of this process, of all sessions: `_vmprof` writes the name of a code that is made while it is on only
/// once.
#[derive(Default)]
struct KnownNames {
    /// The number of bytes of the file that were read.
    read: i64,
    /// The last bytes, which are not a whole record yet.
    rest: Vec<u8>,
    /// The texts of names, one after the other. Most of them are never asked for.
    texts: Vec<u8>,
    /// The place of each name's text, by unique id.
    places: KeyMap<u64, Range<usize>>,
    broken: bool,
}

static KNOWN: RecordingCell<Option<KnownNames>> = RecordingCell::new(None);

/// The text of a code object's name, if `_vmprof` has written it: see [`CodeName`](super::names::CodeName). The
/// recording shows that no other thread is here.
pub fn name<'a>(recording: &'a mut Recording<'_>, unique_id: u64) -> Option<Cow<'a, str>> {
    let known = KNOWN.with(recording).get_or_insert_default();
    if !known.places.contains_key(&unique_id) {
        known.read_all();
        if !known.places.contains_key(&unique_id) {
            names_in_buffers(BUFFERS_AT.load(Ordering::Relaxed), |id, text| {
                if id == unique_id {
                    known.insert(id, text);
                }
            });
        }
    }
    let place = known.places.get(&unique_id)?.clone();
    Some(String::from_utf8_lossy(&known.texts[place]))
}

/// Reads all names that there are, before a session gives up the file and the buffers: later sessions need them.
pub fn keep(recording: &mut Recording<'_>) {
    KNOWN
        .with(recording)
        .get_or_insert_default()
        .read_the_rest();
}

/// Reads all names that there are, before the file and the buffers are given up.
///
/// # Safety
/// This is the child of a fork, with one thread.
pub unsafe fn read_all_in_child() {
    // SAFETY: by the contract, no other thread has a recording.
    let known = unsafe { KNOWN.beside_recording() }.get_or_insert_default();
    known.read_the_rest();
}

impl KnownNames {
    /// Without memory for it, the name stays unknown.
    fn insert(&mut self, unique_id: u64, text: &[u8]) {
        let start = self.texts.len();
        if self.places.contains_key(&unique_id) {
            // It is written once more at the start of each session. Numbers are never used again.
            return;
        }
        if self.texts.try_reserve(text.len()).is_err() || self.places.try_reserve(1).is_err() {
            return;
        }
        self.texts.extend_from_slice(text);
        self.places.insert(unique_id, start..self.texts.len());
    }

    /// Reads the names of the file and of the buffers. The next file is another one.
    fn read_the_rest(&mut self) {
        self.read_all();
        names_in_buffers(BUFFERS_AT.load(Ordering::Relaxed), |id, text| {
            self.insert(id, text);
        });
        (self.read, self.broken) = (0, false);
        self.rest.clear();
    }

    /// Reads the names that were appended to the file.
    fn read_all(&mut self) {
        let mut block = Vec::new();
        if block.try_reserve_exact(BLOCK).is_err() {
            return;
        }
        block.resize(BLOCK, 0);
        if self.read < NAMES.start() {
            self.read = NAMES.start();
            self.rest.clear();
        }
        while !self.broken {
            let Some(got @ 1..) = NAMES.read(&mut block, self.read) else {
                return;
            };
            if self.rest.try_reserve(got).is_err() {
                // The next call reads it again.
                return;
            }
            self.read += got as i64;
            self.rest.extend_from_slice(&block[..got]);
            let (rest, mut used) = (std::mem::take(&mut self.rest), 0);
            loop {
                match parse(&rest[used..]) {
                    Parsed::Name(length, unique_id, text) => {
                        used += length;
                        self.insert(unique_id, text);
                    }
                    Parsed::Other(length) => used += length,
                    Parsed::More => break,
                    Parsed::Broken => {
                        self.broken = true;
                        break;
                    }
                }
            }
            self.rest = rest;
            self.rest.drain(..used);
        }
    }
}
