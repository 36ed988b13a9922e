//! A process that has begun what it was asked, and does not answer.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nthbyte_attach::Awaited;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::output::say;

/// How often it is seen how long an answer takes.
const STEP: Duration = Duration::from_millis(200);

/// How long an answer may take before that is said: the start of a recording takes milliseconds, a snapshot of a large heap longer.
const SILENT: Duration = Duration::from_secs(10);

/// Calls `work`, which asks a process. If the answer takes long, this says so; from then on Ctrl-C ends this command.
pub fn during<T>(pid: u32, work: impl FnOnce(&Awaited) -> T) -> T {
    let awaited = Awaited::default();
    thread::scope(|scope| {
        // Closed when the work is done.
        let (open, end) = channel();
        scope.spawn(|| watch(pid, &awaited, end));
        let done = work(&awaited);
        drop(open);
        done
    })
}

fn watch(pid: u32, awaited: &Awaited, end: Receiver<()>) {
    while end.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
        let since = awaited.since();
        if since.is_none_or(|since| since.elapsed() < SILENT) {
            continue;
        }
        say!(
            "nthbyte: process {pid} has begun what was asked, and has not answered for {} s: it has much to do, or a signal handler of the \
             program runs in the middle of it; Ctrl-C ends this command, not what was begun",
            SILENT.as_secs()
        );
        // It comes as late as this, because a recording that has begun in time is ended by it.
        let runtime = Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(until_interrupted(&end));
        }
        return;
    }
}

/// Ends this command if Ctrl-C comes before the answer.
async fn until_interrupted(end: &Receiver<()>) {
    let Ok(mut interrupts) = signal(SignalKind::interrupt()) else {
        return;
    };
    while end.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
        if tokio::time::timeout(STEP, interrupts.recv()).await.is_ok() {
            std::process::exit(128 + libc::SIGINT);
        }
    }
}
