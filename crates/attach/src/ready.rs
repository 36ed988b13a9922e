//! Asks a process that is ready (`NTHBYTE=ready`): it listens on a socket of the abstract name space, to its own user.

use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::{c_int, c_void, sockaddr_un, socklen_t};

use crate::awaited::Awaited;
use crate::process::{self, gone};
use crate::refusal::{Refusal, plain, refuse};

/// The longest answer.
const LONGEST: usize = 64 << 10;

/// What a process sends when it begins to do what was asked: see `_ready.py`.
const BEGUN: &str = "~";
/// How long it may take then: a snapshot of a large heap takes seconds.
const LONGEST_WORK: Duration = Duration::from_secs(300);
/// How often it is seen whether the process is still there.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Sends a request to a process, and returns its answer; `None` if it does not listen. `text` is what `_ready.py` reads;
/// `awaited` says when the process has begun.
///
/// # Errors
/// If there is no such process, it is another user's, or it does not begin within `limit`; then it does not do what was asked
/// later either.
pub fn ask(
    pid: u32,
    text: &str,
    limit: Duration,
    awaited: &Awaited,
) -> Result<Option<String>, Refusal> {
    in_its_network(pid, || exchange(pid, text, limit, awaited), None)
}

/// Why a process that may be ready cannot be asked, for those who may not enter its network. `None` if it could be.
///
/// # Errors
/// If there is no such process.
pub fn why_not(pid: u32) -> Result<Option<Refusal>, Refusal> {
    if !is_allowed(pid) {
        return Ok(Some(refuse!(
            "process {pid} is another user's, and one that is ready listens to its own user and to root only: ask as one of them"
        )));
    }
    if process::has_ended(pid) {
        return Ok(Some(refuse!("process {pid} has ended")));
    }
    if std::fs::read_link(process::path(pid, "ns/net")).is_err() {
        return Ok(Some(refuse!(
            "process {pid} is not ready, or in a container that this user may not look into: start it with NTHBYTE=ready, or ask as \
             root, or from inside"
        )));
    }
    let entered = in_its_network(pid, || Ok(true), false)?;
    Ok((!entered).then(|| {
        refuse!(
            "process {pid} has a network of its own (a container), which only root may enter: ask as root, or from inside"
        )
    }))
}

/// Whether a process listens. It is not asked.
///
/// # Errors
/// If there is no such process.
pub fn listens(pid: u32) -> Result<bool, Refusal> {
    let connects = || {
        let socket = open(Duration::ZERO);
        Ok(match (socket, name(pid)) {
            (Ok(socket), Some(name)) => connect(&socket, &name),
            _ => false,
        })
    };
    in_its_network(pid, connects, false)
}

/// Whether somebody listens at a name.
fn connect(socket: &OwnedFd, name: &str) -> bool {
    let (address, length) = address_of(name);
    // SAFETY: the pointer is to an address of this length. A datagram socket sends nothing then.
    unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) == 0 }
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
    // A process with capabilities does not say it to its own user: it is no container then, as a rule.
    let namespace = std::fs::read_link(process::path(pid, "ns/pid"))
        .or_else(|_| std::fs::read_link("/proc/self/ns/pid"))
        .ok()?;
    let namespace = namespace
        .to_str()?
        .strip_prefix("pid:[")?
        .strip_suffix(']')?;
    Some(format!(
        "\0nthbyte-{namespace}-{}",
        process::own_number(pid)
    ))
}

