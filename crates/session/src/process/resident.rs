//! The resident set size.

use std::io::Read;

use nthbyte_profile::event::Nanos;

/// Limits in nanoseconds for the age of a reading: a sixteenth of the session's time, within these limits. A reading
/// takes 7 µs, or 45 µs when the caches hold the program's data.
const RSS_AGES: (u64, u64) = (100_000_000, 250_000_000);

/// The resident set size, cached between readings.
#[derive(Debug, Default)]
pub struct ResidentSet {
    read: Option<(Nanos, u64)>,
}

impl ResidentSet {
    /// The size in bytes, at most 250 ms old: the second number of `/proc/self/statm`. `None` if the file is not
    /// readable. Each reading opens the file again, because the program may close any descriptor.
    pub fn size(&mut self, now: Nanos) -> Option<u64> {
        let (least, most) = RSS_AGES;
        if let Some((read, size)) = self.read
            && now.0.saturating_sub(read.0) < (now.0 / 16).clamp(least, most)
        {
            return Some(size);
        }
        let mut text = [0u8; 128];
        let mut file = std::fs::File::open("/proc/self/statm").ok()?;
        let got = file.read(&mut text).ok()?;
        let text = std::str::from_utf8(&text[..got]).ok()?;
        let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        // SAFETY: no preconditions.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        self.read = Some((now, pages * page));
        Some(pages * page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a line of `/proc/self/status`, in bytes.
    fn status(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let kib: u64 = line
            .split_ascii_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib << 10
    }

    #[test]
    fn only_touched_memory_counts() {
        const BYTES: usize = 1 << 30;
        // SAFETY: asks for new memory, of which nothing is touched.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let size = ResidentSet::default().size(Nanos(0)).unwrap();
        // Between what must be there and the most that there ever was, in a process that has 1 GiB more of addresses.
        assert!(status("VmSize:") >= 1 << 30);
        assert!(size <= status("VmHWM:") && size < 1 << 30, "{size}");
        assert!(size >= 100 << 10, "{size}");
        // SAFETY: the memory is ours and unused.
        unsafe { libc::munmap(memory, BYTES) };
    }

    #[test]
    fn a_reading_is_used_again_for_a_while() {
        let mut set = ResidentSet {
            read: Some((Nanos(1_000_000_000), 7)),
        };
        let mut at = |millis: u64| set.size(Nanos(millis * 1_000_000));
        assert_eq!((at(1_000), at(1_099)), (Some(7), Some(7)));
        assert!(at(1_100).unwrap() > 7);
    }
}
