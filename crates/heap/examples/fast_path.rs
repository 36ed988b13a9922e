//! Prints the fast paths of `malloc` and `free` in a shared library, and fails if one is too long.
//!
//!     cargo rustc --release -p nthbyte-heap --lib --crate-type cdylib
//!     cargo run -p nthbyte-heap --example fast_path -- target/release/libnthbyte_heap.so
//!
//! With `--update docs/fast-path.md`, the listing between the two marks in that file is replaced. Further
//! arguments are names of other functions, which are printed without a limit.

#[path = "../tests/listing/mod.rs"]
mod listing;

use listing::{LIMITS, fast_path, listing};
use std::process::ExitCode;

const BEGIN: &str = "<!-- begin: made by the example fast_path -->\n";
const END: &str = "<!-- end -->";

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let library = arguments
        .next()
        .ok_or("usage: fast_path LIBRARY [--update FILE] [SYMBOL…]")?;
    let bytes = std::fs::read(&library).map_err(|error| format!("{library}: {error}"))?;
    let mut document = None;
    let mut symbols = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--update" => document = Some(arguments.next().ok_or("--update: which file?")?),
            _ => symbols.push((argument, usize::MAX)),
        }
    }
    if symbols.is_empty() {
        symbols = LIMITS
            .map(|(symbol, limit)| (symbol.to_owned(), limit))
            .to_vec();
    }
    let mut text = String::new();
    for (symbol, limit) in &symbols {
        let path = fast_path(&bytes, symbol)?;
        let count = path.len();
        text += &format!("`{symbol}`: {count} instructions\n\n{}\n", listing(&path));
        if count > *limit {
            return Err(format!(
                "{symbol}: {count} instructions, at most {limit} are allowed"
            ));
        }
    }
    let Some(document) = document else {
        print!("{text}");
        return Ok(());
    };
    let old = std::fs::read_to_string(&document).map_err(|error| format!("{document}: {error}"))?;
    let (before, rest) = old
        .split_once(BEGIN)
        .ok_or(format!("{document}: no mark to begin at"))?;
    let (_, after) = rest
        .split_once(END)
        .ok_or(format!("{document}: no mark to end at"))?;
    let new = format!("{before}{BEGIN}\n{text}{END}{after}");
    std::fs::write(&document, new).map_err(|error| format!("{document}: {error}"))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fast_path: {error}");
            ExitCode::FAILURE
        }
    }
}
