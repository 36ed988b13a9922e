//! What the file says that an interpreter executes.

use std::time::Duration;

use crate::refusal::{Refusal, refuse};

/// How long a script that has begun may take: a snapshot of a large heap takes minutes.
pub const LONGEST_SCRIPT: Duration = Duration::from_secs(300);

/// A script has begun, and does not end: as a rule a signal handler of the program runs in the middle of it.
pub fn no_end(pid: u32) -> Refusal {
    refuse!(
        "process {pid} has begun what was asked, and has not answered for {} s: see what it prints",
        LONGEST_SCRIPT.as_secs()
    )
}

/// The text of a file: one expression, which leaves no name behind, and runs `script` once. `begin` and `answer` are statements: one returns
/// if it is not the first time, the other one writes the bytes `text`.
///
/// What the script raises is a signal handler's. The interpreter prints that, but for Ctrl-C, which comes once more.
pub fn file_text(script: &str, begin: &str, answer: &str) -> String {
    let code = format!(
        "
import os
def run():
{begin}
    names = {{}}
    try:
        exec(compile({}, '<nthbyte attach>', 'exec'), names)
    except KeyboardInterrupt:
        import _thread
        _thread.interrupt_main()
    finally:
        text = names.get('result', 'again').encode(errors='replace')
{answer}
try:
    run()
finally:
    del run
",
        literal(script)
    );
    format!(
        "exec(compile({}, '<nthbyte attach>', 'exec'), {{}})\n",
        literal(&code)
    )
}

/// A text as a literal of Python.
pub fn literal(text: &str) -> String {
    let signs = text.chars().map(|sign| match sign {
        ' '..='~' if sign != '\'' && sign != '\\' => sign.to_string(),
        _ => format!("\\U{:08x}", u32::from(sign)),
    });
    format!("'{}'", signs.collect::<String>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_literal_has_no_sign_that_ends_it() {
        assert_eq!(
            super::literal("a'\\\n"),
            "'a\\U00000027\\U0000005c\\U0000000a'"
        );
    }
}
