//! Asks a process that is ready (`NTHBYTE=ready`): it listens on a socket of the abstract name space, to its own user.

use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, c_void, sockaddr_un, socklen_t};

use crate::process::{self, gone};
use crate::refusal::{Refusal, plain, refuse};

/// The longest answer.
const LONGEST: usize = 64 << 10;

/// Sends a request to a process, and returns its answer; `None` if it does not listen. `text` is what `_ready.py` reads.
///
/// # Errors
/// If there is no such process, or it does not answer within `limit`; then it does not do what was asked later either.
pub fn ask(pid: u32, text: &str, limit: Duration) -> Result<Option<String>, Refusal> {
    in_its_network(pid, || exchange(pid, text, limit), None)
}

/// Whether a process listens. It is not asked.
///
/// # Errors
/// If there is no such process.
pub fn listens(pid: u32) -> Result<bool, Refusal> {
    let connects = || {
        let socket = open(Duration::ZERO);
        let address = name(pid).map(|name| address_of(&name));
        Ok(match (socket, address) {
            (Ok(socket), Some((address, length))) => {
                // SAFETY: the pointer is that of an address of this length. A datagram socket sends nothing then.
                unsafe {
                    libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) == 0
                }
            }
            _ => false,
        })
    };
    in_its_network(pid, connects, false)
}

/// Does something in the network namespace of a process; `otherwise` if that may not be entered.
fn in_its_network<T: Send>(
    pid: u32,
    work: impl Fn() -> Result<T, Refusal> + Sync,
    otherwise: T,
) -> Result<T, Refusal> {
    if process::state(pid).is_none() {
        return Err(gone(pid));
    }
    let namespace = |who: &str, kind: &str| std::fs::read_link(format!("/proc/{who}/ns/{kind}"));
    let of_process = namespace(&pid.to_string(), "net").ok();
    if of_process.is_none() || of_process == namespace("self", "net").ok() {
        return work();
    }
    // A thread of its own enters the network of the container; this takes root's rights.
    let enter_and_work = || {
        if enter_network(pid) {
            work().map(Some)
        } else {
            Ok(None)
        }
    };
    let done = std::thread::scope(|scope| scope.spawn(enter_and_work).join().unwrap_or(Ok(None)))?;
    Ok(done.unwrap_or(otherwise))
}

fn enter_network(pid: u32) -> bool {
    let Ok(namespace) = std::fs::File::open(format!("/proc/{pid}/ns/net")) else {
        return false;
    };
    // SAFETY: it takes numbers, and changes this thread only.
    unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) == 0 }
}

/// The socket's name: see `_name` in `_ready.py`.
fn name(pid: u32) -> Option<String> {
    let namespace = std::fs::read_link(process::path(pid, "ns/pid")).ok()?;
    let namespace = namespace
        .to_str()?
        .strip_prefix("pid:[")?
        .strip_suffix(']')?;
    Some(format!(
        "\0nthbyte-{namespace}-{}",
        process::own_number(pid)
    ))
}

fn exchange(pid: u32, text: &str, limit: Duration) -> Result<Option<String>, Refusal> {
    let Some(name) = name(pid) else {
        return Ok(None);
    };
    let failed = |error: io::Error| refuse!("process {pid} cannot be asked: {}", plain(&error));
    let socket = open(limit).map_err(failed)?;
    let deadline = monotonic_nanos().saturating_add(limit.as_nanos() as u64);
    match send(&socket, &name, format!("{deadline}\0{text}").as_bytes()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    match receive(&socket) {
        Ok((answer, sender)) if sender == pid => Ok(Some(answer)),
        Ok((_, sender)) => Err(refuse!("process {sender} answers in the name of {pid}")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(silent(pid, limit)),
        Err(error) => Err(failed(error)),
    }
}

fn silent(pid: u32, limit: Duration) -> Refusal {
    if process::is_stopped(pid) {
        return refuse!("process {pid} is stopped: let it go on with kill -CONT {pid}");
    }
    refuse!(
        "process {pid} is ready, but has not answered for {} s: its main thread runs C code, or blocks signals; \
         try again, or with --method ptrace",
        limit.as_secs_f64()
    )
}

/// A socket with a name that the kernel chooses, so that it can be answered.
fn open(limit: Duration) -> io::Result<OwnedFd> {
    // SAFETY: it takes numbers, and the descriptor is a new one, which nobody else closes.
    let socket = unsafe {
        let number = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(number)
    };
    let limit = limit.max(Duration::from_millis(1));
    let time = libc::timeval {
        tv_sec: limit.as_secs() as i64,
        tv_usec: limit.subsec_micros().into(),
    };
    let yes: c_int = 1;
    let address = empty_address();
    // SAFETY: each pointer is that of a value of the length beside it, which lives until the call returns.
    let done = unsafe {
        let set = |name, value: *const c_void, length: usize| {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                value,
                length as socklen_t,
            ) == 0
        };
        set(
            libc::SO_PASSCRED,
            (&raw const yes).cast(),
            size_of_val(&yes),
        ) && set(
            libc::SO_RCVTIMEO,
            (&raw const time).cast(),
            size_of_val(&time),
        ) && libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            offset_of!(sockaddr_un, sun_path) as socklen_t,
        ) == 0
    };
    if done {
        Ok(socket)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn empty_address() -> sockaddr_un {
    // SAFETY: numbers only.
    let mut address: sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    address
}

fn address_of(name: &str) -> (sockaddr_un, socklen_t) {
    let mut address = empty_address();
    for (to, byte) in address.sun_path.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    let length = offset_of!(sockaddr_un, sun_path) + name.len();
    (address, length as socklen_t)
}

fn send(socket: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (address, length) = address_of(name);
    // SAFETY: the pointers and lengths are those of `bytes` and of the beginning of `address`.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            (&raw const address).cast(),
            length,
        )
    };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Receives an answer, and the number of the process that has sent it, which the kernel says.
fn receive(socket: &OwnedFd) -> io::Result<(String, u32)> {
    let mut bytes = vec![0_u8; LONGEST];
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = [0_u64; 8];
    // SAFETY: numbers and null pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the message's pointers are those of values that live until the end of this function.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let Ok(length) = usize::try_from(got) else {
        return Err(io::Error::last_os_error());
    };
    let mut sender = 0;
    // SAFETY: the macros walk over what the kernel has written into `control`.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        if !head.is_null() && (*head).cmsg_type == libc::SCM_CREDENTIALS {
            let credentials: libc::ucred =
                libc::CMSG_DATA(head).cast::<libc::ucred>().read_unaligned();
            sender = u32::try_from(credentials.pid).unwrap_or(0);
        }
    }
    bytes.truncate(length);
    Ok((String::from_utf8_lossy(&bytes).into_owned(), sender))
}

fn monotonic_nanos() -> u64 {
    // SAFETY: numbers, which the call fills.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: the pointer is that of `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_listen_is_not_ready() {
        let answer = ask(std::process::id(), "do=where", Duration::from_millis(10));
        assert_eq!(answer, Ok(None));
    }
}
