//! How busy this process is: readings of its processor time, and of the time that its threads wait for a processor.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

use nthbyte_host::clock;
use nthbyte_host::process::for_each_name;
use nthbyte_profile::Activity;
use nthbyte_profile::event::Nanos;

/// The shortest time between two readings, in nanoseconds. A reading takes about 10 µs of the writer thread for each of the
/// program's threads.
const BETWEEN: u64 = 1_000_000_000;
/// The time between two readings is this part of the session's time, if that is longer: so a session of a day has some
/// hundred readings.
const PART: u64 = 64;
/// With more threads, the others are taken as never waiting.
const MOST_THREADS: usize = 64;

/// Reads how busy the process is, at intervals.
#[derive(Debug)]
pub(crate) struct ActivityMeter {
    read: Option<Nanos>,
    /// Processor time of the process at the first reading.
    used_before: u64,
    ready: u64,
    /// The numbers of the threads of the last reading, and how long each has waited for a processor since it began.
    threads: [(u32, u64); MOST_THREADS],
    known: usize,
}

impl Default for ActivityMeter {
    fn default() -> Self {
        Self {
            read: None,
            used_before: 0,
            ready: 0,
            threads: [(0, 0); MOST_THREADS],
            known: 0,
        }
    }
}

impl ActivityMeter {
    /// The reading to record now, if one is due. `is_last` makes one without regard to the time.
    pub(crate) fn reading(&mut self, now: Nanos, is_last: bool) -> Option<Activity> {
        let is_due = self
            .read
            .is_none_or(|read| now.0.saturating_sub(read.0) >= BETWEEN.max(now.0 / PART));
        if !(is_due || is_last) {
            return None;
        }
        let is_first = self.read.is_none();
        self.read = Some(now);
        let used = clock::read(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0);
        if is_first {
            self.used_before = used;
        }
        self.read_threads(is_first);
        Some(Activity {
            time: now,
            used: Nanos(used.saturating_sub(self.used_before)),
            ready: Nanos(self.ready),
        })
    }

    /// Adds what the threads have waited since the last reading. A thread that has ended since then is left out.
    fn read_threads(&mut self, is_first: bool) {
        // SAFETY: the call has no conditions.
        let own = unsafe { libc::gettid() };
        let Ok(folder) = File::open("/proc/self/task") else {
            return;
        };
        let mut threads = [(0, 0); MOST_THREADS];
        let mut found = 0;
        let _ = for_each_name(folder.as_raw_fd(), |name| {
            if let Some(thread) = number(name)
                && thread.cast_signed() != own
                && let Some(ready) = ready_nanos(thread)
            {
                let before = self.threads[..self.known].iter();
                let before = before.clone().find(|(of, _)| *of == thread);
                // A thread that is new has waited since the last reading only.
                let before = before.map_or(if is_first { ready } else { 0 }, |(_, before)| *before);
                self.ready += ready.saturating_sub(before);
                threads[found] = (thread, ready);
                found += 1;
            }
            found < MOST_THREADS
        });
        (self.threads, self.known) = (threads, found);
    }
}

fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

/// How long a thread has been ready to run without a processor. `None` if the kernel does not count that.
fn ready_nanos(thread: u32) -> Option<u64> {
    let mut text = [0u8; 96];
    let mut file = File::open(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    let got = file.read(&mut text).ok()?;
    // The time on a processor, the time of waiting for one, and the number of turns.
    let text = std::str::from_utf8(&text[..got]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn readings_become_rarer() {
        let mut meter = ActivityMeter::default();
        let second = |count: u64| Nanos(count * 1_000_000_000);
        assert!(meter.reading(second(0), false).is_some());
        assert_eq!(meter.reading(Nanos(999_999_999), false), None);
        assert!(meter.reading(second(1), false).is_some());
        assert!(meter.reading(second(640), false).is_some());
        assert_eq!(meter.reading(second(649), false), None);
        assert!(meter.reading(second(649), true).is_some());
        assert!(meter.reading(second(660), false).is_some());
    }

    /// Whatever the machine does, a thread that never waits is busy: it runs, or it is ready. The processor time of the other
    /// tests counts too.
    #[test]
    fn work_without_a_pause_is_busy() {
        let worker = std::thread::spawn(|| {
            let mut meter = ActivityMeter::default();
            let first = meter.reading(Nanos(0), false).unwrap();
            let begun = Instant::now();
            let other = std::thread::spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(300) {
                    std::hint::spin_loop();
                }
                // Until it is asked for the last time.
                std::thread::park_timeout(Duration::from_secs(60));
            });
            std::thread::sleep(Duration::from_millis(300));
            let passed = begun.elapsed();
            let last = meter
                .reading(Nanos(passed.as_nanos() as u64), true)
                .unwrap();
            other.thread().unpark();
            other.join().unwrap();
            (first, last)
        });
        let (first, last) = worker.join().unwrap();
        assert_eq!((first.used, first.ready), (Nanos(0), Nanos(0)));
        assert!(last.busy_since(&first) > 0.5, "{last:?}");
    }
}
