"""The names of memory that is not an object."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from harness import Interpreter, summary

# Each line allocates at least this many bytes of the named kind, a thousand times.
PROGRAM = """
kept = []
for _ in range(1000):
    kept.append([None] * 1000)               # list items, 8000
    kept.append([n for n in range(100)])     # 800, as those that follow
    one = []
    kept.append(one)
    for n in range(100):
        one.append(n)
    kept.append(list(range(100)))
    kept.append(list(n for n in range(100)))
    kept.append(sorted(range(100)))
    kept.append(("a " * 100).split())
    kept.append(("a\\n" * 100).splitlines())
    kept.append(kept[-1][1:] + kept[-2])
    kept.append(set(range(100)))             # set table, 4096
    kept.append({n for n in range(30)})      # 1024
    kept.append({str(n): n for n in range(30)})  # dict keys, 512
"""


def test_memory_has_a_name(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    cpython.nthbyte("run", "-q", "--every", "1", "-o", "out.nthb", "app.py", folder=tmp_path).ok()
    rows = summary(tmp_path / "out.nthb", "--by", "type")["rows"]
    found = {row["name"]: row["self_bytes"]["estimate"] for row in rows}
    assert found["list items"] >= 14_400_000
    assert found["set table"] >= 5_120_000
    assert found["dict keys"] >= 512_000
    # Fewer bytes than any one of these kinds would leave if its name were unknown.
    assert found.get("references", 0) < 400_000, found


def test_memory_under_debug_hooks_has_no_wrong_name(cpython: Interpreter, tmp_path: Path) -> None:
    """The hooks allocate for all callers, so the allocation site is unknown."""
    if not _may_read_memory():
        pytest.skip("what memory holds is found out by reads that are forbidden here")
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ("run", "-q", "--every", "1", "-o", "out.nthb", "app.py")
    cpython.nthbyte(*words, flags=("-X", "dev"), folder=tmp_path).ok()
    rows = summary(tmp_path / "out.nthb", "--by", "type")["rows"]
    found = {row["name"]: row["self_bytes"]["estimate"] for row in rows}
    assert found["references"] >= 14_400_000
    assert "list items" not in found and "set table" not in found


def _may_read_memory() -> bool:
    """Whether ``process_vm_readv`` is allowed: containers may forbid it."""
    value, copy = ctypes.c_long(7), ctypes.c_long(0)
    ends = [(ctypes.c_void_p * 2)(ctypes.addressof(one), ctypes.sizeof(one)) for one in (copy, value)]
    library = ctypes.CDLL(None)
    read = library.process_vm_readv(os.getpid(), ends[0], 1, ends[1], 1, ctypes.c_ulong(0))
    return bool(read == ctypes.sizeof(value) and copy.value == 7)
