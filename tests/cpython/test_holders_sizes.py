"""What snapshots say that holders hold, against the bytes freed when these let go: the allocator is the judge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import REPOSITORY, Interpreter, report, run
from held import HANDLERS, LINKED, READER, REGISTRY, SUSPENDED, rows

# An interpreter with NumPy and pandas: `make test-native` makes it.
NUMPY = REPOSITORY / "build" / "native" / "bin" / "python"

# Each holder has 0.3 to 1.2 MB. Most of it is text: CPython keeps no freed blocks of text for later use.
PROGRAM = (
    """
import collections, functools, gc, sys, threading, time, nthbyte
from nthbyte._agent import load

"""
    + REGISTRY
    + """@functools.lru_cache(maxsize=None)
def render(i):
    return text(800, i)
for i in range(600): render(i)

"""
    + HANDLERS
    + """
errors = []
def risky(i):
    payload = texts(i)
    raise ValueError(i)
for i in range(300):
    try: risky(i)
    except ValueError as error: errors.append(error)

"""
    + LINKED
    + """recent = collections.deque(text(480, i) for i in range(1000))

"""
    + SUSPENDED
    + """
local = threading.local()
local.buffer = [text(480, i) for i in range(1000)]

gc.collect()
for _ in range(int(sys.argv[1])):
    while (why := nthbyte.snapshot(force=True)) == "the one before is not finished":
        time.sleep(0.001)
    assert why is None, why

start = load().clock_start()
for holder in '''registry.entries render Bus.handlers models errors head names recent generator config.rows
        local.buffer'''.split():
    gc.collect()
    began = time.monotonic_ns()
    exec(f"del {holder}")
    gc.collect()
    print(holder, began - start, time.monotonic_ns() - start)
"""
)

# How the report names them, where that is not the expression.
NAMES = {
    "Bus.handlers": "class Bus.handlers",
    "local.buffer": "local",
    "generator": "generator, local buffer",
}


def freed(profile: Path, spans: list[tuple[str, int, int]]) -> dict[str, int]:
    """The bytes of blocks that were freed in each span of time, of those that were allocated before."""
    born: dict[str, tuple[int, int]] = {}
    sums = {name: 0 for name, _, _ in spans}
    read = subprocess.run([sys.executable, READER, profile], capture_output=True, text=True, check=True)
    for line in read.stdout.splitlines():
        what, *words = line.split(" ")
        if what == "allocation":
            born[words[0]] = int(words[1]), int(words[8])
        elif what == "freed":
            time, block = born.pop(words[0])
            for name, began, ended in spans:
                if began <= int(words[1]) <= ended and time < began:
                    sums[name] += block
    return sums


@pytest.mark.slow
def test_a_holder_holds_what_is_freed_when_it_lets_go(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    options = ("run", "-q", "--no-holders", "--every", "1", "-o", "a.nthb")
    done = cpython.nthbyte(*options, "app.py", "20", folder=tmp_path).ok()
    spans = [(name, int(began), int(ended)) for name, began, ended in map(str.split, done.out.splitlines())]
    truth = freed(tmp_path / "a.nthb", spans)
    snapshots = rows(tmp_path / "a.nthb")
    assert len(snapshots) == 20
    inside, checks, wrong = 0, 0, {}
    for name, bytes_freed in truth.items():
        shown = NAMES.get(name, name)
        estimates = []
        for snapshot in snapshots:
            longer = (f"{shown}.", f"{shown}[")
            (row,) = (snapshot[held] for held in snapshot if held == shown or held.startswith(longer))
            figure = row["bytes"]
            estimates.append(figure["estimate"])
            inside += figure["low"] <= bytes_freed <= figure["high"]
            checks += 1
        mean = sum(estimates) / len(estimates)
        if not 0.95 * bytes_freed <= mean <= 1.05 * bytes_freed:
            wrong[name] = (bytes_freed, round(mean))
    print(f"{cpython}: {inside} of {checks}, {truth}")
    assert not wrong
    # Of intervals that hold in 95 of 100 cases, fewer are 4.5 standard deviations away.
    assert inside >= 0.885 * checks


ARRAYS = """
import numpy, pandas, nthbyte

class Report:
    pass
report = Report()
report.frames = {
    number: pandas.DataFrame({
        "name": pandas.Series([f"{number}-{row}-{'x' * 100}" for row in range(2000)], dtype=object),
        "value": numpy.arange(50_000.0)[:2000].copy(),
    })
    for number in range(12)
}
print(nthbyte.snapshot(force=True))
"""


@pytest.mark.slow
def test_the_objects_in_columns_of_frames_have_holders(tmp_path: Path) -> None:
    if not NUMPY.exists():
        pytest.skip("make test-native installs NumPy and pandas")
    (tmp_path / "app.py").write_text(ARRAYS)
    environment = {"PYTHONPATH": str(REPOSITORY / "build" / "site"), "PATH": os.environ["PATH"]}
    words = [str(NUMPY), "-m", "nthbyte", "run", "--every", "4096", "--no-holders", "-o", "a.nthb", "app.py"]
    done = run(words, tmp_path, environment=environment).ok()
    assert done.out == "None\n"
    shown = json.loads(report("holders", "--json", "a.nthb", folder=tmp_path).ok().out)
    held = {row["holder"]: row["bytes"] for row in shown["holders"]}
    # 24,000 texts of 107 to 110 characters in blocks of 160 bytes.
    assert 3.5e6 <= held["report.frames"]["estimate"] <= 5e6, held


# Arrays of 800 kB; views of a few values keep those that they belong to.
NUMBERS = """
import numpy, pandas
arrays = [numpy.zeros(100_000) + i for i in range(40)]
class Report:
    heads = [(numpy.zeros(100_000) + i)[:5] for i in range(20)]
frame = pandas.DataFrame({f"c{i}": numpy.zeros(200_000) + i for i in range(10)})
"""


@pytest.mark.slow
def test_the_data_of_arrays_have_holders(tmp_path: Path) -> None:
    if not NUMPY.exists():
        pytest.skip("make test-native installs NumPy and pandas")
    (tmp_path / "app.py").write_text(NUMBERS)
    environment = {"PYTHONPATH": str(REPOSITORY / "build" / "site"), "PATH": os.environ["PATH"]}
    run(
        [str(NUMPY), "-m", "nthbyte", "run", "--holders", "--every", "64KiB", "-o", "a.nthb", "app.py"],
        tmp_path,
        environment=environment,
    ).ok()
    shown = json.loads(report("holders", "--json", "a.nthb", folder=tmp_path).ok().out)
    held = {row["holder"]: row["bytes"]["estimate"] / 1e6 for row in shown["holders"]}
    of_frame = sum(amount for holder, amount in held.items() if holder.startswith("frame"))
    assert 31 < held["arrays"] < 33 and 15 < held["class Report.heads"] < 17 and 15 < of_frame < 17, held
