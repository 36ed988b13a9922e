"""Where the agent cannot hook PyPy, it samples through ``gc.hooks``."""

from __future__ import annotations

import re
from pathlib import Path

import harness
from harness import Interpreter

FALLBACK_ONLY = """
import os, sys, threading, time
from nthbyte import _pypy
def refuse(self, config):
    raise _pypy._Refused("cannot sample inside PyPy 0.0 (build id 00): no reason")
_pypy.PyPyAgent._start_hooked = refuse
import nthbyte
def fill():
    for _ in range(300):
        [[] for _ in range(10_000)]
"""

FALLBACK = (
    FALLBACK_ONLY
    + """
nthbyte.start("out.nthb", every="512KiB")
fill()
result = nthbyte.stop()
print(result.samples, *result.notes)
"""
)

FALLBACK_IN_A_THREAD = (
    FALLBACK_ONLY
    + """
def record():
    for _ in range(40):
        nthbyte.start("out.nthb", force=True, every="512KiB")
        time.sleep(0.01)
        nthbyte.stop()
    ended.append(True)
ended = []
threading.Thread(target=record).start()
while not ended:
    fill()
print("well")
"""
)

FALLBACK_AND_FORK = (
    FALLBACK_ONLY
    + """
nthbyte.start("out.nthb", every="512KiB")
for _ in range(5): fill()
child = os.fork()
if child == 0:
    fill()
    nthbyte.stop()
    os._exit(0)
print(child, os.waitpid(child, 0)[1])
nthbyte.stop()
"""
)


def test_the_fallback_ends_in_another_thread(pypy: Interpreter, tmp_path: Path) -> None:
    """PyPy may call the hook of a collection when the session has ended."""
    done = pypy.python("-c", FALLBACK_IN_A_THREAD, folder=tmp_path, environment={"PYPY_GC_NURSERY": "64K"})
    assert done.ok().out == "well\n"


def test_the_fallback_counts_a_forked_child_alone(pypy: Interpreter, tmp_path: Path) -> None:
    environment = {"PYPY_GC_NURSERY": "1M"}
    done = pypy.python("-c", FALLBACK_AND_FORK, folder=tmp_path, environment=environment).ok()
    child, status = done.out.split()
    assert status == "0"
    parent, own = (
        harness.summary(tmp_path / name)["bytes_allocated"] for name in ("out.nthb", f"out.{child}.nthb")
    )
    assert 0 < own < parent / 2


def test_the_fallback_samples_through_gc_hooks(pypy: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(FALLBACK)
    done = pypy.python(script, folder=tmp_path, environment={"PYPY_GC_NURSERY": "1M"}).ok()
    assert "build id 00" in done.out
    summary = harness.summary(tmp_path / "out.nthb")
    assert summary["method"] == "gc-hooks"
    assert summary["period"] == 1 << 20
    assert summary["samples"] > 20
    assert any("build id 00" in note for note in summary["notes"])
    rows = {row["name"]: row for row in summary["rows"]}
    assert any(re.search("fill|listcomp", name) for name in rows)
