"""Sessions whose period follows the program, the default, on PyPy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import harness
from harness import Interpreter

PROGRAM = """
import json, nthbyte
class Pair:
    def __init__(self, one, other):
        self.one, self.other = one, other
def run(loops, size):
    kept = None
    for i in range(loops):
        kept = Pair(kept if i % 1000 else None, i)
    return kept
def large(times):
    for _ in range(times):
        bytearray(300_000)
run(200_000, 1)
nthbyte.start("out.nthb")
run(6_000_000, 1)
large(100)
run(6_000_000, 2)
result = nthbyte.stop()
print(json.dumps([result.samples, result.lost, result.bytes_allocated]))
"""


@pytest.mark.parametrize("nursery", ["256K", "4M"])
def test_the_period_follows_the_program(pypy: Interpreter, nursery: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    done = pypy.python("app.py", folder=tmp_path, environment={"PYPY_GC_NURSERY": nursery}).ok()
    samples, lost, counted = json.loads(done.out)
    found = harness.summary(tmp_path / "out.nthb")
    assert found["periods"][0] == 16 << 10 and len(found["periods"]) > 1
    # PyPy allocates some native memory too, of which one run in some hundred has a sample.
    assert harness.summary(tmp_path / "out.nthb", "--domain", "all")["samples"] == samples > 0
    if not lost:
        estimate = found["all"]["bytes"]
        # Three times half of a 95 % interval: six standard deviations.
        assert estimate["estimate"] - counted <= 3 * (estimate["estimate"] - estimate["low"])
        assert counted - estimate["estimate"] <= 3 * (estimate["high"] - estimate["estimate"])


FALLBACK = """
from nthbyte import _pypy
def refuse(self, config):
    raise _pypy._Refused("no reason")
_pypy.PyPyAgent._start_hooked = refuse
import nthbyte
nthbyte.start("out.nthb")
for _ in range(300):
    [[] for _ in range(10_000)]
print(*nthbyte.stop().notes)
"""


def test_without_the_collector_the_period_is_fixed(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FALLBACK)
    done = pypy.python("app.py", folder=tmp_path, environment={"PYPY_GC_NURSERY": "128K"}).ok()
    assert "the period cannot follow the program there: it is 512.0 KiB" in done.out
    found = harness.summary(tmp_path / "out.nthb")
    assert found["method"] == "gc-hooks"
    # As many whole nurseries as fit.
    (period,) = found["periods"]
    assert 256 << 10 < period <= 512 << 10
