//! The mappings of this process with their resident sizes.
//!
//! The mappings are in `/proc/self/maps`, and their resident pages in the page tables (`page_tables.rs`). Where the kernel
//! does not show those, and where they do not say enough (of swapped and huge pages), `/proc/self/smaps` has both. It
//! takes 30 ms for a gigabyte of ordinary pages, and some microseconds for each mapping. The kernel holds the lock of
//! the address space only during one read, so reads are small.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::time::Duration;

use memchr::{memchr, memmem, memrchr};
use nthbyte_host::process::MapsLine;

use crate::composition::page_tables::PageTables;
use crate::composition::stopwatch::Stopwatch;

/// Bytes of one read: about twenty mappings.
const READ: usize = 16 << 10;
/// The longest line that is looked at whole; of a longer one, the end is ignored. A path has at most 4096 bytes.
const LINE: usize = 5 << 10;

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// Memory without a file or a name.
    Anonymous,
    /// The same, shared with children of a fork.
    SharedAnonymous,
    /// The break.
    Break,
    /// The C library says that it is one of its heaps.
    LibraryHeap,
    /// A stack: the main thread's, or one of which the C library says so.
    Stack,
    /// A file in memory, or memory that is shared with other processes.
    Shared,
    /// A file.
    File,
    /// A library of CUDA.
    CudaFile,
    /// A device of NVIDIA's driver.
    GpuDevice,
    /// One of nthbyte's own files.
    Agent,
}

impl Backing {
    /// Whether it is memory that a program maps for itself.
    pub(super) fn is_anonymous(self) -> bool {
        matches!(self, Self::Anonymous | Self::SharedAnonymous)
    }
}

/// One mapping. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappingSizes {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) backing: Backing,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    pub(super) is_executable: bool,
    pub(super) resident: u64,
    /// The part of `resident` that is no copy of a file.
    pub(super) anonymous: u64,
    pub(super) swapped: u64,
}

impl MappingSizes {
    pub(super) const fn size(&self) -> usize {
        self.end - self.start
    }

    const fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    const fn has_file(&self) -> bool {
        matches!(
            self.backing,
            Backing::File
                | Backing::CudaFile
                | Backing::GpuDevice
                | Backing::Shared
                | Backing::Agent
        )
    }

    /// Whether some of its resident pages may be private copies of a file's, of which it matters how many. Code is taken
    /// for the file's, without a look at each page: it is the largest part of many programs' files.
    const fn may_have_copies(&self) -> bool {
        let is_code = self.is_executable && !self.is_writable;
        let may_have = matches!(
            self.backing,
            Backing::File | Backing::Shared | Backing::GpuDevice
        );
        may_have && !is_code && self.resident > 0
    }
}

/// All mappings, in the order of their addresses. `None` if they cannot be read within `longest`, or within this processor
/// time if the thread waits for a processor.
pub(super) fn read(longest: Duration) -> Option<Vec<MappingSizes>> {
    let watch = Stopwatch::start();
    let goes_on = || {
        let elapsed = watch.elapsed();
        elapsed < longest || (elapsed < 10 * longest && watch.worked() < longest)
    };
    read_page_tables(goes_on).or_else(|| parse(File::open("/proc/self/smaps").ok()?, goes_on))
}

/// All mappings, with the sizes that the page tables have. `None` if these are not all that `/proc/self/smaps` says.
fn read_page_tables(goes_on: impl Fn() -> bool) -> Option<Vec<MappingSizes>> {
    let tables = PageTables::open()?;
    let mut mappings = read_addresses()?;
    // The kernel's own mapping, at the end of all addresses, has no pages here.
    let own = mappings.partition_point(|mapping| mapping.start <= isize::MAX as usize);
    let swaps = swaps();
    let (user, _) = mappings.split_at_mut(own);
    let end = user.last()?.end;
    let mut reader = tables.reader(end, false);
    for mapping in &mut *user {
        let pages = reader.pages(&mapping.range())?;
        mapping.resident = pages.resident;
        mapping.anonymous = if mapping.has_file() {
            0
        } else {
            pages.resident
        };
        // Pages of the system's pool of huge pages are not in the resident set.
        let is_of_pool = mapping.has_file() && pages.is_huge;
        // Shared memory that is swapped out is not in the page tables, and other pages may look as if they were.
        let is_hidden = matches!(mapping.backing, Backing::Shared | Backing::SharedAnonymous)
            && pages.resident < mapping.size() as u64;
        if is_of_pool || (swaps && (pages.swapped > 0 || is_hidden)) || !goes_on() {
            return None;
        }
    }
    // Which pages of files are copies takes longer to find out. Neighbours are read together.
    for run in user.chunk_by_mut(|one, other| one.may_have_copies() == other.may_have_copies()) {
        let end = run.last()?.end;
        let mut reader = tables.reader(end, true);
        for mapping in run.iter_mut().filter(|of| of.may_have_copies()) {
            let pages = reader.pages(&mapping.range())?;
            if mapping.backing == Backing::GpuDevice {
                // Registers and memory of the device are in the page tables, but are no memory of the host.
                mapping.resident = pages.of_files;
            }
            mapping.anonymous = mapping.resident.saturating_sub(pages.of_files);
            if !goes_on() {
                return None;
            }
        }
    }
    Some(mappings)
}

