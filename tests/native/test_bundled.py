"""An allocator inside of a library, which calls it through functions that it exports: Apache Arrow's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness import Interpreter, is_near, summary

from .conftest import PROGRAMS

PROGRAM = """
import ctypes, sys

def load(name):
    library = ctypes.CDLL(name)
    library.pool_allocate.restype = library.pool_resize.restype = ctypes.c_void_p
    library.pool_allocate.argtypes = [ctypes.c_size_t]
    library.pool_resize.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.pool_free.argtypes = [ctypes.c_void_p]
    return library

first, second = load("./libarrow.so"), load("./libother.so")

def kept():
    blocks = []
    for _ in range(1000):
        blocks.append(first.pool_allocate(20_000))
    return blocks

def freed():
    for _ in range(1000):
        first.pool_free(first.pool_allocate(30_000))

def resized():
    block = first.pool_allocate(500_000)
    for _ in range(20):
        block = first.pool_resize(block, 1_000_000)
    assert not first.pool_resize(block, 1 << 30)
    return block

def others():
    for _ in range(1000):
        second.pool_free(second.pool_resize(second.pool_allocate(10_000), 20_000))

blocks = kept()
freed()
block = resized()
others()
"""


def test_blocks_of_the_first_one_are_sampled(interpreter: Interpreter, tmp_path: Path) -> None:
    """Its blocks count at their lines, and the arena does not; a second one's mapping counts as one."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    for name in ("libarrow.so", "libother.so"):
        words = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", name, PROGRAMS / "arrow.c"]
        subprocess.run(words, cwd=tmp_path, check=True)
    (tmp_path / "app.py").write_text(PROGRAM)
    words = ("run", "--native", "--every", "4K", "-o", "out.nthb", "app.py")
    interpreter.nthbyte(*words, folder=tmp_path).ok()
    found = summary(tmp_path / "out.nthb", "--domain", "native", "--by", "function")
    rows = {row["name"]: row for row in found["rows"]}
    # By function: allocated, and alive at the end.
    for name, total, alive in (
        ("kept", 20_000_000, 20_000_000),
        ("freed", 30_000_000, 0),
        ("resized", 20_500_000, 1_000_000),
    ):
        row = rows[name]
        assert is_near(row["total_bytes"], total), (name, row)
        # On PyPy, functions of its ctypes make the calls.
        assert interpreter.is_pypy or is_near(row["still_live"], alive), (name, row)
    # Of the second library, the mapping, as far as it is touched: its blocks lie one after the other.
    assert 29_000_000 < rows["others"]["total_bytes"]["estimate"] < 33_000_000
