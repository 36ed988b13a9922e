//! Why the system does not allow to trace a process, and which way would be allowed.

use std::fs;
use std::io;

use crate::process::{self, gone, traced};
use crate::refusal::{Refusal, plain, refuse};

/// What always works without rights, for the end of a line.
const PREPARED: &str = "or start the program with NTHBYTE=ready, which needs no rights";

/// What Linux knows about the right to trace, as far as it can be read.
struct Rights {
    /// `kernel.yama.ptrace_scope`.
    yama: u32,
    /// The user of this process.
    user: u32,
    /// Whether this process has `CAP_SYS_PTRACE`.
    may_trace: bool,
    /// Whether this process runs under a filter of system calls.
    is_filtered: bool,
    /// Whether the other process is in another user namespace.
    is_in_container: bool,
}

impl Rights {
    fn read(pid: u32) -> Self {
        let number = |name| process::field("self", name).unwrap_or_default();
        let effective = u64::from_str_radix(&number("CapEff"), 16).unwrap_or(0);
        Self {
            yama: fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0),
            user: process::first_number(&number("Uid")),
            may_trace: effective >> 19 & 1 == 1,
            is_filtered: number("Seccomp") == "2",
            is_in_container: users(&pid.to_string()) != users("self"),
        }
    }
}

/// Which users a namespace has. Anybody may read this, unlike the namespace's number.
fn users(who: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{who}/uid_map")).ok()
}

/// Says why the system does not allow to trace `pid`.
pub fn denied(pid: u32, error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => return gone(pid),
        Some(libc::EPERM | libc::EACCES) => {}
        _ => return refuse!("process {pid} cannot be traced: {}", plain(error)),
    }
    let name = pid.to_string();
    if let Some(tracer) = process::tracer(pid) {
        if tracer == std::process::id() {
            // It was told to stop, and has not.
            return refuse!(
                "process {pid} waits in the kernel, for a disk or a network, and cannot be stopped: try again"
            );
        }
        return traced(pid, tracer);
    }
    let owner = process::first_number(&process::field(&name, "Uid").unwrap_or_default());
    Refusal(explain(pid, owner, &Rights::read(pid)))
}

fn explain(pid: u32, owner: u32, rights: &Rights) -> String {
    if rights.yama == 3 {
        return "ptrace is off on this machine until it restarts (kernel.yama.ptrace_scope=3): start \
                the program with NTHBYTE=ready"
            .to_owned();
    }
    if rights.user != owner && rights.user != 0 {
        return format!("process {pid} belongs to user {owner}: attach as that user, or as root");
    }
    if rights.yama == 2 && !rights.may_trace {
        return format!(
            "only root may attach here (kernel.yama.ptrace_scope=2): use sudo, {PREPARED}"
        );
    }
    if rights.yama == 1 && !rights.may_trace {
        return format!(
            "a process may attach to its own children only here (kernel.yama.ptrace_scope=1): \
             use sudo, {PREPARED}"
        );
    }
    if rights.is_in_container {
        return format!(
            "process {pid} is in a container with users of its own, whose rights this user does not have: attach as root of \
             the host, or from inside, {PREPARED}"
        );
    }
    if rights.is_filtered {
        return format!(
            "a filter of system calls (seccomp), as containers have it, forbids ptrace: attach \
             from the host, or give the container --cap-add=SYS_PTRACE, {PREPARED}"
        );
    }
    if rights.user == 0 && !rights.may_trace {
        return format!(
            "root without CAP_SYS_PTRACE may not attach to process {pid}: attach from the host, \
             or give the container --cap-add=SYS_PTRACE, {PREPARED}"
        );
    }
    format!(
        "process {pid} does not let itself be traced, because it has changed its user, has \
         capabilities, or has called prctl(PR_SET_DUMPABLE, 0): use sudo, {PREPARED}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Rights = Rights {
        yama: 0,
        user: 1000,
        may_trace: false,
        is_filtered: false,
        is_in_container: false,
    };

    #[test]
    fn each_reason_is_one_line_with_a_way_out() {
        let cases = [
            (1000, Rights { yama: 1, ..PLAIN }, "ptrace_scope=1"),
            (1000, Rights { yama: 2, ..PLAIN }, "ptrace_scope=2"),
            (1000, Rights { yama: 3, ..PLAIN }, "ptrace_scope=3"),
            (7, PLAIN, "belongs to user 7"),
            (0, Rights { user: 0, ..PLAIN }, "CAP_SYS_PTRACE"),
            (
                1000,
                Rights {
                    is_filtered: true,
                    ..PLAIN
                },
                "from the host",
            ),
            (
                1000,
                Rights {
                    is_in_container: true,
                    ..PLAIN
                },
                "users of its own",
            ),
            (1000, PLAIN, "PR_SET_DUMPABLE"),
        ];
        for (owner, rights, word) in cases {
            let text = explain(5, owner, &rights);
            assert!(text.contains(word), "{text}");
            assert!(!text.contains('\n'));
            let ways = ["NTHBYTE=ready", "as root", "sudo", "from the host"];
            assert!(ways.iter().any(|way| text.contains(way)), "{text}");
        }
    }

    #[test]
    fn a_process_that_is_gone_is_not_denied() {
        let error = io::Error::from_raw_os_error(libc::ESRCH);
        assert_eq!(denied(9, &error), gone(9));
    }
}