/// Whether the system has swapped anything out.
fn swaps() -> bool {
    // SAFETY: zeroes are a valid `sysinfo`, which the function fills.
    let (failed, info) = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        (libc::sysinfo(&raw mut info) != 0, info)
    };
    failed || info.freeswap != info.totalswap
}

/// The addresses of the mappings, without their resident sizes: much faster.
pub(super) fn read_addresses() -> Option<Vec<MappingSizes>> {
    parse(File::open("/proc/self/maps").ok()?, || true)
}

pub(super) fn parse(mut input: impl Read, goes_on: impl Fn() -> bool) -> Option<Vec<MappingSizes>> {
    let mut mappings = Vec::new();
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(READ + LINE).ok()?;
    let mut is_cut = false;
    loop {
        let kept = buffer.len();
        buffer.resize(kept + READ, 0);
        let got = input.read(&mut buffer[kept..]).ok()?;
        buffer.truncate(kept + got);
        if got == 0 {
            return (!mappings.is_empty()).then_some(mappings);
        }
        if !goes_on() {
            return None;
        }
        let mut rest = &buffer[..];
        while let Some(end) = memchr(b'\n', rest) {
            if !std::mem::take(&mut is_cut) {
                line(&rest[..end], &mut mappings)?;
            }
            rest = &rest[end + 1..];
        }
        if rest.len() > LINE {
            if !std::mem::replace(&mut is_cut, true) {
                line(rest, &mut mappings)?;
            }
            rest = &[];
        }
        let kept = rest.len();
        let start = buffer.len() - kept;
        buffer.copy_within(start.., 0);
        buffer.truncate(kept);
    }
}

/// Reads one line. `None` if there is no memory for another mapping.
fn line(line: &[u8], mappings: &mut Vec<MappingSizes>) -> Option<()> {
    // A field begins with a capital letter, an address with a digit or a small letter.
    if line.first().is_some_and(u8::is_ascii_uppercase) {
        if let Some(mapping) = mappings.last_mut() {
            for (name, field) in [
                (&b"Rss:"[..], &mut mapping.resident),
                (b"Anonymous:", &mut mapping.anonymous),
                (b"Swap:", &mut mapping.swapped),
            ] {
                if let Some(bytes) = line.strip_prefix(name).and_then(kibibytes) {
                    *field = bytes;
                }
            }
        }
    } else if let Some(mapping) = head(line) {
        mappings.try_reserve(1).ok()?;
        mappings.push(mapping);
    }
    Some(())
}

/// The first line of a mapping.
fn head(line: &[u8]) -> Option<MappingSizes> {
    let MapsLine {
        range,
        rights,
        path,
        ..
    } = MapsLine::parse(line)?;
    Some(MappingSizes {
        start: range.start,
        end: range.end,
        backing: backing(path, rights[3] == b's'),
        is_readable: rights[0] == b'r',
        is_writable: rights[1] == b'w',
        is_executable: rights[2] == b'x',
        resident: 0,
        anonymous: 0,
        swapped: 0,
    })
}

fn backing(path: &[u8], is_shared: bool) -> Backing {
    let file = &path[memrchr(b'/', path).map_or(0, |slash| slash + 1)..];
    let begins = |start: &[u8]| path.starts_with(start);
    if path == b"[heap]" {
        Backing::Break
    } else if begins(b"[stack") || begins(b"[anon: glibc: pthread stack") {
        Backing::Stack
    } else if begins(b"[anon: glibc: malloc arena") {
        Backing::LibraryHeap
    } else if file.starts_with(b"libnthbyte_") || begins(b"/memfd:nthbyte") {
        Backing::Agent
    } else if is_shared && (path.is_empty() || begins(b"/dev/zero") || begins(b"[anon_shmem")) {
        Backing::SharedAnonymous
    } else if begins(b"/dev/nvidia") {
        Backing::GpuDevice
    } else if is_shared && (begins(b"/memfd:") || begins(b"/dev/") || begins(b"/SYSV")) {
        Backing::Shared
    } else if path.is_empty() || begins(b"[anon") {
        Backing::Anonymous
    } else if is_of_cuda(file) {
        Backing::CudaFile
    } else {
        // Also the kernel's own: [vdso], [vvar].
        Backing::File
    }
}

