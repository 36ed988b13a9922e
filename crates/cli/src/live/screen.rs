//! The view as lines of a terminal.

use nthbyte_report::LabelQuery;
use nthbyte_report::text::{self, Cut};
use nthbyte_report::watch::{self, Column, RowsOf, Watch};
use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::state::{Below, Prompt, State};

/// The widths of the columns of figures.
const RATE: usize = 17;
const ALIVE: usize = 15;
const GROWTH: usize = 22;
/// The columns before a curve.
const BEFORE_CURVE: usize = 38;

const HELP: [(&str, &str); 12] = [
    ("q", "leave"),
    ("p", "pause: nothing new is shown until the next p"),
    ("r", "reset: rates and growth from now on"),
    (
        "s, + and -",
        "the next column to sort by, and the one before",
    ),
    ("t", "rows: functions, types, threads, processes, labels"),
    (
        "l",
        "rows: the values of each label, one after the other; then all labels",
    ),
    (
        "L",
        "only what has a label: endpoint=/checkout; Esc shows all again",
    ),
    (
        "w",
        "who holds what, by the last snapshot; w or Esc: the rows",
    ),
    (
        "/",
        "only rows whose name or file has a text; Esc shows all again",
    ),
    ("↑ ↓", "scroll"),
    ("±", "a 95 % interval; two figures with – or … are its ends"),
    ("?", "this help"),
];

/// Draws the view.
pub fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let area = frame.area();
    let lines = lines(state, area.width.into(), area.height.into());
    frame.render_widget(Paragraph::new(lines), area);
}

/// The lines of a screen of so many columns and lines.
fn lines(state: &mut State, width: usize, height: usize) -> Vec<Line<'static>> {
    let look = Look {
        has_colours: state.has_colours,
    };
    let Some(watch) = state.watch.take() else {
        return vec![Line::from("waiting for the profile… (q to leave)")];
    };
    let mut lines = head(&watch, state, &look, width);
    let left = height.saturating_sub(lines.len() + 2);
    if let Some(holders) = state.holders(width) {
        let most = holders.len().saturating_sub(1);
        let holders: Vec<_> = holders
            .iter()
            .map(|line| text::fit(line, width, Cut::End))
            .collect();
        state.first = state.first.min(most);
        let shown = holders.into_iter().skip(state.first).take(left + 1);
        lines.extend(shown.map(Line::from));
    } else if state.shown == Below::Help {
        lines.push(look.strong("keys".to_owned()));
        for (key, what) in HELP.iter().take(left) {
            lines.push(Line::from(text::fit(
                &format!("{key:>12}  {what}"),
                width,
                Cut::End,
            )));
        }
    } else {
        state.first = state.first.min(watch.rows.len().saturating_sub(1));
        lines.push(look.strong(columns(state, &watch, width)));
        let rows = watch.rows.iter().skip(state.first).take(left);
        lines.extend(rows.map(|row| Line::from(line_of(row, width))));
        if watch.rows.is_empty() {
            let asked = state.asked();
            if !asked.filter.is_empty() {
                lines.push(Line::from(format!(
                    "nothing has {:?} in its name",
                    asked.filter
                )));
            }
            if !asked.labels.is_empty() {
                lines.push(Line::from(format!("nothing has {}", labels(&asked.labels))));
            }
        }
    }
    lines.resize(height.saturating_sub(1), Line::default());
    let keys = match &state.typed {
        Some((prompt, typed)) => {
            let before = match prompt {
                Prompt::Filter => "/",
                Prompt::Label => "KEY=VALUE: ",
            };
            format!("{before}{typed}▏ Enter takes it, Esc leaves it")
        }
        None => "q quit  p pause  r reset  s sort  t rows  l labels  w holders  / filter  ? help"
            .to_owned(),
    };
    lines.push(look.faint(text::fit(&keys, width, Cut::End)));
    state.watch = Some(watch);
    lines
}

