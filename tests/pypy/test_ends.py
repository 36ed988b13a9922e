"""What the ends of sessions leave: nothing in the process, and a profile though it is killed."""

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
    # Arenas, and what the JIT compiler needs.
    assert after - before < 30
    # A list is 24 bytes and more.
    assert harness.samples(tmp_path / "out.nthb") >= 3


KILLED = """
import os, signal, sys, time
def fill():
    return [[] for _ in range(500)]
def last():
    # In here: else a sample of what is allocated on the way is the first, and announced in place of this one's.
    time.sleep(0.1)
    return fill()
def steady():
    for _ in range(20):
        fill()
    until = time.perf_counter() + 0.1
    while time.perf_counter() < until:
        fill()
def die():
    time.sleep(3)
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "pause":
    fill()
    last()
    die()
if sys.argv[1] == "steady":
    steady()
    die()
child = os.fork()
if child == 0:
    for _ in range(3):
        # The thread that writes is not there at once.
        last()
        time.sleep(0.3)
    die()
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("how", ["pause", "steady", "fork"])
def test_a_killed_process_leaves_what_no_collection_has_seen(
    pypy: Interpreter, how: str, tmp_path: Path
) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    # A list is 24 bytes and more: whoever calls `fill` takes three samples.
    words = ["run", "-q", "--every", "4KiB", "--fixed", "-o", "out.nthb", "killed.py", how]
    done = pypy.nthbyte(*words, folder=tmp_path, environment={"PYPY_GC_NURSERY": "64M"})
    assert (done.status < 0) == (how != "fork")
    (profile,) = tmp_path.glob("out.*.nthb" if how == "fork" else "out.nthb")
    rows = harness.summary(profile, "--by", "function")["rows"]
    allocations = {row["name"]: row["total_bytes"]["estimate"] / 4096 for row in rows}
    # Of what was taken in one go, the first is there, and all but the last fifteen.
    if how == "steady":
        assert allocations["steady"] > 50
    else:
        assert allocations["last"] >= (3 if how == "fork" else 1)
