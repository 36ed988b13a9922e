//! While a process is recorded: a progress bar, Ctrl-C, and whether the process is still there.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::progress::Progress;

/// How often the bar moves and the process is looked at.
const STEP: Duration = Duration::from_millis(200);
/// The looks in a row at which the profile is not open any more, before the recording has ended.
const LOOKS: u32 = 5;

/// How long the end of a process may take, after it could not be asked.
const LONGEST_END: Duration = Duration::from_secs(2);

/// Which file it is: the numbers of its device and of itself.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The user wants that, or the time is over.
    Now,
    /// The process has ended.
    WithProcess,
    /// The process does not write the profile any more.
    Elsewhere,
}

/// The signals that end this command, which end the recording first.
pub struct Watch {
    runtime: Runtime,
    signals: Vec<Signal>,
}

/// Calls `work` with signals held back: one that comes meanwhile is seen by [`Watch::until`].
///
/// # Errors
/// What `work` returns.
pub fn during(work: impl FnOnce(&mut Watch) -> Result<()>) -> Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot wait for signals")?;
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let signals = {
        let _entered = runtime.enter();
        kinds
            .map(signal)
            .into_iter()
            .collect::<std::io::Result<_>>()
    };
    let signals = signals.context("cannot wait for signals")?;
    work(&mut Watch { runtime, signals })
}

impl Watch {
    /// Waits until the recording of a process into a file is to end, or has ended.
    pub fn until(
        &mut self,
        pid: u32,
        profile: Option<(u64, u64)>,
        length: Option<Duration>,
    ) -> Ended {
        let progress = length.map(|_| Progress::steps("recording"));
        let begun = Instant::now();
        let mut looks = 0;
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            loop {
                let done = begun.elapsed();
                let left = length.map_or(STEP, |length| length.saturating_sub(done).min(STEP));
                if left.is_zero() {
                    return Ended::Now;
                }
                if let (Some(progress), Some(length)) = (&progress, length) {
                    let milliseconds = |time: Duration| time.as_millis() as u64;
                    progress.at(milliseconds(done), milliseconds(length));
                }
                if tokio::time::timeout(left, any(signals)).await.is_ok() {
                    return Ended::Now;
                }
                if is_gone(pid) {
                    return Ended::WithProcess;
                }
                looks = if has_open(pid, profile) { 0 } else { looks + 1 };
                if looks == LOOKS {
                    // A process closes the profile before its interpreter ends, which may take a while.
                    return match ends(pid) {
                        true => Ended::WithProcess,
                        false => Ended::Elsewhere,
                    };
                }
            }
        })
    }
}

/// Waits for one of the signals.
fn any(signals: &mut [Signal]) -> impl Future<Output = ()> {
    std::future::poll_fn(|context| {
        let came = signals
            .iter_mut()
            .any(|one| one.poll_recv(context).is_ready());
        if came {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
}

/// Whether a process has ended.
pub fn is_gone(pid: u32) -> bool {
    matches!(nthbyte_attach::state(pid), None | Some('Z' | 'X'))
}

/// Whether a process ends within a moment: one that is about to has no memory any more, and is still there.
pub fn ends(pid: u32) -> bool {
    let end = Instant::now() + LONGEST_END;
    while !is_gone(pid) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(STEP / 10);
    }
    true
}

/// Whether a process has a file open; also if it may not be looked at.
fn has_open(pid: u32, file: Option<(u64, u64)>) -> bool {
    let (Some(_), Ok(entries)) = (file, std::fs::read_dir(format!("/proc/{pid}/fd"))) else {
        return true;
    };
    // Not by names, which have another root in another mount namespace.
    let mut open = entries.filter_map(|entry| identity(&entry.ok()?.path()));
    open.any(|one| Some(one) == file)
}
