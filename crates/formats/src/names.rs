//! The names of functions, types and threads in the exports.

use nthbyte_profile::Profile;
use nthbyte_profile::event::{ThreadId, TypeId};
use nthbyte_profile::model::{Frame, Function, Lifetime, ProcessId};

/// The frame that stands for an empty stack.
pub(crate) const NO_FRAME: &str = "(no Python frame)";

/// The name of a function, never empty.
pub(crate) fn function(function: &Function) -> &str {
    if function.name.is_empty() {
        "(unnamed)"
    } else {
        &function.name
    }
}

/// A frame as `function (file:line)`, without the line or the file if they are unknown.
pub(crate) fn frame(profile: &Profile, frame: &Frame) -> String {
    let of = &profile.functions[frame.function as usize];
    let name = function(of);
    let line = if frame.line == 0 {
        of.first_line
    } else {
        frame.line
    };
    match (of.file.as_str(), line) {
        ("", _) => name.to_owned(),
        (file, 0) => format!("{name} ({file})"),
        (file, line) => format!("{name} ({file}:{line})"),
    }
}

/// The name of a type, never empty: the Python name, else the interpreter's internal name.
pub(crate) fn type_name(profile: &Profile, type_id: TypeId) -> &str {
    let names = profile.types.get(type_id.index());
    let candidates = names.map(|names| [names.name.as_str(), names.native.as_str()]);
    candidates
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty() && type_id != TypeId::UNKNOWN)
        .unwrap_or("(unknown type)")
}

/// A lifetime in words.
pub(crate) const fn lifetime(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::DiedYoung => "died young",
        Lifetime::Freed => "freed later",
        Lifetime::Survived => "survived",
        Lifetime::StillLive => "still live",
    }
}

/// The name of a thread, never empty.
pub(crate) fn thread(profile: &Profile, thread: ThreadId) -> String {
    match profile.threads.get(thread.index()) {
        Some(names) if !names.name.is_empty() => names.name.clone(),
        Some(names) => format!("Thread {}", names.os_id),
        None => format!("Thread #{}", thread.0),
    }
}

/// The name of a process: the program's, and its number if there are several.
pub(crate) fn process(profile: &Profile, process: ProcessId) -> String {
    let program = program(profile);
    match profile.processes.get(process.index()) {
        Some(process) if profile.processes.len() > 1 => {
            format!("{program} {}", process.meta.pid)
        }
        _ => program.to_owned(),
    }
}

/// The name of a thread, with its process's number if there are several.
pub(crate) fn thread_of_process(profile: &Profile, thread: ThreadId) -> String {
    let name = self::thread(profile, thread);
    match &profile.processes[..] {
        [] | [_] => name,
        several => {
            let process = &several[profile.process_of(thread).index()];
            format!("{} {name}", process.meta.pid)
        }
    }
}

/// The program's name: the last part of the script's path, else the interpreter's name.
pub(crate) fn program(profile: &Profile) -> &str {
    let script = profile.meta.command.first().map_or("", String::as_str);
    let script = script.rsplit('/').next().unwrap_or_default();
    if script.is_empty() {
        &profile.meta.interpreter
    } else {
        script
    }
}

/// A size in binary units, without rounding: `512 KiB`, `1000 B`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value != 0 && value.is_multiple_of(1024) && unit + 1 < units.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", units[unit])
}
