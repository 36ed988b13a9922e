"""Time samples of a program that has forked: the writer thread, which records them, has been stopped for the fork."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter, summary

# One call that uses CPU time for longer than the ring has room for time samples, and then the end.
ONE_CALL = """
import hashlib, os
if os.fork() == 0:
    os._exit(0)
os.wait()
hashlib.pbkdf2_hmac("sha256", b"", b"", 50_000_000)
"""


@pytest.mark.slow
def test_time_samples_after_a_fork_are_not_lost(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(ONE_CALL)
    words = ["run", "-q", "--cpu", "--every", "512KiB", "-o", "out.nthb", "app.py"]
    cpython.nthbyte(*words, folder=tmp_path).ok()
    time = summary(tmp_path / "out.nthb")["time"]
    assert time["samples"] >= time["hz"]
    # The kernel's timers lose a few on a busy machine.
    assert time["lost"] <= 0.05 * time["samples"]


# The child's first recording comes after the start of its thread.
THREAD_IN_A_CHILD = """
import gc, os, threading, time
def spend():
    end = time.thread_time() + 0.5
    while time.thread_time() < end:
        pass
gc.disable()
child = os.fork()
if child == 0:
    thread = threading.Thread(target=spend)
    thread.start()
    gc.collect()
    thread.join()
    os._exit(0)
print(child, os.waitpid(child, 0)[1])
"""


def test_a_thread_of_a_child_has_one_timer(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(THREAD_IN_A_CHILD)
    words = ["run", "-q", "--cpu", "--no-native", "--every", "64MiB", "-o", "out.nthb", "app.py"]
    child, status = cpython.nthbyte(*words, folder=tmp_path).ok().out.split()
    assert status == "0"
    time = summary(tmp_path / f"out.{child}.nthb")["time"]
    [spent] = [row["total_samples"] for row in time["rows"] if row["name"] == "spend"]
    assert 0 < spent <= 0.75 * time["hz"]


# A child that makes a timer, the kernel's first one in this process, and then stops the recording. Its parent has time
# samples that are not recorded yet.
STOP_IN_A_CHILD = """
import ctypes, os, time
import nthbyte

class Event(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]

SIGEV_NONE = 1
libc = ctypes.CDLL(None)

def spend():
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass

nthbyte.start(cpu=100, every=PERIOD, native=False, output="out.nthb")
spend()
child = os.fork()
if child == 0:
    timer = ctypes.c_void_p()
    event = Event(notify=SIGEV_NONE)
    assert libc.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) == 0
    times = ctypes.create_string_buffer(32)
    assert libc.timer_gettime(timer, times) == 0
    nthbyte.stop()
    assert libc.timer_gettime(timer, times) == 0, "the timer was deleted"
    nthbyte.start(cpu=100, every=PERIOD, native=False, output="second.nthb")
    spend()
    nthbyte.stop()
    assert libc.timer_gettime(timer, times) == 0, "the timer was deleted by the second recording"
    os._exit(0)
print(child, os.waitpid(child, 0)[1])
nthbyte.stop()
"""


@pytest.mark.parametrize("period", ["1TiB", "1KiB"])
def test_a_child_that_stops_leaves_the_programs_timers(
    period: str, cpython: Interpreter, tmp_path: Path
) -> None:
    """In the child, the program's first timer has the number of the parent's first one. The child's own profile begins
    with its end, or before; it has no time samples of its parent's."""
    (tmp_path / "app.py").write_text(STOP_IN_A_CHILD.replace("PERIOD", repr(period)))
    child, status = cpython.python("app.py", folder=tmp_path).ok().out.split()
    assert status == "0"
    rows = {
        name: summary(tmp_path / name)["time"]["rows"]
        for name in ("out.nthb", f"out.{child}.nthb", "second.nthb")
    }
    spent = {name: any(row["name"] == "spend" for row in rows[name]) for name in rows}
    assert spent == {"out.nthb": True, f"out.{child}.nthb": False, "second.nthb": True}
