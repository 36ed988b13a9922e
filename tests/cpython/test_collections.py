"""The collector's events in a profile of a CPython program."""

from __future__ import annotations

from pathlib import Path

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


def test_a_collection_says_how_many_bytes_it_has_freed(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    cpython.nthbyte("run", "-q", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    collections = [
        data
        for thread in harness.firefox(tmp_path / "out.nthb")["threads"]
        for data in thread["markers"]["data"]
        if data["type"] == "GcGeneration" and data["freedObjects"] >= CYCLES
    ]
    assert len(collections) == 1
    data = collections[0]
    assert data["freedBytes"] == data["before"] - data["after"]
    # What is freed is the cycles: their bytes, the headers of their objects, and the ends of blocks.
    assert CYCLES * CYCLE < data["freedBytes"] < 1.5 * CYCLES * CYCLE
    # What stays is the list of small objects at least.
    assert data["after"] > 10_000 * 300
