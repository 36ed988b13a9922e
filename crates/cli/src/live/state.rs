//! The screen's content, and what a key does.

use std::sync::Arc;

use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;
use nthbyte_report::watch::{Column, RowsOf, Watch, WatchOptions};
use nthbyte_report::{At, Holders};
use ratatui::crossterm::event::KeyCode;

/// The lines below the head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Below {
    /// The rows.
    #[default]
    Rows,
    /// The keys.
    Help,
    /// Who holds what, by the last snapshot: the lines of `nthbyte holders` at this width.
    Holders {
        /// The lines; of another width, they are made anew.
        lines: Vec<String>,
        /// That width.
        width: usize,
    },
}

/// The view.
pub struct State {
    profile: Option<Arc<Profile>>,
    asked: WatchOptions,
    /// The figures on the screen; `None` before there is a profile.
    pub watch: Option<Watch>,
    /// Whether new figures are not shown.
    pub is_paused: bool,
    /// The lines below the head.
    pub shown: Below,
    /// The filter that is being typed.
    pub typed: Option<String>,
    /// The first row that is shown.
    pub first: usize,
    /// Whether colours may be used.
    pub has_colours: bool,
}

impl State {
    /// A view that has no profile yet.
    pub fn new(has_colours: bool) -> Self {
        Self {
            profile: None,
            asked: WatchOptions::default(),
            watch: None,
            is_paused: false,
            shown: Below::Rows,
            typed: None,
            first: 0,
            has_colours,
        }
    }

    /// The question to the profile.
    pub const fn asked(&self) -> &WatchOptions {
        &self.asked
    }

    /// The profile has grown.
    pub fn learn(&mut self, profile: Arc<Profile>) {
        if !self.is_paused || self.profile.is_none() {
            self.profile = Some(profile);
            self.ask();
        }
    }

    fn has_labels(&self) -> bool {
        let profile = self.profile.as_ref();
        profile.is_some_and(|profile| !profile.label_keys().is_empty())
    }

    fn ask(&mut self) {
        if let Some(profile) = &self.profile {
            self.watch = Some(Watch::of(profile, &self.asked));
        }
        if let Below::Holders { width, .. } = &mut self.shown {
            *width = 0;
        }
    }

    /// Shows something in place of the rows, or the rows again if it is shown.
    fn turn(&mut self, to: Below) {
        let is_shown = std::mem::discriminant(&self.shown) == std::mem::discriminant(&to);
        self.shown = if is_shown { Below::Rows } else { to };
        self.first = 0;
    }

    /// The lines that say who holds what; `None` if they are not shown.
    pub fn holders(&mut self, wanted: usize) -> Option<&[String]> {
        let Below::Holders { lines, width } = &mut self.shown else {
            return None;
        };
        if *width != wanted
            && let Some(profile) = &self.profile
        {
            let text = match Holders::of(profile, Some(At::End)) {
                Ok(holders) => holders.render(wanted),
                Err(why) => why.to_string(),
            };
            *lines = text.lines().map(str::to_owned).collect();
            *width = wanted;
        }
        Some(lines)
    }

    /// A key. Returns whether the view goes on.
    pub fn press(&mut self, key: KeyCode) -> bool {
        if let Some(typed) = &mut self.typed {
            match key {
                KeyCode::Char(sign) => typed.push(sign),
                KeyCode::Backspace => drop(typed.pop()),
                KeyCode::Enter => {
                    self.asked.filter = self.typed.take().unwrap_or_default();
                    self.first = 0;
                    self.ask();
                }
                KeyCode::Esc => self.typed = None,
                _ => {}
            }
            return true;
        }
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Char('?') | KeyCode::Char('h') => self.turn(Below::Help),
            KeyCode::Char('w') => self.turn(Below::Holders {
                lines: Vec::new(),
                width: 0,
            }),
            KeyCode::Esc if self.shown != Below::Rows => self.turn(Below::Rows),
            KeyCode::Esc => self.asked.filter.clear(),
            KeyCode::Char('p') | KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => {
                self.asked.since = self.profile.as_ref().map_or(Nanos(0), |of| of.end);
            }
            KeyCode::Char('s') | KeyCode::Char('+') => self.sort(1),
            KeyCode::Char('S') | KeyCode::Char('-') => self.sort(2),
            KeyCode::Char('t') => {
                self.asked.rows = match self.asked.rows {
                    RowsOf::Function => RowsOf::Type,
                    RowsOf::Type => RowsOf::Thread,
                    RowsOf::Thread => RowsOf::Process,
                    RowsOf::Process if self.has_labels() => RowsOf::Labels,
                    RowsOf::Process | RowsOf::Labels => RowsOf::Function,
                };
                self.first = 0;
            }
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Down | KeyCode::Char('j') => self.first = self.first.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::Home => self.first = 0,
            _ => return true,
        }
        self.ask();
        true
    }

    /// Takes the column that is so many further on.
    fn sort(&mut self, steps: usize) {
        const COLUMNS: [Column; 3] = [Column::Rate, Column::Alive, Column::Growth];
        let at = COLUMNS.iter().position(|&column| column == self.asked.sort);
        self.asked.sort = COLUMNS[(at.unwrap_or(0) + steps) % COLUMNS.len()];
        self.first = 0;
    }
}
