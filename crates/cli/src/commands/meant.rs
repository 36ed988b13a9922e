//! What the user probably wants, whose first word is not a command.

use std::ffi::OsStr;
use std::path::Path;

use nthbyte_report::text::quoted;

/// Commands by the names that other profilers have for them.
const ELSEWHERE: [(&str, &str); 20] = [
    ("allocations", "summary PROFILE"),
    ("compare", "diff OLD NEW"),
    ("convert", "export PROFILE --to FORMAT"),
    ("flame", "flamegraph PROFILE"),
    ("help", "--help"),
    ("heap", "memory PROFILE"),
    ("leak", "leaks PROFILE"),
    ("load", "view PROFILE"),
    ("monitor", "live PID"),
    ("open", "view PROFILE"),
    ("profile", "run PROGRAM"),
    ("record", "run PROGRAM"),
    ("report", "explain PROFILE"),
    ("rss", "memory PROFILE"),
    ("show", "summary PROFILE"),
    ("start", "run PROGRAM"),
    ("stats", "summary PROFILE"),
    ("table", "summary PROFILE"),
    ("top", "summary PROFILE"),
    ("transform", "export PROFILE --to FORMAT"),
];

/// What to say to someone whose first word is not a command; `None` if it is not clear what it asks for.
pub fn advice(word: &OsStr) -> Option<String> {
    let text = word.to_str()?;
    if ["-m", "-c"].contains(&text) {
        return Some(format!("a command is missing; try: nthbyte run {text} …"));
    }
    let meant = meant(word)?;
    Some(format!(
        "there is no command {}; try: nthbyte {meant}",
        quoted(text)
    ))
}

/// The arguments of `nthbyte` that do what this word asks for.
fn meant(word: &OsStr) -> Option<String> {
    let text = word.to_str()?;
    if let Some((_, command)) = ELSEWHERE.iter().find(|(name, _)| *name == text) {
        return Some((*command).to_owned());
    }
    let path = Path::new(word);
    let quoted = quoted(text);
    let ends_in = |end: &str| path.extension().is_some_and(|found| found == end);
    if ends_in("nthb") {
        return Some(format!("explain {quoted}"));
    }
    if ends_in("py") || ends_in("pyz") || path.is_dir() && path.join("__main__.py").is_file() {
        return Some(format!("run {quoted}"));
    }
    // A program without Python, which is not looked for in PATH: its name may be a misspelt command.
    (text.contains('/') && path.is_file()).then(|| format!("run -- {quoted}"))
}
