//! Reads of this process's memory at addresses that may be unmapped.
//!
//! A [`Probe`] asks the kernel to copy the bytes: a bad address gives an error instead of a fault. Each read is a
//! system call of about 0.3 µs. A [`CachedProbe`] fetches blocks, for words that lie close together. [`field`] reads
//! memory that is known to be mapped.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use crate::errno;
use crate::memory::SMALLEST_PAGE;

/// Bytes in a block of a [`CachedProbe`]. A block lies within one page, so the kernel can read all of it or nothing.
const BLOCK: usize = 1024;
/// Number of cached blocks. A block's address selects its place.
const KEPT: usize = 16;

/// Reads memory through the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    process: libc::pid_t,
}

impl Probe {
    /// A probe of this process. A forked child needs its own probe. `None` where the system does not allow such reads.
    #[must_use]
    pub fn new() -> Option<Self> {
        let probe = Self::unchecked();
        let known = 0x5eed_u64;
        (probe.read::<u64>(&raw const known as usize) == Some(known)).then_some(probe)
    }

    /// A probe. It reads nothing where the system does not allow such reads.
    fn unchecked() -> Self {
        Self {
            // SAFETY: no arguments.
            process: unsafe { libc::getpid() },
        }
    }

    /// The value at an address. `None` if the address is not readable.
    #[must_use]
    pub fn read<T: Plain>(&self, address: usize) -> Option<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: these are the bytes of `value`, which are all zero.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>())
        };
        let got = self.bytes(address, bytes);
        // SAFETY: any bytes make a `Plain` value.
        (got == size_of::<T>()).then(|| unsafe { value.assume_init() })
    }

    /// Reads up to `into.len()` bytes, and returns how many bytes it read.
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn bytes(&self, address: usize, into: &mut [u8]) -> usize {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote = libc::iovec {
            iov_base: address as *mut c_void,
            iov_len: into.len(),
        };
        // SAFETY: `local` is a place of that length; `remote` is checked by the kernel.
        let got = unsafe {
            libc::process_vm_readv(self.process, &raw const local, 1, &raw const remote, 1, 0)
        };
        match usize::try_from(got) {
            Ok(got) => got,
            Err(_) if errno() == libc::ENOSYS => {
                MemoryFile::open().map_or(0, |file| file.read(address, into))
            }
            Err(_) => 0,
        }
    }
}

/// The kernel's file of this process's memory, for systems without `process_vm_readv`. Emulators of another processor are
/// such (`qemu-aarch64`). Not for those that only forbid it: a descriptor can be closed by the program.
struct MemoryFile(c_int);

impl MemoryFile {
    #[cold]
    fn open() -> Option<Self> {
        // SAFETY: a C string; opening has no other effect.
        let file =
            unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (file >= 0).then_some(Self(file))
    }

    /// Reads up to `into.len()` bytes at an address, and returns how many bytes it read.
    fn read(&self, address: usize, into: &mut [u8]) -> usize {
        let Ok(address) = libc::off_t::try_from(address) else {
            return 0;
        };
        // SAFETY: `into` is a place of that length; the address is checked by the kernel.
        let got = unsafe { libc::pread(self.0, into.as_mut_ptr().cast(), into.len(), address) };
        usize::try_from(got).unwrap_or(0)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and closed here only.
        unsafe { libc::close(self.0) };
    }
}

impl Probe {
    /// Whether so many pages, 16 at most, are readable from this address on. True where the system does not allow the
    /// question. Safe in a signal handler, and needs about 500 bytes of stack.
    pub fn of_pages(first: usize, pages: usize) -> bool {
        let mut bytes = [0_u8; 16];
        let local = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: pages.min(bytes.len()),
        };
        let remote: [libc::iovec; 16] = std::array::from_fn(|page| libc::iovec {
            iov_base: first.wrapping_add(page * SMALLEST_PAGE) as *mut c_void,
            iov_len: 1,
        });
        let process = Self::unchecked().process;
        let count = local.iov_len;
        // SAFETY: `local` is a place of that length; `remote` is checked by the kernel.
        let got = unsafe {
            libc::process_vm_readv(
                process,
                &raw const local,
                1,
                remote.as_ptr(),
                count as u64,
                0,
            )
        };
        match usize::try_from(got) {
            Ok(got) => got == count,
            Err(_) => errno() != libc::EFAULT,
        }
    }
}

/// The largest number of pieces that one system call copies (`IOV_MAX` is 1024).
const PIECES: usize = 128;

impl Probe {
    /// Copies `length` bytes from each address to `into`, one after the other. Returns whether all could be read. The
    /// cost is one system call for 128 addresses, and about 0.1 µs for each.
    #[must_use]
    pub fn gather(&self, addresses: &[usize], length: usize, into: &mut [u8]) -> bool {
        if addresses.len() * length > into.len() {
            return false;
        }
        let chunks = addresses
            .chunks(PIECES)
            .zip(into.chunks_mut(PIECES * length.max(1)));
        chunks.into_iter().all(|(addresses, into)| {
            let bytes = addresses.len() * length;
            let local = libc::iovec {
                iov_base: into.as_mut_ptr().cast(),
                iov_len: bytes,
            };
            let mut remote = [libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: length,
            }; PIECES];
            for (piece, &address) in remote.iter_mut().zip(addresses) {
                piece.iov_base = address as *mut c_void;
            }
            // SAFETY: `local` is a place of that length, by the first test; `remote` is checked by the kernel.
            let got = unsafe {
                libc::process_vm_readv(
                    self.process,
                    &raw const local,
                    1,
                    remote.as_ptr(),
                    addresses.len() as libc::c_ulong,
                    0,
                )
            };
            usize::try_from(got) == Ok(bytes)
                || (got < 0 && errno() == libc::ENOSYS && each_by_file(addresses, length, into))
        })
    }
}

