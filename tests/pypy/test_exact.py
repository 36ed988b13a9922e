"""Programs with known allocations: the number of samples is the number of bytes divided by the period."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import harness
from harness import Interpreter

# A loop that keeps the last two integers alive, of 16 bytes each, like rpython-gc-allocation-speed.
LOOP = """
import json, sys, nthbyte
def run(loops):
    a = prev = None
    for i in range(loops):
        prev = a
        a = i
    return prev, a
period, loops = int(sys.argv[1]), int(sys.argv[2])
run(loops)
answers = []
for count in (0, loops):
    nthbyte.start(f"{count}.nthb", every=period, fixed=True, native=False)
    run(count)
    result = nthbyte.stop()
    answers.append([result.samples, result.lost, result.bytes_allocated])
print(json.dumps(answers))
"""

PERIODS = [64, 1000, 4096, 32 << 10, 1 << 20, 4 << 20, 64 << 20]


@pytest.mark.parametrize("jit", ["on", "off"])
@pytest.mark.parametrize("period", PERIODS)
def test_a_known_number_of_bytes(pypy: Interpreter, period: int, jit: str, tmp_path: Path) -> None:
    loops = 400_000 if period < 4096 else 20_000_000 if jit == "on" else 2_000_000
    flags = ["--jit", "off"] if jit == "off" else []
    answers = _run(pypy, LOOP, tmp_path, period, loops, flags=flags)
    (_, _, nothing), (samples, lost, counted) = answers
    # The loop allocates 16 bytes per iteration. All other bytes are the interpreter's, most of them its compiler's.
    assert abs(counted - nothing - 16 * loops) < 1_000_000 + loops // 50
    points = round(harness.summary(tmp_path / f"{loops}.nthb")["all"]["bytes"]["estimate"] / period)
    if lost:
        # On a busy machine; each may be one of several points.
        assert points < counted // period
    else:
        assert points == counted // period
        assert samples <= points


NURSERIES = ["256K", "4M"]


@pytest.mark.parametrize("nursery", NURSERIES)
def test_periods_larger_than_the_nursery(pypy: Interpreter, nursery: str, tmp_path: Path) -> None:
    environment = {"PYPY_GC_NURSERY": nursery}
    period = 10 << 20
    answers = _run(pypy, LOOP, tmp_path, period, 20_000_000, environment=environment)
    samples, lost, counted = answers[1]
    assert (samples, lost) == (counted // period, 0)


LARGE = """
import json, sys, nthbyte
period, size = int(sys.argv[1]), int(sys.argv[2])
def large():
    return b"x" * size
large()
nthbyte.start("large.nthb", every=period, fixed=True, native=False)
kept = [large() for _ in range(10)]
for _ in range(10):
    large()
result = nthbyte.stop()
print(json.dumps([result.samples, result.lost, result.bytes_allocated]))
"""


@pytest.mark.parametrize("period", [100_000, 1 << 20, 5 << 20])
def test_large_objects_count_once_for_each_period(pypy: Interpreter, period: int, tmp_path: Path) -> None:
    size = 3_000_000
    samples, lost, counted = _run(pypy, LARGE, tmp_path, period, size)
    assert not lost
    assert 20 * size <= counted <= 20 * size + 1_000_000
    summary = harness.summary(tmp_path / "large.nthb")
    assert round(summary["all"]["bytes"]["estimate"] / period) == counted // period
    assert samples <= 20 + counted // period - 20 * (size // period)
    row = next(row for row in summary["rows"] if row["name"] == "large")
    assert row["self_bytes"]["estimate"] == pytest.approx(20 * size, abs=2 * period)


def _run(pypy: Interpreter, program: str, folder: Path, *words: int, flags: Any = (), **options: Any) -> Any:
    script = folder / "program.py"
    script.write_text(program)
    return json.loads(pypy.python(*flags, script, *map(str, words), folder=folder, **options).ok().out)
