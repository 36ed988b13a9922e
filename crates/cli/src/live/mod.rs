//! `nthbyte live`: a view of a profile in the terminal while the program still writes it.
//!
//! ```text
//! begun    a recording that begins and ends with the view
//! source   which files, and reading on when they have grown, in a thread of its own
//! state    the screen's content, and what a key does
//! screen   the state as lines
//! ```
//!
//! Nothing runs in the program for it.

mod begun;
mod screen;
mod source;
mod state;

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use nthbyte_profile::HOST;
use nthbyte_report::watch::{RowsOf, WatchOptions};
use nthbyte_report::{LabelKey, LabelQuery};

use crate::output::say;
use crate::question::{by, selecting};
use begun::Begun;
use source::Source;
use state::State;

/// What `live` takes.
#[derive(Args)]
#[command(override_usage = "nthbyte live [OPTIONS] (PID | PROFILE | -- COMMAND...)")]
pub struct Arguments {
    /// The number of a process, or a profile; it need not be complete. A process that is not recorded is, by `nthbyte attach`, until the
    /// view ends. `nthbyte live -- app.py` runs a program as `nthbyte run app.py` does, and ends it when the view ends.
    #[arg(value_name = "PID|PROFILE")]
    what: String,
    /// The process that is about to write the profile.
    #[arg(long, hide = true)]
    writer: Option<u32>,
    /// What the rows are at first: function, type, thread, process, host, task, test, or label:KEY for the values of a label. Keys change it.
    #[arg(long, value_name = "ROWS", value_parser = rows, default_value = "function")]
    by: RowsOf,
    /// Only what is allocated under this label: a key with a value, or the beginning of values with a `*` after it. May be given several
    /// times: of one key, any of its values is shown.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = selecting::label)]
    labels: Vec<LabelQuery>,
}

fn rows(text: &str) -> Result<RowsOf, String> {
    match text {
        "function" => Ok(RowsOf::Function),
        "type" => Ok(RowsOf::Type),
        "thread" => Ok(RowsOf::Thread),
        "process" => Ok(RowsOf::Process),
        text => by::label(text)
            .map(|key| RowsOf::Label(LabelKey::new(key)))
            .ok_or_else(|| {
                "write function, type, process, thread, host, task, test, or label:KEY".to_owned()
            }),
    }
}

/// The longest wait for a key, after which the screen is drawn anew if the profile has grown.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

impl Arguments {
    /// Shows the view until the user leaves it.
    ///
    /// # Errors
    /// If there is no terminal, or no profile.
    pub fn run(self) -> Result<()> {
        if !stdout().is_terminal() {
            bail!("live needs a terminal; nthbyte explain shows a profile as text");
        }
        let (path, begun) = path_of(&self.what)?;
        let asked = WatchOptions {
            rows: self.by,
            labels: self.labels,
            ..WatchOptions::default()
        };
        let result = view(&path, self.writer, asked);
        if let Some(begun) = begun {
            say!("{}", begun.end());
        }
        result
    }
}

/// Shows a profile until the user leaves it.
fn view(path: &Path, writer: Option<u32>, asked: WatchOptions) -> Result<()> {
    let by_host = matches!(asked.rows, RowsOf::Label(key) if key.as_str() == HOST)
        || asked.labels.iter().any(|label| label.key == HOST);
    let source = Source::follow(path, writer, by_host)?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let result = show(&mut terminal, &source, asked);
    // A terminal that is gone refuses both. `ratatui::restore` and the drop of a terminal would print that, and panic
    // where the error has nowhere to go.
    let _ = terminal.show_cursor();
    let _ = ratatui::try_restore();
    std::mem::forget(terminal);
    result
}

/// The profile that is meant: of a process, if it is the number of one, whose recording may begin here.
fn path_of(what: &str) -> Result<(PathBuf, Option<Begun>)> {
    let is_number = !what.is_empty() && what.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number || PathBuf::from(what).exists() {
        return Ok((PathBuf::from(what), None));
    }
    if let Some(path) = source::of_process(what)? {
        return Ok((path, None));
    }
    let begun = Begun::begin(what)?;
    match source::of_process(what)? {
        Some(path) => Ok((path, Some(begun))),
        None => {
            say!("{}", begun.end());
            bail!("process {what} has ended, or writes its profile where this user cannot read it")
        }
    }
}

/// Waits for a key, for at most [`TICK`]. Returns whether the terminal is still there. Its programs get SIGHUP otherwise, but not all of
/// them: after `nohup`, or in another session. [`event::poll`] would not notice, and read its end again and again.
fn wait() -> bool {
    let stdout = stdout();
    let mut terminal = [PollFd::new(&stdout, PollFlags::IN)];
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    // A signal may interrupt it: a new size's.
    poll(&mut terminal, Some(&TICK)).is_err() || !terminal[0].revents().intersects(gone)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    source: &Source,
    asked: WatchOptions,
) -> Result<()> {
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = State::new(has_colours, asked);
    loop {
        if let Some(news) = source.news() {
            state.learn(news?);
        }
        terminal.draw(|frame| screen::draw(frame, &mut state))?;
        if !wait() {
            return Ok(());
        }
        // What came with the last key is here already, and not in the terminal any more.
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let is_interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_interrupt || !state.press(key.code) {
                    return Ok(());
                }
            }
        }
    }
}
