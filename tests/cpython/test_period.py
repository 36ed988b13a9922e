"""Sessions whose period follows the program: the default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import harness
from harness import Interpreter, summary

# Blocks of many sizes in a fast loop, some kept for a while; then slow work that allocates little.
# The loop of `make` allocates nothing else: no numbers, and no longer list.
PROGRAM = """
import sys
from collections import deque
from itertools import repeat
header = sys.getsizeof(b"")
SIZES = [200, 1000, 40, 1900, 450]
kept = deque(maxlen=500)
def make(size, times):
    length = size - header
    for _ in repeat(None, times):
        kept.append(bytes(length))
def burst():
    for _ in range(20):
        for size in SIZES:
            make(size, 5000)
def slow():
    for _ in range(400):
        make(1000, 10)
        sum(i * 0.5 for i in range(5000))
burst()
slow()
burst()
"""
BYTES = 2 * 20 * 5000 * sum((200, 1000, 40, 1900, 450)) + 400 * 10 * 1000
FIRST = 16 << 10


def _run(interpreter: Interpreter, folder: Path, *options: str) -> Any:
    (folder / "app.py").write_text(PROGRAM)
    words = ("run", "-q", "-f", *options, "-o", "out.nthb", "app.py")
    interpreter.nthbyte(*words, folder=folder).ok()
    return summary(folder / "out.nthb")


def _is_near(estimate: Any, truth: float) -> bool:
    """Whether the truth lies within three times a 95 % interval: six standard deviations."""
    low, middle, high = (estimate[name] for name in ("low", "estimate", "high"))
    return bool(middle - 3 * (middle - low) - 1 <= truth <= middle + 3 * (high - middle) + 1)


def test_the_period_follows_the_program(cpython: Interpreter, tmp_path: Path) -> None:
    found = _run(cpython, tmp_path)
    # The first samples of a gigabyte a second take far more than their share.
    assert found["periods"][0] == found["period"] == FIRST
    assert len(found["periods"]) > 1
    # Each is a power of two, or a quarter, half or three quarters of the way to the next one.
    assert all(period % (1 << period.bit_length() - 3) == 0 for period in found["periods"])
    if not found["lost"]:
        row = next(row for row in found["rows"] if row["name"] == "make")
        assert _is_near(row["self_bytes"], BYTES)
        assert _is_near(found["all"]["bytes"], found["bytes_allocated"])
    text = harness.report("summary", "out.nthb", folder=tmp_path).ok().out
    assert "one every 16.0 KiB" in text
    assert "at the end" in text or " to " in text


@pytest.mark.parametrize(
    ("options", "period"), [(("--every", "64KiB"), 64 << 10), (("--seed", "7"), 512 << 10)], ids=str
)
def test_a_fixed_period_stays(
    options: tuple[str, ...], period: int, cpython: Interpreter, tmp_path: Path
) -> None:
    assert _run(cpython, tmp_path, *options)["periods"] == [period]


THREADS_AND_FORKS = """
import os, threading
def make():
    for _ in range(300_000):
        bytes(1000)
threads = [threading.Thread(target=make) for _ in range(3)]
for thread in threads: thread.start()
child = os.fork()
if child == 0:
    make()
    os._exit(0)
for thread in threads: thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_threads_and_a_child(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(THREADS_AND_FORKS)
    cpython.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    (child,) = tmp_path.glob("out.*.nthb")
    for path in (tmp_path / "out.nthb", child):
        found = summary(path)
        # The child begins with the period that its parent had by then.
        assert found["complete"] and found["samples"] > 0
        if not found["lost"]:
            assert _is_near(found["all"]["bytes"], found["bytes_allocated"]), path
    both = summary(tmp_path / "out.nthb", "--all")
    assert len(both["periods"]) > 1


PARTS = """
import os, signal
from itertools import repeat
def make(times):
    for _ in repeat(None, times):
        bytes(1000)
for times in (200_000, 300_000):
    os.kill(os.getpid(), signal.SIGUSR1)
    make(times)
    os.kill(os.getpid(), signal.SIGUSR1)
    make(100_000)
"""


def test_each_recording_of_a_signal_begins_anew(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PARTS)
    cpython.nthbyte("run", "-q", "--signal", "USR1", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    for name in ("out.nthb", "out-2.nthb"):
        found = summary(tmp_path / name)
        assert found["complete"] and found["periods"][0] == FIRST and len(found["periods"]) > 1
        if not found["lost"]:
            assert _is_near(found["all"]["bytes"], found["bytes_allocated"]), name


SESSIONS = """
import nthbyte
def make(times):
    for _ in range(times):
        bytes(1000)
for number in range(3):
    nthbyte.start(f"{number}.nthb")
    make(200_000)
    print(nthbyte.stop().samples)
"""


def test_sessions_one_after_the_other(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SESSIONS)
    samples = cpython.python("app.py", folder=tmp_path).ok().out.split()
    for number, recorded in enumerate(samples):
        found = summary(tmp_path / f"{number}.nthb", "--domain", "all")
        assert found["samples"] == int(recorded)
        assert found["periods"][0] == FIRST and len(found["periods"]) > 1


def test_two_kinds_of_period_are_compared(cpython: Interpreter, tmp_path: Path) -> None:
    lost = _run(cpython, tmp_path)["lost"]
    (tmp_path / "out.nthb").rename(tmp_path / "follows.nthb")
    lost += _run(cpython, tmp_path, "--every", "512KiB")["lost"]
    text = harness.report("diff", "follows.nthb", "out.nthb", folder=tmp_path).ok().out
    old, _, new = " ".join(text.split()).partition(" new: ")
    assert "samples, one every 16.0 KiB " in old and "one every 512 KiB on average" in new
    found = harness.report("diff", "--json", "follows.nthb", "out.nthb", folder=tmp_path).ok().out
    (row,) = (row for row in json.loads(found)["rows"] if row["name"] == "make")
    assert lost or _is_near(row["changes"]["bytes"]["difference"], 0)
