//! The command `nthbyte`, except `run` of Python programs, `tune` and `check`: they run inside the interpreter that is
//! profiled, so its launcher (`python -m nthbyte`) implements them.
//!
//! Every subcommand is a file in `commands/`: its arguments, and what it does. An error is one line
//! on stderr; the exit status is 2 if the command line is wrong, and 1 for any other error.

// What only those commands use is there all the same.
#![cfg_attr(not(all(feature = "live", feature = "ship")), allow(dead_code))]

mod commands;
mod json;
#[cfg(feature = "live")]
mod live;
mod output;
mod progress;
mod question;
mod view;

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser};

use commands::Command;
use output::say;

/// Sample one in every n allocated bytes of a Python program.
#[derive(Parser)]
#[command(name = "nthbyte", version, disable_help_subcommand = true)]
#[command(
    after_help = "A size is written 512KiB, 0.5MiB or 524288. See also `nthbyte COMMAND --help`."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments =
        match Arguments::try_parse_from(commands::diff::with_new_named(std::env::args_os())) {
            Ok(arguments) => arguments,
            Err(error) => return refuse(error),
        };
    match arguments.command.run() {
        Ok(status) => status,
        Err(error) => match error.downcast::<clap::Error>() {
            // A command line that is wrong in a way that only the command knows.
            Ok(error) => refuse(error),
            Err(error) => fail(&error),
        },
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    say!("nthbyte: {}", one_line(&explain(error)));
    ExitCode::FAILURE
}

/// Prints the help or the version if the user asks for it, else one line with the error.
fn refuse(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Only a closed pipe makes this fail, and then nobody reads the text.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let usage = Arguments::command().render_usage().to_string();
        say!(
            "nthbyte: a command is missing: {}; see nthbyte --help",
            one_line(&usage)
        );
        return ExitCode::from(2);
    }
    // "to pass '--x' as a value, use '-- --x'" is hardly ever meant. A similar name stays suggested.
    error.remove(ContextKind::Suggested);
    let text = error.to_string().replace("\n\n  tip:", "; tip:");
    let what = text.split("\n\nUsage:").next().unwrap_or_default();
    let what = what
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    let named = std::env::args_os().nth(1).unwrap_or_default();
    if matches!(
        error.kind(),
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument
    ) && let Some(advice) = commands::meant::advice(&named)
    {
        say!("nthbyte: {advice}");
        return ExitCode::from(2);
    }
    // The help of the command, if one is named.
    let command = match Arguments::command().find_subcommand(&named) {
        Some(command) => format!("nthbyte {}", command.get_name()),
        None => "nthbyte".to_owned(),
    };
    say!(
        "nthbyte: {}; see {command} --help",
        one_line(what.trim_start_matches("error: "))
    );
    ExitCode::from(2)
}

/// An error and its causes in one text, without the system's error numbers.
fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let mut message = cause.to_string();
        if let Some(number) = message.find(" (os error ") {
            message.truncate(number);
        }
        if text.ends_with(&message) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&message);
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
