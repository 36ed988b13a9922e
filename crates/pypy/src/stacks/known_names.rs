//! The names of code objects that `_vmprof` has written, for the thread with a recording.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use nthbyte_session::{KeyMap, Recording};

use super::handler::{BUFFERS_AT, NAMES};
use super::names::{CodeName, Parsed, names_in_buffers, parse};

/// The names of a session.
#[derive(Default)]
struct KnownNames {
    /// The number of bytes of the file that were read.
    read: i64,
    /// The last bytes, which are not a whole record yet.
    rest: Vec<u8>,
    names: KeyMap<u64, CodeName>,
    broken: bool,
}

struct Shared(UnsafeCell<Option<KnownNames>>);

// SAFETY: only the thread with a recording uses the content, and there is one recording at a time. (In the child of a
// fork there is one thread.)
unsafe impl Sync for Shared {}

static KNOWN: Shared = Shared(UnsafeCell::new(None));

/// The name of a code object, if `_vmprof` has written it. The recording shows that no other thread is here.
pub fn name<'a>(_: &'a mut Recording<'_>, unique_id: u64) -> Option<&'a CodeName> {
    // SAFETY: there is a recording, and the result borrows it.
    let known = unsafe { &mut *KNOWN.0.get() }.get_or_insert_default();
    if !known.names.contains_key(&unique_id) {
        known.read_all();
        if !known.names.contains_key(&unique_id) {
            let mut names = names_in_buffers(BUFFERS_AT.load(Ordering::Relaxed));
            names.retain(|&(id, _)| id == unique_id);
            known.names.extend(names);
        }
    }
    known.names.get(&unique_id)
}

/// Forgets the names of an earlier session.
pub fn forget(_: &mut Recording<'_>) {
    // SAFETY: there is a recording.
    unsafe { *KNOWN.0.get() = None };
}

/// Reads all names that there are, before the file and the buffers are given up.
///
/// # Safety
/// This is the child of a fork, with one thread.
pub unsafe fn read_all_in_child() {
    // SAFETY: by the contract.
    let known = unsafe { &mut *KNOWN.0.get() }.get_or_insert_default();
    known.read_all();
    known
        .names
        .extend(names_in_buffers(BUFFERS_AT.load(Ordering::Relaxed)));
    (known.read, known.broken) = (0, false);
    known.rest.clear();
}

impl KnownNames {
    /// Reads the names that were appended to the file.
    fn read_all(&mut self) {
        let mut block = vec![0u8; 1 << 16];
        if self.read < NAMES.start() {
            self.read = NAMES.start();
            self.rest.clear();
        }
        while !self.broken {
            let Some(got @ 1..) = NAMES.read(&mut block, self.read) else {
                return;
            };
            self.read += got as i64;
            self.rest.extend_from_slice(&block[..got]);
            let mut used = 0;
            loop {
                match parse(&self.rest[used..]) {
                    Parsed::Name(length, unique_id, name) => {
                        used += length;
                        self.names.insert(unique_id, name);
                    }
                    Parsed::Other(length) => used += length,
                    Parsed::More => break,
                    Parsed::Broken => {
                        self.broken = true;
                        break;
                    }
                }
            }
            self.rest.drain(..used);
        }
    }
}