fn exchange(
    pid: u32,
    text: &str,
    limit: Duration,
    awaited: &Awaited,
) -> Result<Option<String>, Refusal> {
    let Some(name) = name(pid) else {
        return Ok(None);
    };
    let failed = |error: io::Error| refuse!("process {pid} cannot be asked: {}", plain(&error));
    let socket = open(limit.min(BETWEEN_LOOKS)).map_err(failed)?;
    if connect(&socket, &name) && !is_allowed(pid) {
        return Err(refuse!(
            "process {pid} listens to its own user and to root only: ask as one of them"
        ));
    }
    let deadline = monotonic_nanos().saturating_add(limit.as_nanos() as u64);
    match send(
        &socket,
        &name,
        format!("{deadline}\0{text}").as_bytes(),
        pid,
    ) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let begin_within = Instant::now() + limit;
    let mut begun = None;
    loop {
        match receive(&socket) {
            Ok((_, sender)) if sender != pid => {
                return Err(refuse!("process {sender} answers in the name of {pid}"));
            }
            Ok((answer, _)) if answer == BEGUN => {
                begun.get_or_insert_with(|| awaited.begin());
            }
            Ok((answer, _)) => return Ok(Some(answer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if process::has_ended(pid) {
                    return Err(refuse!("process {pid} has ended"));
                }
                match &begun {
                    None if Instant::now() >= begin_within => return Err(silent(pid, limit)),
                    Some(begun) if begun.elapsed() >= LONGEST_WORK => {
                        return Err(refuse!(
                            "process {pid} has begun what was asked, and has not ended it for {} s: see nthbyte check {pid}",
                            LONGEST_WORK.as_secs()
                        ));
                    }
                    _ => {}
                }
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Whether the process answers this one: see `_is_allowed` in `_ready.py`.
fn is_allowed(pid: u32) -> bool {
    // SAFETY: it takes nothing, and returns a number.
    let user = unsafe { libc::geteuid() };
    user == 0 || process::owner(pid).is_some_and(|(owner, _)| owner == user)
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
    wait_at_most(&socket, limit)?;
    let yes: c_int = 1;
    let address = empty_address();
    // SAFETY: each pointer is to a value of the length beside it, which lives until the call returns.
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

/// Sets how long [`receive`] waits.
fn wait_at_most(socket: &OwnedFd, limit: Duration) -> io::Result<()> {
    let limit = limit.max(Duration::from_millis(1));
    let time = libc::timeval {
        tv_sec: limit.as_secs() as i64,
        tv_usec: limit.subsec_micros().into(),
    };
    // SAFETY: the pointer is to a value of the length beside it, which lives until the call returns.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const time).cast(),
            size_of_val(&time) as socklen_t,
        ) == 0
    };
    if done {
        Ok(())
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

/// Sends a request. Root says that it is the user of the process: in a container with users of its own, root of this system is nobody.
fn send(socket: &OwnedFd, name: &str, bytes: &[u8], pid: u32) -> io::Result<()> {
    // SAFETY: it takes nothing, and returns a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root && let Some(owner) = process::owner(pid) {
        match send_as(socket, name, bytes, Some(owner)) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            done => return done,
        }
    }
    send_as(socket, name, bytes, None)
}

/// Sends a request, with the credentials of a user and a group; without them, the kernel says this process's.
fn send_as(
    socket: &OwnedFd,
    name: &str,
    bytes: &[u8],
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let (mut address, length) = address_of(name);
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = [0_u64; 8];
    // SAFETY: numbers and null pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = length;
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if let Some((uid, gid)) = owner {
        let credentials = libc::ucred {
            pid: std::process::id().cast_signed(),
            uid,
            gid,
        };
        let size = size_of_val(&credentials) as u32;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: `control` has room for one message of this size, and is aligned for its head.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_CREDENTIALS;
            (*head).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(head)
                .cast::<libc::ucred>()
                .write_unaligned(credentials);
        }
    }
    // SAFETY: the message's pointers are to values that live until the end of this function; the kernel writes to none.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
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
    // SAFETY: the message's pointers are to values that live until the end of this function.
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
    // SAFETY: the pointer is to `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_listen_is_not_ready() {
        let answer = ask(
            std::process::id(),
            "do=where",
            Duration::from_millis(10),
            &Awaited::default(),
        );
        assert_eq!(answer, Ok(None));
    }
}
