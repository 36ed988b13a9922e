//! Progress bars on stderr, if it is a terminal.

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
