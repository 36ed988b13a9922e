"""What the JIT compiler does, compared with PyPy's own log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

import pytest

from harness import Interpreter, firefox, report

# Compiles many small functions, one after the other, for more than a second. The sections of the log between the
# test's own are the session's.
PROGRAM = """
import time
import nthbyte
from __pypy__ import debug_start, debug_stop

SOURCE = '''
def work(n):
    total = 0
    for i in range(n):
        if i % {0} == 0:
            total += i
        elif i % 3 == 1:
            total ^= i
        else:
            total -= len(str(i))
    return total
'''

nthbyte.start("out.nthb", force=True, native=False)
debug_start("test-work")
began = time.monotonic_ns()
number = 2
while time.monotonic_ns() - began < 1_300_000_000:
    names = {}
    exec(SOURCE.format(number), names)
    names["work"](3000)
    number += 1
ended = time.monotonic_ns()
debug_stop("test-work")
nthbyte.stop()
print(began, ended)
"""

LINE = re.compile(r"\[([0-9a-f]+)\] (\{?)([a-z-]+)(\}?)$")
TIMED = ("jit-tracing", "jit-optimize", "jit-backend")
OUTCOMES = {"jit-log-compiling-loop": "loop", "jit-log-compiling-bridge": "bridge"}


def _of_log(log: Path, nanos: int) -> list[tuple[float, str]]:
    """The milliseconds and the results of the compiler's work, by the counts of the processor's clock in the log."""
    found: list[tuple[int, str]] = []
    is_work, depth, began, outcome = False, 0, 0, ""
    first = last = 0
    for line in log.read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if not match:
            continue
        time, name, begins = int(match[1], 16), match[3], bool(match[2])
        if name == "test-work":
            is_work = begins
            first, last = (time, last) if begins else (first, time)
        elif is_work and name in OUTCOMES:
            outcome = OUTCOMES[name]
        elif is_work and name in TIMED and begins:
            if depth == 0:
                began, outcome = time, "aborted" if name == "jit-tracing" else "other"
            depth += 1
        elif is_work and name in TIMED:
            depth -= 1
            if depth == 0:
                found.append((time - began, outcome))
    scale = nanos / (last - first) / 1e6
    return [(ticks * scale, outcome) for ticks, outcome in found]


def test_it_is_what_the_log_says(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    log = tmp_path / "log.txt"
    done = pypy.python("program.py", folder=tmp_path, environment={"PYPYLOG": f":{log}"}).ok()
    began, ended = map(int, done.out.split())
    logged = _of_log(log, ended - began)
    exported = firefox(tmp_path / "out.nthb")
    [markers] = [one["markers"] for one in exported["threads"] if _work(one["markers"])]
    recorded = _work(markers)
    # All that compiles is there, in the same order, with the same results.
    assert [outcome for _, _, outcome in recorded] == [outcome for _, outcome in logged]
    assert {"loop", "bridge"} <= {outcome for _, _, outcome in recorded}
    times = [end - start for start, end, _ in recorded]
    # In most of them, no other program has run between two reads of a clock.
    assert median(abs(a / b - 1) for a, (b, _) in zip(times, logged)) < 0.02

    explained = report("explain", "out.nthb", "--json", folder=tmp_path).out
    [answer] = [one for one in json.loads(explained)["answers"] if one["topic"] == "compiler"]
    figures = {name: figure["estimate"] for name, figure in answer["figures"].items()}
    assert figures["seconds"] == pytest.approx(sum(times) / 1e3, rel=1e-3)
    first = sum(max(0, min(end, 1000) - start) for start, end, _ in recorded) / 1000
    assert figures["share of the first second"] == pytest.approx(first, rel=0.01)
    outcomes = [outcome for _, outcome in logged]
    assert (figures["loops"], figures["bridges"]) == (outcomes.count("loop"), outcomes.count("bridge"))
    assert "The JIT compiler takes" in answer["sentences"][0] and "first second" in answer["sentences"][0]


def _work(markers: dict[str, list]) -> list[tuple[float, float, str]]:
    """The start, the end and the result of the compiler's work, in milliseconds."""
    rows = zip(markers["startTime"], markers["endTime"], markers["data"])
    return [(start, end, data["outcome"]) for start, end, data in rows if data["type"] == "JitCompiler"]


def test_the_log_is_the_programs(pypy: Interpreter, tmp_path: Path) -> None:
    """Without ``PYPYLOG`` nothing is set, and no file is written."""
    (tmp_path / "program.py").write_text("import os\nprint('PYPYLOG' in os.environ, os.listdir('.'))\n")
    plain = pypy.python("program.py", folder=tmp_path).ok()
    profiled = pypy.nthbyte("run", "-q", "-o", tmp_path.parent / "out.nthb", "program.py", folder=tmp_path)
    assert profiled.ok().out == plain.out
