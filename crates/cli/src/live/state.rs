//! The screen's content, and what a key does.

use std::sync::Arc;

use nthbyte_profile::Profile;
use nthbyte_profile::event::Nanos;
use nthbyte_report::holders::HoldersAsked;
use nthbyte_report::watch::{Column, RowsOf, Watch, WatchOptions};
use nthbyte_report::{At, Holders, LabelKey, LabelQuery};
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

/// What is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// A text that rows contain.
    Filter,
    /// A label, as `--label` takes it.
    Label,
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
    /// What is being typed, and for what.
    pub typed: Option<(Prompt, String)>,
    /// The first row that is shown.
    pub first: usize,
    /// Whether colours may be used.
    pub has_colours: bool,
}

impl State {
    /// A view that has no profile yet.
    pub fn new(has_colours: bool, asked: WatchOptions) -> Self {
        Self {
            profile: None,
            asked,
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

    fn label_keys(&self) -> Vec<&str> {
        let profile = self.profile.as_ref();
        profile.map_or_else(Vec::new, |profile| profile.label_keys())
    }

    /// Rows of the next label; after the last one, of all together.
    fn next_label(&mut self) {
        let keys = self.label_keys();
        let next = match self.asked.rows {
            RowsOf::Label(shown) => {
                let at = keys.iter().position(|&key| key == shown.as_str());
                at.map_or(0, |at| at + 1)
            }
            _ => 0,
        };
        self.asked.rows = match keys.get(next) {
            Some(key) => RowsOf::Label(LabelKey::new(key)),
            None if keys.is_empty() => return,
            None => RowsOf::Labels,
        };
        self.first = 0;
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
            let by = match self.asked.rows {
                RowsOf::Label(key) => Some(key.as_str()),
                _ => None,
            };
            let asked = HoldersAsked {
                at: Some(At::End),
                labels: &self.asked.labels,
                by,
            };
            let text = match Holders::asked(profile, &asked) {
                Ok(holders) if by.is_some() => holders.render_labels(wanted),
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
        if let Some((prompt, typed)) = &mut self.typed {
            match key {
                KeyCode::Char(sign) => typed.push(sign),
                KeyCode::Backspace => drop(typed.pop()),
                KeyCode::Enter => {
                    match prompt {
                        Prompt::Filter => self.asked.filter = std::mem::take(typed),
                        Prompt::Label => {
                            self.asked.labels = LabelQuery::parse(typed).into_iter().collect();
                        }
                    }
                    self.typed = None;
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
            KeyCode::Esc => {
                self.asked.filter.clear();
                self.asked.labels.clear();
            }
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
                    RowsOf::Process if !self.label_keys().is_empty() => RowsOf::Labels,
                    RowsOf::Process | RowsOf::Labels | RowsOf::Label(_) => RowsOf::Function,
                };
                self.first = 0;
            }
            KeyCode::Char('l') => self.next_label(),
            KeyCode::Char('/') => self.typed = Some((Prompt::Filter, String::new())),
            KeyCode::Char('L') => self.typed = Some((Prompt::Label, String::new())),
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