/// How text looks.
struct Look {
    has_colours: bool,
}

impl Look {
    fn strong(&self, words: String) -> Line<'static> {
        Line::styled(words, Style::default().add_modifier(Modifier::BOLD))
    }

    fn faint(&self, words: String) -> Line<'static> {
        Line::styled(words, self.coloured(Color::DarkGray))
    }

    fn coloured(&self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::default().fg(colour),
            false => Style::default(),
        }
    }

    /// A line of a figure and its curve.
    fn figure(
        &self,
        name: &str,
        figure: &str,
        points: &[Option<f64>],
        colour: Color,
        width: usize,
    ) -> Line<'static> {
        let before = text::pad(&format!("{name:6} {figure}"), BEFORE_CURVE, Cut::End);
        let room = width.saturating_sub(BEFORE_CURVE);
        let curve = watch::curve(&points[points.len().saturating_sub(room)..]);
        Line::from(vec![
            Span::raw(before),
            Span::styled(curve, self.coloured(colour)),
        ])
    }
}

/// The largest parts, as many as fit.
fn made_of(parts: &[String], width: usize) -> String {
    let mut line = format!("RSS is made of: {}", parts[0]);
    for (number, part) in parts.iter().enumerate().skip(1) {
        // Room for the sign of the cut.
        let left = if number + 1 == parts.len() { 0 } else { 2 };
        if line.chars().count() + 3 + part.chars().count() + left > width {
            return line + " …";
        }
        line = format!("{line} · {part}");
    }
    line
}

fn head(watch: &Watch, state: &State, look: &Look, width: usize) -> Vec<Line<'static>> {
    let mut words = vec![watch.command.clone(), watch.interpreter.clone()];
    if watch.processes > 1 {
        words.push(format!("{} processes", watch.processes));
    }
    words.push(text::duration(watch.end.0));
    if !state.asked().labels.is_empty() {
        words.push(format!("only {}", labels(&state.asked().labels)));
    }
    let now = match (state.is_paused, watch.has_ended) {
        (true, _) => " paused",
        (false, true) => " ended",
        (false, false) => "",
    };
    let title = text::fit(
        &words.join(" · "),
        width.saturating_sub(now.len()),
        Cut::Middle,
    );
    let known = |curve: &[Option<u64>]| -> Vec<Option<f64>> {
        curve
            .iter()
            .map(|of| of.map(|bytes| bytes as f64))
            .collect()
    };
    let rss = watch.rss.map_or_else(
        || "not known yet".to_owned(),
        |(now, peak)| {
            format!(
                "{}, at most {}",
                text::bytes(now as f64),
                text::bytes(peak as f64)
            )
        },
    );
    let heap = watch.heap.map_or_else(String::new, |heap| {
        format!("heap {}", text::bytes(heap as f64))
    });
    let (per_second, share) = watch.collections;
    let collections = format!(
        "{per_second:.1} collections/s, {} of the time · {} so far",
        text::percent(share),
        text::counted(watch.threads as u64, "thread"),
    );
    let total: f64 = watch.parts.iter().map(|(_, bytes)| bytes).sum();
    let parts: Vec<String> = watch
        .parts
        .iter()
        .map(|(name, bytes)| format!("{name} {}", text::percent(bytes / total)))
        .collect();
    let second = [heap, collections]
        .into_iter()
        .filter(|words| !words.is_empty());
    let second = second.collect::<Vec<_>>().join(" · ");
    let parts = match parts.is_empty() {
        true => "RSS is made of: not known yet".to_owned(),
        false => made_of(&parts, width),
    };
    vec![
        Line::from(vec![
            Span::styled(title, Style::default().add_modifier(Modifier::BOLD)),
            Span::styled(now.to_owned(), look.coloured(Color::Yellow)),
        ]),
        look.figure("RSS", &rss, &known(&watch.rss_curve), Color::Blue, width),
        look.figure(
            "rate",
            &format!("{}/s", watch::figure(&watch.rate)),
            &watch.rate_curve,
            Color::Green,
            width,
        ),
        Line::from(text::fit(&second, width, Cut::End)),
        Line::from(text::fit(&parts, width, Cut::End)),
        Line::default(),
    ]
}

