"""The collector's events in a profile of a CPython program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import harness
from harness import Interpreter

# A cycle holds this many bytes at least.
CYCLE = 4_000
CYCLES = 2_000

PROGRAM = f"""
import gc
gc.disable()
gc.collect()
small = [bytes(300) for _ in range(10_000)]
def make():
    for _ in range({CYCLES}):
        one = [bytes(400) for _ in range({CYCLE // 400})]
        one.append(one)
make()
gc.collect()
"""


def collections(profile: Path) -> list[tuple[int, Any]]:
    """The generation of each collection and the data of its marker, in their order."""
    rows = [
        row
        for thread in harness.firefox(profile)["threads"]
        for row in zip(*(thread["markers"][column] for column in ("startTime", "data")), strict=True)
        if row[1]["type"] == "GcGeneration"
    ]
    return [(data["generation"], data) for _, data in sorted(rows, key=lambda row: row[0])]


def test_a_collection_says_how_many_bytes_it_has_freed(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    cpython.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    [data] = [data for _, data in collections(tmp_path / "out.nthb") if data["freedObjects"] >= CYCLES]
    assert data["freedBytes"] == data["before"] - data["after"]
    # The cycles are freed: their bytes, the headers of their objects, and the ends of blocks.
    assert CYCLES * CYCLE < data["freedBytes"] < 1.5 * CYCLES * CYCLE
    # What stays is the list of small objects at least.
    assert data["after"] > 10_000 * 300


# Prints the generation of each collection, and how many objects it has freed.
GENERATIONS = """
import gc, json
gc.disable()
gc.collect()
seen = []
def watch(phase, info):
    if phase == "stop":
        seen.append([info["generation"], info["collected"]])
gc.callbacks.append(watch)
def make(count):
    for _ in range(count):
        one = []
        one.append(one)
for generation in 0, 0, 1, 2, 0, 1, 1, 2:
    make(100 + len(seen))
    gc.collect(generation)
gc.callbacks.remove(watch)
print(json.dumps(seen))
"""


def part(profile: Path, first: tuple[int, int], length: int) -> list[tuple[int, int | None]]:
    """The generation of each collection from ``first`` on, and the number of objects that it has freed."""
    found = [(generation, data.get("freedObjects")) for generation, data in collections(profile)]
    at = found.index(first)
    return found[at : at + length]


def test_a_collection_says_its_generation_and_how_many_objects_it_has_freed(
    cpython: Interpreter, tmp_path: Path
) -> None:
    done = cpython.nthbyte("run", "-q", "-o", "out.nthb", "-c", GENERATIONS, folder=tmp_path).ok()
    seen = [(generation, freed) for generation, freed in json.loads(done.out)]
    assert min(freed for _, freed in seen) >= 100
    # The start's and the interpreter's end's were not watched.
    assert part(tmp_path / "out.nthb", seen[0], len(seen)) == seen


# A callback before nthbyte's gives it another dictionary than the collector has made.
ALTERED = """
import gc
gc.disable()
gc.collect()
class Odd:
    def __init__(self, info):
        self.info = info
    def __index__(self):
        self.info.clear()
        return 1234
class Failing:
    def __index__(self):
        raise ValueError
class Text(str):
    def __eq__(self, other):
        raise ValueError
    __hash__ = str.__hash__
def alter(phase, info):
    if phase == "stop":
        change(info)
gc.callbacks.insert(0, alter)
def first(info):
    info["collected"] = Odd(info)
def second(info):
    info["generation"], info["collected"] = "old", Failing()
def third(info):
    info.clear()
def fourth(info):
    info[5] = info[None] = 1
    info[Text("generation ")] = info["\\ud800"] = info["collected\\0"] = 1
for change in first, second, third, fourth:
    gc.collect()
gc.callbacks.remove(alter)
print("fine")
"""


def test_a_program_may_alter_what_the_collector_says(cpython: Interpreter, tmp_path: Path) -> None:
    done = cpython.nthbyte("run", "-q", "-o", "out.nthb", "-c", ALTERED, folder=tmp_path).ok()
    assert (done.out, done.err) == ("fine\n", "")
    _, *others = part(tmp_path / "out.nthb", (2, 1234), 4)
    # What cannot be read is generation 0, with an unknown number of objects.
    assert others == [(0, None), (0, None), (2, others[2][1])]
    assert others[2][1] is not None
