"""Large blocks are the C library's own: they lie where they would lie without nthbyte, and are used again as often."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import SITE, Interpreter, run

from .test_python import NUMPY

INTERPRETER = Interpreter(sys.executable)


@pytest.mark.parametrize("every", ["1", "16KiB", "1MiB"])
def test_blocks_lie_where_they_would_lie(every: str, compiled: Callable[[str], Path], tmp_path: Path) -> None:
    program = compiled("places")
    plain = run([str(program)], tmp_path).ok().out
    words = ["run", "-q", "--every", every, "-o", "out.nthb", "--", program]
    profiled = INTERPRETER.nthbyte(*words, folder=tmp_path).ok().out
    assert plain.count("mapped") > 10
    assert profiled == plain


@pytest.mark.parametrize("every", ["1", "64KiB"])
def test_calloc_is_zero_in_a_block_that_was_a_shared_mapping(
    every: str, compiled: Callable[[str], Path], tmp_path: Path
) -> None:
    words = ["run", "-q", "--every", every, "-o", "out.nthb", "--", compiled("places"), "shared"]
    assert INTERPRETER.nthbyte(*words, folder=tmp_path).ok().out.split() == ["1", "0"]


# Page faults of a loop, once it has run for a while.
FAULTS = """
import resource, sys

def faults(loop, times):
    loop(times // 10 + 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    loop(times)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
OF_C = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.argtypes = libc.valloc.argtypes = [ctypes.c_size_t]
libc.calloc.argtypes, libc.realloc.argtypes = [ctypes.c_size_t] * 2, [ctypes.c_void_p, ctypes.c_size_t]
for function in (libc.malloc, libc.calloc, libc.realloc, libc.valloc): function.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
MAKE = {"malloc": libc.malloc, "calloc": lambda size: libc.calloc(size, 1),
        "realloc": lambda size: libc.realloc(libc.malloc(size // 2), size), "valloc": libc.valloc}
make, size = MAKE[sys.argv[1]], int(sys.argv[2]) << 10

def loop(times):
    kept = make(size)
    for _ in range(times):
        block = make(size)
        ctypes.memset(block, 1, size)
        libc.free(kept)
        kept = block
    libc.free(kept)

faults(loop, max(40, (100 << 20) // size))
"""
OF_NUMPY = """
import numpy
array = numpy.ones((int(sys.argv[1]) << 10) // 8)

def loop(times):
    for _ in range(times):
        doubled = array * 2.0
        tripled = doubled + array

faults(loop, max(20, (100 << 20) // array.nbytes))
"""
# What the session itself touches for the first time, in pages: 1 MiB; and two huge pages, which NumPy asks for in large
# arrays, and in the place of which the kernel may give small ones in any run. On PyPy, also what its compiler and its
# collector touch, which differs from run to run. A block that is mapped anew each time has 25,600 in the shortest loop.
OWN = 256 + 2 * 512
OWN_ON_PYPY = 4096


def _compare(words: list[str], program: str, own: int, folder: Path) -> None:
    """Runs the program with its arguments, without nthbyte and with it."""
    (folder / "app.py").write_text(FAULTS + program)
    interpreter, *arguments = words
    environment = {**os.environ, "PYTHONPATH": str(SITE)}
    found = []
    for way in ([], ["-m", "nthbyte", "run", "-q", "-f", "-o", "out.nthb"]):
        done = subprocess.run(
            [interpreter, *way, "app.py", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found.append(int(done.stdout))
    plain, profiled = found
    assert profiled <= 1.05 * plain + own, found


@pytest.mark.parametrize("kilobytes", [512, 2048])
@pytest.mark.parametrize("function", ["malloc", "calloc", "realloc", "valloc"])
def test_page_faults_of_loops(
    function: str, kilobytes: int, interpreter: Interpreter, tmp_path: Path
) -> None:
    if interpreter.tree is not None:
        pytest.skip("one of each kind of interpreter is enough")
    own = OWN_ON_PYPY if interpreter.is_pypy else OWN
    _compare([interpreter.path, function, str(kilobytes)], OF_C, own, tmp_path)


@pytest.mark.parametrize("kilobytes", [16, 64, 256, 512, 2048, 4096, 16384, 65536])
def test_page_faults_of_numpy(kilobytes: int, tmp_path: Path) -> None:
    if not NUMPY.exists():
        pytest.skip("make test-native installs NumPy and pandas")
    _compare([str(NUMPY), str(kilobytes)], OF_NUMPY, OWN, tmp_path)
