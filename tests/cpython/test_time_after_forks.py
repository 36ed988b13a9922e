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
