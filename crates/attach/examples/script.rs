//! Runs a piece of Python in a process: `script PID CODE`. It prints what the code leaves in `result`.

use std::process::ExitCode;
use std::time::Duration;

use nthbyte_attach::{Awaited, Target};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pid, code] = &words[..] else {
        eprintln!("script PID CODE");
        return ExitCode::from(2);
    };
    let pid = pid.parse().expect("a process's number");
    let run = |target: Target| target.run(code, Duration::from_secs(4), &Awaited::default());
    let done = Target::open(pid).and_then(run);
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            eprintln!("{refusal}");
            ExitCode::FAILURE
        }
    }
}
