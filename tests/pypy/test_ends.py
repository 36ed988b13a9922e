"""The end of a session leaves nothing in the process, and a killed process leaves a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness import Interpreter

OFTEN = """
import nthbyte
def mappings():
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)
def sessions(count):
    for _ in range(count):
        nthbyte.start("out.nthb", every="64KiB", fixed=True)
        kept = [[] for _ in range(10_000)]
        nthbyte.stop()
    return mappings()
print(sessions(10), sessions(30))
"""


def test_many_sessions_take_no_more_than_one(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "often.py").write_text(OFTEN)
    done = pypy.python("often.py", folder=tmp_path).ok()
    before, after = map(int, done.out.split())
    # Arenas, and the memory of the JIT compiler.
    assert after - before < 30
    # A list is 24 bytes and more.
    assert harness.samples(tmp_path / "out.nthb") >= 3


KILLED = """
import os, select, signal, sys, time
def fill():
    return [[] for _ in range(500)]
def last():
    # In here: else a sample of something allocated on the way is the first, and announced in place of this one's.
    time.sleep(0.1)
    return fill()
def steady():
    for _ in range(20):
        fill()
def is_enough(seconds=None):
    return select.select([0], [], [], seconds)[0]
def allocate(function):
    # Samples before the writer thread runs are not counted.
    while not is_enough(0.05):
        function()
    die()
def die():
    os.kill(os.getpid(), signal.SIGKILL)
fill()
if sys.argv[1] == "pause":
    # One sample is enough: it is written without another one after it.
    last()
    is_enough()
    die()
if sys.argv[1] == "steady":
    allocate(steady)
child = os.fork()
if child == 0:
    allocate(last)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("how", ["pause", "steady", "fork"])
def test_a_killed_process_leaves_samples_without_a_collection(
    pypy: Interpreter, how: str, tmp_path: Path
) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    # A list has at least 24 bytes, so each caller of `fill` gets three samples.
    words = ["run", "-q", "--every", "4KiB", "--fixed", "-o", "out.nthb", "killed.py", how]
    # Of samples in quick succession, the file has the first one, and all except the last fifteen.
    function = "steady" if how == "steady" else "last"
    enough = {"pause": 1, "steady": 50, "fork": 3}[how]

    def sampled() -> float:
        profiles = list(tmp_path.glob("out.*.nthb" if how == "fork" else "out.nthb"))
        row = harness.rows_so_far(profiles[0]).get(function) if profiles else None
        return float(row["total_bytes"]["estimate"]) / 4096 if row else 0

    environment = {"PYPY_GC_NURSERY": "64M"}
    done = pypy.nthbyte(*words, folder=tmp_path, environment=environment, until=lambda: sampled() >= enough)
    assert (done.status < 0) == (how != "fork")
    assert sampled() >= enough