/// The heads of the columns: that which rows are sorted by is marked.
fn columns(state: &State, watch: &Watch, width: usize) -> String {
    let head = |name: String, column: Column, width: usize| {
        let mark = if state.asked().sort == column {
            "▼"
        } else {
            ""
        };
        format!("{:>width$}", format!("{mark}{name}"))
    };
    let time = |time: u64| text::duration(time / 1_000_000_000 * 1_000_000_000);
    let rows = match state.asked().rows {
        RowsOf::Function => "function",
        RowsOf::Type => "type",
        RowsOf::Thread => "thread",
        RowsOf::Process => "process",
        RowsOf::Labels => "labels",
        RowsOf::Label(key) => key.as_str(),
    };
    let filter = match state.asked().filter.as_str() {
        "" => String::new(),
        filter => format!(" with {filter:?}"),
    };
    let text = format!(
        "{}{}{}  {rows}{filter}",
        head(
            format!("rate, {}", time(watch.rate_over.0)),
            Column::Rate,
            RATE
        ),
        head("alive".to_owned(), Column::Alive, ALIVE),
        head(
            format!("growth, {}", time(watch.growth_over.0)),
            Column::Growth,
            GROWTH
        ),
    );
    text::fit(&text, width, Cut::End)
}

/// Labels that are asked for.
fn labels(asked: &[LabelQuery]) -> String {
    let texts: Vec<String> = asked.iter().map(LabelQuery::text).collect();
    text::clean(&texts.join(" "))
}

