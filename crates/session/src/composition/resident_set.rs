//! The resident set size of this process.

use std::fs::File;
use std::io::Read;

use nthbyte_profile::event::{Memory, Nanos};

/// Limits in nanoseconds for the time between two readings: a sixteenth of the session's time, within these limits. A
/// reading takes 20 to 50 µs of the writer thread.
const BETWEEN: (u64, u64) = (20_000_000, 100_000_000);
/// A reading is recorded if the size has changed by more than the last recorded size divided by this.
const NOTICEABLE: u64 = 256;

/// Readings of the resident set size and its peak. An unchanged size is not recorded again and again: a process that
/// sleeps for a day does not fill its profile with them.
#[derive(Debug, Default)]
pub(crate) struct ResidentSet {
    read: Option<Nanos>,
    recorded: Option<Memory>,
    /// The last reading, if it is not recorded.
    skipped: Option<Memory>,
}

impl ResidentSet {
    /// The readings to record now, in the order of their times; the last one has this time. Before a change comes the
    /// last reading before it, so that the change has its right time, and the peak that was passed between the two, if there
    /// is one. `is_last` makes a reading without regard to the
    /// time, and returns it even if it is unchanged.
    pub(crate) fn readings(&mut self, now: Nanos, is_last: bool) -> [Option<Memory>; 3] {
        let (least, most) = BETWEEN;
        let is_due = self
            .read
            .is_none_or(|read| now.0.saturating_sub(read.0) >= (now.0 / 16).clamp(least, most));
        if !(is_due || is_last) {
            return [None; 3];
        }
        self.read = Some(now);
        let (rss, peak_rss) = read();
        let memory = Memory {
            time: now,
            rss,
            peak_rss,
            ..Memory::default()
        };
        self.select(memory, is_last)
    }

    /// The size at the last reading, whether that was recorded or not.
    pub(crate) fn last(&self) -> Option<u64> {
        self.skipped.or(self.recorded)?.rss
    }

    fn select(&mut self, memory: Memory, is_last: bool) -> [Option<Memory>; 3] {
        if !is_last
            && self
                .recorded
                .is_some_and(|before| !has_changed(&before, &memory))
        {
            self.skipped = Some(memory);
            return [None; 3];
        }
        let passed = self
            .recorded
            .and_then(|before| peak_between(&before, &memory));
        self.recorded = Some(memory);
        [self.skipped.take(), passed, Some(memory)]
    }
}

/// The peak that lies between two readings, if the size was larger there than at both.
fn peak_between(before: &Memory, now: &Memory) -> Option<Memory> {
    let is_passed = now.peak_rss > before.peak_rss && now.peak_rss > now.rss;
    is_passed.then_some(Memory {
        time: Nanos(now.time.0.saturating_sub(Memory::PASSED.0)),
        rss: now.peak_rss,
        ..*now
    })
}

fn has_changed(before: &Memory, now: &Memory) -> bool {
    let (old, new) = (before.rss.unwrap_or(0), now.rss.unwrap_or(0));
    old.abs_diff(new) > old / NOTICEABLE || before.peak_rss != now.peak_rss
}

/// The size and its peak in bytes, as the kernel counts them. The file is opened for each reading, because the program
/// may close any descriptor.
fn read() -> (Option<u64>, Option<u64>) {
    let mut text = [0u8; 4096];
    let status = File::open("/proc/self/status")
        .and_then(|mut file| file.read(&mut text))
        .map_or(&[][..], |got| &text[..got]);
    let (rss, peak) = (kibibytes(status, b"VmRSS:"), kibibytes(status, b"VmHWM:"));
    // Without /proc, the peak is known still. It includes what the process was before `exec`, so it comes second.
    (rss, peak.or_else(peak_of_usage))
}

/// A field of `/proc/self/status` in bytes. A thread's name is in the file too, but it has no line breaks.
fn kibibytes(status: &[u8], name: &[u8]) -> Option<u64> {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name))?;
    let number = std::str::from_utf8(line).ok()?;
    let number: u64 = number.trim().strip_suffix(" kB")?.parse().ok()?;
    number.checked_mul(1024)
}

