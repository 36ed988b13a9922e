//! What `/proc` says of a process.

use std::fs;
use std::path::PathBuf;

use crate::refusal::{Refusal, refuse};

/// A file of a process in `/proc`.
pub fn path(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// A field of `/proc/PID/status`; `None` if there is none, or no such process. `who` may be `self`.
pub fn field(who: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{who}/status")).ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        Some(value.trim().to_owned())
    })
}

/// The first number of a text; 0 if it has none.
pub fn first_number(text: &str) -> u32 {
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// The process that traces this one, if any.
pub fn tracer(pid: u32) -> Option<u32> {
    let tracer = first_number(&field(&pid.to_string(), "TracerPid")?);
    (tracer != 0).then_some(tracer)
}

/// The state of a process: `R`, `S`, `T`, ... `None` if there is no such process.
pub fn state(pid: u32) -> Option<char> {
    field(&pid.to_string(), "State")?.chars().next()
}

/// Whether job control has stopped it, which a process that sleeps is not.
pub fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
}

/// The number by which the process knows itself, which differs in a PID namespace.
pub fn own_number(pid: u32) -> u32 {
    let numbers = field(&pid.to_string(), "NSpid").unwrap_or_default();
    let last = numbers.split_whitespace().next_back();
    last.and_then(|word| word.parse().ok()).unwrap_or(pid)
}

/// The effective user and group of a process.
pub fn owner(pid: u32) -> Option<(u32, u32)> {
    let second = |name| -> Option<u32> {
        let text = field(&pid.to_string(), name)?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    Some((second("Uid")?, second("Gid")?))
}

/// The threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(path(pid, "task")) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// The state of the main thread, and the CPU time that it has used, in ticks; `None` if there is no such process.
pub fn main_thread(pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(path(pid, &format!("task/{pid}/stat"))).ok()?;
    // The name may have spaces and brackets.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number)?.parse::<u64>().ok();
    Some((fields.first()?.chars().next()?, ticks(11)? + ticks(12)?))
}

/// The number of the system call that a thread sleeps in; `None` if it runs, or may not be looked at.
pub fn sleeps_in(pid: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// There is no such process.
pub fn gone(pid: u32) -> Refusal {
    refuse!("there is no process {pid}")
}

/// Whether a process has ended, or does not exist.
pub fn has_ended(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// Why something failed: because the process has ended meanwhile, or else this.
pub fn ended_or(pid: u32, refusal: Refusal) -> Refusal {
    if has_ended(pid) {
        return refuse!("process {pid} has ended");
    }
    refusal
}

/// Another process traces it.
pub fn traced(pid: u32, tracer: u32) -> Refusal {
    let name = field(&tracer.to_string(), "Name");
    let name = name.unwrap_or_else(|| "a debugger or strace".to_owned());
    refuse!("process {pid} is traced already, by {name} (process {tracer}): end that first")
}

/// The program that executes its code instead of the processor: its registers are not the program's.
fn emulator(pid: u32) -> Option<&'static str> {
    // `/usr/libexec/valgrind/memcheck-amd64-linux`
    let executable = fs::read_link(path(pid, "exe")).ok()?;
    (executable.parent()?.file_name()? == "valgrind").then_some("valgrind")
}

/// Refuses what can be told to be impossible without touching the process.
///
/// # Errors
/// If there is no such process, it has ended, or another one traces it.
pub fn check(pid: u32) -> Result<(), Refusal> {
    match state(pid) {
        None => return Err(gone(pid)),
        Some('Z' | 'X') => {
            return Err(refuse!(
                "process {pid} has ended (it is a zombie: its parent has not waited for it)"
            ));
        }
        Some(_) => {}
    }
    let thread_group = field(&pid.to_string(), "Tgid").map(|text| first_number(&text));
    if thread_group.is_some_and(|leader| leader != pid) {
        let leader = thread_group.unwrap_or_default();
        return Err(refuse!(
            "{pid} is a thread: attach to its process, {leader}"
        ));
    }
    if pid == std::process::id() {
        return Err(refuse!("process {pid} is this command"));
    }
    if let Some(tracer) = tracer(pid) {
        return Err(traced(pid, tracer));
    }
    if let Some(emulator) = emulator(pid) {
        return Err(refuse!(
            "process {pid} runs under {emulator}, which executes its code itself: start it with NTHBYTE=ready"
        ));
    }
    let features = field(&pid.to_string(), "x86_Thread_features").unwrap_or_default();
    if features.split_whitespace().any(|word| word == "shstk") {
        return Err(refuse!(
            "process {pid} has a shadow stack (CET), which no stack of ours fits: start it with \
             NTHBYTE=ready"
        ));
    }
    if field(&pid.to_string(), "Seccomp").as_deref() == Some("1") {
        return Err(refuse!(
            "process {pid} may only read and write (strict seccomp): it cannot be recorded"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let pid = std::process::id();
        assert_eq!(own_number(pid), pid);
        assert!(threads(pid).contains(&pid));
        assert!(!is_stopped(pid));
        assert!(main_thread(pid).is_some());
        assert!(check(pid).unwrap_err().0.contains("this command"));
    }

    #[test]
    fn a_number_without_a_process_is_refused() {
        // Above the largest number that Linux gives.
        assert_eq!(check(5_000_000), Err(gone(5_000_000)));
    }

    #[test]
    fn a_zombie_is_told_from_a_process() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while state(child.id()) != Some('Z') {
            std::thread::yield_now();
        }
        assert!(check(child.id()).unwrap_err().0.contains("zombie"));
        child.wait().unwrap();
    }
}
