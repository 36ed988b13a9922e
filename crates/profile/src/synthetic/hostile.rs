//! Text that reports must escape or cut.

/// The part of a name of ten thousand characters.
pub const LONG: &str = "very_long_name_";

/// Sets of labels of a hostile profile.
pub const LABELS: u32 = 4;

/// Names that reports must escape or cut.
pub const NAMES: [&str; 11] = [
    "red\u{1b}[31m\u{7}",
    "two\nlines\r\tand a tab",
    "</script><script>alert(1)</script>",
    "\u{202e}txet desrever",
    "日本語の関数名はとても長いことがあります",
    "a;b;c \\ \"quoted\" 'name' & <b>",
    "\u{fffd}\u{0}nul",
    "e\u{301}\u{301}\u{301}\u{200d}🏳️‍🌈",
    "a command in one sign: \u{9b}2J\u{9c}",
    "lines of Unicode \u{2028}\u{2029}\u{85} end",
    "isolates \u{2066}\u{2067}\u{2069} tags \u{e0041} and \u{7f}",
];
