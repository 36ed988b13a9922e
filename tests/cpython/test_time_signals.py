"""Time samples of programs that use the signal of the timers themselves."""

from __future__ import annotations

from pathlib import Path

from harness import SPEND, Interpreter, summary

TAKEN = """
import signal, nthbyte, os

seen = []
signal.signal(signal.SIGURG, lambda number, frame: seen.append(number))

def work():
    spend(0.4)

with nthbyte.Profiler("out.nthb", cpu=True):
    work()
assert not seen
os.kill(os.getpid(), signal.SIGURG)
assert seen == [signal.SIGURG]
"""

TAKEN_LATER = """
import signal, nthbyte

seen = []

def early():
    spend(0.05)

def late():
    spend(0.4)

with nthbyte.Profiler("out.nthb", cpu=True):
    signal.signal(signal.SIGURG, lambda number, frame: seen.append(number))
    for _ in range(200):
        before = len(seen)
        early()
        if len(seen) == before:
            break
    late()
assert len(seen) == before, seen
"""


def seconds(folder: Path, name: str) -> float:
    """The CPU time of a function, by its samples, with its callees; and what was lost, if it has samples."""
    time = summary(folder / "out.nthb")["time"]
    total: int = sum(row["total_samples"] for row in time["rows"] if row["name"] == name)
    return (total + time["lost"]) / time["hz"] if total else 0


def test_a_program_that_uses_the_signal(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SPEND + TAKEN)
    cpython.python("app.py", folder=tmp_path).ok()
    assert seconds(tmp_path, "work") >= 0.2


def test_a_handler_that_comes_later_keeps_its_signal(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SPEND + TAKEN_LATER)
    cpython.python("app.py", folder=tmp_path).ok()
    assert seconds(tmp_path, "late") >= 0.2