fn line_of(row: &watch::WatchRow, width: usize) -> String {
    let right = |words: &str, width: usize| {
        let words = text::fit(words, width, Cut::End);
        format!("{}{words}", " ".repeat(width - text::width(&words)))
    };
    let rate = match watch::figure(&row.rate).as_str() {
        "0 B" => String::new(),
        rate => format!("{rate}/s"),
    };
    let alive = row.alive.as_ref().map_or_else(String::new, watch::figure);
    let growth = row
        .growth
        .as_ref()
        .map_or_else(String::new, watch::difference);
    let figures = [
        right(&rate, RATE),
        right(&alive, ALIVE),
        right(&growth, GROWTH),
    ]
    .concat();
    let room = width.saturating_sub(RATE + ALIVE + GROWTH + 2);
    let line = format!("{figures}  {}", watch::named(row, room));
    text::fit(&line, width, Cut::End)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nthbyte_profile::Profile;
    use nthbyte_profile::event::LabelSetId;
    use nthbyte_profile::model::{LabelSet, Sample};
    use nthbyte_profile::synthetic::Synthetic;
    use nthbyte_report::watch::WatchOptions;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::*;

    /// The screens after keys, of a profile whose figures do not depend on the time.
    fn screens(keys: &str, width: u16, height: u16) -> Vec<String> {
        screens_of(|_| (), keys, width, height)
    }

    fn screens_of(
        change: impl FnOnce(&mut Profile),
        keys: &str,
        width: u16,
        height: u16,
    ) -> Vec<String> {
        let bytes = Synthetic {
            samples: 20_000,
            ..Synthetic::default()
        }
        .bytes();
        let mut profile = Profile::read(&bytes[..]).unwrap();
        change(&mut profile);
        let profile = Arc::new(profile);
        let mut state = State::new(false, WatchOptions::default());
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut screen = |state: &mut State| {
            terminal.draw(|frame| draw(frame, state)).unwrap();
            terminal.backend().to_string()
        };
        let mut found = vec![screen(&mut state)];
        state.learn(profile);
        found.push(screen(&mut state));
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                key => KeyCode::Char(key),
            };
            assert!(state.press(code), "{key}");
            found.push(screen(&mut state));
        }
        assert!(!state.press(KeyCode::Char('q')));
        found
    }

    #[test]
    fn keys_change_what_is_shown() {
        let [waiting, first, by_alive, by_growth, types, help, back] =
            screens("sst??", 80, 24).try_into().unwrap();
        assert!(waiting.contains("waiting for the profile"));
        for part in [
            "RSS",
            "rate",
            "collections/s",
            "▼rate, 10.0 s",
            "alive",
            "function",
            "q quit",
        ] {
            assert!(first.contains(part), "{part}\n{first}");
        }
        assert!(by_alive.contains("▼alive") && !by_alive.contains("▼rate"));
        assert!(by_growth.contains("▼growth"));
        assert!(types.contains("type") && !types.contains("  function"));
        assert!(help.contains("leave") && help.contains("interval"));
        assert_eq!(back, types);
    }

    #[test]
    fn who_holds_what_takes_the_place_of_the_rows() {
        let [_, rows, holders, help, again, back] = screens("w?ww", 80, 24).try_into().unwrap();
        assert!(
            holders.contains("the profile does not say who holds what"),
            "{holders}"
        );
        assert!(!holders.contains("▼rate") && holders.contains("w holders"));
        assert!(help.contains("leave"));
        assert_eq!((again, back), (holders, rows));
    }

    #[test]
    fn labels_are_rows_one_after_the_other_and_select() {
        let label = |profile: &mut Profile| {
            for (key, value) in [("endpoint", "/a"), ("tenant", "x")] {
                profile.label_sets.push(LabelSet {
                    parent: LabelSetId(profile.label_sets.len() as u32 - 1),
                    key: key.to_owned(),
                    value: value.to_owned(),
                });
            }
            let labels = LabelSetId(2);
            for sample in std::mem::take(&mut profile.samples).iter() {
                profile.samples.push(Sample { labels, ..sample }).unwrap();
            }
        };
        let screens = screens_of(label, "lllltLtenant=x\nLtenant=y\n", 80, 24);
        let [endpoint, tenant, all, again, functions] = &screens[2..7] else {
            panic!("{}", screens.len());
        };
        for (screen, head, row) in [
            (endpoint, "  endpoint", "/a"),
            (tenant, "  tenant", "x"),
            (all, "  labels", "endpoint=/a tenant=x"),
        ] {
            assert!(screen.contains(head) && screen.contains(row), "{screen}");
            assert!(!screen.contains("only "), "{screen}");
        }
        assert_eq!(again, endpoint);
        assert!(functions.contains("  function") && !functions.contains("/a"));
        let typing = &screens[15];
        assert!(typing.contains("KEY=VALUE: tenant=x▏"), "{typing}");
        let of_x = &screens[16];
        assert!(
            of_x.contains("only tenant=x") && !of_x.contains("nothing has"),
            "{of_x}"
        );
        let of_y = screens.last().unwrap();
        assert!(of_y.contains("nothing has tenant=y"), "{of_y}");
        // Without labels the key does nothing.
        let [_, before, after] = screens_of(|_| (), "l", 80, 24).try_into().unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn a_filter_is_typed_and_a_pause_and_a_reset_are_seen() {
        let all = screens("/zz\npr", 80, 24);
        assert!(all[3].contains("/z▏"), "{}", all[3]);
        assert!(
            all[5].contains("nothing has \"zz\" in its name"),
            "{}",
            all[5]
        );
        assert!(all[6].contains("paused"));
        assert!(
            all[7].contains("rate, 0 ns") || all[7].contains("rate, 0"),
            "{}",
            all[7]
        );
    }

    #[test]
    fn every_size_of_a_terminal_has_a_screen() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 80)] {
            for screen in screens("t?/x\n", width, height) {
                assert_eq!(screen.lines().count(), usize::from(height));
            }
        }
    }
}
