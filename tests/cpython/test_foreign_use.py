"""Extensions that use ``PyMem_Malloc`` in ways that CPython does not allow, but that work without nthbyte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import Interpreter, summary

LIBRARY = r"""
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

void *PyMem_Malloc(size_t);
void *PyMem_Calloc(size_t, size_t);
void *PyMem_Realloc(void *, size_t);
void PyMem_Free(void *);

static size_t size_of(int round, int number) { return 513 + (37 * number + round) % 2000; }

/* Makes and frees blocks through CPython. Returns the number of blocks that something else has written to. */
int make(int rounds, int fill) {
    int wrong = 0;
    for (int round = 0; round < rounds; round++) {
        unsigned char *blocks[64];
        for (int number = 0; number < 64; number++) {
            size_t size = size_of(round, number);
            unsigned char *block = number % 2 ? PyMem_Malloc(size) : PyMem_Calloc(1, size);
            if (number % 3 == 0)
                block = PyMem_Realloc(block, size + 1);
            memset(block, fill, size);
            blocks[number] = block;
        }
        for (int number = 0; number < 64; number++) {
            for (size_t at = 0; at < size_of(round, number); at++)
                if (blocks[number][at] != fill) {
                    wrong++;
                    break;
                }
            PyMem_Free(blocks[number]);
        }
    }
    return wrong;
}

/* Frees blocks of CPython through the C library. */
int take(int rounds) {
    for (int round = 0; round < rounds; round++) {
        void *block = round % 2 ? PyMem_Malloc(size_of(round, round)) : PyMem_Calloc(1, size_of(round, round));
        memset(block, 1, 513);
        free(block);
    }
    return 0;
}

/* The same with a block that the C library unmaps. */
int take_mapped(void) {
    mallopt(M_MMAP_THRESHOLD, 1 << 17);
    void *block = PyMem_Malloc(1 << 20);
    memset(block, 1, 513);
    free(block);
    return 0;
}
"""

# The functions of a `CDLL` are called without the GIL, a `PyDLL`'s with it.
WITHOUT_GIL = """
import ctypes, threading
library = ctypes.CDLL("./library.so")
wrong = []
threads = [threading.Thread(target=lambda fill=fill: wrong.append(library.make(1500, fill))) for fill in (1, 2, 3)]
for thread in threads:
    thread.start()
own = ctypes.PyDLL("./library.so")
while any(thread.is_alive() for thread in threads):
    wrong.append(own.make(3, 4))
    lists = [list(range(100)) for _ in range(100)]
assert len(wrong) >= 3 and not any(wrong), wrong
print("all as it should be")
"""

WITH_FREE = """
import ctypes
library = ctypes.PyDLL("./library.so")
for _ in range(5):
    assert library.take(3000) == 0
    assert library.make(20, 5) == 0
    assert library.take_mapped() == 0
    lists = [[number] for number in range(1000)]
print("all as it should be")
"""

# Here `tracemalloc` requests what extensions request.
TRACED = (
    """
import tracemalloc
tracemalloc.start()
"""
    + WITH_FREE
)

# The C library takes memory from the region `[heap]`, in the main thread.
PLACES = """
import ctypes, sys
libc, api = ctypes.CDLL(None), ctypes.pythonapi
for function in (api.PyUnicode_AsWideCharString, api.PyMem_Malloc, api.PyMem_Calloc, api.PyMem_Realloc):
    function.restype = ctypes.c_void_p
address, size = ctypes.c_void_p, ctypes.c_size_t

def is_of_libc(block):
    (region,) = (line.split()[0] for line in open("/proc/self/maps") if line.endswith("[heap]\\n"))
    start, end = (int(bound, 16) for bound in region.split("-"))
    return start <= block < end

def interpreters():
    return api.PyUnicode_AsWideCharString(ctypes.py_object("x" * 200), None)

# What code outside of the interpreter requests or resizes, it may give to `free`.
small = api.PyMem_Malloc(size(16))
for block in (
    api.PyMem_Malloc(size(804)),
    api.PyMem_Calloc(size(1), size(804)),
    api.PyMem_Realloc(None, size(804)),
    api.PyMem_Realloc(address(small), size(804)),
    api.PyMem_Realloc(address(interpreters()), size(800)),
    api.PyMem_Realloc(address(interpreters()), size(1500)),
):
    assert is_of_libc(block)
    libc.free(address(block))
print(is_of_libc(interpreters()))
import tracemalloc
tracemalloc.start()
print(is_of_libc(interpreters()), is_of_libc(api.PyMem_Malloc(size(804))))
"""


@pytest.mark.parametrize(
    "program", [WITHOUT_GIL, WITH_FREE, TRACED], ids=["without-gil", "with-free", "tracemalloc"]
)
@pytest.mark.parametrize("every", ["1", "2KiB"])
def test_what_works_without_nthbyte(program: str, every: str, cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "library.c").write_text(LIBRARY)
    words = ["cc", "-O1", "-shared", "-fPIC", "-o", "library.so", "library.c"]
    subprocess.run(words, cwd=tmp_path, check=True)
    (tmp_path / "app.py").write_text(program)
    plain = cpython.python("app.py", folder=tmp_path)
    if plain.status != 0:
        # From 3.12 on, no thread without the GIL can call it.
        assert program == WITHOUT_GIL and cpython.python_version >= (3, 12), plain
        pytest.skip("this CPython crashes")
    done = cpython.nthbyte("run", "-q", "-o", "out.nthb", "--every", every, "app.py", folder=tmp_path).ok()
    assert done.out == plain.out
    assert summary(tmp_path / "out.nthb")["complete"]


def test_whose_requests_the_heap_serves(cpython: Interpreter, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PLACES)
    assert cpython.python("app.py", folder=tmp_path).ok().out == "True\nTrue True\n"
    done = cpython.nthbyte("run", "-q", "-o", "out.nthb", "--every", "1", "app.py", folder=tmp_path).ok()
    assert done.out == "False\nTrue True\n"