fn peak_of_usage() -> Option<u64> {
    // SAFETY: zeroes are a valid `rusage`, which the function fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) == 0).then_some(usage)
    }?;
    u64::try_from(usage.ru_maxrss).ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(time: u64, rss: u64, peak: u64) -> Memory {
        Memory {
            time: Nanos(time),
            rss: Some(rss),
            peak_rss: Some(peak),
            ..Memory::default()
        }
    }

    #[test]
    fn a_change_is_recorded_with_the_reading_before_it() {
        let mut set = ResidentSet::default();
        assert_eq!(
            set.select(memory(1, 1000, 1000), false)[2],
            Some(memory(1, 1000, 1000))
        );
        for time in 2..9 {
            assert_eq!(set.select(memory(time, 1003, 1000), false), [None; 3]);
            assert_eq!(set.last(), Some(1003));
        }
        let grown = memory(9, 1004, 1000);
        assert_eq!(
            set.select(grown, false),
            [Some(memory(8, 1003, 1000)), None, Some(grown)]
        );
        // The peak was passed between two readings.
        let peak = memory(10_000, 1004, 1500);
        let passed = memory(9_000, 1500, 1500);
        assert_eq!(set.select(peak, false), [None, Some(passed), Some(peak)]);
        let last = memory(10_001, 1004, 1500);
        assert_eq!(set.select(last, true), [None, None, Some(last)]);
    }

    #[test]
    fn readings_are_not_too_frequent() {
        let mut set = ResidentSet::default();
        let millis = |count: u64| Nanos(count * 1_000_000);
        assert!(set.readings(millis(0), false)[2].is_some());
        assert_eq!(set.readings(millis(19), false), [None; 3]);
        assert!(set.readings(millis(19), true)[2].is_some());
        set.readings(millis(40), false);
        assert_eq!(set.read, Some(millis(40)));
        set.readings(millis(3_600_000), false);
        set.readings(millis(3_600_099), false);
        assert_eq!(set.read, Some(millis(3_600_000)));
        set.readings(millis(3_600_100), false);
        assert_eq!(set.read, Some(millis(3_600_100)));
    }

    /// New memory of so many bytes, of which nothing is touched without `MAP_POPULATE` among the flags.
    struct Mapped(*mut libc::c_void, usize);

    impl Mapped {
        fn new(bytes: usize, flags: i32) -> Mapped {
            let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: asks for new memory.
            let memory =
                unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
            assert_ne!(memory, libc::MAP_FAILED);
            Mapped(memory, bytes)
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: the memory is ours and unused.
            unsafe { libc::munmap(self.0, self.1) };
        }
    }

    /// Memory that is touched and given back between two readings is in the peak. It is more than all else that the process
    /// of the tests has, because other tests make and free memory at the same time.
    #[test]
    fn the_peak_is_the_kernels() {
        let _lock = crate::tests::one_at_a_time();
        const BYTES: usize = 256 << 20;
        let mut set = ResidentSet::default();
        drop(Mapped::new(BYTES, libc::MAP_POPULATE));
        let after = set.readings(Nanos(1), true)[2].unwrap();
        // The kernel's counters may be some pages late for each thread or core.
        assert!(after.peak_rss.unwrap() >= (BYTES as u64) * 7 / 8);
        assert!(after.rss.unwrap() <= after.peak_rss.unwrap());
        assert!(peak_of_usage().unwrap() * 50 >= after.peak_rss.unwrap() * 49);
        assert_eq!(
            kibibytes(b"Name:\tVmHWM:\nVmHWM:\t      12 kB\n", b"VmHWM:"),
            Some(12288)
        );
        assert_eq!(kibibytes(b"Name:\tx\n", b"VmHWM:"), None);
    }

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
        let _memory = Mapped::new(BYTES, libc::MAP_NORESERVE);
        let reading = ResidentSet::default().readings(Nanos(0), true)[2].unwrap();
        let (size, peak) = (reading.rss.unwrap(), reading.peak_rss.unwrap());
        // Between what must be there and the most that there ever was, in a process that has 1 GiB more of addresses.
        assert!(status("VmSize:") >= 1 << 30);
        assert!(size <= peak && size < 1 << 30, "{size}");
        assert!(size >= 100 << 10, "{size}");
    }
}
