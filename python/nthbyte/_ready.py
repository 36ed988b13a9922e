"""A process that is ready to be recorded: it listens to ``nthbyte attach``, and does nothing else.

The socket has a name that the network namespace knows, not the file system. It has no thread: the kernel sends a
real-time signal to the main thread when a request has come (``O_ASYNC``, ``F_SETSIG``), and Python runs the handler,
also where the main thread waits. So there is one task as before, a fork warns of no thread, and an idle process uses no
CPU time. A request is one datagram, so nothing waits for the rest of it, and the kernel says who has sent it: another
user's is dropped. Requests are ``_remote.py``'s, never code.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import _thread
import atexit
import fcntl
import os
import sys
import time

from nthbyte._agent import Error, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

# The value of the environment variable NTHBYTE.
VALUE = "ready"

# The longest request, in bytes.
_LONGEST = 64 << 10

# The first answer to a request, before it is done.
_BEGUN = "~"

# From Linux's headers: not every Python has these names.
_F_SETSIG = 10
_F_SETOWN_EX = 15
_F_OWNER_TID = 0
_SO_PASSCRED = 16
_SCM_CREDENTIALS = 2

# Signals from this number below the last one on: those beside the last ones are used by programs, too.
_FIRST_BELOW = 3

# All but faults', and the C library's own.
_SIGNALS = {*range(1, _signal.NSIG)} - {4, 5, 7, 8, 9, 11, 19, 31, 32, 33}

_socket_of_process: Any = None
_number = 0


def ready() -> None:
    """Makes this process ready to be recorded: ``nthbyte attach PID`` needs no rights then, but its user's.

    The main thread calls it, once. Nothing is sampled, and nothing is slower, until a recording begins. Forked children
    are ready, too. A signal number that the program does not use is taken: a real-time signal near the last one.

    Raises Error if this interpreter is not supported (PyPy says so to ``attach``), if another thread calls it, or if no
    signal or socket is free.
    """
    global _number
    if _socket_of_process is not None:
        return
    if sys.implementation.name == "cpython":
        load().prepare()
        # For the first request: its file may be out of reach then.
        _remote()
    try:
        _number = _free_signal()
        _listen()
    except ValueError:
        raise Error("only the main thread can make its process ready") from None
    except OSError as error:
        raise Error(f"the process cannot listen: {error.strerror}") from None
    os.register_at_fork(after_in_child=_after_fork_in_child)
    # After that, the interpreter takes its handlers away, and then the signal of a request would end the process.
    atexit.register(_close)


def at_start(value: str) -> None:
    """Does the same at the interpreter's start, for the value of the variable NTHBYTE. Another value does nothing."""
    if value == VALUE:
        ready()


def _free_signal() -> int:
    """Returns the number of a signal that nobody handles, with our handler. Raises Error if there is none."""
    for number in range(_signal.SIGRTMAX - _FIRST_BELOW, _signal.SIGRTMIN, -1):
        if _signal.getsignal(number) == _signal.SIG_DFL:
            _signal.signal(number, _on_signal)
            return int(number)
    raise Error("the program handles every real-time signal: none is free")


def _listen() -> None:
    """Makes the socket, which belongs to the main thread."""
    global _socket_of_process
    own = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        own.setsockopt(_socket.SOL_SOCKET, _SO_PASSCRED, 1)
        owner = _F_OWNER_TID.to_bytes(4, sys.byteorder) + _thread.get_native_id().to_bytes(4, sys.byteorder)
        fcntl.fcntl(own.fileno(), _F_SETOWN_EX, owner)
        fcntl.fcntl(own.fileno(), _F_SETSIG, _number)
        fcntl.fcntl(own.fileno(), fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        # From its name on, it is asked; a signal for what comes then must find it.
        _socket_of_process = own
        own.bind(_name())
    except OSError:
        _socket_of_process = None
        own.close()
        raise


def _name() -> bytes:
    """The socket's name: with the namespace of the process's number, because several may share one network."""
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"\0nthbyte-{namespace}-{os.getpid()}".encode()


def _close() -> bool:
    """Ends that the process listens. Returns whether it did."""
    global _socket_of_process
    own, _socket_of_process = _socket_of_process, None
    if own is not None:
        own.close()
    return own is not None


def _after_fork_in_child() -> None:
    """The child has a socket of its own; without one, it is not ready."""
    if _close():
        try:
            _listen()
        except OSError:
            pass


def _on_signal(signal: int, frame: Any) -> None:
    """Answers what has come. Other signals wait meanwhile, so that no handler of the program raises in the middle."""
    blocked = _SIGNALS - _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    try:
        # It runs handlers of signals that have come, which may raise.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, blocked)
        _answer_all()
    finally:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, blocked)


def _answer_all() -> None:
    own = _socket_of_process
    while own is not None:
        try:
            data, more, _, sender = own.recvmsg(_LONGEST, _socket.CMSG_SPACE(12))
        except OSError:
            # Nothing more has come.
            return
        if not _is_allowed(more):
            continue
        deadline, _, text = data.decode(errors="replace").partition("\0")
        if not deadline.isdecimal() or time.monotonic_ns() > int(deadline):
            # Who has asked has given up.
            continue
        # The work may take longer than its sender waits for a process that does nothing.
        _send(own, sender, _BEGUN)
        try:
            answer = _remote()
        except ImportError as error:
            _send(own, sender, f"!nthbyte cannot be imported any more: {error}")
        else:
            _send(own, sender, answer(text))


def _remote() -> Callable[[str], str]:
    """Returns what answers requests. PyPy imports it with the first one: each of its major collections visits every
    module, which would cost a program that makes many of them 2 %, and nothing of ours has to be in place there."""
    from nthbyte._remote import answer

    return answer


def _send(own: Any, receiver: Any, text: str) -> None:
    try:
        own.sendto(text.encode(errors="replace"), receiver)
    except OSError:
        # Nobody waits any more.
        pass


def _is_allowed(more: Any) -> bool:
    """Whether the sender is this process's user, or root."""
    for level, kind, data in more:
        if level == _socket.SOL_SOCKET and kind == _SCM_CREDENTIALS:
            return int.from_bytes(data[4:8], sys.byteorder) in (os.geteuid(), 0)
    return False
