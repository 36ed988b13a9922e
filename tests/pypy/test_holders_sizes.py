"""What snapshots say that holders hold, against the bytes freed when these let go: PyPy's collector is the judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import IS_ALL, Interpreter, is_near
from held import HANDLERS, LINKED, REGISTRY, SUSPENDED, rows, snapshots

PARTS = (
    REGISTRY
    + HANDLERS
    + LINKED
    + """recent = collections.deque(text(480, i) for i in range(1000))

"""
    + SUSPENDED
)

# Each holder has 2 to 5 MB. PyPy's own objects are alive, too, and garbage is counted: of a smaller holder few blocks
# are drawn, and by chance it has less than the fiftieth of all below which there is no row.
PROGRAM = (
    """
import collections, functools, gc, sys, threading, time, nthbyte

"""
    + PARTS.replace(" i in range(", " i in range(4 * ")
    + """
def used():
    for _ in range(3): gc.collect()
    stats = gc._get_stats(False)
    return stats.total_arena_memory + stats.total_rawmalloced_memory

used()
for _ in range(int(sys.argv[1])):
    while (why := nthbyte.snapshot(force=True)) == "the one before is not finished":
        time.sleep(0.1)
    assert why is None, why

# The last node of the list stays: it is a constant of the compiled loop that made it. Without the JIT it is freed.
for holder in "registry.entries Bus.handlers models names recent generator config.rows".split():
    before = used()
    exec(f"del {holder}")
    print(holder, before - used())
"""
)

# How the report names them, where that is not the expression.
NAMES = {"Bus.handlers": "class Bus.handlers", "generator": "generator, local buffer"}


@pytest.mark.each
def test_a_holder_holds_what_is_freed_when_it_lets_go(pypy: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "lets_go.py").write_text(PROGRAM)
    options = ("run", "-q", "--no-holders", "--no-native", "-o", "a.nthb")
    count = 20 if IS_ALL else 3
    done = pypy.nthbyte(*options, "lets_go.py", str(count), folder=tmp_path, timeout=600).ok()
    freed = {name: int(size) for name, size in map(str.split, done.out.splitlines())}
    shown = rows(tmp_path / "a.nthb")
    assert len(shown) == count
    deviations = []
    for holder, size in freed.items():
        name = NAMES.get(holder, holder)
        longer = (f"{name}.", f"{name}[")
        estimates = []
        for snapshot in shown:
            (row,) = (snapshot[held] for held in snapshot if held == name or held.startswith(longer))
            estimates.append(row["bytes"])
        assert all(is_near(estimate, size) for estimate in estimates), (holder, size, estimates)
        if IS_ALL:
            mean = sum(estimate["estimate"] for estimate in estimates) / count
            # The mean of so many deviates by 1.4 % of the size: this is four times that.
            assert abs(mean - size) < 0.06 * size, (holder, size, mean)
            deviations.append(mean / size - 1)
    assert abs(sum(deviations)) <= 0.02 * len(deviations), deviations
    # Texts of 480 characters: with the header, the hash, the length and a zero, as the collector allocates them.
    sizes = next(one for one in snapshots(tmp_path / "a.nthb") if one.outcome == "complete").sizes
    assert sizes[512] > 100 and sizes[512] > 10 * sizes[520], sizes
