"""Patches of the interpreter are undone correctly, even if the program changes the same data."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Interpreter, summary

pytestmark = pytest.mark.each

# The program clears the list, reuses the memory, and records the comparisons with its own entries.
CLEARED = """
import gc, nthbyte

class Entry:
    compared = []
    def __call__(self, phase, info):
        pass
    def __eq__(self, other):
        Entry.compared.append(type(other).__name__)
        return True
    __hash__ = None

nthbyte.start("out.nthb", every="1KiB")
gc.collect()
gc.callbacks.clear()
reuse = [compile("1", "reuse", "eval") for _ in range(100)] + [len.__class__ and [].append for _ in range(1000)]
own = Entry()
gc.callbacks.append(own)
nthbyte.stop()
assert len(gc.callbacks) == 1 and gc.callbacks[0] is own, gc.callbacks
assert Entry.compared == [], Entry.compared
gc.collect()
print("fine")
"""

REORDERED = """
import gc, nthbyte
mine = [lambda phase, info: None for _ in range(2)]
gc.callbacks.append(mine[0])
nthbyte.start("out.nthb", every="1KiB")
gc.callbacks.append(mine[1])
gc.callbacks.reverse()
gc.collect()
nthbyte.stop()
assert [entry is one for entry, one in zip(gc.callbacks, reversed(mine), strict=True)] == [True, True]
print("fine")
"""


def test_the_list_of_callbacks_is_cleared(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CLEARED)
    assert cpython.python("app.py", folder=tmp_path).ok().out == "fine\n"
    assert summary(tmp_path / "out.nthb")["complete"]


def test_the_list_of_callbacks_is_reordered(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(REORDERED)
    assert cpython.python("app.py", folder=tmp_path).ok().out == "fine\n"
