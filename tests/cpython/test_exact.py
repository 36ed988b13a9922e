"""Profiles of programs with known allocations, which Hypothesis generates.

A *plan* is a list of blocks: a size, how many of them, and whether they are kept. The program makes
each plan in a function of its own, so that each plan is a row of the profile.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import Interpreter, summary

PLANS = st.lists(
    st.tuples(
        st.integers(1, 3000) | st.sampled_from([1, 15, 16, 479, 480, 512, 513, 100_000]),
        st.integers(1, 300),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)

PROGRAM = """
import itertools, json, sys
plans = json.load(open("plans.json"))
kept = []
for number, (size, count, keep) in enumerate(plans):
    # One code object for each plan, so that each plan is a row.
    names = {}
    exec(f"def plan_{number}(make, times, keep):\\n for _ in times: keep(make())", names)
    room = [None] * count
    places = iter(range(count))
    def store(block, room=room, places=places):
        room[next(places)] = block
    def drop(block):
        pass
    make = bytes(size).__add__  # bytes + b"x" makes a new bytes of size + 1
    def build(make=make):
        return make(b"x")
    names[f"plan_{number}"](build, itertools.repeat(None, count), store if keep else drop)
    kept.append(room)
print("header", sys.getsizeof(b""))
"""

SETTINGS = settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# On the other interpreters, `_check_blocks` below knows the allocations.
@pytest.mark.slow
@SETTINGS
@given(plans=PLANS)
def test_every_allocation_is_recorded(
    plans: list[tuple[int, int, bool]], cpython: Interpreter, tmp_path: Path
) -> None:
    found, header = _run(cpython, tmp_path, plans, "--every", "1")
    assert found["lost"] == 0
    by_name = {row["name"]: row for row in found["rows"]}
    for number, (size, count, keep) in enumerate(plans):
        row = by_name[f"plan_{number}"]
        exact = count * (size + 1 + header)
        # Besides the blocks, `places` allocates integers above 256.
        beside = 32 * max(0, count - 256) + 500
        assert exact <= row["total_bytes"]["estimate"] <= exact + beside, (number, size, count, keep)
        for name in ("total_bytes", "total_allocations"):
            assert row[name]["low"] == row[name]["estimate"] == row[name]["high"]


@pytest.mark.slow
@SETTINGS
@given(plans=PLANS, seed=st.integers(0, 2**64 - 1), period=st.integers(64, 1 << 14))
def test_sampling_is_repeatable_and_the_total_is_correct(
    plans: list[tuple[int, int, bool]], seed: int, period: int, cpython: Interpreter, tmp_path: Path
) -> None:
    found, _ = _run(cpython, tmp_path, plans, "--every", str(period), "--seed", str(seed))
    exact, _ = _run(cpython, tmp_path, plans, "--every", "1")
    # The program allocates the same with and without sampling. The count is a sum over free lists,
    # and some lists are partly used at that time.
    difference = abs(found["bytes_allocated"] - exact["bytes_allocated"])
    assert difference <= 0.02 * exact["bytes_allocated"] + 150_000
    whole, truth = found["all"]["bytes"], exact["all"]["bytes"]["estimate"]
    # Three times half the width of a 95 % interval: six standard deviations.
    assert whole["estimate"] - truth <= 3 * (whole["estimate"] - whole["low"]) + 1
    # If the writer thread cannot run, samples are lost, and the estimate is too low.
    if not found["lost"]:
        assert truth - whole["estimate"] <= 3 * (whole["high"] - whole["estimate"]) + 1


def _run(interpreter: Interpreter, folder: Path, plans: Any, *options: str) -> tuple[Any, int]:
    (folder / "plans.json").write_text(json.dumps(plans))
    (folder / "app.py").write_text(PROGRAM)
    done = interpreter.nthbyte(
        "run",
        "-q",
        "-f",
        *options,
        "-o",
        "out.nthb",
        "app.py",
        folder=folder,
        environment={"PYTHONHASHSEED": "0"},
    ).ok()
    return summary(folder / "out.nthb", "--domain", "python"), int(done.out.split()[-1])


@pytest.mark.parametrize("flags", [("-X", "dev"), ("-X", "tracemalloc=3"), ("-O",)])
def test_interpreter_flags(flags: tuple[str, ...], cpython: Interpreter, tmp_path: Path) -> None:
    _check_blocks(cpython, tmp_path, flags, {})


def test_tracemalloc_from_the_environment(cpython: Interpreter, tmp_path: Path) -> None:
    _check_blocks(cpython, tmp_path, (), {"PYTHONTRACEMALLOC": "3"})


RECORDED_LATER = """
import os, signal, tracemalloc
os.kill(os.getpid(), signal.SIGUSR1)
kept = [[n] for n in range(20_000)]
print(tracemalloc.is_tracing())
"""


def test_a_recording_begins_while_tracemalloc_runs(cpython: Interpreter, tmp_path: Path) -> None:
    words = ("run", "-q", "-o", "out.nthb", "--every", "1K", "--signal", "USR1", "-c", RECORDED_LATER)
    done = cpython.nthbyte(*words, folder=tmp_path, flags=("-X", "tracemalloc")).ok()
    assert (done.out, done.err) == ("True\n", "")
    assert summary(tmp_path / "out.nthb")["samples"] > 500


@pytest.mark.parametrize("allocator", ["debug", "malloc", "malloc_debug", "pymalloc_debug"])
def test_other_allocators(allocator: str, cpython: Interpreter, tmp_path: Path) -> None:
    _check_blocks(cpython, tmp_path, (), {"PYTHONMALLOC": allocator})


BLOCKS = """
import gc, tracemalloc

