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

use crate::output::say;
use crate::question::by::{NoBy, NoLabel};
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
    #[command(flatten)]
    label: NoLabel,
    #[command(flatten)]
    by: NoBy,
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
        let why = "the key t shows a row for each set of labels, and / those that contain a text";
        self.label.refuse(why)?;
        self.by.refuse(why)?;
        if !stdout().is_terminal() {
            bail!("live needs a terminal; nthbyte explain shows a profile as text");
        }
        let (path, begun) = path_of(&self.what)?;
        let result = view(&path, self.writer);
        if let Some(begun) = begun {
            say!("{}", begun.end());
        }
        result
    }
}

/// Shows a profile until the user leaves it.
fn view(path: &Path, writer: Option<u32>) -> Result<()> {
    let source = Source::follow(path, writer)?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let result = show(&mut terminal, &source);
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

fn show(terminal: &mut ratatui::DefaultTerminal, source: &Source) -> Result<()> {
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = State::new(has_colours);
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