/// As [`Probe::gather`], without `process_vm_readv`.
#[cold]
fn each_by_file(addresses: &[usize], length: usize, into: &mut [u8]) -> bool {
    let pieces = addresses.iter().zip(into.chunks_mut(length.max(1)));
    MemoryFile::open().is_some_and(|file| {
        pieces.into_iter().all(|(&address, piece)| {
            let piece = &mut piece[..length];
            file.read(address, piece) == length
        })
    })
}

/// Types for which every bit pattern is a valid value.
///
/// # Safety
/// Every bit pattern of the type's size is a valid value.
pub unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an integer.
unsafe impl Plain for usize {}
// SAFETY: an array of plain values.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Reads a field of a structure that is known to be mapped.
///
/// # Safety
/// `address + offset` is a readable, initialised and aligned `T`.
#[inline(always)]
pub unsafe fn field<T: Plain>(address: usize, offset: usize) -> T {
    // SAFETY: as the caller says.
    unsafe { ((address + offset) as *const T).read() }
}

type Words = [usize; BLOCK / 8];

/// A block's address, and its content if the block is readable.
type Block = (usize, Option<Words>);

/// Reads words that lie close together, and fetches one block at a time. Changes after a fetch are not visible: create
/// a new probe for each use, or [clear](CachedProbe::clear) it.
pub struct CachedProbe {
    probe: Probe,
    blocks: RefCell<[Option<Block>; KEPT]>,
}

impl CachedProbe {
    /// A probe with no cached blocks.
    #[must_use]
    #[allow(clippy::new_without_default)] // it is for this process only
    pub fn new() -> Self {
        Self {
            probe: Probe::unchecked(),
            blocks: RefCell::new([None; KEPT]),
        }
    }

    /// Forgets the cached blocks. Safe in a signal handler, like [`CachedProbe::word`].
    pub fn clear(&self) {
        self.blocks
            .borrow_mut()
            .iter_mut()
            .for_each(|block| *block = None);
    }

    /// The word at an address. `None` if the address is not aligned or not readable.
    #[must_use]
    pub fn word(&self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let start = address - address % BLOCK;
        let mut blocks = self.blocks.borrow_mut();
        let place = &mut blocks[start / BLOCK % KEPT];
        let words = match place {
            Some((kept, words)) if *kept == start => words,
            _ => &place.insert((start, self.probe.read(start))).1,
        };
        words.map(|words| words[address % BLOCK / 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_address_is_an_answer() {
        let Some(probe) = Probe::new() else {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        };
        assert_eq!(probe.read::<u64>(8), None);
        assert_eq!(probe.read::<u64>(usize::MAX - 3), None);
        let there = [1u32, 2];
        assert_eq!(probe.read::<[u32; 2]>(there.as_ptr() as usize), Some(there));
    }

    #[test]
    fn the_file_of_memory_says_the_same() {
        let words: Vec<u64> = (0..100).collect();
        let file = MemoryFile::open().expect("the file is there");
        let (start, mut word) = (words.as_ptr() as usize, [0; 8]);
        assert_eq!(file.read(start + 8 * 99, &mut word), 8);
        assert_eq!(u64::from_ne_bytes(word), 99);
        for bad in [8, usize::MAX - 7] {
            assert_eq!(file.read(bad, &mut word), 0);
        }
        let mut into = [0; 24];
        assert!(each_by_file(&[start + 16, start, start + 8], 8, &mut into));
        let of_all: Vec<u8> = [2_u64, 0, 1]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect();
        assert_eq!(into.as_slice(), of_all);
        assert!(!each_by_file(&[start, 8], 8, &mut into));
    }

    #[test]
    fn pieces_are_gathered() {
        let Some(probe) = Probe::new() else {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        };
        let words: Vec<u64> = (0..1000).collect();
        let mut addresses: Vec<usize> = (0..300)
            .map(|at| words.as_ptr() as usize + 24 * at)
            .collect();
        let mut into = vec![0; 300 * 8];
        assert!(probe.gather(&addresses, 8, &mut into));
        for (at, bytes) in into.chunks(8).enumerate() {
            assert_eq!(bytes, (3 * at as u64).to_ne_bytes());
        }
        addresses[200] = 8;
        assert!(!probe.gather(&addresses, 8, &mut into));
        assert!(!probe.gather(&addresses, 9, &mut into));
        assert!(probe.gather(&[], 8, &mut into));
    }

    #[test]
    fn cached_words_are_read_and_bad_addresses_are_none() {
        if Probe::new().is_none() {
            eprintln!("not tested: process_vm_readv is forbidden here");
            return;
        }
        let words: Vec<usize> = (0..1000).map(|word| word * word).collect();
        let probe = CachedProbe::new();
        for (index, &word) in words.iter().enumerate() {
            let address = words.as_ptr() as usize + 8 * index;
            assert_eq!(probe.word(address), Some(word));
            assert_eq!(probe.word(address + 1), None);
        }
        assert_eq!(probe.word(0), None);
        assert_eq!(probe.word(usize::MAX - 7), None);
    }
}
