//! Progress bars on stderr, if it is a terminal.

use std::io::IsTerminal as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that vanishes when it is dropped.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar that counts bytes.
    pub fn bytes(what: &'static str) -> Self {
        Self::new(
            what,
            "{msg} {bar:40} {binary_bytes}/{binary_total_bytes} {eta}",
        )
    }

    /// A bar that shows a percentage, for steps without a unit.
    pub fn steps(what: &'static str) -> Self {
        Self::new(what, "{msg} {bar:40} {percent}% {eta}")
    }

    fn new(what: &'static str, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("the template is a constant");
        // Hidden unless stderr is a terminal. Short work shows no bar (see `at`).
        let bar = ProgressBar::new(0).with_style(style).with_message(what);
        bar.set_draw_target(indicatif::ProgressDrawTarget::stderr_with_hz(10));
        Self { bar }
    }

    /// Shows that `done` of `total` is complete.
    pub fn at(&self, done: u64, total: u64) {
        if self.bar.elapsed() < Duration::from_millis(300) {
            return;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How long work takes before it is shown.
const SHOWN_AFTER: Duration = Duration::from_millis(500);

/// Does something whose steps are not known, and shows on stderr, if that is a terminal, that it goes on.
pub fn during<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    let _working = Working::at(what);
    work()
}

/// Work whose steps are not known, until it is dropped. Its line is gone then.
pub struct Working(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl Working {
    /// Shows on stderr, if that is a terminal, that the work goes on.
    pub fn at(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let (done, is_done) = mpsc::channel::<()>();
        let show = move || {
            if is_done.recv_timeout(SHOWN_AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::new_spinner().with_message(what);
            bar.enable_steady_tick(Duration::from_millis(100));
            // Until the other end is dropped.
            let _ = is_done.recv();
            bar.finish_and_clear();
        };
        // Without a thread nothing is shown.
        let shown = thread::Builder::new().spawn(show).ok();
        Self(shown.map(|shown| (done, shown)))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some((done, shown)) = self.0.take() {
            drop(done);
            let _ = shown.join();
        }
    }
}