/// Whether a library is one of CUDA, by its name: of its driver, of its runtime, of those that come with it, and of PyTorch's part for it.
fn is_of_cuda(file: &[u8]) -> bool {
    const NAMES: [&[u8]; 14] = [
        b"cublas",
        b"cuda",
        b"cudnn",
        b"cufft",
        b"cufile",
        b"cupti",
        b"curand",
        b"cusolver",
        b"cusparse",
        b"nccl",
        b"nvJitLink",
        b"nvidia-",
        b"nvrtc",
        b"torch_cuda",
    ];
    let name = file.strip_prefix(b"lib").unwrap_or_default();
    let name = name.strip_prefix(b"c10_").unwrap_or(name);
    NAMES.iter().any(|begin| name.starts_with(begin)) && memmem::find(file, b".so").is_some()
}

fn kibibytes(field: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(field.strip_suffix(b" kB")?).ok()?;
    number
        .trim_ascii_start()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  64 kB
Anonymous:            64 kB
Swap:                  4 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000001000 r-xp 00001000 08:01 77         /usr/lib/a b.so (deleted)
Rss:                   4 kB
Anonymous:             0 kB
7f0000001000-7f0000002000 ---p 00000000 00:00 0
7f0000002000-7f0000003000 rw-s 00000000 00:01 5          /memfd:x (deleted)
Rss:                   8 kB
7f0000003000-7f0000004000 rw-s 00000000 00:01 6          /dev/zero (deleted)
Rss:                  12 kB
";

    /// Gives at most so many bytes with each read.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(into.len()).min(self.0.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn mappings_are_read_however_the_kernel_cuts_them() {
        for step in [1, 7, 100, READ] {
            let mappings = parse(Slowly(TEXT.as_bytes(), step), || true).unwrap();
            let backings: Vec<Backing> = mappings.iter().map(|of| of.backing).collect();
            assert_eq!(
                backings,
                [
                    Backing::Break,
                    Backing::File,
                    Backing::Anonymous,
                    Backing::Shared,
                    Backing::SharedAnonymous
                ]
            );
            assert_eq!(mappings[0].size(), 132 << 10);
            assert_eq!(
                (mappings[0].resident, mappings[0].swapped),
                (64 << 10, 4 << 10)
            );
            assert!(mappings[1].is_executable && !mappings[1].is_writable);
            assert!(!mappings[2].is_readable);
            assert_eq!(mappings[3].resident, 8 << 10);
        }
        assert_eq!(parse(TEXT.as_bytes(), || false), None);
        assert_eq!(parse(&b"nonsense\n"[..], || true), None);
    }

    #[test]
    fn a_long_line_is_cut() {
        let text = format!(
            "1000-2000 r--p 0 0:0 9 /{}\nRss: 4 kB\n",
            "x".repeat(50_000)
        );
        let mappings = parse(text.as_bytes(), || true).unwrap();
        assert_eq!(mappings.len(), 1);
        assert_eq!(mappings[0].resident, 4 << 10);
    }

    /// Both sources say the same of each mapping that does not change meanwhile. One that changes there and back, as other
    /// tests run, does not in each of ten attempts.
    #[test]
    fn the_page_tables_say_what_smaps_says() {
        let _lock = crate::tests::one_at_a_time();
        let smaps = || parse(File::open("/proc/self/smaps").unwrap(), || true).unwrap();
        let mut differing = Vec::new();
        for _ in 0..10 {
            let before = smaps();
            let Some(tables) = read_page_tables(|| true) else {
                // The kernel is older, or has swapped.
                return;
            };
            let after = smaps();
            // The reads have mappings of their own, the same ones each time.
            let is_other =
                |of: &MappingSizes| of.backing != Backing::Anonymous || of.size() > 1 << 20;
            let is_same = |of: &MappingSizes| is_other(of) && after.contains(of);
            let same: Vec<MappingSizes> = before.into_iter().filter(is_same).collect();
            assert!(same.len() > 20);
            let differs = |of: &MappingSizes| !tables.contains(of);
            differing = same.into_iter().filter(differs).collect();
            if differing.is_empty() {
                return;
            }
        }
        panic!("{differing:?}");
    }

    #[test]
    fn the_sum_is_the_resident_set() {
        let _lock = crate::tests::one_at_a_time();
        let mappings = read(Duration::from_secs(60)).unwrap();
        let sum: u64 = mappings.iter().map(|of| of.resident).sum();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = kibibytes(line.unwrap().trim().as_bytes()).unwrap();
        // Other tests run meanwhile, and the kernel's own count is approximate.
        assert!(sum.abs_diff(resident) < 64 << 20, "{sum} {resident}");
        assert!(mappings.iter().any(|of| of.backing == Backing::Stack));
        assert_eq!(read_addresses().map(|all| all.is_empty()), Some(false));
    }
}
