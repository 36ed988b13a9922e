"""The collector's events in a profile of a PyPy program."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import harness
from harness import Interpreter

# Of times, in milliseconds.
ROUNDING = 0.002

MAJORS = """
import gc, json
import nthbyte
class Told:
    def __init__(self):
        self.steps = self.collections = 0
        self.left = []
    def on_gc_minor(self, stats):
        pass
    def on_gc_collect_step(self, stats):
        self.steps += stats.count
    def on_gc_collect(self, stats):
        self.collections += stats.count
        self.left.append(stats.arenas_bytes + stats.rawmalloc_bytes_after)
told = Told()
gc.hooks.set(told)
gc.collect()
nthbyte.start("out.nthb", every="512KiB")
before = told.steps, told.collections, len(told.left)
kept = []
for number in range(300_000):
    kept.append([number])
    if number % 30_000 == 0:
        del kept[::2]
gc.collect()
within = told.steps - before[0], told.collections - before[1]
nthbyte.stop()
print(json.dumps({"steps": within[0], "collections": within[1], "left": told.left[before[2]:]}))
"""


def test_major_collections_agree_with_pypys_own_hooks(pypy: Interpreter, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(MAJORS)
    environment = {"PYPY_GC_NURSERY": "512K", "PYPY_GC_MIN": "4M"}
    told = json.loads(pypy.python(script, folder=tmp_path, environment=environment).ok().out)
    assert told["steps"] > 3 * told["collections"] > 6
    markers: dict[str, list[Any]] = {"GcMajor": [], "GcMajorStep": []}
    for thread in harness.firefox(tmp_path / "out.nthb")["threads"]:
        columns = thread["markers"]
        for data, start, end in zip(columns["data"], columns["startTime"], columns["endTime"]):
            if data["type"] in markers:
                markers[data["type"]].append((start, end, data))
    majors, steps = markers["GcMajor"], markers["GcMajorStep"]
    # The start of the session may begin a major collection before the hooks are placed; its later steps are reported.
    assert told["collections"] - 1 <= len(majors) <= told["collections"]
    assert told["steps"] <= len(steps) <= told["steps"] + 10
    assert set(told["left"][1:]) <= {data["after"] for _, _, data in majors}
    assert all(end <= start for (_, end, _), (start, _, _) in itertools.pairwise(majors))
    for start, end, _ in majors:
        own = [step for step in steps if start <= step[0] and step[1] <= end + ROUNDING]
        assert end - start >= sum(last - first for first, last, _ in own) - ROUNDING * len(own)
        # A clock that is rounded may count the last step of the one before in, which ended then.
        before = [step for step in own if step[1] <= start + ROUNDING and step[2]["phase"] == "finalizing"]
        phases = [
            phase for phase, _ in itertools.groupby(step[2]["phase"] for step in own if step not in before)
        ]
        assert phases[:4] == ["scanning", "marking", "sweeping", "finalizing"]
        # And the first step of the next one.
        assert phases[4:] in ([], ["scanning"])


COLLECTING = """
import gc, time, nthbyte
def collect():
    gc.collect()
def fill():
    return [[number] for number in range(1_500_000)]
def spend(function):
    # Samples are taken by CPU time, so a faster machine does more rounds.
    end = time.process_time() + 0.8
    while time.process_time() < end:
        function()
kept = fill()
nthbyte.start("major.nthb", every="1TiB", cpu=1000)
spend(collect)
nthbyte.stop()
nthbyte.start("minor.nthb", every="1TiB", cpu=1000)
spend(fill)
nthbyte.stop()
"""


def test_time_in_the_collector_has_its_own_frame(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COLLECTING)
    # Most objects of the nursery survive, so each minor collection moves many objects.
    environment = {"PYPY_GC_NURSERY": "4M"}
    pypy.python("program.py", folder=tmp_path, environment=environment).ok()
    for kind, caller in (("major", "collect"), ("minor", "fill")):
        rows = harness.summary(tmp_path / f"{kind}.nthb", "--by", "function")["time"]["rows"]
        times = {row["name"]: row for row in rows}
        collector = times[f"{kind} collection"]["samples"]
        assert collector > 20
        if kind == "major":
            assert collector > 0.8 * sum(row["samples"] for row in rows)
        assert times[caller]["total_samples"] > 0.9 * collector
