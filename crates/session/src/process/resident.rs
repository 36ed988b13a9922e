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
