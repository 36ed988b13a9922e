"""What a program could lose by ``nthbyte attach``: signals, exceptions, its start, its main thread."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import harness
from cpython.attaching import GOES, running

# Says that it is where an interrupt is caught, and goes on until it has read a line.
INTERRUPTED = """
import signal, sys
# Whoever started the tests may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
count = 0
while True:
    try:
        print("again", flush=True)
        {work}
        break
    except KeyboardInterrupt:
        count += 1
print(count)
"""

WORKS = {"computes": "while goes(): str(0.5)", "waits": "sys.stdin.readline()"}


@pytest.mark.launcher
@pytest.mark.parametrize("name", WORKS)
def test_each_interrupt_is_the_programs(cpython: harness.Interpreter, tmp_path: Path, name: str) -> None:
    """Whatever step of an attachment it comes in."""
    if name == "computes" and cpython.python_version == (3, 13):
        pytest.skip(
            "a Ctrl-C at a call in a loop's condition misses the handler around it, without nthbyte, too"
        )
    times = 10
    with running(cpython, GOES + INTERRUPTED.format(work=WORKS[name]), tmp_path) as one:
        for _ in range(times):
            assert one.line() == "again"
            attached = one.attach("-f", "-o", "a.nthb", "--for", "0", "--timeout", "5min")
            os.kill(one.number, signal.SIGINT)
            assert attached.stderr is not None
            attached.communicate()
        assert one.line() == "again"
        one.nthbyte("attach", "-f", "-o", "a.nthb", "--for", "0", "--timeout", "5min").ok()
        done = one.end("line\n").ok()
    assert (done.out, done.err) == (f"{times}\n", "")


# The interpreter writes a byte for each signal, however many come before Python's handler runs.
COUNTED = """
import os, signal, sys
reader, writer = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(writer)
signal.signal(signal.SIGRTMIN + 5, lambda *_: None)
print("listens", flush=True)
{work}
count = 0
try:
    while True:
        count += os.read(reader, 1 << 16).count(signal.SIGRTMIN + 5)
except BlockingIOError:
    print(count)
"""


@pytest.mark.launcher
@pytest.mark.parametrize("name", WORKS)
def test_no_signal_is_lost(cpython: harness.Interpreter, tmp_path: Path, name: str) -> None:
    sent = 0
    with running(cpython, GOES + COUNTED.format(work=WORKS[name]), tmp_path) as one:
        assert one.line() == "listens"
        for _ in range(5):
            attached = one.attach("-f", "-o", "a.nthb", "--for", "0", "--timeout", "5min")
            while attached.poll() is None and sent < 10_000:
                os.kill(one.number, signal.SIGRTMIN + 5)
                sent += 1
            assert attached.stderr is not None
            assert "see it with" in attached.communicate()[1]
        done = one.end("line\n").ok()
    assert (done.out, done.err) == (f"{sent}\n", "")


def test_a_process_that_starts_is_left_alone_until_it_has(
    cpython: harness.Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; print('here', flush=True); sys.stdin.readline()\n"
    )
    code = "import sys; print(sorted(name for name in sys.modules if name.startswith('nthbyte')), flush=True)\ninput()"
    with running(cpython, code, tmp_path, PYTHONPATH=str(tmp_path)) as one:
        refused = one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "0.5")
        assert refused.status == 1 and refused.err.count("\n") == 1, refused.err
        one.say()
        assert one.line() == "here"
        assert one.line() == "[]"
        one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "5min").ok()
        assert one.end("line\n").ok().err == ""


# The main thread is in C code without the GIL, so that the script runs in the other one.
WITHOUT_THREADING = """
import _thread, hashlib, sys
main = _thread.get_ident()
lock = _thread.allocate_lock()
lock.acquire()
_thread.start_new_thread(lambda: (sys.stdin.readline(), lock.release()), ())
while lock.locked():
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000)
import threading
print(threading.main_thread().ident == main, threading.current_thread() is threading.main_thread())
"""


@pytest.mark.launcher
def test_the_main_thread_stays_the_main_thread(cpython: harness.Interpreter, tmp_path: Path) -> None:
    with running(cpython, GOES + WITHOUT_THREADING, tmp_path) as one:
        one.nthbyte("attach", "-o", "a.nthb", "--for", "0", "--timeout", "5min").ok()
        done = one.end("line\n").ok()
    assert (done.out, done.err) == ("True True\n", "")


# A signal comes while nthbyte is imported, and another thread takes it; its handler runs in the main thread.
HELD_UP = """
import os, signal, sys, threading

def handle(*_):
    print("handles", flush=True)
    sys.stdin.readline()

def other():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    threading.Event().wait()

signal.signal(signal.SIGUSR1, handle)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
threading.Thread(target=other, daemon=True).start()
sent = []

def hook(event, words):
    if not sent and event == "open" and "/nthbyte/" in str(words[0]):
        sent.append(os.kill(os.getpid(), signal.SIGUSR1))

sys.addaudithook(hook)
print("listens", flush=True)
while goes():
    str(0.5)
sys.stdin.readline()
print(len(sent))
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_handler_that_holds_up_the_answer_is_said_and_can_be_left(
    cpython: harness.Interpreter, tmp_path: Path, is_interrupted: bool
) -> None:
    with running(cpython, GOES + HELD_UP, tmp_path) as one:
        assert one.line() == "listens"
        attached = one.attach("-o", "a.nthb", "--for", "0", "--timeout", "5min")
        assert one.line() == "handles"
        assert attached.stderr is not None
        assert "a signal handler of the program runs in the middle of it" in attached.stderr.readline()
        if is_interrupted:
            attached.send_signal(signal.SIGINT)
            assert attached.communicate()[1] == "" and attached.returncode == 130
        one.say()
        if not is_interrupted:
            assert "see it with" in attached.communicate()[1] and attached.returncode == 0
        done = one.end("line\nline\n").ok()
    assert (done.out, done.err) == ("1\n", "")
    assert harness.summary(tmp_path / "a.nthb")["complete"]