def blocks():
    return [bytes(200) for _ in range(5000)]

if not tracemalloc.is_tracing():
    tracemalloc.start()
before = tracemalloc.get_traced_memory()[0]
kept = blocks()
grown = tracemalloc.get_traced_memory()[0] - before
assert 5000 * 233 <= grown < 5000 * 300, grown
tracemalloc.stop()
del kept
gc.collect()
"""

COUNT = """
import sys

def grown(size):
    before = sys.getallocatedblocks()
    kept = [bytes(size) for _ in range(5000)]
    added = sys.getallocatedblocks() - before
    del kept
    return added, sys.getallocatedblocks() - before

for size in (0, 1, 400, 480, 1000, 2000, 5000):
    added, left = grown(size)
    expected = 5000 if size and sys.getallocatedblocks() else 0
    assert abs(added - expected) < 20 and abs(left) < 20, (size, added, left)
"""


@pytest.mark.parametrize("allocator", ["default", "debug", "malloc"])
@pytest.mark.parametrize("period", ["1", "512KiB"])
def test_the_count_of_allocated_blocks(
    period: str, allocator: str, cpython: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(COUNT)
    environment = {"PYTHONMALLOC": allocator}
    cpython.python("app.py", folder=tmp_path, environment=environment).ok()
    words = ("run", "-q", "--every", period, "-o", "out.nthb", "app.py")
    cpython.nthbyte(*words, folder=tmp_path, environment=environment).ok()


def _check_blocks(
    interpreter: Interpreter, folder: Path, flags: tuple[str, ...], environment: dict[str, str]
) -> None:
    words = ("run", "-q", "--every", "1K", "-o", "out.nthb", "-c", BLOCKS)
    interpreter.nthbyte(*words, folder=folder, flags=flags, environment=environment).ok()
    rows = {row["name"]: row for row in summary(folder / "out.nthb", "--domain", "python")["rows"]}
    # The debug hooks add some bytes to each block.
    assert 0.7 * 5000 * 233 < rows["blocks"]["total_bytes"]["estimate"] < 1.6 * 5000 * 270


# CPython keeps a name that an attribute was looked up by, at a place that depends on its address and on the type.
LOOKED_UP = """
def look_up(things, times):
    for number in range(times):
        getattr(things[number % 64], "a name that is made anew " + str(number % 7), None)
"""

LOOKS_UP = """
from looking import look_up
look_up([type("Thing", (), {})() for _ in range(64)], 300_000)
peak = bytearray(50_000_000)
del peak
"""


def test_a_name_that_was_looked_up_is_not_alive_because_it_was_sampled(
    cpython: Interpreter, tmp_path: Path
) -> None:
    (tmp_path / "looking.py").write_text(LOOKED_UP)
    (tmp_path / "app.py").write_text(LOOKS_UP)
    cpython.nthbyte("run", "-q", "--every", "4K", "-o", "out.nthb", "app.py", folder=tmp_path).ok()

    def names(*options: str) -> Any:
        # The names alone: a tuple that is free lies in CPython's stock of tuples, and counts as alive.
        rows = summary(tmp_path / "out.nthb", "--by", "type", "--where", "looking.py", *options)["rows"]
        [row] = [row for row in rows if row["name"] == "str"]
        return row

    row = names()
    assert row["samples"] > 2000 and row["still_live"]["estimate"] == 0, row
    if cpython.python_version < (3, 13):
        # There are 64 sampled `str` between two looks. From 3.13 on, the writer thread asks for them, when it runs.
        assert names("--at", "peak")["alive"]["estimate"] <= 64 * 4096 * 1.1
